"""The plan model and the records that all packages share: plans, tools, requests, usage, errors.

Imports only `core.boundary`, `core.described` and, for references in a plan, `core.expressions`.
"""
