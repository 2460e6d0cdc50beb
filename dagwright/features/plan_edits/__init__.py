"""Edits of the plan of a run: checks of nodes that are added or replaced, and the tools sent with them."""
