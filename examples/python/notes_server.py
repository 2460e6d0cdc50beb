"""An MCP server that keeps notes, for `mcp_agent.py`."""

from mcp.server.mcpserver import MCPServer
from mcp_types import ToolAnnotations

server = MCPServer("notes")
_notes = {"tea": "Green tea: 80 degrees, two minutes.", "coffee": "Filter coffee: 60 g per litre."}


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def titles() -> list[str]:
    """Return the titles of all notes."""
    return sorted(_notes)


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def read(title: str) -> str:
    """Return a note."""
    return _notes[title]


if __name__ == "__main__":
    server.run("stdio")
