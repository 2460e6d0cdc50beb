"""Pure core: the model of a plan, its validation, and the scheduler.

The core must not import Temporal, an LLM client, a clock or another package of Dagwright. `boundary`, `model` and
`expressions` may import each other. `validation` may import these three, `compiler` also `validation`, and `scheduler`
all of them. `plugins` finds the installed applications, which define text formats for the schemas of tools.
"""
