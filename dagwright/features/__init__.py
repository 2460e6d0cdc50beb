"""Features of a run in addition to scheduling, one module or package each.

The modules are pure. They import only `core` and, as described here, each other.

- Components, which do not import each other: `budgets`, `compensation`, `deadline`, `feedback`, `fork_reuse`,
  `lookups`, `node_cancellation`, `output_check`, `plan_extension`, `region_batches`, `worker_tools`. Some share
  `plan_edits`. The components receive the scheduler as an argument and import it for annotations only.
- `run_scheduler.create_scheduler` composes these components into the scheduler of a run.
- `batch_followers`, `commands`, `explain`, `forks` and `regions` work on that scheduler as a whole.
- `call_limits` is not part of a run: it computes the limits across runs.
"""
