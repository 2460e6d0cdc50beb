"""The tool loop of an LLM agent: a model turn, its tool calls in parallel, the next turn."""
