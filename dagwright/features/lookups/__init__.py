"""Lookups: nodes that resolve the entities of a plan before any other node runs.

`component` attaches them to the scheduler, `entity_resolver` adds their nodes. The tools are those of an application's
resolver (`core.model.resolvers`). Imports `core` only.
"""
