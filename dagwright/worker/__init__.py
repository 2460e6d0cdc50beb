"""A worker: `serving` composes workflows, activities and tools. `missing_tools` releases calls that waited for a tool.

The package imports workflows, activities and the packages that these use, but never `client` or `interfaces`.
"""
