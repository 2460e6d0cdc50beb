"""Compiler: turn a checked plan into a compiled plan with numbered nodes, adjacency lists, regions and projections.

Workflows run compiled plans; `plan_text` describes a plan to the person who approves it. The package imports
`core.validation`, and the packages that `core.validation` imports.
"""
