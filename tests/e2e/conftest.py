"""Fixtures: the command line, gateways and console pages on the shared server, and plan files."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.command import CommandLine
from tests.support.browser import browser, open_page
from tests.support.gateway import Gateway, gateway
from tests.support.programs import end_programs, running_programs
from tests.support.server import LiveServer, live_server

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page

WritePlan = Callable[..., str]
Serve = Callable[..., AbstractAsyncContextManager[Gateway]]
ServeConsole = Callable[..., AbstractAsyncContextManager[tuple[Gateway, "Page"]]]
OpenConsolePage = Callable[[str], AbstractAsyncContextManager["Page"]]


@pytest.fixture
async def commands(server: LiveServer, tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[CommandLine]:
    """Commands in an empty folder, on the shared server. Processes that still run after the test are killed."""
    uses_new_interpreter = request.node.get_closest_marker("fresh") is not None
    programs_before = running_programs()
    yield CommandLine(tmp_path, server.environment(), uses_new_interpreter=uses_new_interpreter)
    await end_programs(running_programs() - programs_before)


@pytest.fixture(scope="session")
async def chromium() -> AsyncIterator["Browser"]:
    """A real Chromium that all tests of a process share."""
    async with browser() as running_browser:
        yield running_browser


@pytest.fixture
def serve(server: LiveServer, tmp_path: Path) -> Serve:
    """Return a function that runs a gateway on the shared server, with the arguments of `gateway`."""
    return partial(gateway, server, folder=tmp_path)


@pytest.fixture
def serve_console(serve: Serve, chromium: "Browser") -> ServeConsole:
    """Return a function that runs a gateway, and opens a view of its console, such as `plan`."""

    @asynccontextmanager
    async def open_view(view: str, *script: Any, **options: Any) -> AsyncIterator[tuple[Gateway, "Page"]]:
        async with (
            serve(*script, **options) as running_gateway,
            open_page(chromium, f"{running_gateway.url}/console/#/{view}") as page,
        ):
            yield running_gateway, page

    return open_view


@pytest.fixture
def open_console_page(serve_console: ServeConsole) -> OpenConsolePage:
    """Return a function that opens a view of the console on a gateway without a worker."""

    @asynccontextmanager
    async def open_view(view: str) -> AsyncIterator["Page"]:
        async with serve_console(view, has_worker=False) as (_, page):
            yield page

    return open_view


@pytest.fixture
def commands_without_server(commands: CommandLine) -> CommandLine:
    """Commands in an empty folder with a new state folder, for which no server runs."""
    return commands.with_variables(DAGWRIGHT_STATE_DIR=str(commands.folder / "state"))


@pytest.fixture
async def commands_with_private_server(commands_without_server: CommandLine) -> AsyncIterator[CommandLine]:
    """Commands as in `commands_without_server`, with a running server, so that no command has to start and stop one."""
    async with live_server(Path(commands_without_server.environment["DAGWRIGHT_STATE_DIR"])) as private_server:
        yield commands_without_server
        await private_server.kill_all()


@pytest.fixture
async def commands_that_start_a_server(commands_without_server: CommandLine) -> AsyncIterator[CommandLine]:
    """Commands as in `commands_without_server` that start and stop their server. After the test, `down` is called."""
    yield commands_without_server
    await commands_without_server("down")


@pytest.fixture
def write_plan(tmp_path: Path) -> WritePlan:
    """Return a function that writes a plan of the given nodes to a file, and returns the path of the file."""

    def write(*nodes: dict[str, Any], name: str = "plan.json", **fields: Any) -> str:
        path = tmp_path / name
        path.write_text(json.dumps({"plan": 1, **fields, "nodes": nodes}), encoding="utf-8")
        return str(path)

    return write


def calculation(node_id: str, expression: str, **fields: Any) -> dict[str, Any]:
    return {"id": node_id, "tool": "calculator", "arguments": {"expression": expression}, **fields}


def wait_node(node_id: str, duration: str, **fields: Any) -> dict[str, Any]:
    return {"id": node_id, "tool": "wait", "arguments": {"duration": duration}, **fields}


APPROVAL_NODE = {"id": "check", "human": {"type": "APPROVAL", "prompt": "Publish?"}}
"""A node that requests an approval."""


def plan_of(*nodes: Any, **fields: Any) -> dict[str, Any]:
    return {"plan": 1, **fields, "nodes": [*nodes]}
