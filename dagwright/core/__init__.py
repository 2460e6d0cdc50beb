"""Pure core: the model of a plan, its validation, and the scheduler.

The core must not import Temporal, an LLM client, a clock or another package of Dagwright. Its packages form layers. A
package imports only its own layer and the layers before it: first `boundary`, `model` and `expressions`, then
`validation`, then `compiler`, then `scheduler`. `plugins` finds the installed applications, because they may define
text formats for the schemas of tools.
"""
