"""Calls to a real MCP server that uses the official SDK: results, crashes, changed tools, secrets, and HTTP."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from dagwright.core.model.tools import Effects
from dagwright.mcp_client import LoadedServers, load_servers, session
from dagwright.mcp_client.stderr_tail import StderrTail
from dagwright.tools.errors import (
    GiveUp,
    InvalidArguments,
    NotStarted,
    RemoteFailed,
    RetryLater,
    ToolChanged,
    ToolError,
    ToolLoadError,
)
from dagwright.tools.testing import RecordedCall
from tests.support.eventually import eventually
from tests.support.ports import free_port
from tests.support.programs import command_folder
from tests.support.tool_servers import (
    SERVER,
    call_tool,
    calls_of,
    listening_process,
    load,
    server_entry,
    variables,
    without_pids,
    write_servers,
)

pytestmark = pytest.mark.waits


@asynccontextmanager
async def _closing(servers: LoadedServers) -> AsyncIterator[LoadedServers]:
    try:
        yield servers
    finally:
        await servers.close()


@asynccontextmanager
async def _new_server(folder: Path) -> AsyncIterator[tuple[LoadedServers, Path]]:
    """Yield a server for one test, and the folder in which the server records its calls."""
    async with _closing(load(folder, srv=server_entry(folder / "record"))) as servers:
        yield servers, folder / "record"


async def _failure(
    servers: LoadedServers, tool: str, error_type: type[ToolError] = RemoteFailed, **arguments: Any
) -> ToolError:
    with pytest.raises(error_type) as error:
        await call_tool(servers, tool, **arguments)
    return error.value


def _load_error(folder: Path, **entries: Any) -> str:
    """Return the error of loading servers."""
    with pytest.raises(ToolLoadError) as error:
        load(folder, **entries)
    return str(error.value)


def _returned_text_is(
    servers: LoadedServers, tool: str, text: str, *call: RecordedCall
) -> Callable[[], Awaitable[bool]]:
    """Return a condition that is true if the server responds with the text."""

    async def is_answered() -> bool:
        with suppress(NotStarted, RemoteFailed):
            return bool(await call_tool(servers, tool, *call, text=text) == text)
        return False

    return is_answered


@pytest.fixture(scope="session")
async def record_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the server of `servers` records its calls."""
    return tmp_path_factory.mktemp("mcp") / "record"


@pytest.fixture(scope="session")
async def servers(record_folder: Path) -> AsyncIterator[LoadedServers]:
    """One server, shared by all tests that do not stop or change it."""
    async with _closing(load(record_folder.parent, srv=server_entry(record_folder))) as loaded_servers:
        yield loaded_servers


def test_tools_are_named_after_their_server_and_have_the_effects_that_it_declares(servers: LoadedServers) -> None:
    effects = {spec.name: spec.declaration.effects for spec in servers.registry}
    read_tools = ("say", "count", "picture", "environment", "refuse", "die", "slow", "change", "order")
    writing_tools = {"srv.key": Effects.IDEMPOTENT, "srv.write": Effects.WRITE}
    assert effects == {**{f"srv.{name}": Effects.READ for name in read_tools}, **writing_tools}
    assert servers.registry["srv.say"].declaration.description.startswith("Return the text.")


async def test_result_is_the_content_of_the_response(servers: LoadedServers) -> None:
    assert await call_tool(servers, "srv.say", text="hello") == "hello"
    assert await call_tool(servers, "srv.say", text='{"a": [1]}') == {"a": [1]}
    assert await call_tool(servers, "srv.count", text="abc") == {"characters": 3}
    expected = [{"type": "text", "text": "here"}, {"type": "image", "data": "AAAA", "mimeType": "image/png"}]
    assert await call_tool(servers, "srv.picture") == expected


async def test_call_sends_an_idempotency_key_and_receives_progress(servers: LoadedServers) -> None:
    assert await call_tool(servers, "srv.key") == "test-key"
    recorded_call = RecordedCall()
    assert await call_tool(servers, "srv.slow", recorded_call, seconds=0.3) == "done"
    assert [(step.done, step.total) for step in recorded_call.progress] == [(0, 3), (1, 3), (2, 3)]


async def test_failure_has_the_text_of_the_tool_and_invalid_calls_are_not_sent(
    servers: LoadedServers, record_folder: Path
) -> None:
    error = await _failure(servers, "srv.refuse", reason="out of paper")
    assert str(error) == "Error executing tool refuse: out of paper"
    calls_before = len(calls_of(record_folder))
    error = await _failure(servers, "srv.say", InvalidArguments, text=1)
    assert str(error) == 'Invalid arguments: arguments/text: 1 is not of type "string"'
    assert len(calls_of(record_folder)) == calls_before


async def test_a_cancelled_call_is_cancelled_on_the_server(servers: LoadedServers, record_folder: Path) -> None:
    def slow_events() -> list[Any]:
        return [call["slow"] for call in calls_of(record_folder) if "slow" in call]

    count_before = len(slow_events())
    task = asyncio.create_task(call_tool(servers, "srv.slow", seconds=600))
    await eventually(lambda: len(slow_events()) > count_before)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await eventually(lambda: slow_events()[count_before:] == ["started", "cancelled"])
    assert await call_tool(servers, "srv.say", text="still there") == "still there"


