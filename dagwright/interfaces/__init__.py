"""Command line, HTTP API, MCP server and web console: thin adapters over `dagwright.client`.

Nothing in Dagwright imports this package.
"""
