"""Explanations: why a node waits, failed or was skipped, traced to the root cause.

`why` follows the `reasons` of single nodes. The package reads the scheduler of a run and changes nothing.
Imports `features.run_scheduler` and `core`.
"""
