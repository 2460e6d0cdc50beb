"""Runs of inline agents (agents that a plan defines), and policies that deny them."""

import json
from typing import Any

import pytest
from temporalio.client import Client

from dagwright.core.boundary import wire
from dagwright.core.model.policy import ASK_FOR_WRITES, Policy, Rule, policy_from_json
from dagwright.testing import When, json_text, step, tool_call
from tests.support.agents import checked_document as checked_agent_document
from tests.support.agents import messages_of
from tests.support.eventually import eventually
from tests.support.goals import checked_document, goal_document, goal_plan, nodes_and_purposes, plan_text
from tests.support.people import answer, rejection_of, wait_for_requests
from tests.support.plan_building import plan_of
from tests.support.runs import Document, completed_node, document_of
from tests.support.tools import CallHarness
from tests.workflow.building import ServeScript

pytestmark = pytest.mark.server

DENYING_POLICY = {"rules": [{"tool": "agent.inline", "then": "deny"}]}
ALLOWING_POLICY = Policy((Rule("run", tool="agent.inline"), *ASK_FOR_WRITES.rules))
_REJECTION = "the policy of the run allows no inline agents"


def _inline_agent_node(node_id: str, objective: str, *tools: str, **fields: Any) -> Document:
    return {
        "id": node_id,
        "agent": {"prompt": f"You {node_id}.", "tools": list(tools), **fields},
        "objective": objective,
    }


async def test_inline_agent_calls_its_tools_and_follows_its_output_schema(
    client: Client, serve_script: ServeScript
) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    count_node = _inline_agent_node("count", "Count {{item}}.", output_schema=schema, feedback_policy="never")
    nodes = [
        _inline_agent_node("look", "Look for tea.", "echo", max_turns=3),
        {"id": "child", "plan": {"nodes": [{**count_node, "for_each": ["a", "b"]}]}},
        {"id": "last", "tool": "echo", "arguments": {"found": "{{look.result}}", "n": "{{child.result}}"}},
    ]
    steps = (
        step(tool_call("echo", what="tea"), when=When(last="Look for tea.")),
        step("Green tea.", when=When(last="tea")),
        *(step(json_text({"n": number}), when=When(last=f"Count {name}.")) for number, name in enumerate("ab")),
    )
    async with serve_script(*steps) as (model, runs):
        handle = await runs.start({"nodes": nodes})
        document = await checked_agent_document(runs, handle)
        usage = (await document_of(handle))["usage"]
        child = await client.get_workflow_handle(f"{handle.id}/look").describe()
    outputs = {"count": [{"n": 0}, {"n": 1}]}
    assert document["nodes"] == {
        "look": completed_node("Green tea."),
        "child": completed_node(outputs),
        "last": completed_node({"found": "Green tea.", "n": outputs}),
    }
    assert child.workflow_type == wire.WORKFLOW_RUN_AGENT
    call_counts = {"look (inline)": 2, "child/count (inline)": 2}
    assert {name: agent_usage["calls"] for name, agent_usage in usage["agents"].items()} == call_counts
    [first_call] = [call for call in model.calls if call.tools and messages_of(call)[-1] == ("user", "Look for tea.")]
    expected = ([("system", "You look."), ("user", "Look for tea.")], ["echo", "ask_person"])
    assert (messages_of(first_call), first_call.tools) == expected


async def test_plan_with_an_inline_agent_that_the_policy_denies_is_rejected(serve_script: ServeScript) -> None:
    plan = plan_of({"id": "a", "tool": "echo"}, {"id": "b", "plan": {"nodes": [_inline_agent_node("inner", "Do it.")]}})
    async with serve_script() as (_, runs):
        option_sets: list[Any] = [{"policy": DENYING_POLICY}, {"approve_plan": True}]
        handles = [await runs.start_raw({"plan": plan, "options": options}) for options in option_sets]
        documents = [await document_of(handle) for handle in handles]
    for document in documents:
        assert (document["status"], document["nodes"]) == ("failed", {})
        [problem] = document["error"]["errors"]
        expected = ("not_allowed", "/nodes/1/plan/nodes/0/agent", _REJECTION)
        assert (problem["code"], problem["pointer"], problem["message"]) == expected
        assert '{"tool": "agent.inline", "then": "run"}' in problem["hint"]


