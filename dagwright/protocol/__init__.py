"""Data that crosses a process boundary: run input, messages, outcomes of activities, and result documents. Pure.

Imports `core`, `features` and `planning`. Workflows import this package and those.
"""
