"""The server of a state folder, for real: started once, found, shared, kept, killed, rejected."""

import asyncio
import json
import os
import shutil
import signal
import socket
import stat
import sys
from datetime import timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path
from subprocess import PIPE

import pytest
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client

from dagwright.interfaces.http.api_keys import KeyFile
from dagwright.interfaces.http.callers import KeyScope
from dagwright.server import LocalServer, ServerUnreachable, local, open_connection
from dagwright.server.local import DYNAMIC_CONFIG
from dagwright.settings import Settings
from tests.support.eventually import eventually
from tests.support.server import LiveServer, live_server

pytestmark = pytest.mark.server

_COMMAND = """
import asyncio, sys
from pathlib import Path
from dagwright.server import open_connection
from dagwright.settings import Settings

async def main() -> None:
    async with open_connection(Settings(state_dir=Path(sys.argv[1]))) as connection:
        print(connection.server.pid, connection.server.address, flush=True)
        await asyncio.to_thread(sys.stdin.readline)

asyncio.run(main())
"""
"""A command that holds the server until its standard input ends."""


async def _command(state_dir: Path) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-W", "error", "-c", _COMMAND, str(state_dir), stdin=PIPE, stdout=PIPE
    )


async def _first_line(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    line = await asyncio.wait_for(process.stdout.readline(), timeout=240)
    return line.decode().strip()


async def test_namespace_keeps_closed_runs_for_ninety_days(server: LiveServer, client: Client) -> None:
    described = await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace=client.namespace))
    assert described.config.workflow_execution_retention_ttl.ToTimedelta() == timedelta(days=90)
    assert server.server.version is not None


async def test_every_setting_reaches_the_server(server: LiveServer) -> None:
    command = Path(f"/proc/{server.server.pid}/cmdline").read_bytes().decode().split("\0")
    settings = {value for name, value in pairwise(command) if name == "--dynamic-config-value"}
    pragmas = {value for name, value in pairwise(command) if name == "--sqlite-pragma"}
    assert settings == {f"{name}={value}" for name, value in DYNAMIC_CONFIG.items()}
    assert pragmas == {"journal_mode=wal", "synchronous=normal"}


async def test_interface_of_the_server_answers(server: LiveServer) -> None:
    ui_url = server.server.ui_url
    assert ui_url is not None
    host, port = ui_url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"GET / HTTP/1.0\r\nHost: localhost\r\n\r\n")
    assert (await reader.readline()).startswith(b"HTTP/1.0 200")
    writer.close()
    await writer.wait_closed()


async def test_first_key_turns_the_interface_off_and_the_server_stays_kept(state_dir: Path) -> None:
    settings = Settings(state_dir=state_dir)
    local_server = LocalServer(settings)
    async with open_connection(settings) as connection:
        address, ui_url = connection.server.address, connection.server.ui_url
        local_server.keep_running()
        assert not await local_server.close_ui()
        KeyFile(settings.api_keys).add("ann", list(KeyScope))
        assert await local_server.close_ui()
        actual = local_server.find()
        assert actual is not None
        assert (actual.address, actual.ui_url, local_server.is_persistent()) == (address, None, True)
        assert ui_url is not None
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(*ui_url.removeprefix("http://").split(":"))
        assert (await connection.client.count_workflows()).count == 0
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in [state_dir, *state_dir.glob("*.*")]}
        assert modes.pop(state_dir.name) == 0o700
        assert set(modes) >= {"temporal.db", "temporal.db-wal", "server.log", "server.json"}
        assert {mode for name, mode in modes.items()} == {0o600}, modes
    assert await local_server.stop() == ["server"]


async def test_server_with_an_interface_is_restarted_by_the_first_command_after_the_first_key(state_dir: Path) -> None:
    settings = Settings(state_dir=state_dir)
    async with open_connection(settings) as connection:
        KeyFile(settings.api_keys).add("ann", list(KeyScope))
        async with open_connection(settings) as second:
            assert (second.server.ui_url, second.server.address) == (None, connection.server.address)
            assert second.server.pid != connection.server.pid


async def test_two_first_commands_start_exactly_one_server(state_dir: Path) -> None:
    first, second = await asyncio.gather(_command(state_dir), _command(state_dir))
    assert await _first_line(first) == await _first_line(second)

    await first.communicate(b"")
    assert LocalServer(Settings(state_dir=state_dir)).find() is not None, "the second command still uses it"

    await second.communicate(b"")
    assert LocalServer(Settings(state_dir=state_dir)).find() is None


async def test_killed_command_leaves_a_server_that_the_next_one_uses_and_ends(state_dir: Path) -> None:
    local = LocalServer(Settings(state_dir=state_dir))
    process = await _command(state_dir)
    line = await _first_line(process)
    process.send_signal(signal.SIGKILL)
    await process.communicate()

    async with open_connection(Settings(state_dir=state_dir)) as connection:
        assert f"{connection.server.pid} {connection.server.address}" == line

    assert local.find() is None


