"""Forks: which results of another run a new run reuses, decided by fingerprints of its nodes.

`planner` computes this before the fork starts. It imports `features.fork_reuse`, `features.compensation` and the
scheduler of a run.
"""
