"""The MCP server: clients of the Model Context Protocol run plans, answer questions and fetch results.

The client side, MCP servers whose tools plans call, is `dagwright.mcp_client`. This package must not import the command
line, workflows or activities.
"""
