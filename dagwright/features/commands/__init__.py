"""Commands to a running plan: pause, stop, retry, override a result, add nodes.

`steering` has the commands to a run, `node_commands` the commands to its nodes. They act on the scheduler of a run as a
whole, so the package imports `features.run_scheduler` and the components.
"""
