"""Limits of calls across all runs: the arithmetic of one limit. Time is a parameter; nothing here knows Temporal.

`limit_state` has the state of a limit, and `hold` the waits that services request. Imports `core` only.
"""
