"""The tool loop of an LLM agent: a model turn, its tool calls in parallel, the next turn.

`nodes` turns an agent node into a sub-plan that grows, `spec` is its JSON form, and `loop` is the plan extender.
"""
