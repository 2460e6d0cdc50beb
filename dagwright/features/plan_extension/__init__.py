"""Plan extension: the protocol of plan extenders, which add nodes to a running plan, and the component that calls the
extender of a run.

The extenders themselves, which call models, are in `planning`. Imports `core` and `features.plan_edits`.
"""
