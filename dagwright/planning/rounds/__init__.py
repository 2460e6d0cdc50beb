"""Iterative planning: in each round a model assigns sub-goals to worker tools and sees their results."""
