"""The search server: find or start an OpenSearch server, connect to it, and run read-only queries.

`server` runs a server on this machine; `make search-server` starts it. `read_only` defines the allowed queries. The
package does not depend on plans and runs, nor on the content of the indices.
"""
