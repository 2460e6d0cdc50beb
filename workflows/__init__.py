"""Deterministic Temporal workflows: a thin shell around `dagwright.plan`. They see plan and contracts only."""
