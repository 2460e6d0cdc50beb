"""The Temporal server of a state folder: its start, its shared use, its end and its replacement."""

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

_COMMAND_CODE = """
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
"""Code of a command that uses the server until the standard input of the command ends."""


async def _start_command(state_dir: Path) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-W", "error", "-c", _COMMAND_CODE, str(state_dir), stdin=PIPE, stdout=PIPE
    )


async def _read_first_line(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    return (await asyncio.wait_for(process.stdout.readline(), timeout=240)).decode().strip()


async def test_namespace_keeps_closed_runs_for_ninety_days(server: LiveServer, client: Client) -> None:
    response = await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace=client.namespace))
    assert response.config.workflow_execution_retention_ttl.ToTimedelta() == timedelta(days=90)
    assert server.server.version is not None


async def test_server_runs_with_every_dynamic_config_value_and_pragma(server: LiveServer) -> None:
    command = Path(f"/proc/{server.server.pid}/cmdline").read_bytes().decode().split("\0")
    settings = {value for name, value in pairwise(command) if name == "--dynamic-config-value"}
    pragmas = {value for name, value in pairwise(command) if name == "--sqlite-pragma"}
    assert settings == {f"{name}={value}" for name, value in DYNAMIC_CONFIG.items()}
    assert pragmas == {"journal_mode=wal", "synchronous=normal"}


async def test_web_interface_responds_with_status_200(server: LiveServer) -> None:
    ui_url = server.server.ui_url
    assert ui_url is not None
    host, port = ui_url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"GET / HTTP/1.0\r\nHost: localhost\r\n\r\n")
    assert (await reader.readline()).startswith(b"HTTP/1.0 200")
    writer.close()
    await writer.wait_closed()


async def test_closing_the_web_interface_restarts_a_persistent_server_with_private_files(state_dir: Path) -> None:
    settings = Settings(state_dir=state_dir)
    local_server = LocalServer(settings)
    async with open_connection(settings) as connection:
        address, ui_url = connection.server.address, connection.server.ui_url
        local_server.keep_running()
        assert not await local_server.close_ui()
        KeyFile(settings.api_keys).add("ann", list(KeyScope))
        assert await local_server.close_ui()
        restarted_server = local_server.find()
        assert restarted_server is not None
        expected = (address, None, True)
        assert (restarted_server.address, restarted_server.ui_url, local_server.is_persistent()) == expected
        assert ui_url is not None
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(*ui_url.removeprefix("http://").split(":"))
        assert (await connection.client.count_workflows()).count == 0
        modes_by_name = {path.name: stat.S_IMODE(path.stat().st_mode) for path in [state_dir, *state_dir.glob("*.*")]}
        assert modes_by_name.pop(state_dir.name) == 0o700
        assert set(modes_by_name) >= {"temporal.db", "temporal.db-wal", "server.log", "server.json"}
        assert set(modes_by_name.values()) == {0o600}, modes_by_name
    assert await local_server.stop() == ["server"]


async def test_first_connection_after_the_first_key_restarts_the_server_without_web_interface(state_dir: Path) -> None:
    settings = Settings(state_dir=state_dir)
    async with open_connection(settings) as connection:
        KeyFile(settings.api_keys).add("ann", list(KeyScope))
        async with open_connection(settings) as second_connection:
            restarted_server = second_connection.server
            assert (restarted_server.ui_url, restarted_server.address) == (None, connection.server.address)
            assert restarted_server.pid != connection.server.pid


async def test_two_concurrent_commands_start_exactly_one_server(state_dir: Path) -> None:
    first_process, second_process = await asyncio.gather(_start_command(state_dir), _start_command(state_dir))
    assert await _read_first_line(first_process) == await _read_first_line(second_process)

    await first_process.communicate(b"")
    assert LocalServer(Settings(state_dir=state_dir)).find() is not None, "the second command still uses the server"

    await second_process.communicate(b"")
    assert LocalServer(Settings(state_dir=state_dir)).find() is None


async def test_server_of_a_killed_command_is_used_and_ended_by_the_next_command(state_dir: Path) -> None:
    local_server = LocalServer(Settings(state_dir=state_dir))
    process = await _start_command(state_dir)
    line = await _read_first_line(process)
    process.send_signal(signal.SIGKILL)
    await process.communicate()

    async with open_connection(Settings(state_dir=state_dir)) as connection:
        assert f"{connection.server.pid} {connection.server.address}" == line

    assert local_server.find() is None


async def test_last_command_ends_the_server_even_if_the_state_folder_was_deleted(state_dir: Path) -> None:
    async with open_connection(Settings(state_dir=state_dir)) as connection:
        host, _, port = connection.server.address.partition(":")
        shutil.rmtree(state_dir)

    assert not state_dir.exists()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(host, int(port))


async def test_database_of_a_different_server_version_is_rejected(state_dir: Path, tmp_path: Path) -> None:
    settings = Settings(state_dir=state_dir, cache_home=tmp_path)
    async with live_server(state_dir):
        pass
    record = json.loads((state_dir / "server.json").read_text(encoding="utf-8"))
    (state_dir / "server.json").write_text(json.dumps({**record, "version": "1.28.0"}), encoding="utf-8")
    program = tmp_path / "dagwright" / "temporal-1.5.1" / "temporal"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\necho 'temporal version 1.5.1 (Server 1.29.1, UI 2.42.1)'\n", encoding="ascii")
    program.chmod(0o755)

    with pytest.raises(ServerUnreachable) as error:
        async with LocalServer(settings).hold():
            pass

    assert str(error.value) == (
        f"the runs in {state_dir} were stored by Temporal server 1.28.0, and {program} has server 1.29.1: "
        "put a `temporal` program with server 1.28.0 on the path, or use another state folder"
    )


async def test_server_address_in_the_environment_has_priority(
    server: LiveServer, state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", server.address)
    async with open_connection(Settings(state_dir=state_dir)) as connection:
        assert connection.server.address == server.address
        assert connection.server.pid is None
        assert connection.missing_search_attributes == frozenset()
    assert not state_dir.exists()


async def test_unknown_namespace_is_an_error_with_address_and_name(
    server: LiveServer, state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", server.address)
    monkeypatch.setenv("TEMPORAL_NAMESPACE", "elsewhere")
    with pytest.raises(ServerUnreachable) as error:
        async with open_connection(Settings(state_dir=state_dir)):
            pass
    assert str(error.value) == f"the Temporal server at {server.address} has no namespace 'elsewhere'"


async def test_server_whose_port_is_occupied_starts_on_a_different_port(state_dir: Path) -> None:
    async with live_server(state_dir) as test_server:
        first_address = test_server.address
    host, port = first_address.split(":")
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, int(port)))
        listener.listen()
        async with live_server(state_dir) as test_server:
            assert test_server.address != first_address


async def test_server_of_a_different_state_folder_is_not_used(
    server: LiveServer, state_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with live_server(state_dir) as test_server:
        first_server, path = test_server.server, state_dir / "server.json"
        path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), "address": server.address}), "utf-8")
        async with open_connection(test_server.settings) as connection:
            assert connection.server.address != server.address
            assert connection.server.pid not in (first_server.pid, server.server.pid)
    assert f"the server process {first_server.pid} does not respond and is restarted" in capsys.readouterr().err


async def test_recorded_port_of_the_web_interface_is_replaced_if_the_server_uses_this_port(state_dir: Path) -> None:
    async with live_server(state_dir) as test_server:
        address = test_server.address
    record_file = state_dir / "server.json"
    record = {**json.loads(record_file.read_text(encoding="utf-8")), "ui_url": f"http://{address}"}
    record_file.write_text(json.dumps(record), encoding="utf-8")
    async with live_server(state_dir) as test_server:
        assert (test_server.address, test_server.server.ui_url == f"http://{address}") == (address, False)


def _is_stopped(pid: int) -> bool:
    """Return whether all threads of a process are stopped. On a busy machine, they do not stop at the same time."""
    try:
        entries = [(task / "stat").read_text(encoding="utf-8") for task in Path(f"/proc/{pid}/task").iterdir()]
    except FileNotFoundError:
        return False
    return all(entry.rpartition(")")[2].split()[0] == "T" for entry in entries)


async def test_server_that_hangs_after_its_first_response_is_restarted(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with live_server(state_dir) as test_server:
        first_pid = test_server.server.pid
        assert first_pid is not None
        original_responds = local._responds

        monkeypatch.setattr(local, "_RESPONSE_TIMEOUT_S", 3.0)

        async def respond_and_hang(address: str) -> bool:
            is_responding = await original_responds(address)
            if test_server.server.pid == first_pid:
                monkeypatch.setattr(local, "_responds", original_responds)
                os.kill(first_pid, signal.SIGSTOP)
                await eventually(partial(_is_stopped, first_pid))
            return is_responding

        monkeypatch.setattr(local, "_responds", respond_and_hang)
        await test_server.start()
        assert test_server.server.pid != first_pid


async def test_unresponsive_server_is_restarted_on_its_port(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dagwright.server.local._RESPONSE_TIMEOUT_S", 3.0)
    async with live_server(state_dir) as test_server:
        first_server = test_server.server
        assert first_server.pid is not None
        os.kill(first_server.pid, signal.SIGSTOP)
        await eventually(partial(_is_stopped, first_server.pid))
        await test_server.start()
        assert (test_server.address, test_server.server.pid == first_server.pid) == (first_server.address, False)
