"""Iterative planning: in each round a model assigns sub-goals to worker tools and sees their results.

`rounds_extender` is the plan extender, `rounds_state` derives the state of the rounds, and `rounds_documents`
formats this state for documents and graphs of a run. Imports `planning.model_calls`, parts of
`planning.plan_and_execute`, and `features`.
"""
