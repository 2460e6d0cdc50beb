"""A real MCP server for tests, written with the official SDK: `python mcp_server.py FOLDER [PORT]`.

The server uses stdio without PORT, and streamable HTTP with PORT. Most tools record each call as JSON in
`FOLDER/calls`. The tool `order` has the argument `amount` only if the file `FOLDER/order-has-amount` exists at the
start, or after a call of `change`.
"""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import mcp_types
import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError

FOLDER = Path(sys.argv[1])
READ = mcp_types.ToolAnnotations(read_only_hint=True)
server = MCPServer("test", log_level="ERROR")


def record(**fields: Any) -> None:
    with (FOLDER / "calls").open("a", encoding="utf-8") as file:
        file.write(json.dumps({"pid": os.getpid(), **fields}) + "\n")


@server.tool(annotations=READ, structured_output=False)
def say(text: str) -> str:
    """Return the text.

    Args:
        text: what to say
    """
    record(say=text)
    return text


@server.tool(annotations=READ)
def count(text: str) -> dict[str, int]:
    """Counts characters."""
    return {"characters": len(text)}


@server.tool(annotations=READ, structured_output=False)
def picture() -> list[mcp_types.TextContent | mcp_types.ImageContent]:
    """Draws a picture."""
    image = mcp_types.ImageContent(type="image", data="AAAA", mime_type="image/png")
    return [mcp_types.TextContent(type="text", text="here"), image]


@server.tool(annotations=READ, structured_output=False)
def environment(name: str) -> str:
    """Return a variable."""
    return f"{name} is {os.environ.get(name)}"


@server.tool(annotations=mcp_types.ToolAnnotations(idempotent_hint=True), structured_output=False)
def key(context: Context) -> str:
    """Return the idempotency key of the call."""
    return str((context.request_context.meta or {}).get("dagwright/idempotencyKey"))


@server.tool(annotations=READ, structured_output=False)
def refuse(reason: str) -> str:
    """Fails."""
    record(refuse=reason)
    raise ToolError(reason)


@server.tool(structured_output=False)
def write(text: str) -> str:
    """Writes, and dies in the middle if the text is `die`."""
    record(write=text)
    if text == "die":
        sys.stderr.write("the disk is full\n")
        os._exit(3)
    return "written"


@server.tool(annotations=READ, structured_output=False)
def die(times: int) -> str:
    """Die in the first `times` calls, and return in later calls."""
    record(die=times)
    if sum("die" in json.loads(line) for line in (FOLDER / "calls").read_text().splitlines()) <= times:
        sys.stderr.write("no more memory\n")
        os._exit(3)
    return "alive"


@server.tool(annotations=READ, structured_output=False)
async def slow(seconds: float, context: Context) -> str:
    """Works for long, and records its cancellation."""
    record(slow="started")
    try:
        for step in range(round(seconds * 10)):
            await context.report_progress(step, round(seconds * 10))
            await asyncio.sleep(0.1)
    except asyncio.CancelledError:
        record(slow="cancelled")
        raise
    return "done"


@server.tool(annotations=READ, structured_output=False)
async def change(context: Context) -> str:
    """Change the arguments of `order`, and notify the client."""
    server.remove_tool("order")
    server.tool(name="order", annotations=READ, structured_output=False)(order_amount)
    await context.session.send_tool_list_changed()
    await context.notify_tools_changed()
    return "changed"


def order(item: str) -> str:
    """Orders an item."""
    record(order=item)
    return f"one {item}"


def order_amount(item: str, amount: int) -> str:
    """Orders some of an item."""
    record(order=item, amount=amount)
    return f"{amount} {item}"


server.tool(name="order", annotations=READ, structured_output=False)(
    order_amount if (FOLDER / "order-has-amount").exists() else order
)


def with_status_of_file(app: Any) -> Any:
    """If `FOLDER/status` exists, respond to tool calls with the status in that file, as a gateway would."""

    async def respond(scope: Any, receive: Any, send: Any) -> None:
        status = FOLDER / "status"
        if scope["type"] != "http" or dict(scope["headers"]).get(b"mcp-method") != b"tools/call" or not status.exists():
            await app(scope, receive, send)
            return
        headers = [(b"content-type", b"text/plain"), (b"retry-after", b"7")]
        await send({"type": "http.response.start", "status": int(status.read_text()), "headers": headers})
        await send({"type": "http.response.body", "body": b"no"})

    return respond


if __name__ == "__main__":
    if len(sys.argv) > 2:
        uvicorn.run(with_status_of_file(server.streamable_http_app()), port=int(sys.argv[2]), log_level="error")
    else:
        server.run("stdio")
