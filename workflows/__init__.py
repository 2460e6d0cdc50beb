"""Deterministic Temporal workflows: a thin shell around the scheduler.

`run_plan` runs every plan, `session` the turns of a session, `call_limit` holds the state of one limit, and `child`
starts runs from workflows of other applications. They import pure packages only: `protocol` and the packages that
`protocol` imports.
"""
