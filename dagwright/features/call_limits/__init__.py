"""Limits of calls across all runs: the arithmetic of one limit. Time is a parameter; nothing here knows Temporal."""
