"""Forks: a fork is a new run that reuses results of another run if the fingerprints of the nodes are the same.

`planner` selects the results before the fork starts. The package imports `features.fork_reuse`, `features.compensation`
and the scheduler of a run.
"""
