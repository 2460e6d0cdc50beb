"""Human-in-the-loop requests: approval gate, opening of requests, validation and application of answers.

`component` attaches them to the scheduler; `feedback_state` has the requests of a run. The records and the kinds of
answers, which the plan format and other features share, are `core.model.requests` and `core.model.answers`. Imports
`core` and `features.plan_edits`.
"""
