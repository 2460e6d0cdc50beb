"""The plan model and the records that all packages share: plans, tools, requests, usage, errors.

Imports `core.expressions`, for references in a plan, and the modules of `core` without a package, such as `errors`.
"""
