"""The pure core: what a plan is, and when a node may start.

No Temporal, no LLM and no clock. It imports nothing else of Dagwright. `boundary`, `model` and `expressions` know each
other; `validation`, `compiler` and `scheduler` each import only the packages before them. `plugins` finds the
applications that are installed, whose text formats validation calls.
"""