async def test_thirty_concurrent_calls_are_handled_by_one_process(servers: LoadedServers, record_folder: Path) -> None:
    texts = [f"call {number}" for number in range(30)]
    assert await asyncio.gather(*(call_tool(servers, "srv.say", text=text) for text in texts)) == texts
    calls = [call for call in calls_of(record_folder) if call.get("say") in texts]
    assert len(calls) == 30
    assert len({call["pid"] for call in calls}) == 1


async def test_server_runs_from_the_first_call_until_it_is_closed(tmp_path: Path) -> None:
    async with _new_server(tmp_path) as (servers, record_folder):
        assert calls_of(record_folder) == []
        await call_tool(servers, "srv.say", text="x")
        [call] = calls_of(record_folder)
        os.kill(call["pid"], 0)
    with pytest.raises(ProcessLookupError):
        os.kill(call["pid"], 0)


async def test_killed_server_is_restarted(tmp_path: Path) -> None:
    async with _new_server(tmp_path) as (servers, record_folder):
        await call_tool(servers, "srv.say", text="first")
        os.kill(calls_of(record_folder)[0]["pid"], signal.SIGKILL)
        recorded_call = RecordedCall()
        await eventually(_returned_text_is(servers, "srv.say", "second", recorded_call))
        assert {"waits_for": "The MCP server 'srv' is started again: the server has ended"} in recorded_call.heartbeats
        assert len({call["pid"] for call in calls_of(record_folder)}) == 2


@pytest.fixture
def delayed_stderr(monkeypatch: pytest.MonkeyPatch) -> None:
    """Delay the reading of standard error of servers, as on a busy machine."""
    original_read = StderrTail._read

    def read_late(tail: StderrTail, descriptor: int) -> None:
        time.sleep(0.5)
        original_read(tail, descriptor)

    monkeypatch.setattr(StderrTail, "_read", read_late)


@pytest.mark.usefixtures("delayed_stderr")
async def test_call_fails_with_the_last_output_of_a_server_that_ends(tmp_path: Path) -> None:
    async with _new_server(tmp_path) as (servers, record_folder):
        assert str(await _failure(servers, "srv.write", text="die")) == (
            "The MCP server 'srv': the server ended during the call, so the result is unknown; "
            "its last output: the disk is full"
        )
        assert await call_tool(servers, "srv.write", text="again") == "written"
        assert without_pids(calls_of(record_folder)) == [{"write": "die"}, {"write": "again"}]


async def test_tool_that_changes_while_its_server_runs_is_not_called(tmp_path: Path) -> None:
    async with _new_server(tmp_path) as (servers, _):
        assert await call_tool(servers, "srv.order", item="a") == "one a"
        await call_tool(servers, "srv.change")

        async def is_rejected() -> bool:
            try:
                await call_tool(servers, "srv.order", item="b")
            except ToolChanged as error:
                return "'order' has changed" in str(error) and "check and run the plan again" in str(error)
            return False

        await eventually(is_rejected)


async def test_tool_that_changed_while_its_server_was_down_is_not_called(tmp_path: Path) -> None:
    async with _new_server(tmp_path) as (servers, record_folder):
        (record_folder / "order-has-amount").touch()
        assert str(await _failure(servers, "srv.order", ToolChanged, item="a")) == (
            "The MCP server 'srv': 'order' has changed: its arguments, result or effects are not those that the plan "
            "was checked against; check and run the plan again"
        )
        assert calls_of(record_folder) == []


async def test_secrets_are_hidden_and_only_configured_secrets_are_passed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-for-others")
    entry = server_entry(tmp_path / "record", env={"TOKEN": "${SECRET_ONE}", "OTHER": "${TWO}"})
    values = variables(SECRET_ONE="hunter2-and-more", TWO="another-secret")
    async with _closing(load_servers([write_servers(tmp_path, srv=entry)], values)) as servers:
        for name, value in (("TOKEN", "***"), ("OTHER", "***"), ("OPENAI_API_KEY", None)):
            assert await call_tool(servers, "srv.environment", name=name) == f"{name} is {value}"
        error = await _failure(servers, "srv.refuse", reason="hunter2-and-more")
        assert str(error) == "Error executing tool refuse: ***"


MISSING_PROGRAM = "program no-such-mcp-server cannot be reached: there is no no-such-mcp-server"


@pytest.mark.usefixtures("delayed_stderr")
def test_server_that_ends_immediately_is_reported_with_its_last_output(tmp_path: Path) -> None:
    result = _load_error(tmp_path, srv={"command": sys.executable, "args": ["-c", "raise SystemExit('no licence')"]})
    assert result.startswith(f"the MCP server 'srv': program {sys.executable} cannot be reached: ")
    assert result.endswith("; its last output: no licence")


