"""Agent cards: what one may hold, how files of them are read, the errors in wrong ones, and those of the examples."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from dagwright.agents import AgentCard, AgentRegistry, AgentsUnreadable, load_agents
from dagwright.core.model.agent_cards import card_from_json
from dagwright.dialects.reading import read_plan_file
from dagwright.plans.preparation import check_plan
from dagwright.settings import Settings
from dagwright.toolset.toolset import Toolset, load_toolset, references_of

WRITER: dict[str, Any] = {
    "description": "Writes short texts",
    "objective_template": "Write {what}",
    "type": "llm",
    "prompt": "You write.",
}


def file_of(folder: Path, name: str = "agents.json", **agents: Any) -> str:
    (folder / name).write_text(json.dumps({"agents": agents}), encoding="utf-8")
    return str(folder / name)


def said_of(folder: Path, **agents: Any) -> str:
    with pytest.raises(AgentsUnreadable) as caught:
        load_agents([file_of(folder, **agents)])
    return str(caught.value)


def test_cards_of_a_yaml_file_are_read_in_order(tmp_path: Path) -> None:
    file = tmp_path / "agents.yaml"
    file.write_text(
        "agents:\n"
        "  writer:\n    description: Writes\n    objective_template: Write {what}\n    type: llm\n"
        "    prompt: You write.\n    tools: [read_file]\n"
        "  desk:\n    name: desk\n    description: Asks\n    objective_template: Ask {whom}\n    type: service\n"
        "    service_url: https://desk.example.com/ask\n    service_secret: DESK\n    effects: read\n    timeout: 2m\n"
        "  thinker:\n    description: Thinks\n    objective_template: Think about {what}\n    type: class\n"
        "    class_name: ReasoningAgent\n    feedback_policy: never\n",
        encoding="utf-8",
    )
    assert [card.to_json() for card in load_agents([str(file)])] == [
        {
            "name": "writer",
            "description": "Writes",
            "objective_template": "Write {what}",
            "type": "llm",
            "prompt": "You write.",
            "tools": ["read_file"],
        },
        {
            "name": "desk",
            "description": "Asks",
            "objective_template": "Ask {whom}",
            "type": "service",
            "service_url": "https://desk.example.com/ask",
            "service_secret": "DESK",
            "effects": "read",
            "timeout": "2m",
        },
        {
            "name": "thinker",
            "description": "Thinks",
            "objective_template": "Think about {what}",
            "type": "class",
            "class_name": "ReasoningAgent",
            "feedback_policy": "never",
        },
    ]


def test_card_never_changes_and_its_version_is_all_that_it_says() -> None:
    card = AgentCard(name="writer", **WRITER)
    same = card_from_json(json.loads(json.dumps(card.to_json())))
    other = AgentCard(name="writer", **{**WRITER, "prompt": "You write well."})
    assert (same, same.version) == (card, card.version)
    assert other.version != card.version
    with pytest.raises(ValidationError):
        card.prompt = "Other"  # type: ignore[misc] # that it is refused is what is tried


def test_everything_that_is_wrong_with_a_file_is_told_with_its_place(tmp_path: Path) -> None:
    said = said_of(
        tmp_path,
        a={**WRITER, "promt": "x", "tools": ["t", "t"]},
        b={"description": "", "objective_template": "x", "type": "robot"},
        c=7,
    )
    assert said == (
        "agents.json: /agents/a/tools: 't' is there twice; /agents/a/promt: unknown key; did you mean 'prompt'?; "
        "/agents/b/description: String should have at least 1 character; "
        "/agents/b/type: expected 'llm', 'class' or 'service', not 'robot'; "
        "/agents/c: expected an object with description, objective_template and type"
    )


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"model": "gpt-4o"}, "/agents/w/model: unknown key; an agent has no model: each request says which one is"),
        ({"name": "v"}, "/agents/w: its name is 'w' here and 'v' inside; leave the one inside out"),
        ({"prompt": None}, "/agents/w: an agent of type llm needs 'prompt'"),
        ({"class_name": "m:C"}, "/agents/w: 'class_name' is for agents of type class, and this one is of type llm"),
        ({"type": "class"}, "/agents/w: an agent of type class needs 'class_name'"),
        ({"tools": "read_file"}, "/agents/w/tools: expected a list of names, not 'read_file'"),
        ({"prompt": "x" * 40_000}, "/agents/w/prompt: a prompt has 1 to 32,768 bytes"),
        ({"feedback_policy": "often"}, "/agents/w/feedback_policy: expected 'never', 'on_request', 'always' or"),
    ],
)
def test_wrong_card_is_refused_with_advice(tmp_path: Path, fields: dict[str, Any], said: str) -> None:
    assert said_of(tmp_path, w={**WRITER, **fields}).startswith(f"agents.json: {said}")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"class_name": "3d"}, "/class_name: expected package.module:Class"),
        ({"class_name": "a:B", "timeout": "soon"}, "/timeout: 'soon' is no duration; write a number and a unit"),
        ({"class_name": "a:B", "feedback_policy": "always"}, ": feedback_policy 'always' is for agents of type llm"),
        ({"class_name": "a:B", "effects": "pure"}, "/effects: expected 'read', 'idempotent' or 'write', not 'pure'"),
    ],
)
def test_wrong_card_of_a_class_is_refused_with_advice(tmp_path: Path, fields: dict[str, Any], said: str) -> None:
    card = {"description": "Thinks", "objective_template": "x", "type": "class", **fields}
    assert said_of(tmp_path, t=card).startswith(f"agents.json: /agents/t{said}")


@pytest.mark.parametrize("name", ["", "a\nb", " a", "a/b", "x" * 101])
def test_name_that_no_activity_can_have_is_refused(tmp_path: Path, name: str) -> None:
    assert "a name has letters, digits" in said_of(tmp_path, **{name: WRITER})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[1]", "agents.json is no file of agents: expected an object with the key 'agents'"),
        ('{"agent": {}}', "agents.json: /agent: unknown key; did you mean 'agents'?"),
        ('{"agents": {}}', "agents.json: /agents: expected an object of agents by name, with at least one"),
        ("{", "the agents: "),
    ],
)
def test_file_that_holds_no_agents_is_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "agents.json").write_text(text, encoding="utf-8")
    with pytest.raises(AgentsUnreadable, match=r"^agents\.json|^the agents") as caught:
        load_agents([str(tmp_path / "agents.json")])
    assert str(caught.value).startswith(said)


def test_agents_of_a_python_file_are_those_it_makes(tmp_path: Path) -> None:
    file = tmp_path / "cast.py"
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


def test_two_files_cannot_have_two_agents_of_one_name(tmp_path: Path) -> None:
    files = [
        file_of(tmp_path, "a.json", w=WRITER),
        file_of(tmp_path, "b.json", w=WRITER),
        file_of(tmp_path, "c.json", w={**WRITER, "prompt": "Other"}),
    ]
    assert len(load_agents(files[:2])) == 1
    with pytest.raises(AgentsUnreadable, match=r"Two agents are called 'w': in a\.json and in c\.json"):
        load_agents(files)


def test_registry_names_the_nearest_agent_and_the_tools_that_are_not_there() -> None:
    registry = AgentRegistry.of(AgentCard(name="writer", **{**WRITER, "tools": ["read_file", "web_serch"]}))
    with pytest.raises(KeyError, match="there is no agent 'writter'; did you mean 'writer'"):
        registry["writter"]
    assert registry.missing_tools(["read_file"]) == {"writer": ["web_serch"]}
    assert registry.missing_tools(["read_file", "web_serch"]) == {}
    with pytest.raises(ValueError, match="two agents are called 'writer'"):
        AgentRegistry.of(*registry, AgentCard(name="writer", **WRITER))


EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.fixture
def toolset(tmp_path: Path) -> Toolset:
    return load_toolset(Settings(state_dir=tmp_path), references_of([], [str(EXAMPLES / "agents.yaml")]))


def test_four_agents_have_all_their_tools(toolset: Toolset) -> None:
    assert [(card.name, card.type, card.tools) for card in toolset.agents] == [
        ("web_researcher", "llm", ("web_search", "summarize")),
        ("travel_planner", "llm", ("flight_search", "hotel_search", "activity_search")),
        ("deep_reasoner", "class", ()),
        ("code_analyzer", "llm", ("read_file", "list_directory", "search_files")),
    ]
    assert toolset.agents.missing_tools(toolset.declarations()) == {}


def test_plan_of_agents_is_valid_with_them(toolset: Toolset) -> None:
    checked = check_plan(read_plan_file(EXAMPLES / "seeds" / "agents_paris.json"), toolset.declarations())
    assert [node.agent for node in checked.nodes] == ["web_researcher", "web_researcher", "travel_planner"]
