"""Lookups: nodes that resolve the entities of a plan before any other node runs.

`component` handles these nodes in the scheduler; `entity_resolver` defines how their results are used. Their tools are
those of an application's resolver (`core.model.resolvers`). Imports `core` only.
"""
