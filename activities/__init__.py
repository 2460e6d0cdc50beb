"""Temporal activities: tool and model calls, regions, call batches, notifications, and plan compilation.

They import libraries and the pure packages, and never `workflows`, `client`, `settings` or `interfaces`.
"""
