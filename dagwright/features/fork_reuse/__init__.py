"""Results that a fork reuses: fingerprints of nodes, and the component that completes nodes with reused results.

`features.forks` selects the results before the fork starts; `component` completes their nodes in the run.
Imports `core` only.
"""
