"""Commands to a running plan: pause, stop, retry, override a result, add nodes.

`steering` contains the commands to a run, and `node_commands` contains the commands to nodes. A command acts on the
scheduler of a run as a whole, so the package imports `features.run_scheduler` and the components.
"""