def test_all_unreachable_servers_are_reported_without_secrets(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}/mcp"
    url_with_secrets = f"{url.replace('://', '://ann:pw@')}?key=k"
    first, second = _load_error(tmp_path, a={"command": "no-such-mcp-server"}, b={"url": url_with_secrets}).split("; ")
    assert first == f"the MCP server 'a': {MISSING_PROGRAM}"
    assert second == f"the MCP server 'b': {url} cannot be reached: All connection attempts failed"


def _http_server(record_folder: Path, port: int) -> AbstractAsyncContextManager[asyncio.subprocess.Process]:
    record_folder.mkdir(parents=True, exist_ok=True)
    return listening_process(sys.executable, str(SERVER), str(record_folder), str(port), port=port)


async def test_http_server_is_reached_again_after_a_restart(tmp_path: Path) -> None:
    record_folder, port = tmp_path / "record", free_port()
    file = write_servers(tmp_path, web={"url": f"http://127.0.0.1:{port}/mcp", "headers": {"X-Key": "${SECRET}"}})
    async with _http_server(record_folder, port) as process:
        servers = await asyncio.to_thread(load_servers, [file], variables(SECRET="hunter2-and-more"))
        async with _closing(servers):
            assert await call_tool(servers, "web.count", text="abc") == {"characters": 3}
            texts = [f"call {number}" for number in range(30)]
            assert await asyncio.gather(*(call_tool(servers, "web.say", text=text) for text in texts)) == texts
            process.kill()
            await process.wait()
            with pytest.raises((NotStarted, RemoteFailed)):
                await call_tool(servers, "web.say", text="away")
            async with _http_server(record_folder, port):
                await eventually(_returned_text_is(servers, "web.say", "back"))


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (401, GiveUp("check the headers of the server in the file of MCP servers")),
        (429, RetryLater("(HTTP 429)", after=timedelta(seconds=7))),
        (503, RemoteFailed("(HTTP 503)")),
    ],
)
async def test_http_status_is_mapped_to_an_error(
    status: int, expected: ToolError, http_servers: LoadedServers, http_record_folder: Path
) -> None:
    (http_record_folder / "status").write_text(str(status), encoding="ascii")
    try:
        error = await _failure(http_servers, "web.say", type(expected), text="x")
    finally:
        (http_record_folder / "status").unlink()
    assert str(error).endswith(str(expected))
    if isinstance(error, RetryLater) and isinstance(expected, RetryLater):
        assert error.after == expected.after
    assert await call_tool(http_servers, "web.say", text="still there") == "still there"


@pytest.fixture(scope="session")
def http_record_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("web") / "record"


@pytest.fixture(scope="session")
async def http_servers(http_record_folder: Path) -> AsyncIterator[LoadedServers]:
    """One HTTP server, shared by tests that do not stop or change it."""
    port = free_port()
    async with _http_server(http_record_folder, port):
        servers = load(http_record_folder.parent, web={"url": f"http://127.0.0.1:{port}/mcp"})
        async with _closing(servers) as loaded_servers:
            yield loaded_servers


async def test_server_that_does_not_respond_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "START_TIMEOUT_S", 1.0)
    program = "import os, pathlib, time; pathlib.Path('pid').write_text(str(os.getpid())); time.sleep(600)"
    result = await asyncio.to_thread(_load_error, tmp_path, srv={"command": sys.executable, "args": ["-c", program]})
    assert result == f"the MCP server 'srv': program {sys.executable} did not respond within 1 s"
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


_STARTER = Path(__file__).parents[3] / "starter.py"
PARSE_FAILURE = "Failed to parse JSONRPC message from server"
# This server rejects the first request instead of ending, because the output of an ended server could be lost.
SERVER_WITH_MANY_LINES = (
    "import json, sys\nfor number in range(500): print('welcome', number)\n"
    "request_id = json.loads(sys.stdin.readline())['id']\n"
    "print(json.dumps({'jsonrpc': '2.0', 'id': request_id, 'error': {'code': -1, 'message': 'no'}}), flush=True)"
)
CONNECTION_CLOSED = f"the MCP server 'notes': program {sys.executable} cannot be reached: Connection closed"


@pytest.mark.parametrize(
    ("program", "reported_lines"),
    [
        ("print('welcome')", [PARSE_FAILURE, CONNECTION_CLOSED]),
        (SERVER_WITH_MANY_LINES, [*[PARSE_FAILURE] * 4, f"{PARSE_FAILURE} (further lines like this are omitted)"]),
    ],
)
def test_unexpected_lines_of_a_server_are_reported(tmp_path: Path, program: str, reported_lines: list[str]) -> None:
    write_servers(tmp_path, notes={"command": sys.executable, "args": ["-c", program]})
    (tmp_path / "plan.json").write_text('{"plan": 1, "nodes": [{"id": "a", "tool": "wait"}]}', encoding="utf-8")
    command = [str(command_folder() / "python"), str(_STARTER), "check", "plan.json", "--tools", "servers.json"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.splitlines()[: len(reported_lines)] == reported_lines
    assert len(result.stderr.splitlines()) <= len(reported_lines) + 1
