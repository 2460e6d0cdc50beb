"""The client of a Temporal server: start, list, steer, answer and fork runs; sessions.

Command line, HTTP API and MCP server are thin adapters over this package.
"""
