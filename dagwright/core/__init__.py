"""Pure core: the model of a plan, its validation, and the scheduler.

It must not import Temporal, an LLM client, a clock or another package of Dagwright. `boundary`, `model` and
`expressions` may import each other. `validation`, `compiler` and `scheduler` each import only the packages before them
in this list. `plugins` finds the installed applications, whose text formats validation calls.
"""
