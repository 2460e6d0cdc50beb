"""The MCP server: handlers of the protocol around `Calls`.

It keeps nothing: two in front of one Temporal work as one.
"""

from importlib.metadata import version
from typing import Any

import mcp_types as types
from mcp.server.context import HandlerResult
from mcp.server.lowlevel.server import Server
from mcp.shared.exceptions import MCPError

from dagwright.client import Runs
from dagwright.mcp_server.asking import Context
from dagwright.mcp_server.calls import Call, Calls
from dagwright.mcp_server.catalogue import ASK, GET_RUN, RUN_PLAN, tools_of
from dagwright.mcp_server.starting import Starter
from dagwright.mcp_server.tasks import Tasks
from dagwright.sessions import Sessions
from dagwright.steering import Steering
from dagwright.templates import Templates
from dagwright.toolset import Toolset

_INSTRUCTIONS = (
    "Dagwright runs plans, graphs of steps, durably. A run goes on whatever happens to the call that started it: where "
    f"a call returns `running` or `waiting`, {GET_RUN} goes on with it, by its `workflow_id`. {RUN_PLAN} takes a plan, "
    f"{ASK} a request in words; the tools beside them are plans that were published here."
)


def create_server(
    *, runs: Runs, sessions: Sessions, steering: Steering, toolset: Toolset, templates: Templates
) -> Server[Any]:
    """Returns a server that any transport can serve.

    Args:
        runs, sessions, steering: of the namespace.
        toolset: what plans of clients may call.
        templates: the plans that are tools; checked with the same toolset.

    Raises:
        TemplatesUnreadable: a template has the name of another tool.
    """
    tools = tools_of(templates, toolset.declarations())
    calls = Calls(tools, templates, starter=Starter(runs, sessions, toolset), steering=steering)

    async def list_tools(_: Context, __: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=tools)

    tasks = Tasks(calls, runs, steering)

    async def call_tool(context: Context, params: types.CallToolRequestParams) -> HandlerResult:
        tool = calls.tools.get(params.name)
        if tool is None:
            raise MCPError(types.INVALID_PARAMS, f"there is no tool {params.name!r}; `tools/list` has those there are")
        call = Call(context, params, tool)
        return await (tasks.call(call) if tasks.is_for(call) else calls.call(call))

    server: Server[Any] = Server(
        "dagwright",
        version=version("dagwright"),
        title="Dagwright",
        description="Runs plans that must not be lost.",
        instructions=_INSTRUCTIONS,
        on_list_tools=list_tools,
    )
    # Not by the constructor, whose type knows no results of extensions.
    server.add_request_handler("tools/call", types.CallToolRequestParams, call_tool)
    tasks.add_to(server)
    return server
