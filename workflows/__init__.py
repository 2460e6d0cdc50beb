"""Deterministic Temporal workflows: a thin shell around the scheduler. They import pure packages only."""
