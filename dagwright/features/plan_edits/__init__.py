"""Edits of the plan of a run: checks of nodes that are added or replaced, and the tools sent with them.

`edits` checks and compiles nodes. In a run, a compute budget limits these checks. Components that extend a plan share
this package; it imports `core` only.
"""
