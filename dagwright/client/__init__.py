"""Client of a Temporal server. The command line, HTTP API and MCP server are thin adapters over this package.

- `starts`: the request to start a run of a compiled plan
- `requests`: prepare the run of a request in natural language
- `runs`: start, find, list and read runs
- `sessions`: sessions and their turns
- `run_follower`: follow the changes of a run and its open requests
- `feedback`: open requests of runs, answers to them, the inbox
- `steering`: commands to runs
- `forks`, `fork_runs`: forks of runs
- `node_view`, `graph`, `run_lists`: JSON documents of nodes, graphs and lists of runs

The package imports lower-level packages, such as `history` and `plans`, and never `interfaces`.
"""
