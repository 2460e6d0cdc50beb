"""Agents in plans: tools that are declared by agent cards, and problems of nodes that call agents."""

from collections.abc import Mapping

import pytest

from dagwright.core.errors import Problem
from dagwright.core.model.agents import AgentCard, agent_cards, agent_declaration, tool_of_agent
from dagwright.core.model.tools import Effects, ToolDeclaration
from dagwright.plans.preparation import unknown_tools
from tests.support.plan_building import TOOLS, check, node, plan_of, problems_of

RESEARCHER = AgentCard(
    name="web_researcher",
    description="Searches the web",
    objective_template="Research {topic}",
    type="llm",
    prompt="You search.",
    tools=("any", "web_search"),
)
TOOLS_AND_AGENTS: Mapping[str, ToolDeclaration] = {
    **TOOLS,
    "agent.web_researcher": agent_declaration(RESEARCHER),
    "web_search": ToolDeclaration("web_search", Effects.READ),
    "writer": ToolDeclaration("writer", Effects.READ),
}


def test_agent_is_declared_as_a_tool_and_found_by_its_name() -> None:
    declaration = agent_declaration(RESEARCHER)
    expected = ("agent.web_researcher", Effects.WRITE, 300.0)
    assert (declaration.name, declaration.effects, declaration.timeout_s) == expected
    assert (declaration.version, declaration.is_pinned, declaration.agent) == (RESEARCHER.version, True, RESEARCHER)
    assert list(agent_cards(TOOLS_AND_AGENTS)) == [RESEARCHER]
    assert tool_of_agent("web_researcher", TOOLS_AND_AGENTS) is TOOLS_AND_AGENTS["agent.web_researcher"]
    assert tool_of_agent("writer", TOOLS_AND_AGENTS) is TOOLS_AND_AGENTS["writer"]
    assert tool_of_agent("nobody", TOOLS_AND_AGENTS) is None
    plan = plan_of(node("a", agent="nobody", objective="x"), node("b", tool="missing"), node("c", agent="writer"))
    assert unknown_tools(plan, TOOLS_AND_AGENTS, context=None) == ["missing", "agent.nobody", "nobody"]


_FILE_HINT = "name its file: --agents on the command line"


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("web_reseacher", "did you mean 'web_researcher'?"),
        ("accountant", f"{_FILE_HINT}, Worker(agents=[...]) in Python; or add it to the database"),
    ],
)
def test_unknown_agent_is_reported_with_a_hint(name: str, hint: str) -> None:
    plan = plan_of(node("a", agent=name, objective="Find it"))
    problem = Problem("unknown_agent", f"there is no agent {name!r}", "/nodes/0/agent", "a", hint)
    assert list(problems_of(plan, tools=TOOLS_AND_AGENTS)) == [problem]
    assert [node.agent for node in check(plan, tools=TOOLS_AND_AGENTS, allow_unknown_tools=True).nodes] == [name]


def test_agent_needs_an_objective_and_takes_no_arguments() -> None:
    plan = plan_of(node("a", agent="web_researcher", arguments={"topic": "tea"}), node("b", agent="writer"))
    objective_message = "the agent 'web_researcher' needs an objective, such as: Research {topic}"
    arguments_message = "the agent 'web_researcher' takes an objective, not arguments"
    assert list(problems_of(plan, tools=TOOLS_AND_AGENTS)) == [
        Problem("invalid_field", objective_message, "/nodes/0", "a"),
        Problem("invalid_field", arguments_message, "/nodes/0/arguments", "a", "write the values into the objective"),
    ]


def test_agent_that_needs_an_unknown_tool_is_rejected() -> None:
    plan = plan_of(node("a", agent="web_researcher", objective="Find it"))
    tools = {name: tool for name, tool in TOOLS_AND_AGENTS.items() if name != "web_search"}
    message = "the agent 'web_researcher' needs an unknown tool 'web_search'"
    hint = "name its module: --tools on the command line, tools=[...] in Python"
    assert list(problems_of(plan, tools=tools)) == [Problem("unknown_tool", message, "/nodes/0/agent", "a", hint)]
    assert check(plan, tools=tools, allow_unknown_tools=True).nodes[0].agent == "web_researcher"


def test_agent_named_as_a_tool_is_rejected_with_a_correction() -> None:
    plan = plan_of(node("a", tool="web_researcher"), node("b", tool="agent.web_researcher"))
    hint = "write agent: web_researcher"
    assert list(problems_of(plan, tools=TOOLS_AND_AGENTS)) == [
        Problem("unknown_tool", "there is no tool 'web_researcher'", "/nodes/0/tool", "a", "it is an agent: " + hint),
        Problem("invalid_field", "'agent.web_researcher' is an agent, not a tool", "/nodes/1/tool", "b", hint),
    ]
