"""MCP servers: their tools as tools of a plan, each an activity of its own.

What a user writes is the `mcpServers` JSON that other programs read too. The SDK takes over a second to import, so only
`dagwright.mcp_client.session` imports it, and only where a server is really spoken to.
"""

from dagwright.mcp_client.config import Variables
from dagwright.mcp_client.connection import Connection
from dagwright.mcp_client.loading import ServersOfTools, load_servers

__all__ = ["Connection", "ServersOfTools", "Variables", "load_servers"]
