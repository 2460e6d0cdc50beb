"""Temporal activities: calls of tools and models, regions, batches of calls, notifications, and plans to compile.

They import libraries and the pure packages, and never `workflows`, `client`, `settings` or `interfaces`.
"""
