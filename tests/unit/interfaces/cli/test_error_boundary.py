"""Every end of a command becomes an exit code and one message."""

import asyncio
import errno
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from temporalio.service import RPCError, RPCStatusCode

from dagwright.agents.stored_agents import AGENTS
from dagwright.client.errors import OptionInvalid, RunIdInUse, RunIdInvalid
from dagwright.database.database import Database
from dagwright.database.migrations import DatabaseUnusable
from dagwright.history.executions import RunNotFound
from dagwright.interfaces.cli import command_connection, temporal_command
from dagwright.interfaces.cli.app import run_command_line
from dagwright.interfaces.cli.command_database import open_database
from dagwright.interfaces.cli.error_boundary import run_guarded
from dagwright.interfaces.cli.exit_codes import CommandError, ExitCode, exit_code_of
from dagwright.interfaces.cli.output import Output, one_line, terminal_text
from dagwright.interfaces.cli.run_and_watch import interrupt_message
from dagwright.protocol.sessions import SessionIdInvalid
from dagwright.server import LocalServer, Server, ServerUnreachable
from dagwright.server.binary import Binary
from dagwright.settings import Settings


def _exit_code_after(error: BaseException, folder: Path, *, is_json: bool = False, log_level: str = "info") -> int:
    def command() -> int:
        raise error

    settings = Settings.model_validate({"state_dir": folder, "log_level": log_level})
    return run_guarded(command, Output(is_json=is_json), load_settings=lambda: settings)


def _rpc_error(status: RPCStatusCode) -> RPCError:
    return RPCError("no", status, b"")


