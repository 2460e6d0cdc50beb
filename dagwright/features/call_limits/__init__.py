"""Limits of calls across all runs: the arithmetic of one limit. Time is a parameter; nothing here knows Temporal.

`limit_state` contains the state of a limit. `hold` delays calls after a service has asked to wait. Imports `core` only.
"""
