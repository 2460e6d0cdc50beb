"""MCP servers: each tool of a server becomes a tool of a plan, with its own activity.

The configuration is the `mcpServers` JSON of other MCP clients. The SDK takes over a second to import, so only
`dagwright.mcp_client.session` imports it, and only to connect to a server. The package imports `tools` and `core`.
"""

from dagwright.mcp_client.config import Variables
from dagwright.mcp_client.connection import McpConnection
from dagwright.mcp_client.server_tools import LoadedServers, load_servers

__all__ = ["LoadedServers", "McpConnection", "Variables", "load_servers"]
