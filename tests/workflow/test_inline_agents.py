"""Agents that stand in a plan itself, on the real Temporal server: where they run, and where the policy stops them."""

import json
from typing import Any

import pytest
from temporalio.client import Client

from dagwright.core.boundary import wire
from dagwright.core.model.policy import WRITES_ASK, Policy, Rule, policy_from_json
from dagwright.testing import json_text, step, tool_call
from tests.support.agents import checked_document as ended_run
from tests.support.agents import messages_of
from tests.support.eventually import eventually
from tests.support.goals import checked_document, goal, plan_text, purposes
from tests.support.people import answer, refusal_of, wait_for_requests
from tests.support.runs import Document, completed_node, document_of
from tests.support.tools import Bench
from tests.workflow.building import Scripted

pytestmark = pytest.mark.server

REFUSING = {"rules": [{"tool": "agent.inline", "then": "refuse"}]}
ALLOWING = Policy((Rule("run", tool="agent.inline"), *WRITES_ASK.rules))
_WHY = "the policy of the run allows no inline agents"


def _inline(node: str, objective: str, *tools: str, **fields: Any) -> Document:
    return {"id": node, "agent": {"prompt": f"You {node}.", "tools": list(tools), **fields}, "objective": objective}


async def test_an_agent_in_a_plan_calls_its_tools_and_answers_by_its_schema(
    client: Client, serve_script: Scripted
) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    count = _inline("count", "Count {{item}}.", output_schema=schema, feedback_policy="never")
    nodes = [
        _inline("look", "Look for tea.", "echo", max_turns=3),
        {"id": "below", "plan": {"nodes": [{**count, "for_each": ["a", "b"]}]}},
        {"id": "last", "tool": "echo", "arguments": {"found": "{{look.result}}", "n": "{{below.result}}"}},
    ]
    steps = (
        step(tool_call("echo", what="tea"), last="Look for tea."),
        step("Green tea.", last="tea"),
        *(step(json_text({"n": number}), last=f"Count {name}.") for number, name in enumerate("ab")),
    )
    async with serve_script(*steps) as (model, runs):
        handle = await runs.start({"nodes": nodes})
        document = await ended_run(runs, handle)
        usage = (await document_of(handle))["usage"]
        below = await client.get_workflow_handle(f"{handle.id}/look").describe()
    counted = {"count": [{"n": 0}, {"n": 1}]}
    assert document["nodes"] == {
        "look": completed_node("Green tea."),
        "below": completed_node(counted),
        "last": completed_node({"found": "Green tea.", "n": counted}),
    }
    assert below.workflow_type == wire.WORKFLOW_RUN_AGENT
    expected = {"look (inline)": 2, "below/count (inline)": 2}
    assert {name: used["calls"] for name, used in usage["agents"].items()} == expected
    [first] = [call for call in model.calls if call.tools and messages_of(call)[-1] == ("user", "Look for tea.")]
    assert (messages_of(first), first.tools) == (
        [("system", "You look."), ("user", "Look for tea.")],
        ["echo", "ask_person"],
    )


async def test_a_policy_that_refuses_them_refuses_the_plan_before_anything_runs(serve_script: Scripted) -> None:
    plan = {"nodes": [{"id": "a", "tool": "echo"}, {"id": "b", "plan": {"nodes": [_inline("in", "Do it.")]}}]}
    async with serve_script() as (_, runs):
        options: list[Any] = [{"policy": REFUSING}, {"approve_plan": True}]
        handles = [await runs.start_raw({"plan": plan, "options": option}) for option in options]
        by_person, by_model = [await document_of(handle) for handle in handles]
    for actual in (by_person, by_model):
        assert (actual["status"], actual["nodes"]) == ("failed", {})
        [problem] = actual["error"]["errors"]
        expected = ("refused", "/nodes/1/plan/nodes/0/agent", _WHY)
        assert (problem["code"], problem["pointer"], problem["message"]) == expected
        assert '{"tool": "agent.inline", "then": "run"}' in problem["hint"]


