"""The agents and plans of `examples/`, with their tools and a scripted model."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from temporalio.client import Client

from dagwright.agents import load_agents
from dagwright.agents.agent_calls import agent_tools
from dagwright.core.model.policy import ASK_FOR_CHANGES, Policy, Rule
from dagwright.dialects.reading import read_plan_file
from dagwright.settings import Settings
from dagwright.testing import ModelServer, SearchServer, json_text, search_answer, text, tool_call
from dagwright.tools import ToolRegistry
from dagwright.tools.environment import ToolEnvironment
from tests.support.agents import model_settings
from tests.support.plan_building import plan_of
from tests.support.runs import checked_runs, document_of
from tests.support.travel import EXAMPLE, travel_service

pytestmark = pytest.mark.server

AGENTS_FILE = Path(__file__).parents[2] / "examples" / "agents.yaml"
HOTEL_DAYS = {"check_in": "2026-06-12", "check_out": "2026-06-15"}


def agent_node(name: str, objective: str, *dependencies: str) -> dict[str, Any]:
    return {"id": name, "agent": name, "objective": objective, "depends_on": list(dependencies)}


PLAN = plan_of(
    agent_node("web_researcher", "Find out when the old bridge was built and sum it up"),
    agent_node("travel_planner", "Plan 3 days in Prague for 2 people, from Vienna", "web_researcher"),
    agent_node("deep_reasoner", "Think this through: is it worth the journey?", "travel_planner"),
    agent_node("code_analyzer", "Look at small.py and tell what it does", "deep_reasoner"),
)
STEPS = (
    tool_call("web_search", query="old bridge built"),
    tool_call("summarize", text="The bridge was finished in 1402."),
    text("Finished in 1402."),
    text("Finished in 1402, says bridges.example.com."),
    tool_call("flight_search", origin="Vienna", destination="Prague", depart="2026-06-12", passengers=2),
    tool_call("hotel_search", city="Prague", guests=2, **HOTEL_DAYS),
    tool_call("activity_search", city="Prague", day="2026-06-13"),
    text("Day 1: the bridge."),
    json_text({"parts": ["What does it cost?"]}),
    text("Little."),
    text("It is."),
    tool_call("list_directory", path="."),
    tool_call("search_files", pattern="*.py", text="def"),
    tool_call("read_file", path="small.py"),
    text("It doubles a number."),
)


ALLOW_FILE_SEARCH = Policy((Rule("run", tool="read_file"), Rule("run", tool="search_files"), *ASK_FOR_CHANGES.rules))
"""Without this policy, the call of `search_files` needs an approval, because the objective does not name all files."""


async def test_each_of_the_four_agents_returns_its_result(client: Client, tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "small.py").write_text("def double(n):\n    return 2 * n\n")
    searches = {"old bridge built": [search_answer("Finished in 1402", link="https://bridges.example.com")]}
    with travel_service() as travel_address:
        async with SearchServer(searches) as search, ModelServer(*STEPS) as model:
            settings = model_settings(
                model,
                tmp_path / "state",
                files_root=tmp_path / "code",
                serper_api_key=SecretStr("key"),
                serper_base_url=search.base_url,
                search_url=travel_address,
            )
            tools = agent_tools(load_agents([str(AGENTS_FILE)]), ToolEnvironment(tmp_path))
            async with checked_runs(client, tools, settings=settings) as runs:
                document = await document_of(await runs.start(PLAN, policy=ALLOW_FILE_SEARCH))
    assert {name: (node["status"], node["result"]) for name, node in document["nodes"].items()} == {
        "web_researcher": ("completed", "Finished in 1402, says bridges.example.com."),
        "travel_planner": ("completed", "Day 1: the bridge."),
        "deep_reasoner": (
            "completed",
            {"answer": "It is.", "steps": [{"question": "What does it cost?", "finding": "Little."}]},
        ),
        "code_analyzer": ("completed", "It doubles a number."),
    }
    last_messages = [call.messages[-1]["content"] for call in model.calls]
    # Index of a model call -> text in the last message of the call.
    expected_texts = {
        1: "1402",
        3: "1402",
        5: "airline",
        6: "hotel",
        7: "price",
        12: "small.py",
        13: "small.py",
        14: "2 * n",
    }
    calls_without_expected_text = [
        index
        for index, expected_text in expected_texts.items()
        if expected_text.casefold() not in str(last_messages[index]).casefold()
    ]
    assert calls_without_expected_text == []


async def test_paris_example_finds_a_flight_a_hotel_and_activities(client: Client, tmp_path: Path) -> None:
    plan = read_plan_file(EXAMPLE / "paris.yaml")
    with travel_service() as address:
        settings = Settings(state_dir=tmp_path, search_url=address)
        async with checked_runs(client, ToolRegistry(), settings=settings) as runs:
            document = await document_of(await runs.start(plan, inputs={"origin": "Oslo"}))
    output, nodes = document["output"], document["nodes"]
    assert document["status"] == "completed"
    assert output["flight"] == nodes["flights"]["result"][0]["id"]
    assert output["to_do"] == [activity["name"] for activity in nodes["activities"]["result"]]
    assert output["hotel"].endswith(", Paris")
    assert all(flight["origin"] == "Oslo" for flight in nodes["flights"]["result"])
