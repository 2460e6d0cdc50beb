"""Pure core: the model of a plan, its validation, and the scheduler.

It must not import Temporal, an LLM client, a clock or another package of Dagwright. `boundary`, `model` and
`expressions` may import each other. In the order `validation`, `compiler`, `scheduler`, each of these may also import
the packages before it. `plugins` finds the installed applications; `validation` calls their text formats.
"""
