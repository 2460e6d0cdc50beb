"""The MCP server: clients that speak the Model Context Protocol run plans, ask, answer and fetch.

The other side, MCP servers whose tools are tools of plans, is `dagwright.mcp_client`. It must not import the command
line, workflows or activities.
"""

from dagwright.interfaces.mcp.server import create_server
from dagwright.interfaces.mcp.transports import PATH, Wire, serve_http, serve_stdio

__all__ = ["PATH", "Wire", "create_server", "serve_http", "serve_stdio"]
