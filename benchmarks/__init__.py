"""Benchmarks of Dagwright against hand-written workflows: `python -m benchmarks`; see README.md in this folder."""
