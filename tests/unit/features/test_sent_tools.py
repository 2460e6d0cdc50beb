"""Tool declarations that a run receives: with its plan, and with added nodes."""

import json
import re
from dataclasses import fields, replace
from typing import Any, cast

import pytest

from dagwright.core.compiler.compiled_checks import compiled_plan_problem
from dagwright.core.model.agents import AgentCard, agent_declaration
from dagwright.core.model.compiled import CompiledNode, CompiledPlan, tool_from_json, tool_to_json
from dagwright.core.model.tools import ENCODED_FIELDS, Effects, ToolDeclaration, WorkerCard, effects_of_call
from dagwright.features.plan_edits.sent_tools import tool_to_json as sent_tool_to_json
from dagwright.features.plan_edits.sent_tools import tools_from_json, tools_to_json

_TOOL = ToolDeclaration(
    "t",
    Effects.IDEMPOTENT,
    task_queue="q",
    timeout_s=5.0,
    max_parallel=3,
    max_attempts=7,
    version="v1",
    is_pinned=True,
    is_foreign=True,
    workflow="Ship",
    batch=True,
    uses_models=True,
    effects_by={"argument": "mode", "default": "look", "effects": {"look": "read"}},
    undo="u",
    sets="cbu",
    resolver={"find": "f", "bind": "b"},
    worker=WorkerCard(description="Finds.", requires=("a",), outputs=("b",), goal_type="support", takes_sub_goal=True),
)


def test_every_field_of_a_declaration_is_sent_or_excluded_explicitly() -> None:
    separate_or_unsent_fields = {
        "name",  # encoded separately
        "effects",  # encoded separately
        "input_schema",  # encoded separately
        "timeout_s",  # in the nodes of a compiled plan
        "description",  # for people and models
        "returns",  # for the check before the run, and for planners
        "aliases",  # for the check before the run
        "secrets",  # for the check before the run, and for the worker
        "sends_to_hosts",  # for the worker
        "agent",  # the node of the agent has the fields of the card
        "worker",  # encoded separately, as JSON
        "output_schema",  # for the check before the run
        "plain_parameters",  # for the check before the run
    }
    assert {field.name for field in fields(ToolDeclaration)} == separate_or_unsent_fields | set(ENCODED_FIELDS)
    default_tool = ToolDeclaration("t", Effects.IDEMPOTENT)
    assert all(getattr(_TOOL, field) != getattr(default_tool, field) for field in ENCODED_FIELDS)


def test_serialization_keeps_all_fields_of_a_sent_tool_and_the_encoded_fields_of_a_plan_tool() -> None:
    assert tools_from_json({"t": sent_tool_to_json(_TOOL)}) == {"t": _TOOL}
    decoded_tool = tool_from_json("t", tool_to_json(_TOOL))
    assert all(getattr(decoded_tool, field) == getattr(_TOOL, field) for field in ENCODED_FIELDS)
    assert (decoded_tool.name, decoded_tool.effects, decoded_tool.worker) == ("t", Effects.IDEMPOTENT, _TOOL.worker)
    default_tool = ToolDeclaration("p", Effects.READ)
    assert tool_from_json("p", tool_to_json(default_tool)) == default_tool


def test_agent_is_sent_with_its_card_and_the_descriptions_of_its_tools() -> None:
    card = AgentCard(
        name="w", description="Writes", objective_template="Write", type="llm", prompt="Write!", tools=("t", "missing")
    )
    described_tool = replace(_TOOL, description="Tells.", input_schema={"type": "object"})
    tools = {"agent.w": agent_declaration(card), "t": described_tool, "other": _TOOL}
    encoded = json.loads(json.dumps(tools_to_json(["agent.w", "plain"], tools)))
    assert tools_from_json(encoded) == {"agent.w": tools["agent.w"], "t": described_tool}
    invalid_documents: list[dict[str, Any]] = [
        {"agent.v": encoded["agent.w"]},
        {"agent.w": {"agent": {"name": "w"}}},
        {"t": {"description": 5}},
        {"t": {"worker": {}}},
    ]
    for document in invalid_documents:
        with pytest.raises(ValueError, match=next(iter(document))):
            tools_from_json(document)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"argument": "method", "effects": {"GET": ["read"]}}, "each with one of pure, read, idempotent, write"),
        ({"argument": "method", "effects": {"GET": "reads"}}, "each with one of pure, read, idempotent, write"),
        ({"argument": "method", "effects": ["read"]}, "each with one of pure, read, idempotent, write"),
        ({"argument": 1, "effects": {}}, "expected an object with argument, default and effects"),
        ({"argument": "method", "effects": {}, "more": 1}, "expected an object with argument, default and effects"),
    ],
)
def test_invalid_effects_rule_is_reported(rule: dict[str, Any], message: str) -> None:
    expected = f"the tool 't': effects_by: .*{message}"
    with pytest.raises(ValueError, match=expected):
        tools_from_json({"t": {"effects": "write", "effects_by": rule}})
    invalid_tool = ToolDeclaration("t", effects_by=rule)
    problem = compiled_plan_problem(CompiledPlan((CompiledNode("n", tool="t"),), tools={"t": invalid_tool})) or ""
    assert re.fullmatch(expected, problem)
    # The plan of a run that started before this check existed may have such a rule.
    assert effects_of_call(invalid_tool, {"method": "GET"}) is Effects.WRITE


def test_effects_of_a_wrong_type_are_reported() -> None:
    plan = CompiledPlan((), tools={"t": ToolDeclaration("t", effects_by=cast("Any", "GET"))})
    assert "the tool 't': effects_by: expected an object" in (compiled_plan_problem(plan) or "")
    with pytest.raises(ValueError, match="invalid 'effects_by'"):
        tools_from_json({"t": {"effects_by": "GET"}})
    node = CompiledNode("n", effects=cast("Any", ["read"]))
    assert "its 'effects' must be" in (compiled_plan_problem(CompiledPlan((node,))) or "")
