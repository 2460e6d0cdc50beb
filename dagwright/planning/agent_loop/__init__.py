"""The tool loop of an LLM agent: a model turn, its tool calls in parallel, the next turn.

`agent_nodes` converts an agent node into a sub-plan, `spec` is the JSON form of an agent, and `agent_extender` is the
plan extender. Imports `planning.model_calls` and `features`.
"""
