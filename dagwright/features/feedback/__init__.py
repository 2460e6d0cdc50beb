"""Human-in-the-loop requests: approval gate, opening of requests, validation and application of answers.

`component` attaches them to the scheduler; `feedback_state` is their record. Imports `core` and `features.plan_edits`.
"""
