"""The scheduler: a pure state machine. Events go in, tasks that may start come out.

The workflow, the history reader, the region activity and the property tests drive the same class, `Scheduler`. The
scheduler has no clock. It imports `core.model` and `core.expressions`.
"""