async def test_command_that_started_the_server_ends_it_even_if_its_state_was_deleted(state_dir: Path) -> None:
    async with open_connection(Settings(state_dir=state_dir)) as connection:
        host, _, port = connection.server.address.partition(":")
        shutil.rmtree(state_dir)

    assert not state_dir.exists()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(host, int(port))


async def test_runs_of_another_version_are_refused_in_one_sentence(state_dir: Path, tmp_path: Path) -> None:
    settings = Settings(state_dir=state_dir, cache_home=tmp_path)
    async with live_server(state_dir):
        pass
    record = json.loads((state_dir / "server.json").read_text(encoding="utf-8"))
    (state_dir / "server.json").write_text(json.dumps({**record, "version": "1.28.0"}), encoding="utf-8")
    program = tmp_path / "dagwright" / "temporal-1.5.1" / "temporal"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\necho 'temporal version 1.5.1 (Server 1.29.1, UI 2.42.1)'\n", encoding="ascii")
    program.chmod(0o755)

    with pytest.raises(ServerUnreachable) as refusal:
        async with LocalServer(settings).hold():
            pass

    assert str(refusal.value) == (
        f"the runs in {state_dir} were made by Temporal server 1.28.0, and {program} is 1.29.1: "
        "put 1.28.0 on the path, or use another state folder"
    )


async def test_server_of_a_variable_is_first(
    server: LiveServer, state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", server.address)
    async with open_connection(Settings(state_dir=state_dir)) as connection:
        assert connection.server.address == server.address
        assert connection.server.pid is None
        assert connection.missing_search_attributes == frozenset()
    assert not state_dir.exists()


async def test_unknown_namespace_is_reported(
    server: LiveServer, state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", server.address)
    monkeypatch.setenv("TEMPORAL_NAMESPACE", "elsewhere")
    with pytest.raises(ServerUnreachable) as refusal:
        async with open_connection(Settings(state_dir=state_dir)):
            pass
    assert str(refusal.value) == f"the Temporal server at {server.address} has no namespace 'elsewhere'"


async def test_occupied_port_is_replaced(state_dir: Path) -> None:
    async with live_server(state_dir) as live:
        before = live.address
    host, port = before.split(":")
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind((host, int(port)))
        taken.listen()
        async with live_server(state_dir) as live:
            assert live.address != before


async def test_foreign_server_is_not_used(
    server: LiveServer, state_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with live_server(state_dir) as live:
        own, path = live.server, state_dir / "server.json"
        path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), "address": server.address}), "utf-8")
        async with open_connection(live.settings) as connection:
            assert connection.server.address != server.address
            assert connection.server.pid not in (own.pid, server.server.pid)
    assert f"the server process {own.pid} does not respond and is restarted" in capsys.readouterr().err


async def test_server_and_its_interface_never_get_one_port(state_dir: Path) -> None:
    async with live_server(state_dir) as live:
        before = live.address
    record = state_dir / "server.json"
    kept = {**json.loads(record.read_text(encoding="utf-8")), "ui_url": f"http://{before}"}
    record.write_text(json.dumps(kept), encoding="utf-8")
    async with live_server(state_dir) as live:
        assert (live.address, live.server.ui_url == f"http://{before}") == (before, False)


def _is_stopped(pid: int) -> bool:
    """Return whether all threads of a process are stopped: on a busy machine some continue after the signal."""
    try:
        entries = [(task / "stat").read_text(encoding="utf-8") for task in Path(f"/proc/{pid}/task").iterdir()]
    except FileNotFoundError:
        return False
    return all(words.rpartition(")")[2].split()[0] == "T" for words in entries)


async def test_server_that_stops_responding_is_restarted(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with live_server(state_dir) as live:
        before = live.server.pid
        assert before is not None
        answers = local._responds

        monkeypatch.setattr(local, "_RESPONSE_TIMEOUT_S", 3.0)

        async def hangs_then(address: str) -> bool:
            found = await answers(address)
            if live.server.pid == before:
                monkeypatch.setattr(local, "_responds", answers)
                os.kill(before, signal.SIGSTOP)
                await eventually(partial(_is_stopped, before))
            return found

        monkeypatch.setattr(local, "_responds", hangs_then)
        await live.start()
        assert live.server.pid != before


async def test_unresponsive_server_is_restarted_on_its_port(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dagwright.server.local._RESPONSE_TIMEOUT_S", 3.0)
    async with live_server(state_dir) as live:
        before = live.server
        assert before.pid is not None
        os.kill(before.pid, signal.SIGSTOP)
        await eventually(partial(_is_stopped, before.pid))
        await live.start()
        assert (live.address, live.server.pid == before.pid) == (before.address, False)