async def test_changed_policy_applies_to_inline_agents_of_an_open_run(
    serve_script: ServeScript, unique_name: str
) -> None:
    harness = CallHarness()
    hold_node = {"id": "hold", "tool": "hold", "arguments": {"name": unique_name}}
    nodes = [
        hold_node,
        *(
            {**agent_node, "depends_on": ["hold"]}
            for agent_node in (_inline_agent_node("asked", "Do it."), _inline_agent_node("denied", "Do it.", "echo"))
        ),
    ]
    policy = {
        "rules": [
            {"tool": "agent.inline", "arguments": {"properties": {"tools": {"maxItems": 0}}}, "then": "ask"},
            {"tool": "agent.inline", "then": "deny"},
        ]
    }
    async with serve_script("It is done.", harness=harness) as (_, runs):
        handle = await runs.start({"nodes": nodes})
        await eventually(lambda: unique_name in harness.entered)
        await handle.execute_update(wire.SET_POLICY, {"policy": policy, "by": "ann"})
        command = {"nodes": [_inline_agent_node("more", "Do more.", "hold")]}
        rejection = await rejection_of(handle, command, update=wire.ADD_NODES)
        assert rejection.startswith(f"not_allowed at /nodes/0/agent: {_REJECTION}")
        harness.open(unique_name)
        await wait_for_requests(runs.client, handle.id, "asked")
        await answer(handle, "asked", {"approved": True})
        document = await checked_agent_document(runs, handle)
    assert document["nodes"]["asked"] == completed_node("It is done.")
    assert document["nodes"]["denied"]["error"].startswith(f"not_allowed: {_REJECTION}")


async def test_model_cannot_plan_inline_agents_without_a_policy_that_allows_them(serve_script: ServeScript) -> None:
    invalid_text = plan_text(_inline_agent_node("look", "Look.", "echo"))
    valid_text = plan_text({"id": "look", "tool": "echo", "arguments": {"what": "tea"}})
    async with serve_script(invalid_text, valid_text, "Tea.") as (model, runs):
        document = await goal_document(runs, "Look.", "echo")
    assert (document["status"], document["output"]) == ("completed", "Tea.")
    assert [problem["code"] for problem in document["nodes"]["read"]["result"]["problems"]] == ["not_allowed"]
    assert "InlineAgent" not in json.dumps(model.calls[0].body)


async def test_inline_agent_that_a_model_plans_has_only_the_tools_and_policy_of_the_run(
    client: Client, serve_script: ServeScript, unique_name: str
) -> None:
    harness = CallHarness()
    text_with_unknown_tool = plan_text(_inline_agent_node("look", "Look.", "echo", "hold"))
    valid_text = plan_text({**_inline_agent_node("look", "Look.", "write"), "approval": "never"})
    steps = (
        step(text_with_unknown_tool, when=When(last="Look.")),
        step(valid_text, when=When(last="needs an unknown tool")),
        step(tool_call("write", name=unique_name), when=When(last="Look.")),
        step("I could not.", when=When(last="rejected this call")),
        "Nothing was done.",
    )
    async with serve_script(*steps, harness=harness) as (model, runs):
        plan = goal_plan(runs, "Look.", "echo", "write", policy=ALLOWING_POLICY)
        handle = await runs.start_compiled_plan(plan, policy=ALLOWING_POLICY)
        child = client.get_workflow_handle(f"{handle.id}/look")
        await eventually(lambda: len(model.calls) >= 3)
        await wait_for_requests(runs.client, child.id, "turn1.1")
        assert harness.effects[unique_name] == []
        await answer(child, "turn1.1", {"approved": False})
        document = await checked_document(runs, handle)
    assert (document["status"], document["output"]) == ("completed", "Nothing was done.")
    assert document["nodes"]["look"]["result"] == "I could not."
    assert nodes_and_purposes([*model.calls])[:2] == [("plan", "plan"), ("plan#2", "repair")]
    assert "InlineAgent" in json.dumps(model.calls[0].body)
    assert "needs an unknown tool 'hold'" in model.calls[1].text


def test_policies_for_inline_agents_have_verdicts_and_a_json_form() -> None:
    assert policy_from_json(ALLOWING_POLICY.to_json()) == ALLOWING_POLICY
    assert ASK_FOR_WRITES.verdict_on_inline_agent(["echo"]) == "deny"
    assert Policy().verdict_on_inline_agent([]) == "run"
