"""Temporal activities: tool and model calls, regions, call batches, notifications, and plan compilation.

These modules must not import `workflows`, `client`, `settings` or `interfaces`.
"""
