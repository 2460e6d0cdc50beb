"""Lookups: nodes that resolve the parties a plan names before any other node runs."""
