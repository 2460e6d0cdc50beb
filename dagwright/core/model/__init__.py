"""The plan model and the records that all packages share: plans, tools, requests, usage, errors.

Imports `core.expressions`, for references in a plan, and the modules directly in `core`, such as `errors`.
"""
