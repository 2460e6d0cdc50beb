"""A worker: `serving` composes workflows, activities and tools; `missing_tools` releases calls that waited for a tool.

It imports workflows, activities and the libraries below them, and never `client` or `interfaces`.
"""
