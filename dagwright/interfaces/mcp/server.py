"""The MCP server: handlers of the protocol around `Calls`.

It keeps nothing: two in front of one Temporal work as one.
"""

import asyncio
from typing import Any, cast

import mcp_types as types
from mcp.server.context import HandlerResult
from mcp.server.lowlevel.server import Server
from mcp.shared.exceptions import MCPError

import dagwright
from dagwright.client.runs import Runs
from dagwright.client.sessions import Sessions
from dagwright.client.steering import Steering
from dagwright.interfaces.mcp.asking import Context
from dagwright.interfaces.mcp.calls import Call, Calls
from dagwright.interfaces.mcp.catalogue import ASK, GET_RUN, RUN_PLAN, tools_of, without_taken
from dagwright.interfaces.mcp.starting import Starter
from dagwright.interfaces.mcp.tasks import Tasks
from dagwright.plans.templates import Published, TemplateFolder, Templates
from dagwright.toolset.toolset import Toolset

_INSTRUCTIONS = (
    "Dagwright runs plans, graphs of steps, durably. A run goes on whatever happens to the call that started it: where "
    f"a call returns `running` or `waiting`, {GET_RUN} goes on with it, by its `run_id`. {RUN_PLAN} takes a plan, "
    f"{ASK} a request in words; the tools beside them are plans that were published here."
)


def create_server(
    *,
    runs: Runs,
    sessions: Sessions,
    steering: Steering,
    toolset: Toolset,
    templates: Templates | TemplateFolder,
    is_serving: bool = True,
) -> Server[Any]:
    """Returns a server that any transport can serve.

    Args:
        runs, sessions, steering: of the namespace.
        toolset: what plans of clients may call.
        templates: the plans that are tools, checked with the same toolset; a folder is read again when its files
            change.
        is_serving: whether the runs are served with the settings of this process; otherwise the model is the workers'.
    """
    declared = toolset.declarations()
    folder = templates if isinstance(templates, TemplateFolder) else None
    published = folder.read() if folder is not None else Published(cast("Templates", templates), {})
    usable = without_taken(published.templates)
    starter = Starter(runs, sessions, toolset, is_serving=is_serving)
    calls = Calls(tools_of(usable, declared), usable, starter=starter, steering=steering)

    async def refresh() -> None:
        nonlocal published
        if folder is None:
            return
        now = await asyncio.to_thread(folder.read)
        if now is not published:
            published = now
            usable = without_taken(now.templates)
            calls.publish(tools_of(usable, declared), usable)

    async def list_tools(_: Context, __: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        await refresh()
        return types.ListToolsResult(tools=[*calls.tools.values()])

    tasks = Tasks(calls, runs, steering)

    async def call_tool(context: Context, params: types.CallToolRequestParams) -> HandlerResult:
        await refresh()
        tool = calls.tools.get(params.name)
        if tool is None:
            if problems := published.problems.get(params.name):
                words = f"the published plan {params.name!r} cannot be used: {'; '.join(problems)}"
                raise MCPError(types.INVALID_PARAMS, words)
            raise MCPError(types.INVALID_PARAMS, f"there is no tool {params.name!r}; `tools/list` has those there are")
        call = Call(context, params, tool)
        return await (tasks.call(call) if tasks.is_for(call) else calls.call(call))

    server: Server[Any] = Server(
        "dagwright",
        version=dagwright.__version__,
        title="Dagwright",
        description="Runs plans that must not be lost.",
        instructions=_INSTRUCTIONS,
        on_list_tools=list_tools,
    )
    # Not by the constructor, whose type knows no results of extensions.
    server.add_request_handler("tools/call", types.CallToolRequestParams, call_tool)
    tasks.add_to(server)
    return server
