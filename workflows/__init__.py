"""Deterministic Temporal workflows: a thin shell around the scheduler.

`run_plan` runs every plan, and `session` runs the turns of a session. `call_limit` has the state of one limit on calls.
`child` starts runs from workflows of other applications. These modules import only pure packages: `protocol` and the
packages that `protocol` imports.
"""
