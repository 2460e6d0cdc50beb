"""Region batches: input and output of one activity execution of a region, and their effect on the run.

`batches` has those of regions in the compiled plan, `offloaded_batches` those of regions in the payload store.
"""
