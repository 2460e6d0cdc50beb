"""The MCP server: protocol handlers around `ToolHandlers`.

An MCP server has no state, so all MCP servers of a Temporal server are interchangeable.
"""

import asyncio
from typing import TYPE_CHECKING, Any, cast

import mcp_types as types
from mcp.server.context import HandlerResult
from mcp.server.lowlevel.server import Server
from mcp.shared.exceptions import MCPError

import dagwright
from dagwright.client.sessions import Sessions
from dagwright.client.steering import Steering
from dagwright.core.name_hints import suggestion
from dagwright.interfaces.mcp.elicitation import CallContext
from dagwright.interfaces.mcp.run_starter import RunStarter
from dagwright.interfaces.mcp.task_extension import TaskHandlers
from dagwright.interfaces.mcp.tool_definitions import ASK, GET_RUN, RUN_PLAN, all_tools, without_reserved_names
from dagwright.interfaces.mcp.tool_handlers import McpToolCall, ToolHandlers
from dagwright.plans.templates import PublishedTemplates, TemplateFolder, Templates
from dagwright.toolset.toolset import Toolset

if TYPE_CHECKING:
    from dagwright.client.runs import Runs

_INSTRUCTIONS = (
    "Dagwright runs plans durably; a plan is a graph of steps. A run continues regardless of the call that started it: "
    f"if a call returns `running` or `waiting`, use {GET_RUN} with its `run_id`. {RUN_PLAN} runs a plan, {ASK} answers "
    "a request in natural language. Each published plan is also a tool."
)


def create_server(
    *,
    runs: "Runs",
    sessions: Sessions,
    steering: Steering,
    toolset: Toolset,
    templates: Templates | TemplateFolder,
    has_worker: bool = True,
) -> Server[Any]:
    """Return a server for any transport.

    Args:
        runs, sessions, steering: clients of the namespace.
        toolset: tools that plans may call.
        templates: the published plans, checked with `toolset`. Each of them is a tool. A folder is read again when its
            files change.
        has_worker: whether this process is a worker of the runs. If not, the model is configured at the workers.
    """
    declarations = toolset.declarations()
    folder = templates if isinstance(templates, TemplateFolder) else None
    published_templates = folder.read() if folder is not None else PublishedTemplates(cast("Templates", templates), {})
    templates_by_name = without_reserved_names(published_templates.templates)
    starter = RunStarter(runs, sessions, toolset, has_worker=has_worker)
    tools = all_tools(templates_by_name, declarations)
    handlers = ToolHandlers(tools, templates_by_name, starter=starter, steering=steering)

    async def publish_changed_templates() -> None:
        nonlocal published_templates
        if folder is None:
            return
        new_templates = await asyncio.to_thread(folder.read)
        if new_templates is not published_templates:
            published_templates = new_templates
            templates_by_name = without_reserved_names(new_templates.templates)
            handlers.replace_tools(all_tools(templates_by_name, declarations), templates_by_name)

    async def list_tools(_: CallContext, __: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        await publish_changed_templates()
        return types.ListToolsResult(tools=[*handlers.tools.values()])

    tasks = TaskHandlers(handlers, runs, steering)

    async def call_tool(context: CallContext, params: types.CallToolRequestParams) -> HandlerResult:
        await publish_changed_templates()
        tool = handlers.tools.get(params.name)
        if tool is None:
            if problems := published_templates.problems.get(params.name):
                message = f"the published plan {params.name!r} cannot be used: {'; '.join(problems)}"
                raise MCPError(types.INVALID_PARAMS, message)
            hint = suggestion(params.name, list(handlers.tools)) or "`tools/list` lists all tools"
            raise MCPError(types.INVALID_PARAMS, f"there is no tool {params.name!r}; {hint}")
        call = McpToolCall(context, params, tool)
        return await (tasks.call(call) if tasks.may_return_task(call) else handlers.call(call))

    server: Server[Any] = Server(
        "dagwright",
        version=dagwright.__version__,
        title="Dagwright",
        description="Runs plans durably.",
        instructions=_INSTRUCTIONS,
        on_list_tools=list_tools,
    )
    # The types of the constructor do not allow results of extensions, so the handler is added here.
    server.add_request_handler("tools/call", types.CallToolRequestParams, call_tool)
    tasks.register(server)
    return server
