"""The client of a Temporal server: every use case of command line, HTTP API and MCP server, which are thin adapters.

- `starts`, `requests`: what a run is started with, from a compiled plan or from a request in natural language
- `runs`, `sessions`: start, find, list and read runs; turns of sessions
- `following`: the moments of a run, with its open requests
- `feedback`, `answering`: open requests, and answers to them
- `steering`, `forks`, `fork_runs`: commands to runs; forks of runs
- `node_view`, `graph`, `run_lists`: documents of nodes, graphs and lists

It imports the libraries below it, such as `history` and `plans`, and never `interfaces`.
"""
