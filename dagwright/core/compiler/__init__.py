"""From a checked plan to a compiled one: numbered nodes, adjacency lists, regions and projections.

A compiled plan is what a workflow runs. Imports `core.validation` and the packages before it.
"""
