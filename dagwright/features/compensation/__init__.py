"""Saga compensation: undo the effects of a failed run, newest first.

`compensation` determines the calls to undo; `component` adds the nodes that undo them to the run. Imports `core` and
`features.plan_edits`.
"""
