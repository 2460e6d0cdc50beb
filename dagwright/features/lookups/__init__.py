"""Lookups: nodes that resolve the entities of a plan before any other node runs.

`component` handles these nodes in the scheduler; `entity_resolver` defines how their results are used. An application's
resolver (`core.model.resolvers`) names the tools that the nodes call. Imports `core` only.
"""