async def test_the_policy_of_a_continuing_run_holds_also_added_agents(serve_script: Scripted, unique: str) -> None:
    bench = Bench()
    hold = {"id": "on", "tool": "hold", "arguments": {"name": unique}}
    nodes = [
        hold,
        *({**agent, "depends_on": ["on"]} for agent in (_inline("asked", "Do it."), _inline("late", "Do it.", "echo"))),
    ]
    asking = {"rules": [{"tool": "agent.inline", "arguments": {"properties": {"tools": {"maxItems": 0}}}}]}
    async with serve_script("It is done.", bench=bench) as (_, runs):
        handle = await runs.start({"nodes": nodes})
        await eventually(lambda: unique in bench.entered)
        asking["rules"][0]["then"] = "ask"
        asking["rules"].append({"tool": "agent.inline", "then": "refuse"})
        await handle.execute_update(wire.SET_POLICY, {"policy": asking, "by": "ann"})
        added = {"nodes": [_inline("more", "Do more.", "hold")]}
        refused = await refusal_of(handle, added, update=wire.ADD_NODES)
        assert refused.startswith(f"refused at /nodes/0/agent: {_WHY}")
        bench.open(unique)
        await wait_for_requests(runs.client, handle.id, "asked")
        await answer(handle, "asked", {"approved": True})
        document = await ended_run(runs, handle)
    assert document["nodes"]["asked"] == completed_node("It is done.")
    assert document["nodes"]["late"]["error"].startswith(f"refused: {_WHY}")


async def test_a_model_that_plans_makes_no_agents_unless_the_policy_lets_it(serve_script: Scripted) -> None:
    invalid_text = plan_text(_inline("look", "Look.", "echo"))
    right = plan_text({"id": "look", "tool": "echo", "arguments": {"what": "tea"}})
    async with serve_script(invalid_text, right, "Tea.") as (model, runs):
        document = await checked_document(runs, await runs.start_compiled_plan(goal(runs, "Look.", "echo")))
    assert (document["status"], document["output"]) == ("completed", "Tea.")
    assert [problem["code"] for problem in document["nodes"]["read"]["result"]["problems"]] == ["refused"]
    assert "InlineAgent" not in json.dumps(model.calls[0].body)


async def test_agents_of_a_model_get_only_rights_of_the_run(
    client: Client, serve_script: Scripted, unique: str
) -> None:
    bench = Bench()
    gaining = plan_text(_inline("look", "Look.", "echo", "hold"))
    right = plan_text({**_inline("look", "Look.", "write"), "approval": "never"})
    steps = (
        step(gaining, last="Look."),
        step(right, last="needs an unknown tool"),
        step(tool_call("write", name=unique), last="Look."),
        step("I could not.", last="rejected this call"),
        "Nothing was done.",
    )
    async with serve_script(*steps, bench=bench) as (model, runs):
        plan = goal(runs, "Look.", "echo", "write", policy=ALLOWING)
        handle = await runs.start_compiled_plan(plan, policy=ALLOWING)
        below = client.get_workflow_handle(f"{handle.id}/look")
        await eventually(lambda: len(model.calls) >= 3)
        await wait_for_requests(runs.client, below.id, "turn1.1")
        assert bench.effects[unique] == []
        await answer(below, "turn1.1", {"approved": False})
        document = await checked_document(runs, handle)
    assert (document["status"], document["output"]) == ("completed", "Nothing was done.")
    assert document["nodes"]["look"]["result"] == "I could not."
    assert purposes([*model.calls])[:2] == [("plan", "plan"), ("plan#2", "repair")]
    assert "InlineAgent" in json.dumps(model.calls[0].body)
    assert "needs an unknown tool 'hold'" in model.calls[1].text


def test_the_policy_of_a_plan_that_a_model_wrote_is_written_as_any_other() -> None:
    assert policy_from_json(ALLOWING.to_json()) == ALLOWING
    assert WRITES_ASK.verdict_on_inline(["echo"]) == "refuse"
    assert Policy().verdict_on_inline([]) == "run"
