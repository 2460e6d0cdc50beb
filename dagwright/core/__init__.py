"""The pure core: what a plan is, and when a node may start.

No Temporal, no LLM, no I/O and no clock. It imports nothing else of Dagwright; the packages in it import one way:
`model`, `expressions`, `validation`, `compiler`, `scheduler`. `boundary` has the wire names and limits.
"""
