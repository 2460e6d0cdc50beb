"""Edits of the plan of a run: which nodes may be added or replaced, and the tools that come with them."""
