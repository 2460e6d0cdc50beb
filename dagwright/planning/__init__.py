"""Planning: how a run extends its own plan with a model. No module here does I/O.

`agent_loop`, `plan_and_execute` and `rounds` are plan extenders; `model_calls` has the model calls that they share.
Imports `core` and `features`.
"""
