"""The search server: finds or starts an OpenSearch server, opens a client of it, and asks it what only reads.

`server` runs one on this machine, `python -m dagwright_maritime.search` is what `make search-server` calls,
`read_only` says which queries may be run. The package knows nothing of plans and runs, and nothing of what is in the
indices.
"""
