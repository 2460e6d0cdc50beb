"""The tasks extension of MCP: a call returns a task, whose ID is the ID of the run that the call started.

A client gets tasks if it declares the extension and uses protocol version 2026-07-28 or later. The state of a task is
read from the run, so any MCP server of the same Temporal server can return the state. Source: the extension
`io.modelcontextprotocol/tasks` (SEP-2663).
"""

from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal

import mcp_types as types
from mcp.server.context import HandlerResult
from mcp.server.lowlevel.server import Server
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel

from dagwright.client.errors import CommandRejected
from dagwright.client.run_follower import RequestPoller
from dagwright.client.steering import CommandAuthor, Steering
from dagwright.core.model.times import format_time
from dagwright.history.executions import RunClosed, RunNotFound
from dagwright.interfaces.mcp.call_follower import answer_with_forms, follow_run
from dagwright.interfaces.mcp.elicitation import CallContext, Elicitations, uses_interim_results
from dagwright.interfaces.mcp.tool_definitions import ANSWER_FEEDBACK, CANCEL, CHECK_PLAN, GET_RUN, LIST_RUNS
from dagwright.interfaces.mcp.tool_handlers import McpToolCall, ToolHandlers, author_of
from dagwright.interfaces.mcp.tool_results import run_result

if TYPE_CHECKING:
    from dagwright.client.runs import Runs
    from dagwright.history.run_view import RunView

EXTENSION: Final = "io.modelcontextprotocol/tasks"
_TOOLS_WITHOUT_TASKS: Final = (CHECK_PLAN, GET_RUN, LIST_RUNS, ANSWER_FEEDBACK, CANCEL)
"""Tools that never return a task."""
_RESULT_WAIT_S: Final = 1.0
"""Seconds that a call waits for the result of its run before it returns a task."""
_POLL_MS: Final = 1_000

Status = Literal["working", "input_required", "completed", "cancelled"]


class TaskParams(types.RequestParams):
    """Parameters with the ID of a task."""

    task_id: str


class UpdateParams(TaskParams):
    """The ID of a task, and the responses of the client to the forms of the task."""

    input_responses: dict[str, Any]


def supports_tasks(context: CallContext) -> bool:
    """Return whether the client accepts a task as the result of a call."""
    capabilities = context.session.client_capabilities
    extensions = capabilities.extensions if capabilities is not None else None
    return uses_interim_results(context) and EXTENSION in (extensions or {})


class TaskHandlers:
    """Handlers of calls that return tasks, and of the requests `tasks/get`, `tasks/update` and `tasks/cancel`.

    Args:
        handlers: handlers of tool calls. They start the runs of tasks.
        runs, steering: clients of the namespace.
    """

    def __init__(self, handlers: ToolHandlers, runs: "Runs", steering: Steering) -> None:
        self._handlers = handlers
        self._runs = runs
        self._steering = steering

    def register(self, server: Server[Any]) -> None:
        """Add the extension to a server."""
        server.extensions[EXTENSION] = {}
        server.add_request_handler("tasks/get", TaskParams, self._get)
        server.add_request_handler("tasks/update", UpdateParams, self._update)
        server.add_request_handler("tasks/cancel", TaskParams, self._cancel)

    def may_return_task(self, call: McpToolCall) -> bool:
        """Return whether a call may return a task: the client supports tasks, and the tool may start a run."""
        return supports_tasks(call.context) and call.tool.name not in _TOOLS_WITHOUT_TASKS

    async def call(self, call: McpToolCall) -> HandlerResult:
        """Return the result of a call if its run ends within `_RESULT_WAIT_S`, else a task."""
        outcome = await self._handlers.start(call)
        if isinstance(outcome, types.CallToolResult):
            return outcome
        # The call returns no forms: clients of tasks get forms from `tasks/get`, and answer them with `tasks/update`.
        elicitations = Elicitations(call.context, is_silent=True)
        follow_result = await follow_run(
            self._runs, outcome.run_id, elicitations, wait_s=_RESULT_WAIT_S, author=call.author
        )
        if follow_result.view.is_closed:
            view = follow_result.view
            return run_result(await self._runs.document(view), node_counts=view.node_counts)
        return {"resultType": "task", **_task_document(follow_result.view, "working")}

    async def _get(self, context: CallContext, params: TaskParams) -> HandlerResult:
        view = await self._read_view(context, params)
        if view.is_closed:
            if view.status == "cancelled":
                return _task_document(view, "cancelled")
            return {
                **_task_document(view, "completed"),
                "result": _to_json(run_result(await self._runs.document(view), node_counts=view.node_counts)),
            }
        requests = await RequestPoller(self._runs.feedback, view.run_id).read(view)
        forms = Elicitations(context).forms(requests)
        if not forms:
            return _task_document(view, "working", reason=str(requests[0]["prompt"]) if requests else None)
        form_documents = {name: _to_json(form) for name, form in forms.items()}
        return {**_task_document(view, "input_required"), "inputRequests": form_documents}

    async def _update(self, context: CallContext, params: UpdateParams) -> HandlerResult:
        view = await self._read_view(context, params)
        elicitations, responses = Elicitations(context), params.input_responses
        await answer_with_forms(responses, elicitations, self._runs, run_id=view.run_id, author=author_of(context))
        if elicitations.rejections:
            raise MCPError(types.INVALID_PARAMS, " ".join(elicitations.rejections))
        return {}

    async def _cancel(self, context: CallContext, params: TaskParams) -> HandlerResult:
        view = await self._read_view(context, params)
        command_author = CommandAuthor(author_of(context), "the client cancelled the task")
        # Cancellation is a request: a run that has ended or is ending is not changed.
        with suppress(RunClosed, CommandRejected):
            await self._steering.cancel(view.run_id, command_author)
        return {}

    async def _read_view(self, context: CallContext, params: TaskParams) -> "RunView":
        if not supports_tasks(context):
            error_data: dict[str, Any] = {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
            message = f"the client does not declare {EXTENSION}"
            raise MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, message, error_data)
        try:
            return await self._runs.reader(params.task_id).read()
        except RunNotFound as error:
            raise MCPError(types.INVALID_PARAMS, str(error)) from None


def _to_json(model: BaseModel) -> dict[str, Any]:
    return model.model_dump(by_alias=True, mode="json", exclude_none=True)


def _task_document(view: "RunView", status: Status, *, reason: str | None = None) -> dict[str, Any]:
    now = format_time(datetime.now(UTC).timestamp())
    started_at = format_time(view.started_at) or now
    status_message = {"statusMessage": reason} if reason else {}
    return {
        "taskId": view.run_id,
        "status": status,
        "createdAt": started_at,
        "lastUpdatedAt": format_time(view.ended_at) or now,
        "ttlMs": None,
        "pollIntervalMs": _POLL_MS,
        **status_message,
    }
