"""Iterative planning: in each round a model assigns sub-goals to worker tools and sees their results.

`loop` is the plan extender, `state` its state, `documents` what documents and graphs of a run show of it.
"""
