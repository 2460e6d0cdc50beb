"""Names by which the core knows what asks models; it names no other tools."""

MODEL_TOOL = "call_model"
"""The tool whose every call is one call of a model."""
PLAN_READER = "read_model_plan"
"""The tool that reads a plan which a model has written: it asks no model, and that plan has been paid for."""
PURPOSE_ANSWER = "answer"
"""Purpose of a call that makes the answer of what there is: a run that finishes makes it, whatever is left."""
AGENT_PREFIX = "agent."
"""Begins the name of the tool that an agent is; the name of the agent follows."""
AGENT_KIND, GOAL_KIND, ROUNDS_KIND = "agent", "goal", "rounds"
"""Kinds of pursuits: what a plan grows by that is the run of an agent, of a request in words, or of a question that is
answered in rounds of workers."""