@pytest.mark.parametrize(
    ("error", "code", "exit_code"),
    [
        (CommandError("no"), "invalid_value", ExitCode.REJECTED),
        (ServerUnreachable("no"), "server_unavailable", ExitCode.NO_SERVER),
        (RunNotFound("no"), "not_found", ExitCode.REJECTED),
        (RunIdInUse("no"), "run_id_in_use", ExitCode.REJECTED),
        (_rpc_error(RPCStatusCode.UNAVAILABLE), "server_unavailable", ExitCode.NO_SERVER),
        (_rpc_error(RPCStatusCode.DEADLINE_EXCEEDED), "server_unavailable", ExitCode.NO_SERVER),
        (_rpc_error(RPCStatusCode.CANCELLED), "server_unavailable", ExitCode.NO_SERVER),
        (_rpc_error(RPCStatusCode.RESOURCE_EXHAUSTED), "server_busy", ExitCode.FAILED),
        (_rpc_error(RPCStatusCode.INVALID_ARGUMENT), "server_rejected", ExitCode.FAILED),
        (OptionInvalid("no"), "invalid_value", ExitCode.REJECTED),
        (RunIdInvalid("no"), "invalid_run_id", ExitCode.REJECTED),
        (SessionIdInvalid("no"), "invalid_session_id", ExitCode.REJECTED),
    ],
)
def test_expected_error_is_reported_as_a_document_with_its_exit_code(
    error: Exception, code: str, exit_code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _exit_code_after(error, tmp_path, is_json=True) == exit_code
    streams = capsys.readouterr()
    disconnect_text = "the Temporal server does not respond; started runs continue: `watch ID` follows a run"
    message = disconnect_text if isinstance(error, RPCError) and code == "server_unavailable" else "no"
    assert json.loads(streams.out) == {"code": code, "message": message}
    assert streams.err == message + "\n"


def test_defect_is_reported_on_one_line_and_its_traceback_is_logged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _exit_code_after(KeyError("oops"), tmp_path) == ExitCode.FAILED
    log = tmp_path / "errors.log"
    message = f"internal error of Dagwright: KeyError: 'oops'; its traceback is in {log}\n"
    assert capsys.readouterr().err == message
    assert "KeyError: 'oops'" in log.read_text(encoding="utf-8")
    _exit_code_after(KeyError("oops"), tmp_path, log_level="debug")
    assert "Traceback (most recent call last)" in capsys.readouterr().err
    assert _exit_code_after(KeyboardInterrupt(), tmp_path) == 130


def test_missing_package_is_reported_with_a_fix(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _exit_code_after(ModuleNotFoundError("No module named 'fastapi'", name="fastapi"), tmp_path) == 1
    fix = "this version of Dagwright needs it: run `make setup`"
    assert capsys.readouterr().err == f"the package 'fastapi' is not installed, and {fix}\n"


def test_exit_code_depends_on_the_status_of_the_run() -> None:
    exit_codes = {"completed": 0, "running": 0, "waiting": 0, "failed": 1, "completed_with_failures": 1, "cancelled": 3}
    assert {status: exit_code_of(status) for status in exit_codes} == exit_codes


def test_control_characters_are_escaped() -> None:
    assert terminal_text("a\x1b[2Jb\u202ec\rd\te\n") == "a\\u001b[2Jb\\u202ec\\u000dd\te\n"
    assert one_line("two\nlines \x07") == "two lines \\u0007"
    assert one_line("x" * 400, limit=10) == "xxxxxxxxx…"


async def test_stdout_has_the_documents_only(capsys: pytest.CaptureFixture[str]) -> None:
    async def parts() -> AsyncIterator[tuple[str, int]]:
        yield "a", 1

    output = Output(is_json=True)
    with output.reserve_stdout():
        await asyncio.to_thread(print, "by a tool")
        output.document([], is_single_line=True)
        await output.stream(parts())
    print("after the documents")  # noqa: T201 - as output after the command
    streams = capsys.readouterr()
    assert (streams.out, streams.err) == ('[]\n{\n  "a": 1\n}\nafter the documents\n', "by a tool\n")


@pytest.mark.parametrize("is_json", [False, True])
def test_full_disk_is_reported_as_disk_full(is_json: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    disk_full_error = OSError(errno.ENOSPC, "No space left on device", "/data/plan.svg")
    assert _exit_code_after(disk_full_error, tmp_path, is_json=is_json) == ExitCode.FAILED
    streams = capsys.readouterr()
    assert streams.err == "/data/plan.svg is full: No space left on device\n"
    assert is_json == ("disk_full" in streams.out)


def test_command_without_standard_streams_has_its_normal_exit_code(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text('{"plan": 1, "nodes": [{"id": "a", "tool": "no_such_tool"}]}', encoding="utf-8")
    command = f"{sys.executable} -m dagwright check {plan} <&- >&- 2>&-"
    assert subprocess.run(["sh", "-c", command], timeout=60, check=False).returncode == ExitCode.REJECTED


@pytest.mark.parametrize("message", ["needs the extension pg_trgm", "belongs to a newer version of Dagwright"])
def test_command_on_an_unusable_database_fails(message: str) -> None:
    with pytest.raises(CommandError, match=message) as error, open_database(partial(Database, schema=AGENTS)):
        raise DatabaseUnusable(f"the database {message}")
    assert (error.value.code, error.value.code.exit_code) == ("database_unavailable", ExitCode.FAILED)


async def test_run_that_a_new_server_does_not_have_is_reported_with_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings, servers = Settings(state_dir=tmp_path), [Server("host:1", "default", pid=1, is_new=True)]

    @asynccontextmanager
    async def open_fake_connection(_: Settings) -> AsyncIterator[Any]:
        yield SimpleNamespace(server=servers[-1])

    async def report_of_missing_run(message: str) -> str:
        with pytest.raises(RunNotFound, match=f"^{message}$"):
            async with command_connection.open_command_connection(settings, Output(is_json=False)):
                raise RunNotFound("there is no run 'x'")
        return capsys.readouterr().err

    monkeypatch.setattr(command_connection, "open_connection", open_fake_connection)
    location = f"on the server of {tmp_path}; a run belongs to the folder in which it was started"
    report = await report_of_missing_run(f"there is no run 'x' {location}")
    assert report.startswith("no server was running, so one was started")
    servers.append(Server("host:1", "default"))
    assert await report_of_missing_run("there is no run 'x'") == ""


def test_interrupted_command_reports_whether_another_worker_continues_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(state_dir=tmp_path)
    connection: Any = SimpleNamespace(server=Server("host:1", "default", pid=1))
    message = interrupt_message("x", connection, settings)
    assert message.startswith("the run x has not ended: `dagwright watch x` continues it (")
    monkeypatch.setattr(LocalServer, "workers", lambda _: [SimpleNamespace(is_running=lambda: True)])
    message = interrupt_message("x", connection, settings)
    assert message.startswith("the run x continues; `dagwright watch x` follows it (")


@pytest.mark.parametrize("address", [None, "other:7233"])
def test_temporal_program_gets_the_arguments_and_the_server_address(
    address: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def get_fake_binary(*_: Any, **__: Any) -> Binary:
        return Binary(Path("/cache/temporal"), "1.29.1")

    execve_arguments: list[Any] = []
    monkeypatch.setattr(temporal_command, "get_binary", get_fake_binary)
    monkeypatch.setattr(LocalServer, "find", lambda _: Server("here:7233", "default"))
    monkeypatch.setattr(os, "execve", lambda *arguments: execve_arguments.extend(arguments))
    if address is None:
        monkeypatch.delenv("TEMPORAL_ADDRESS", raising=False)
    else:
        monkeypatch.setenv("TEMPORAL_ADDRESS", address)
    run_command_line(["temporal", "--json", "workflow", "list", "--help"])
    program, arguments, environment = execve_arguments
    assert (program, arguments) == ("/cache/temporal", ["temporal", "--json", "workflow", "list", "--help"])
    assert environment["TEMPORAL_ADDRESS"] == (address or "here:7233")
