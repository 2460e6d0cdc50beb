"""Agent cards: fields, files, and errors of invalid cards."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from dagwright.agents import AgentCard, AgentRegistry, AgentsUnreadable, load_agents
from dagwright.core.model.agents import card_from_json
from dagwright.dialects.reading import read_plan_file
from dagwright.plans.preparation import check_plan
from dagwright.settings import Settings
from dagwright.toolset.toolset import load_toolset, references_of

WRITER: dict[str, Any] = {"description": "Writes short texts", "objective_template": "Write {what}"}
WRITER |= {"type": "llm", "prompt": "You write."}


def write_agents_file(folder: Path, name: str = "agents.json", **agents: Any) -> str:
    (folder / name).write_text(json.dumps({"agents": agents}), encoding="utf-8")
    return str(folder / name)


def problems_of(folder: Path, **agents: Any) -> str:
    with pytest.raises(AgentsUnreadable) as caught:
        load_agents([write_agents_file(folder, **agents)])
    return str(caught.value)


def test_cards_of_a_yaml_file_are_read_in_order(tmp_path: Path) -> None:
    desk = {"description": "Asks", "objective_template": "Ask {whom}", "type": "service", "service_secret": "DESK"}
    desk |= {"service_url": "https://desk.example.com/ask", "effects": "read", "timeout": "2m"}
    thinker = {"description": "Thinks", "objective_template": "Think about {what}", "type": "class"}
    cards: dict[str, Any] = {
        "writer": {**WRITER, "tools": ["read_file"]},
        "desk": desk,
        "thinker": {**thinker, "class_name": "ReasoningAgent", "feedback_policy": "never"},
    }
    file = tmp_path / "agents.yaml"
    lines = ["agents:"]
    for name, card in cards.items():
        lines += [f"  {name}:", *(f"    {key}: {value}" for key, value in card.items())]
    file.write_text("\n".join([*lines, "    name: thinker"]), encoding="utf-8")
    expected = [{"name": name, **card} for name, card in cards.items()]
    assert [card.to_json() for card in load_agents([str(file)])] == expected


def test_card_is_immutable_and_its_version_is_derived_from_its_content() -> None:
    card = AgentCard(name="writer", **WRITER)
    same_card = card_from_json(json.loads(json.dumps(card.to_json())))
    changed_card = AgentCard(name="writer", **{**WRITER, "prompt": "You write well."})
    assert (same_card, same_card.version) == (card, card.version)
    assert changed_card.version != card.version
    with pytest.raises(ValidationError):
        card.prompt = "Other"  # type: ignore[misc] # the test expects the error


def test_all_problems_of_a_file_are_reported_with_their_pointers(tmp_path: Path) -> None:
    invalid_card = {"description": "", "objective_template": "x", "type": "robot"}
    assert problems_of(tmp_path, a={**WRITER, "promt": "x", "tools": ["t", "t"]}, b=invalid_card, c=7) == (
        "agents.json: /agents/a/tools: duplicate name 't'; /agents/a/promt: unknown key; did you mean 'prompt'?; "
        "/agents/b/description: String should have at least 1 character; "
        "/agents/b/type: expected 'llm', 'class' or 'service', not 'robot'; "
        "/agents/c: expected an object with description, objective_template and type"
    )


CLASS_CARD = {"description": "Thinks", "objective_template": "x", "type": "class", "class_name": "a:B"}


@pytest.mark.parametrize(
    ("card", "message"),
    [
        (WRITER | {"model": "gpt-4o"}, "/model: unknown key; an agent has no model: each request selects the model"),
        (WRITER | {"name": "v"}, ": its key is 'w', but its name is 'v'; remove the name"),
        (WRITER | {"prompt": None}, ": an agent of type llm needs 'prompt'"),
        (WRITER | {"class_name": "m:C"}, ": 'class_name' is for agents of type class, and this agent is of type llm"),
        (WRITER | {"type": "class"}, ": an agent of type class needs 'class_name'"),
        (WRITER | {"tools": "read_file"}, "/tools: expected a list of names, not 'read_file'"),
        (WRITER | {"prompt": "x" * 40_000}, "/prompt: a prompt has 1 to 32,768 bytes"),
        (WRITER | {"feedback_policy": "often"}, "/feedback_policy: expected 'never', 'on_request', 'always' or"),
        (CLASS_CARD | {"class_name": "3d"}, "/class_name: expected package.module:Class"),
        (CLASS_CARD | {"timeout": "soon"}, "/timeout: 'soon' is not a duration; write a number and a unit"),
        (CLASS_CARD | {"feedback_policy": "always"}, ": feedback_policy 'always' is for agents of type llm"),
        (CLASS_CARD | {"effects": "pure"}, "/effects: expected 'read', 'idempotent' or 'write', not 'pure'"),
    ],
)
def test_invalid_card_is_rejected_with_advice(tmp_path: Path, card: dict[str, Any], message: str) -> None:
    assert problems_of(tmp_path, w=card).startswith(f"agents.json: /agents/w{message}")


def test_invalid_agent_name_is_rejected(tmp_path: Path) -> None:
    for name in ("", "a\nb", " a", "a/b", "x" * 101):
        assert "a name has letters, digits" in problems_of(tmp_path, **{name: WRITER})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1]", "agents.json is not a file of agents: expected an object with the key 'agents'"),
        ('{"agent": {}}', "agents.json: /agent: unknown key; did you mean 'agents'?"),
        ('{"agents": {}}', "agents.json: /agents: expected a non-empty object that maps names to agents"),
        ("{", "the agents: "),
    ],
)
def test_file_without_agents_is_rejected(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "agents.json").write_text(text, encoding="utf-8")
    with pytest.raises(AgentsUnreadable, match=r"^agents\.json|^the agents") as caught:
        load_agents([str(tmp_path / "agents.json")])
    assert str(caught.value).startswith(message)


def test_agents_of_a_python_file_are_collected(tmp_path: Path) -> None:
    file = tmp_path / "my_agents.py"
    file.write_text(
        "from dagwright.agents import AgentCard\n"
        "def card(name):\n"
        "    return AgentCard(name=name, description='d', objective_template='o', type='llm', prompt='p')\n"
        "ONE = card('one')\n"
        "MORE = {'two': card('two'), 'three': card('three')}\n",
        encoding="utf-8",
    )
    assert [card.name for card in load_agents([str(file), str(file)])] == ["one", "two", "three"]
    (tmp_path / "empty.py").write_text("", encoding="utf-8")
    with pytest.raises(AgentsUnreadable, match=r"empty\.py has no agent in it"):
        load_agents([str(tmp_path / "empty.py")])


def test_equal_agents_of_two_files_count_once_and_different_agents_are_rejected(tmp_path: Path) -> None:
    file_a, file_b = (write_agents_file(tmp_path, name, w=WRITER) for name in ("a.json", "b.json"))
    assert len(load_agents([file_a, file_b])) == 1
    file_c = write_agents_file(tmp_path, "c.json", w={**WRITER, "prompt": "Other"})
    with pytest.raises(AgentsUnreadable, match=r"Two agents are called 'w': in a\.json and in c\.json"):
        load_agents([file_a, file_b, file_c])


def test_registry_suggests_a_similar_agent_and_lists_missing_tools() -> None:
    registry = AgentRegistry.of(AgentCard(name="writer", **{**WRITER, "tools": ["read_file", "web_serch"]}))
    with pytest.raises(KeyError, match="there is no agent 'writter'; did you mean 'writer'"):
        registry["writter"]
    assert registry.missing_tools(["read_file"]) == {"writer": ["web_serch"]}
    assert registry.missing_tools(["read_file", "web_serch"]) == {}
    with pytest.raises(ValueError, match="two agents are called 'writer'"):
        AgentRegistry.of(*registry, AgentCard(name="writer", **WRITER))


EXAMPLES = Path(__file__).parents[3] / "examples"


def test_tools_of_example_agents_exist_and_the_example_plan_is_valid(tmp_path: Path) -> None:
    toolset = load_toolset(Settings(state_dir=tmp_path), references_of([], [str(EXAMPLES / "agents.yaml")]))
    assert [(card.name, card.type, card.tools) for card in toolset.agents] == [
        ("web_researcher", "llm", ("web_search", "summarize")),
        ("travel_planner", "llm", ("flight_search", "hotel_search", "activity_search")),
        ("deep_reasoner", "class", ()),
        ("code_analyzer", "llm", ("read_file", "list_directory", "search_files")),
    ]
    assert toolset.agents.missing_tools(toolset.declarations()) == {}
    checked_plan = check_plan(read_plan_file(EXAMPLES / "seeds" / "agents_paris.json"), toolset.declarations())
    assert [node.agent for node in checked_plan.nodes] == ["web_researcher", "web_researcher", "travel_planner"]
