"""Data that crosses a process boundary: run input, messages, outcomes of activities, and result documents. Pure.

Imports `core`, `features` and `planning`; workflows may import all four packages.
"""
