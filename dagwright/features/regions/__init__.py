"""Region batches: input and output of one activity execution of a region, and their effect on the run.

A region is a group of pure nodes that one activity runs (`core.compiler.regions`).

`batches` is for regions in the compiled plan, and `offloaded_batches` for regions in the payload store.
Imports `features.run_scheduler` and `core`.
"""
