"""Calls of a real server that is written with the official SDK: answers, deaths, changes, secrets, HTTP."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from dagwright.core.model.tools import Effects
from dagwright.mcp_client import ServersOfTools, load_servers, session
from dagwright.mcp_client.last_words import LastWords
from dagwright.tools.errors import (
    GiveUp,
    InvalidArguments,
    NotStarted,
    RemoteFailed,
    RetryLater,
    ToolChanged,
    ToolError,
    ToolsUnreadable,
)
from dagwright.tools.testing import RecordedCall
from tests.support.eventually import eventually
from tests.support.tool_servers import (
    SERVER,
    call_tool,
    calls_of,
    free_port,
    listening,
    load,
    server_entry,
    variables,
    without_pids,
    write_servers,
)

pytestmark = pytest.mark.waits


@asynccontextmanager
async def _running(servers: ServersOfTools) -> AsyncIterator[ServersOfTools]:
    try:
        yield servers
    finally:
        await servers.close()


@pytest.fixture(scope="session")
async def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mcp")


@pytest.fixture(scope="session")
async def servers(folder: Path) -> AsyncIterator[ServersOfTools]:
    """One server that lives for all tests that do not harm it."""
    async with _running(load(folder, srv=server_entry(folder / "did"))) as found:
        yield found


def test_tools_are_named_after_their_server_and_have_its_effects(servers: ServersOfTools) -> None:
    effects = {spec.name: spec.declaration.effects for spec in servers.registry}
    read = ("say", "count", "picture", "environment", "refuse", "die", "slow", "change", "order")
    assert effects == {
        **{f"srv.{name}": Effects.READ for name in read},
        "srv.key": Effects.IDEMPOTENT,
        "srv.write": Effects.WRITE,
    }
    assert servers.registry["srv.say"].declaration.description.startswith("Says what it is told.")


async def test_results_are_what_the_server_answers(servers: ServersOfTools) -> None:
    assert await call_tool(servers, "srv.say", text="hello") == "hello"
    assert await call_tool(servers, "srv.say", text='{"a": [1]}') == {"a": [1]}
    assert await call_tool(servers, "srv.count", text="abc") == {"characters": 3}
    assert await call_tool(servers, "srv.picture") == [
        {"type": "text", "text": "here"},
        {"type": "image", "data": "AAAA", "mimeType": "image/png"},
    ]


async def test_a_call_that_changes_the_world_carries_its_idempotency_key(servers: ServersOfTools) -> None:
    assert await call_tool(servers, "srv.key") == "test-key"


async def test_the_words_of_a_tool_that_fails_are_the_error(servers: ServersOfTools) -> None:
    with pytest.raises(RemoteFailed) as failed:
        await call_tool(servers, "srv.refuse", reason="out of paper")
    assert str(failed.value) == "Error executing tool refuse: out of paper"


async def test_wrong_arguments_do_not_reach_the_server(servers: ServersOfTools, folder: Path) -> None:
    before = len(calls_of(folder / "did"))
    with pytest.raises(InvalidArguments) as refused:
        await call_tool(servers, "srv.say", text=1)
    assert str(refused.value) == 'Invalid arguments: arguments/text: 1 is not of type "string"'
    assert len(calls_of(folder / "did")) == before


async def test_progress_of_a_server_is_that_of_thecall_tool(servers: ServersOfTools) -> None:
    recorded = RecordedCall()
    assert await call_tool(servers, "srv.slow", recorded, seconds=0.3) == "done"
    assert [(step.done, step.total) for step in recorded.progress] == [(0, 3), (1, 3), (2, 3)]


async def test_a_cancelled_call_is_cancelled_on_the_server(servers: ServersOfTools, folder: Path) -> None:
    def slow() -> list[Any]:
        return [call["slow"] for call in calls_of(folder / "did") if "slow" in call]

    before = len(slow())
    task = asyncio.create_task(call_tool(servers, "srv.slow", seconds=600))
    await eventually(lambda: len(slow()) > before)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await eventually(lambda: slow()[before:] == ["begun", "cancelled"])
    assert await call_tool(servers, "srv.say", text="still there") == "still there"


async def test_thirty_calls_at_once_are_all_answered_by_one_process(servers: ServersOfTools, folder: Path) -> None:
    texts = [f"call {number}" for number in range(30)]
    assert await asyncio.gather(*(call_tool(servers, "srv.say", text=text) for text in texts)) == texts
    said = [call for call in calls_of(folder / "did") if call.get("say") in texts]
    assert len(said) == 30
    assert len({call["pid"] for call in said}) == 1


async def test_nothing_runs_before_the_first_call_and_nothing_after_the_end(tmp_path: Path) -> None:
    servers = load(tmp_path, srv=server_entry(tmp_path / "did"))
    assert calls_of(tmp_path / "did") == []
    async with _running(servers):
        await call_tool(servers, "srv.say", text="x")
        [call] = calls_of(tmp_path / "did")
        os.kill(call["pid"], 0)
    with pytest.raises(ProcessLookupError):
        os.kill(call["pid"], 0)


async def test_a_server_that_was_killed_is_started_again(tmp_path: Path) -> None:
    did = tmp_path / "did"
    async with _running(load(tmp_path, srv=server_entry(did))) as servers:
        await call_tool(servers, "srv.say", text="first")
        os.kill(calls_of(did)[0]["pid"], signal.SIGKILL)
        recorded = RecordedCall()

        async def is_answered() -> bool:
            # The first call may be on its way while the death is not known yet.
            with suppress(RemoteFailed):
                return bool(await call_tool(servers, "srv.say", recorded, text="second") == "second")
            return False

        await eventually(is_answered)
        assert {"waits_for": "The MCP server 'srv' is started again: the server has ended"} in recorded.heartbeats
        assert len({call["pid"] for call in calls_of(did)}) == 2


@pytest.fixture
def reads_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """What servers write to their standard error is read late, as on a busy machine."""
    read = LastWords._read

    def read_late(words: LastWords, descriptor: int) -> None:
        time.sleep(0.5)
        read(words, descriptor)

    monkeypatch.setattr(LastWords, "_read", read_late)


@pytest.mark.usefixtures("reads_late")
async def test_a_call_whose_server_dies_says_so_with_its_last_words(tmp_path: Path) -> None:
    did = tmp_path / "did"
    async with _running(load(tmp_path, srv=server_entry(did))) as servers:
        with pytest.raises(RemoteFailed) as failed:
            await call_tool(servers, "srv.write", text="die")
        assert str(failed.value) == (
            "The MCP server 'srv': it ended during the call, so nobody knows what became of it; "
            "its last words: the disk is full"
        )
        assert await call_tool(servers, "srv.write", text="again") == "written"
        assert without_pids(calls_of(did)) == [{"write": "die"}, {"write": "again"}]


async def test_a_tool_that_changes_while_its_server_runs_is_noticed_before_it_is_called(tmp_path: Path) -> None:
    did = tmp_path / "did"
    async with _running(load(tmp_path, srv=server_entry(did))) as servers:
        assert await call_tool(servers, "srv.order", item="a") == "one a"
        await call_tool(servers, "srv.change")

        async def is_refused() -> bool:
            try:
                await call_tool(servers, "srv.order", item="b")
            except ToolChanged as error:
                return "'order' has changed" in str(error) and "check the plan again" in str(error)
            return False

        await eventually(is_refused)


async def test_a_tool_that_changed_while_its_server_was_down_is_noticed_before_it_is_called(tmp_path: Path) -> None:
    did = tmp_path / "did"
    servers = load(tmp_path, srv=server_entry(did))
    (did / "other").touch()
    async with _running(servers):
        with pytest.raises(ToolChanged) as refused:
            await call_tool(servers, "srv.order", item="a")
        assert str(refused.value) == (
            "The MCP server 'srv': 'order' has changed: its arguments, its result or its effects are not those that "
            "the plan was checked against; check the plan again, and run it anew"
        )
        assert calls_of(did) == []


async def test_secrets_of_a_server_are_in_no_result_and_no_error(tmp_path: Path) -> None:
    entry = server_entry(tmp_path / "did", env={"TOKEN": "${SECRET_ONE}", "OTHER": "${TWO}"})
    values = variables(SECRET_ONE="hunter2-and-more", TWO="another-secret")
    async with _running(load_servers([write_servers(tmp_path, srv=entry)], values)) as servers:
        assert await call_tool(servers, "srv.environment", name="TOKEN") == "TOKEN is ***"
        assert await call_tool(servers, "srv.environment", name="OTHER") == "OTHER is ***"
        with pytest.raises(RemoteFailed) as failed:
            await call_tool(servers, "srv.refuse", reason="hunter2-and-more")
        assert str(failed.value) == "Error executing tool refuse: ***"


async def test_a_server_sees_no_variable_that_it_was_not_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-for-others")
    async with _running(load(tmp_path, srv=server_entry(tmp_path / "did"))) as servers:
        assert await call_tool(servers, "srv.environment", name="OPENAI_API_KEY") == "OPENAI_API_KEY is None"


# Servers that cannot be reached.


def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ToolsUnreadable) as refused:
        load(tmp_path, srv={"command": "no-such-mcp-server"})
    assert str(refused.value) == (
        "the MCP server 'srv': program no-such-mcp-server cannot be reached: there is no no-such-mcp-server"
    )


@pytest.mark.usefixtures("reads_late")
def test_a_server_that_ends_at_once_is_told_with_its_last_words(tmp_path: Path) -> None:
    with pytest.raises(ToolsUnreadable) as refused:
        load(tmp_path, srv={"command": sys.executable, "args": ["-c", "raise SystemExit('no licence')"]})
    assert str(refused.value).startswith(f"the MCP server 'srv': program {sys.executable} cannot be reached: ")
    assert str(refused.value).endswith("; its last words: no licence")


def test_all_servers_that_cannot_be_reached_are_told(tmp_path: Path) -> None:
    port = free_port()
    with pytest.raises(ToolsUnreadable) as refused:
        load(tmp_path, a={"command": "no-such-mcp-server"}, b={"url": f"http://ann:pw@127.0.0.1:{port}/mcp?key=k"})
    first, second = str(refused.value).split("; ")
    assert first == "the MCP server 'a': program no-such-mcp-server cannot be reached: there is no no-such-mcp-server"
    # What may be secret in an address is not told.
    where = f"http://127.0.0.1:{port}/mcp"
    assert second == f"the MCP server 'b': {where} cannot be reached: All connection attempts failed"


# Streamable HTTP.


def _listening(did: Path, port: int) -> AbstractAsyncContextManager[asyncio.subprocess.Process]:
    did.mkdir(parents=True, exist_ok=True)
    return listening(sys.executable, str(SERVER), str(did), str(port), port=port)


async def test_a_server_is_reached_by_its_address_and_again_after_it_was_away(tmp_path: Path) -> None:
    did, port = tmp_path / "did", free_port()
    file = write_servers(tmp_path, web={"url": f"http://127.0.0.1:{port}/mcp", "headers": {"X-Key": "${SECRET}"}})
    async with _listening(did, port) as process:
        servers = await asyncio.to_thread(load_servers, [file], variables(SECRET="hunter2-and-more"))
        async with _running(servers):
            assert await call_tool(servers, "web.count", text="abc") == {"characters": 3}
            texts = [f"call {number}" for number in range(30)]
            assert await asyncio.gather(*(call_tool(servers, "web.say", text=text) for text in texts)) == texts
            process.kill()
            await process.wait()
            with pytest.raises((NotStarted, RemoteFailed)):
                await call_tool(servers, "web.say", text="away")
            async with _listening(did, port):

                async def is_answered() -> bool:
                    with suppress(NotStarted, RemoteFailed):
                        return bool(await call_tool(servers, "web.say", text="back") == "back")
                    return False

                await eventually(is_answered)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (401, GiveUp("look at the headers of the server in the file of MCP servers")),
        (429, RetryLater("(HTTP 429)", after=timedelta(seconds=7))),
        (503, RemoteFailed("(HTTP 503)")),
    ],
)
async def test_the_status_of_an_answer_decides_what_is_done(
    status: int, expected: ToolError, web: ServersOfTools, web_did: Path
) -> None:
    (web_did / "status").write_text(str(status), encoding="ascii")
    try:
        with pytest.raises(type(expected)) as failed:
            await call_tool(web, "web.say", text="x")
    finally:
        (web_did / "status").unlink()
    assert str(failed.value).endswith(str(expected))
    if isinstance(failed.value, RetryLater) and isinstance(expected, RetryLater):
        assert failed.value.after == expected.after
    assert await call_tool(web, "web.say", text="still there") == "still there"


@pytest.fixture(scope="session")
def web_did(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("web") / "did"


@pytest.fixture(scope="session")
async def web(web_did: Path) -> AsyncIterator[ServersOfTools]:
    """One server behind an address, for tests that do not harm it."""
    port = free_port()
    async with _listening(web_did, port):
        servers = load(web_did.parent, web={"url": f"http://127.0.0.1:{port}/mcp"})
        async with _running(servers) as found:
            yield found


async def test_a_server_that_does_not_answer_is_given_up_and_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "START_TIMEOUT_S", 1.0)
    mute = "import os, pathlib, time; pathlib.Path('pid').write_text(str(os.getpid())); time.sleep(600)"
    with pytest.raises(ToolsUnreadable) as refused:
        await asyncio.to_thread(load, tmp_path, srv={"command": sys.executable, "args": ["-c", mute]})
    assert str(refused.value) == f"the MCP server 'srv': program {sys.executable} did not answer within 1 s"
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
