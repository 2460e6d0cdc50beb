"""`keys add | list | remove`, and addresses that need keys."""

import json
import socket
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from dagwright.interfaces.cli.app import run_command_line
from dagwright.interfaces.cli.exit_codes import CommandError
from dagwright.interfaces.cli.mcp_command import _open_listener
from dagwright.interfaces.cli.serve_command import _check_address, _check_key_file, _check_origins
from dagwright.interfaces.cli.server_commands import McpArguments
from dagwright.interfaces.http.api_keys import KeyFile
from dagwright.server import LocalServer, ServerUnreachable
from dagwright.settings import Settings


@pytest.fixture
def key_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    key_file = tmp_path / "keys.json"
    monkeypatch.setenv("DAGWRIGHT_API_KEYS", str(key_file))
    monkeypatch.setenv("DAGWRIGHT_STATE_DIR", str(tmp_path / "state"))
    return key_file


def run_keys(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Any]:
    exit_code = run_command_line([*arguments, "--json"])
    return exit_code, json.loads(capsys.readouterr().out)


def test_key_is_added_listed_and_removed(key_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    exit_code, added_key = run_keys(capsys, "keys", "add", "ann", "--scope", "answer", "--scope", "run")
    _, key_with_all_scopes = run_keys(capsys, "keys", "add", "*")
    _, read_only_key = run_keys(capsys, "keys", "add", "ann", "--scope", "read")
    _, listed_keys = run_keys(capsys, "keys", "list")
    removal_exit_code, removed_key = run_keys(capsys, "keys", "remove", added_key["id"])
    second_removal_exit_code, _ = run_keys(capsys, "keys", "remove", added_key["id"])
    assert (exit_code, added_key["status"]) == (0, "added")
    assert (added_key["scopes"], read_only_key["scopes"]) == (["run", "answer"], ["read"])
    owners = [("ann", added_key["id"]), ("*", key_with_all_scopes["id"]), ("ann", read_only_key["id"])]
    assert [(key["owner"], key["id"]) for key in listed_keys] == owners
    assert not any("sha256" in key or "key" in key for key in listed_keys)
    assert (removal_exit_code, removed_key["owner"], second_removal_exit_code) == (0, "ann", 2)
    callers = [KeyFile(key_path).caller_of(key["key"]) for key in (key_with_all_scopes, read_only_key)]
    assert [(caller.owner, len(caller.scopes)) for caller in callers if caller is not None] == [(None, 3), ("ann", 0)]
    run_command_line(["keys", "list"])
    assert [read_only_key["id"], "ann", "read"] in [line.split()[:3] for line in capsys.readouterr().out.splitlines()]


def test_only_the_key_is_written_to_stdout(key_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_command_line(["keys", "list"])
    assert "the API needs no key" in capsys.readouterr().out
    assert run_command_line(["keys", "add", "ann"]) == 0
    streams = capsys.readouterr()
    assert KeyFile(key_path).caller_of(streams.out.strip()) is not None
    assert "shown only once" in streams.err
    (id,) = KeyFile(key_path).keys()
    run_command_line(["keys", "list"])
    assert f"{id}  ann    run, answer, operate" in capsys.readouterr().out
    run_command_line(["keys", "remove", id])
    run_command_line(["keys", "list"])
    assert "no client can call the API" in capsys.readouterr().out


def test_invalid_arguments_and_an_unreadable_file_are_rejected(
    key_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments in (
        ("add", "a b"),
        ("add", "ann", "--scope", "lok"),
        ("add", "ann", "--scope", "read", "--scope", "run"),
        ("remove", "x"),
    ):
        exit_code, document = run_keys(capsys, "keys", *arguments)
        assert (exit_code, document["code"]) == (2, "invalid_value")
    key_path.write_text("{", encoding="utf-8")
    exit_code, document = run_keys(capsys, "keys", "add", "ann")
    assert (exit_code, document["code"]) == (2, "unreadable")


@pytest.mark.parametrize(
    ("host", "has_key", "requires_auth", "is_rejected"),
    [
        ("127.0.0.1", False, True, False),
        ("0.0.0.0", False, True, True),
        ("0.0.0.0", True, True, False),
        ("0.0.0.0", False, False, False),
    ],
)
def test_public_address_requires_auth(
    key_path: Path, host: str, *, has_key: bool, requires_auth: bool, is_rejected: bool
) -> None:
    if has_key:
        KeyFile(key_path).add("ann", [])
    expectation = _expect_rejection(r"dagwright keys add OWNER.*--no-auth", is_rejected)
    with socket.create_server((host, 0)) as listener, expectation:
        _check_address(listener, KeyFile(key_path), requires_auth=requires_auth)
    key_path.write_text("{", encoding="utf-8")
    with socket.create_server((host, 0)) as listener, pytest.raises(CommandError, match="cannot be read"):
        _check_address(listener, KeyFile(key_path), requires_auth=False)


def _expect_rejection(message: str, is_rejected: bool) -> Any:
    return pytest.raises(CommandError, match=message) if is_rejected else nullcontext()


def test_configured_file_of_keys_must_exist(key_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CommandError, match=r"the file of keys .*keys\.json.* does not exist.*unset DAGWRIGHT_API_KEYS"):
        _check_key_file(Settings())
    KeyFile(key_path).add("ann", [])
    _check_key_file(Settings())
    monkeypatch.delenv("DAGWRIGHT_API_KEYS")
    _check_key_file(Settings())


@pytest.mark.parametrize(
    ("host", "requires_auth", "is_rejected"),
    [("127.0.0.1", True, False), ("0.0.0.0", True, True), ("0.0.0.0", False, False)],
)
def test_public_address_for_mcp_is_rejected_without_the_option_no_auth_even_if_keys_exist(
    key_path: Path, host: str, *, requires_auth: bool, is_rejected: bool
) -> None:
    # The MCP server does not use the keys of the gateway.
    KeyFile(key_path).add("ann", [])
    with _expect_rejection("--no-auth", is_rejected):
        _open_listener(McpArguments(is_http=True, host=host, port=0, no_auth=not requires_auth)).close()


def test_wildcard_origins_need_keys(tmp_path: Path) -> None:
    for origins in ("*", "https://a.example.com, *"):
        settings = Settings(state_dir=tmp_path / origins[0], api_origins=origins)
        keys = KeyFile(settings.api_keys)
        with pytest.raises(CommandError, match=r"DAGWRIGHT_API_ORIGINS is \*.*dagwright keys add OWNER"):
            _check_origins(settings, keys, requires_auth=True)
        _check_origins(settings, keys, requires_auth=False)
        _check_origins(settings.model_copy(update={"api_origins": "https://a.example.com"}), keys, requires_auth=True)
        keys.add("ann", [])
        _check_origins(settings, keys, requires_auth=True)


def test_ui_that_cannot_be_closed_is_reported(
    key_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail_to_close(_: LocalServer) -> bool:
        raise ServerUnreachable("there is no program")

    monkeypatch.setattr(LocalServer, "close_ui", fail_to_close)
    assert run_command_line(["keys", "add", "ann", "--json"]) == 0
    streams = capsys.readouterr()
    assert json.loads(streams.out)["status"] == "added"
    message = "the Temporal UI, which does not check keys, could not be closed: there is no program\n"
    assert streams.err.endswith(message)
