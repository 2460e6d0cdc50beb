"""Plan and execute: a model writes a plan, its nodes run, the model replans or answers.

`loop` is the plan extender, `state` its state, `goals` the wire form of a goal.
"""
