"""Explanations: why a node waits, failed or was skipped, traced to the root cause."""
