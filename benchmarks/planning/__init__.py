"""Scores the plans that a model writes for requests in words."""
