"""`keys add | list | remove`, and where `serve` listens without them."""

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from dagwright.interfaces.cli.app import run_command_line
from dagwright.interfaces.cli.exits import CommandRefused
from dagwright.interfaces.cli.mcp_serving import _listener
from dagwright.interfaces.cli.requests import McpRequest
from dagwright.interfaces.cli.serving import _refuse_all_pages, _refuse_missing, _refuse_open
from dagwright.interfaces.http.keys import KeyFile
from dagwright.server import LocalServer, NoServer
from dagwright.settings import Settings


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    found = tmp_path / "keys.json"
    monkeypatch.setenv("DAGWRIGHT_API_KEYS", str(found))
    monkeypatch.setenv("DAGWRIGHT_STATE_DIR", str(tmp_path / "state"))
    return found


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Any]:
    code = run_command_line([*arguments, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_key_is_made_listed_and_removed(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, added = told(capsys, "keys", "add", "ann", "--scope", "answer", "--scope", "run")
    _, all_scopes = told(capsys, "keys", "add", "*")
    _, listed = told(capsys, "keys", "list")
    gone, removed = told(capsys, "keys", "remove", added["id"])
    again, _ = told(capsys, "keys", "remove", added["id"])
    caller = KeyFile(path).caller_of(all_scopes["key"])
    assert (code, added["status"], added["scopes"]) == (0, "added", ["run", "answer"])
    assert [(each["owner"], each["id"]) for each in listed] == [("ann", added["id"]), ("*", all_scopes["id"])]
    assert not any("sha256" in each or "key" in each for each in listed)
    assert (gone, removed["owner"], again) == (0, "ann", 2)
    assert caller is not None
    assert caller.owner is None


def test_key_may_only_look(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, added = told(capsys, "keys", "add", "ann", "--scope", "look")
    both, _ = told(capsys, "keys", "add", "ann", "--scope", "look", "--scope", "run")
    caller = KeyFile(path).caller_of(added["key"])
    assert (code, added["scopes"], both) == (0, [], 2)
    assert caller is not None
    assert not caller.scopes
    run_command_line(["keys", "list"])
    assert capsys.readouterr().out.splitlines()[1].split()[:3] == [added["id"], "ann", "look"]


def test_people_are_shown_the_key_alone_on_stdout(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_command_line(["keys", "list"])
    assert "the API asks for none" in capsys.readouterr().out
    assert run_command_line(["keys", "add", "ann"]) == 0
    shown = capsys.readouterr()
    assert KeyFile(path).caller_of(shown.out.strip()) is not None
    assert "shown this once" in shown.err
    (id,) = KeyFile(path).keys()
    run_command_line(["keys", "list"])
    assert f"{id}  ann    run, answer, operate" in capsys.readouterr().out
    run_command_line(["keys", "remove", id])
    run_command_line(["keys", "list"])
    assert "nobody can call the API" in capsys.readouterr().out


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize(
    ("arguments", "status"),
    [(("add", "a b"), "bad_usage"), (("add", "ann", "--scope", "lok"), "bad_usage"), (("remove", "x"), "bad_usage")],
)
def test_what_makes_no_sense_is_told(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], status: str
) -> None:
    code, document = told(capsys, "keys", *arguments)
    assert (code, document["status"]) == (2, status)


def test_unreadable_file_is_told(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path.write_text("{", encoding="utf-8")
    code, document = told(capsys, "keys", "add", "ann")
    assert (code, document["status"]) == (2, "unreadable")


@pytest.mark.parametrize(
    ("host", "has_key", "needs_keys", "is_refused"),
    [
        ("127.0.0.1", False, True, False),
        ("0.0.0.0", False, True, True),
        ("0.0.0.0", True, True, False),
        ("0.0.0.0", False, False, False),
    ],
)
def test_others_are_listened_to_only_with_keys_or_if_told_so(
    path: Path, host: str, *, has_key: bool, needs_keys: bool, is_refused: bool
) -> None:
    if has_key:
        KeyFile(path).add("ann", [])
    with socket.create_server((host, 0)) as listener:
        if is_refused:
            with pytest.raises(CommandRefused, match=r"dagwright keys add OWNER.*--no-keys"):
                _refuse_open(listener, KeyFile(path), needs_keys=needs_keys)
        else:
            _refuse_open(listener, KeyFile(path), needs_keys=needs_keys)


def test_keys_that_cannot_be_read_are_told_wherever_it_listens(path: Path) -> None:
    path.write_text("{", encoding="utf-8")
    with socket.create_server(("127.0.0.1", 0)) as listener, pytest.raises(CommandRefused, match="cannot be read"):
        _refuse_open(listener, KeyFile(path), needs_keys=False)


def test_file_of_keys_that_was_named_must_be_there(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CommandRefused, match=r"no file of keys .*keys\.json.*unset DAGWRIGHT_API_KEYS"):
        _refuse_missing(Settings())
    KeyFile(path).add("ann", [])
    _refuse_missing(Settings())
    monkeypatch.delenv("DAGWRIGHT_API_KEYS")
    _refuse_missing(Settings())


@pytest.mark.parametrize(
    ("host", "needs_keys", "is_refused"),
    [("127.0.0.1", True, False), ("0.0.0.0", True, True), ("0.0.0.0", False, False)],
)
def test_mcp_server_has_no_keys_and_is_reached_by_others_only_if_told_so(
    path: Path, host: str, *, needs_keys: bool, is_refused: bool
) -> None:
    # Keys of the gateway are none of it.
    KeyFile(path).add("ann", [])
    request = McpRequest([], [], None, host, 0, is_http=True, needs_keys=needs_keys)
    if is_refused:
        with pytest.raises(CommandRefused, match="--no-keys"):
            _listener(request)
    else:
        _listener(request).close()


@pytest.mark.parametrize("origins", ["*", "https://a.example.com, *"])
def test_pages_of_all_sites_are_served_only_with_keys_or_if_somebody_else_asks(tmp_path: Path, origins: str) -> None:
    settings = Settings(state_dir=tmp_path, api_origins=origins)
    keys = KeyFile(settings.api_keys)
    with pytest.raises(CommandRefused, match=r"DAGWRIGHT_API_ORIGINS is \*.*dagwright keys add OWNER"):
        _refuse_all_pages(settings, keys, needs_keys=True)
    _refuse_all_pages(settings, keys, needs_keys=False)
    _refuse_all_pages(Settings(state_dir=tmp_path, api_origins="https://a.example.com"), keys, needs_keys=True)
    keys.add("ann", [])
    _refuse_all_pages(settings, keys, needs_keys=True)


def test_key_is_added_and_a_ui_that_cannot_be_closed_is_reported(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(_: LocalServer) -> bool:
        raise NoServer("there is no program")

    monkeypatch.setattr(LocalServer, "close_ui", refuse)
    assert run_command_line(["keys", "add", "ann", "--json"]) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)["status"] == "added"
    assert shown.err.endswith("the Temporal UI, which does not check keys, could not be closed: there is no program\n")
