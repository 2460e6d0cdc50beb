"""Human-in-the-loop requests: approval gate, opening of requests, validation and application of answers.

`component` attaches these parts to the scheduler; `feedback_state` has the requests of a run. The plan format and other
features also use requests and answers, so their types are in `core.model.requests` and `core.model.answers`. Imports
`core` and `features.plan_edits`.
"""
