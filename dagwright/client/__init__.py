"""Client of a Temporal server. The command line, HTTP API and MCP server are thin adapters over this package.

- `starts`, `requests`: start requests, built from a compiled plan or from a request in natural language
- `runs`, `sessions`: start, find, list and read runs; turns of sessions
- `run_follower`: follow the changes of a run and its open requests
- `feedback`: open requests of runs, answers to them, the inbox
- `steering`, `forks`, `fork_runs`: commands to runs; forks of runs
- `node_view`, `graph`, `run_lists`: documents of nodes, graphs and lists

The package imports lower-level packages, such as `history` and `plans`, and never `interfaces`.
"""
