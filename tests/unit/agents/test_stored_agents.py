"""Agents that are added at run time: versions, commands, and their use in workers."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dagwright.agents.agent_database import StoredAgentTools, stored_cards
from dagwright.agents.stored_agents import AGENTS, AddResult, StoredAgents
from dagwright.core.model.agents import AgentCard
from dagwright.database.database import Database
from dagwright.interfaces.cli.app import run_command_line
from dagwright.settings import Settings
from dagwright.tools.environment import ToolEnvironment
from dagwright.toolset.toolset import load_toolset
from tests.support.agent_harness import card_of
from tests.support.postgres import PostgresCluster

WRITER: dict[str, Any] = {
    "description": "Writes",
    "objective_template": "Write {what}",
    "type": "llm",
    "prompt": "You write.",
    "tools": ["calculator"],
}


@pytest.fixture(autouse=True)
def _empty_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'agents.db'}"


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def url(request: pytest.FixtureRequest, sqlite_url: str) -> str:
    if request.param == "sqlite":
        return sqlite_url
    cluster: PostgresCluster = request.getfixturevalue("postgres_cluster")
    return cluster.new_database()


@pytest.fixture
def stored_agents(url: str) -> Iterator[StoredAgents]:
    database = Database(url, AGENTS)
    yield StoredAgents(database)
    database.dispose()


def card(name: str = "helper", **fields: Any) -> AgentCard:
    return card_of("service", name=name, service_url="https://desk.example.com/ask", **fields)


def test_only_a_changed_card_is_a_new_version(stored_agents: StoredAgents) -> None:
    first_card, second_card = card(), card(description="Helps more")
    assert stored_agents.add([first_card, card("other")]) == [
        AddResult("helper", 1, is_new=True),
        AddResult("other", 1, is_new=True),
    ]
    for each, number, is_new in ((first_card, 1, False), (second_card, 2, True), (first_card, 3, True)):
        assert stored_agents.add([each]) == [AddResult("helper", number, is_new=is_new)]
    versions = [(version.card, version.number, version.is_current) for version in stored_agents.versions("helper")]
    assert versions == [(first_card, 3, True), (second_card, 2, False), (first_card, 1, False)]
    assert [(each.card.name, each.number) for each in stored_agents.current_versions()] == [("helper", 3), ("other", 1)]


def test_removed_agent_stays_available_by_its_version(stored_agents: StoredAgents) -> None:
    first_card, second_card = card(), card(description="Helps more")
    stored_agents.add([first_card])
    stored_agents.add([second_card])
    assert [stored_agents.remove(name) for name in ("helper", "helper", "nobody")] == [True, False, False]
    assert stored_agents.current_versions() == []
    assert stored_agents.card("helper", first_card.version) == first_card
    assert stored_agents.card("helper", "0123456789ab") is None
    assert stored_agents.add([second_card]) == [AddResult("helper", 3, is_new=True)]
    assert stored_agents.card("helper", None) == second_card


def test_missing_database_is_not_created_and_an_invalid_database_is_ignored(sqlite_url: str, tmp_path: Path) -> None:
    assert stored_cards(sqlite_url) == ()
    assert not (tmp_path / "agents.db").exists()
    (tmp_path / "agents.db").write_bytes(b"no database")
    assert stored_cards(sqlite_url) == ()
    assert StoredAgentTools(sqlite_url, ToolEnvironment(tmp_path)).spec("helper", None) is None


def test_unreadable_database_is_logged(url: str, stored_agents: StoredAgents, caplog: pytest.LogCaptureFixture) -> None:
    stored_agents.add([card()])
    database = Database(url, AGENTS)
    database.write(lambda session: session.connection().exec_driver_sql("ALTER TABLE agent_card DROP COLUMN card"))
    database.dispose()
    with caplog.at_level(logging.WARNING, logger="dagwright.agents.agent_database"):
        assert stored_cards(url) == ()
    assert "the agents in the database cannot be loaded: " in caplog.text
    assert "agent_card.card" in caplog.text


def test_file_overrides_the_agents_of_the_database(tmp_path: Path) -> None:
    settings = Settings(state_dir=tmp_path)
    database = Database(settings.database_url, AGENTS)
    StoredAgents(database).add([card(), card("writer", description="Of the database")])
    database.dispose()
    (tmp_path / "agents.json").write_text(json.dumps({"agents": {"writer": WRITER}}))
    declarations = load_toolset(settings, [f"agents:{tmp_path / 'agents.json'}"]).declarations()
    agents = {name: tool.agent.description for name, tool in declarations.items() if tool.agent is not None}
    assert agents == {"agent.helper": "Helps", "agent.writer": "Writes"}
    assert (declarations["agent.helper"].task_queue, declarations["agent.helper"].is_pinned) == (None, True)


def test_worker_calls_the_version_of_the_checked_plan(url: str, stored_agents: StoredAgents, tmp_path: Path) -> None:
    first_card, second_card = card(), card(description="Helps more")
    for each in (first_card, second_card, card("writer")):
        stored_agents.add([each])
    stored_agents.remove("helper")
    tools = StoredAgentTools(url, ToolEnvironment(tmp_path))
    for version, expected in (
        (first_card.version, first_card),
        (second_card.version, second_card),
        (None, second_card),
    ):
        spec = tools.spec("helper", version)
        assert spec is not None
        assert (spec.name, spec.declaration.agent) == ("agent.helper", expected)
    assert tools.spec("helper", "0123456789ab") is None
    assert tools.spec("nobody", None) is None


def test_commands_add_list_show_and_remove_agents(capsys: pytest.CaptureFixture[str]) -> None:
    Path("agents.json").write_text(json.dumps({"agents": {"writer": WRITER}}))
    Path("more.json").write_text(json.dumps({"agents": {"writer": {**WRITER, "tools": ["web_serch"]}}}))

    def output_of(*arguments: str) -> tuple[int, str, str]:
        code = run_command_line(["agents", *arguments])
        return (code, *capsys.readouterr())

    no_agents_message = "there are no agents; `dagwright agents add FILE` adds the agents of a file\n"
    unknown_tools_message = (
        "the agent 'writer' names unknown tools: web_serch; to run the agent, load them with --tools\n"
    )
    assert output_of("list") == (0, no_agents_message, "")
    assert output_of("add", "agents.json") == (0, "writer: version 1\n", "")
    assert output_of("add", "agents.json") == (0, "writer: version 1, unchanged\n", "")
    assert output_of("add", "more.json") == (0, "writer: version 2\n", unknown_tools_message)
    code, listing, _ = output_of("list", "--json")
    writer = {"name": "writer", "version": 2, "type": "llm", "description": "Writes", "is_current": True}
    assert (code, [{**entry, "added_at": ""} for entry in json.loads(listing)]) == (0, [{**writer, "added_at": ""}])
    document = json.loads(output_of("show", "writer", "--json")[1])
    assert document["card"] == {"name": "writer", **WRITER, "tools": ["web_serch"]}
    assert [(version["version"], version["is_current"]) for version in document["versions"]] == [(2, True), (1, False)]
    lines = output_of("show", "writer")[1].splitlines()
    assert [line.partition(", added at ")[0] for line in lines[:2]] == ["writer: version 2", "earlier: version 1"]
    assert output_of("show", "writter")[0::2] == (2, "there is no agent 'writter'; did you mean 'writer'?\n")
    unknown_agent_message = "there is no agent 'writer'; `dagwright agents list` lists the agents\n"
    assert (output_of("remove", "writer")[0], output_of("remove", "writer")[0::2]) == (0, (2, unknown_agent_message))
    assert output_of("list") == (0, no_agents_message, "")
    assert output_of("show", "writer")[1].startswith("writer: version 2, added at ")
    assert output_of("add", "none.json")[0] == 2
