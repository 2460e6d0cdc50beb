"""Measures Dagwright against workflows written by hand: `python -m benchmarks`; see README.md beside this file."""
