"""Plan and execute: a model writes a plan, its nodes run, the model replans or answers.

`goal_extender` is the plan extender, `goal_state` its state, `goal_spec` the wire form of a goal. `planning_calls`,
`plan_approval`, `plan_nodes` and `goal_answer` build the extensions.
Imports `planning.model_calls` and `features`.
"""
