"""The MCP server: clients of the Model Context Protocol run plans, answer questions and fetch results.

`dagwright.mcp_client` is the client: with it, plans call the tools of MCP servers. This package must not
import the command line, workflows or activities.
"""
