"""Data that crosses a process boundary: run input, messages, outcomes of activities, and result documents.

This package imports `core`, `features` and `planning`. Workflows may import all four packages.
"""
