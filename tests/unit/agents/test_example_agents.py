"""The agents of `examples/agents.yaml`: they are there, with the tools that they name, and plans can name them."""

from pathlib import Path

import pytest

from dagwright.dialects.reading import read_plan_file
from dagwright.preparation import check_plan
from dagwright.settings import Settings
from dagwright.toolset import Toolset, load_toolset, references_of

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
