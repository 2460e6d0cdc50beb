"""The pure core: plan model, references, graph, validation, compilation and the scheduler.

It runs without Temporal, without I/O and without a clock, so that the workflow, the feed, the region
activity and the property tests all drive the same code. It must not import temporalio.
"""
