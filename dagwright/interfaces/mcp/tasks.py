"""Runs as tasks of the protocol's extension: a call returns a task at once, whose id is the id of its run.

It is spoken from 2026-07-28 on, with clients that declare it; what a task is at any moment is read from its run, so any
server in front of the same Temporal answers for it. Source: the extension `io.modelcontextprotocol/tasks` (SEP-2663).
"""

from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final, Literal

import mcp_types as types
from mcp.server.context import HandlerResult
from mcp.server.lowlevel.server import Server
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel

from dagwright.client.following import PendingRequests
from dagwright.client.runs import Runs
from dagwright.client.steering import Actor, CommandRejected, Steering
from dagwright.core.model.times import format_time
from dagwright.history.run_reader import RunClosed, RunNotFound, RunView
from dagwright.interfaces.mcp.asking import Asking, Context, is_asked_between
from dagwright.interfaces.mcp.calls import Call, Calls, author_of
from dagwright.interfaces.mcp.catalogue import ANSWER_FEEDBACK, CANCEL, CHECK_PLAN, GET_RUN, LIST_RUNS
from dagwright.interfaces.mcp.following import followed, take_responses
from dagwright.interfaces.mcp.results import run_result

EXTENSION: Final = "io.modelcontextprotocol/tasks"
_NO_TASKS: Final = (CHECK_PLAN, GET_RUN, LIST_RUNS, ANSWER_FEEDBACK, CANCEL)
"""Tools whose calls are answered at once."""
_AT_ONCE_S: Final = 1.0
"""A run that ends so soon needs no task."""
_POLL_MS: Final = 1_000

Status = Literal["working", "input_required", "completed", "cancelled"]


class TaskParams(types.RequestParams):
    """Which task is meant."""

    task_id: str


class UpdateParams(TaskParams):
    """What was filled into the forms of a task."""

    input_responses: dict[str, Any]


def has_tasks(context: Context) -> bool:
    """Tells whether the client of a call takes a task for a result."""
    capabilities = context.session.client_capabilities
    declared = capabilities.extensions if capabilities is not None else None
    return is_asked_between(context) and EXTENSION in (declared or {})


class Tasks:
    """The tasks of a server.

    Args:
        calls: start the runs.
        runs, steering: of the namespace.
    """

    def __init__(self, calls: Calls, runs: Runs, steering: Steering) -> None:
        self._calls = calls
        self._runs = runs
        self._steering = steering

    def add_to(self, server: Server[Any]) -> None:
        """Has a server speak the extension."""
        server.extensions[EXTENSION] = {}
        server.add_request_handler("tasks/get", TaskParams, self._get)
        server.add_request_handler("tasks/update", UpdateParams, self._update)
        server.add_request_handler("tasks/cancel", TaskParams, self._cancel)

    def is_for(self, call: Call) -> bool:
        """Tells whether a call may return a task."""
        return has_tasks(call.context) and call.tool.name not in _NO_TASKS

    async def call(self, call: Call) -> HandlerResult:
        """Returns the result of a call if there is one soon, and else a task."""
        started = await self._calls.begun(call)
        if isinstance(started, types.CallToolResult):
            return started
        # The client answers by `tasks/update` what the run asks.
        quiet = Asking(call.context, is_silent=True)
        seen = await followed(self._runs, started.workflow_id, quiet, wait_s=_AT_ONCE_S, by=call.by)
        if seen.view.is_closed:
            return run_result(await self._runs.document(seen.view))
        # What is asked stands in `tasks/get` alone.
        return {"resultType": "task", **_told(seen.view, "working")}

    async def _get(self, context: Context, params: TaskParams) -> HandlerResult:
        view = await self._view(context, params)
        if view.is_closed:
            if view.status == "cancelled":
                return _told(view, "cancelled")
            return {**_told(view, "completed"), "result": _as_sent(run_result(await self._runs.document(view)))}
        requests = await PendingRequests(self._runs.people, view.workflow_id).read(view)
        forms = Asking(context).forms(requests)
        if not forms:
            return _told(view, "working", reason=str(requests[0]["prompt"]) if requests else None)
        asked = {name: _as_sent(form) for name, form in forms.items()}
        return {**_told(view, "input_required"), "inputRequests": asked}

    async def _update(self, context: Context, params: UpdateParams) -> HandlerResult:
        view = await self._view(context, params)
        asking, responses = Asking(context), params.input_responses
        await take_responses(responses, asking, self._runs, workflow_id=view.workflow_id, by=author_of(context))
        if asking.said:
            raise MCPError(types.INVALID_PARAMS, " ".join(asking.said))
        return {}

    async def _cancel(self, context: Context, params: TaskParams) -> HandlerResult:
        view = await self._view(context, params)
        actor = Actor(author_of(context), "the client has cancelled the task")
        # It is an intent: a run that has ended, or is ending, stays as it is.
        with suppress(RunClosed, CommandRejected):
            await self._steering.cancel(view.workflow_id, actor)
        return {}

    async def _view(self, context: Context, params: TaskParams) -> RunView:
        if not has_tasks(context):
            missing: dict[str, Any] = {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
            told = f"the client does not declare {EXTENSION}"
            raise MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, told, missing)
        try:
            return await self._runs.feed(params.task_id).read()
        except RunNotFound as error:
            raise MCPError(types.INVALID_PARAMS, str(error)) from None


def _as_sent(part: BaseModel) -> dict[str, Any]:
    return part.model_dump(by_alias=True, mode="json", exclude_none=True)


def _told(view: RunView, status: Status, *, reason: str | None = None) -> dict[str, Any]:
    now = format_time(datetime.now(UTC).timestamp())
    begun = format_time(view.started_at) or now
    message = {"statusMessage": reason} if reason else {}
    return {
        "taskId": view.workflow_id,
        "status": status,
        "createdAt": begun,
        "lastUpdatedAt": format_time(view.ended_at) or now,
        "ttlMs": None,
        "pollIntervalMs": _POLL_MS,
        **message,
    }
