"""Extras that are not installed: each use of their features reports a message without a traceback."""

import json
import sqlite3
import sys
import tomllib
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dagwright.activities.errors import error_text, retry_decision
from dagwright.agents.agent_database import stored_cards
from dagwright.core.extras import EXTRAS, MissingExtra, has_extra
from dagwright.core.model.tools import Effects
from dagwright.interfaces.cli.app import run_command_line
from dagwright.interfaces.cli.model_choice import require_model
from dagwright.llm import Endpoint, ModelClient, ModelFailure, user
from dagwright.mcp_client import Variables, load_servers
from dagwright.planning.model_calls.model_requests import ModelCall
from dagwright.settings import load_settings
from dagwright.store.bucket import BucketStore
from dagwright.store.location import BucketLocation
from dagwright.tools.builtin.texts import render_template
from dagwright.toolset.toolset import load_toolset

ROOT = Path(__file__).parents[3]
Uninstall = Callable[[str], str]


@pytest.fixture
def uninstall(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Uninstall:
    """Return a function that blocks the imports of an extra and returns the expected error message."""
    monkeypatch.chdir(tmp_path)

    def block_imports(extra: str) -> str:
        for module in EXTRAS[extra]:
            monkeypatch.setitem(sys.modules, module, None)
        return f'this needs the extra "{extra}": pip install "dagwright[{extra}]"'

    return block_imports


def test_extras_in_the_code_are_the_extras_in_pyproject() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {*EXTRAS, "all", "uvloop"} == project["optional-dependencies"].keys()
    assert all(map(has_extra, EXTRAS))


@pytest.mark.parametrize(
    ("extra", "command"),
    [
        ("gateway", "serve"),
        ("gateway", "up"),
        ("gateway", "keys list"),
        ("mcp", "mcp"),
        ("mcp", "check plan.json --tools servers.json"),
        ("database", "agents list"),
    ],
)
def test_command_without_its_extra_reports_the_extra(
    extra: str, command: str, uninstall: Uninstall, capsys: pytest.CaptureFixture[str]
) -> None:
    message = uninstall(extra)
    Path("plan.json").write_text('{"plan": 1, "nodes": []}', encoding="utf-8")
    Path("servers.json").write_text(json.dumps({"mcpServers": {"s": {"command": "true"}}}), encoding="utf-8")
    assert run_command_line(command.split()) == 2
    assert capsys.readouterr().err == f"{message}\n"


def test_json_output_has_the_status_missing_extra(uninstall: Uninstall, capsys: pytest.CaptureFixture[str]) -> None:
    message = uninstall("gateway")
    assert run_command_line(["serve", "--json"]) == 2
    assert json.loads(capsys.readouterr().out) == {"code": "missing_extra", "message": message}


async def test_model_call_without_its_extra_is_not_retried(uninstall: Uninstall) -> None:
    message = uninstall("openai")
    async with ModelClient(Endpoint("http://127.0.0.1:9", "key"), model="m") as client:
        with pytest.raises(ModelFailure) as caught:
            await client.complete(ModelCall(messages=(user("hello"),)))
    assert str(caught.value) == message
    assert caught.value.action == "give_up"


@pytest.mark.parametrize(
    ("extra", "call_feature"),
    [
        ("openai", lambda _: require_model("m", load_settings(), load_toolset(load_settings()), is_detached=False)),
        ("mcp", lambda folder: load_servers([folder / "servers.json"], Variables(lambda _: None, lambda _: None))),
        ("database", lambda folder: stored_cards(f"sqlite:///{folder}/agents.db")),
        ("postgres", lambda _: stored_cards("postgresql://host/agents")),
        ("jinja", lambda _: render_template("Dear ${name}", {"name": "Ada"})),
    ],
)
def test_function_without_its_extra_reports_the_extra(
    extra: str, call_feature: Callable[[Path], Any], uninstall: Uninstall, tmp_path: Path
) -> None:
    (tmp_path / "servers.json").write_text(json.dumps({"mcpServers": {"s": {"command": "true"}}}), encoding="utf-8")
    with closing(sqlite3.connect(tmp_path / "agents.db")) as connection:
        connection.executescript("CREATE TABLE agent_card (name TEXT); INSERT INTO agent_card VALUES ('a')")
    message = uninstall(extra)
    with pytest.raises(MissingExtra) as caught:
        call_feature(tmp_path)
    assert str(caught.value) == message


def test_tool_call_without_its_extra_is_not_retried() -> None:
    error = MissingExtra("mcp")
    assert retry_decision(error, Effects.READ).is_final
    assert error_text(error) == str(error)


async def test_bucket_store_without_its_extra_reports_the_extra(uninstall: Uninstall) -> None:
    message = uninstall("s3")
    with pytest.raises(MissingExtra) as caught:
        await BucketStore(BucketLocation("bucket", "prefix")).check()
    assert str(caught.value) == message
