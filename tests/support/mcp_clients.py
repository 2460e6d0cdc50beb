"""The MCP server in the process of a test, and clients of the official SDK that call it."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mcp_types as types
from mcp.client.client import Client as McpClient
from mcp.client.session import ClientRequestContext
from mcp.server.lowlevel.server import Server

from dagwright.client.feedback.answer_sending import answer_request
from dagwright.client.feedback.open_requests import Answer
from dagwright.client.runs import Runs as ClientRuns
from dagwright.client.sessions import Sessions
from dagwright.client.steering import Steering
from dagwright.interfaces.mcp.server import create_server
from dagwright.server import Connection
from dagwright.server import Server as TemporalServer
from dagwright.settings import Settings
from dagwright.toolset.toolset import load_toolset
from tests.support.runs import Runs, with_tools
from tests.support.templates import load_templates
from tests.support.tools import CallHarness

MODES = ("legacy", "2026-07-28")
"""Modes of a client: a session in which the server may send requests, or independent calls."""


@dataclass
class Person:
    """The person at a client. `fill_form` returns the content of the form for a message, or None to decline."""

    fill_form: Callable[[str], Mapping[str, Any] | None]
    forms: list[tuple[str, Any]] = field(default_factory=list)
    """Message and schema of each form."""

    async def elicit(self, context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
        assert isinstance(params, types.ElicitRequestFormParams)
        self.forms.append((params.message, params.requested_schema))
        content = self.fill_form(params.message)
        if content is None:
            return types.ElicitResult(action="decline")
        return types.ElicitResult(action="accept", content=dict(content))


class McpHarness:
    """An MCP server for runs on the workers of this process; `folder` has templates and state."""

    def __init__(self, runs: Runs, harness: CallHarness, folder: Path) -> None:
        self.runs = runs
        connection = Connection(runs.client, TemporalServer("here", runs.client.namespace), frozenset())
        self.client_runs = ClientRuns(connection, task_queue=runs.task_queue, store=runs.store)
        toolset = load_toolset(Settings(state_dir=folder))
        toolset = with_tools(toolset, harness.registry(), queue=f"{runs.task_queue}-tools")
        templates = load_templates(folder / "plans", toolset.declarations()) if (folder / "plans").exists() else {}
        self.server: Server[Any] = create_server(
            runs=self.client_runs,
            sessions=Sessions(connection, self.client_runs, task_queue=runs.task_queue),
            steering=Steering(connection),
            toolset=toolset,
            templates=templates,
        )

    @asynccontextmanager
    async def client(self, mode: str, person: Person | None = None) -> AsyncIterator["ToolCaller"]:
        """Connect a client. Without a person, the client shows no forms."""
        elicit_callback = person.elicit if person is not None else None
        info = types.Implementation(name="probe", version="1")
        async with McpClient(self.server, mode=mode, elicitation_callback=elicit_callback, client_info=info) as client:
            yield ToolCaller(client, self)

    async def answer(self, run_id: str, request_id: str, content: Any) -> str:
        return await answer_request(self.client_runs.feedback, run_id, request_id, Answer(content, "ann"))


class ToolCaller:
    """Call the tools of a server. With a `harness`, the started runs are checked at the end of the test."""

    def __init__(self, client: McpClient, harness: McpHarness | None = None) -> None:
        self.client = client
        self.progress: list[tuple[float, float | None, str | None]] = []
        self._harness = harness

    async def __call__(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        result = await self.result(tool, **arguments)
        assert not result.is_error, result
        content: dict[str, Any] = result.structured_content
        return content

    async def error_result(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        result = await self.result(tool, **arguments)
        assert result.is_error, result
        content: dict[str, Any] = result.structured_content
        return content

    async def result(self, tool: str, /, **arguments: Any) -> types.CallToolResult:
        """Return the result of a call, and register its run for the checks at the end of the test."""

        async def record_progress(progress: float, total: float | None, message: str | None) -> None:
            self.progress.append((progress, total, message))

        result = await self.client.call_tool(tool, arguments, progress_callback=record_progress)
        run = (result.structured_content or {}).get("run_id")
        if self._harness is not None and run is not None and tool not in ("get_run", "answer_feedback", "cancel"):
            self._harness.runs.include_in_checks(self._harness.runs.client.get_workflow_handle(run))
        return result
