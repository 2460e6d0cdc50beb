"""Explanations: why a node waits, failed or was skipped, traced to the root cause.

The module `reasons` finds the direct reason of a single node; the module `why` follows the reasons to their roots. The
package reads the scheduler of a run and changes nothing. Imports `features.run_scheduler` and `core`.
"""
