"""Budgets on the real Temporal server, with the scripted model: agents in parallel, a person's answer, sub-plans."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from dagwright.core.boundary import limits
from dagwright.core.model.compiled import CompiledNode, CompiledPlan
from dagwright.core.model.states import NodeStatus
from dagwright.history.run_reader import RunReader
from dagwright.history.run_view import RunView
from dagwright.planning.agent_loop.spec import AgentSpec, agent_plan
from dagwright.planning.extender_specs import workflow_type_of
from dagwright.protocol.run_input import RunInput, run_input_to_json
from dagwright.testing import Completion, Tokens
from tests.support.agents import checked_document
from tests.support.eventually import eventually
from tests.support.goals import call, goal, plan_text, purposes
from tests.support.runs import Handle, Runs, assert_clean, assert_replays, document_of, histories_of
from tests.workflow.building import Scripted

pytestmark = pytest.mark.server


def text_completion(text: str) -> Completion:
    """Return an answer that uses 100 tokens."""
    return Completion(text, tokens=Tokens(prompt=60, completion=40))


def agents_of(*names: str) -> CompiledPlan:
    nodes = [
        CompiledNode(
            name,
            kind="plan",
            arguments={"objective": f"Say {name}."},
            sub_plan=agent_plan(AgentSpec(name), prompt="You are brief.", results={}),
            timeout_s=0.0,
        )
        for name in names
    ]
    return CompiledPlan(tuple(nodes))


async def start(runs: Runs, plan: CompiledPlan, budget: Mapping[str, Any], **inputs: Any) -> Handle:
    encoded = run_input_to_json(RunInput(compiled=plan, inputs=inputs, budget=budget))
    return await runs.start_raw(encoded, workflow=workflow_type_of(plan))


async def wait_for_request(runs: Runs, handle: Handle) -> RunView:
    """Return the run as soon as it asks for more."""

    actual: list[RunView] = []

    async def asks() -> bool:
        view = await RunReader(runs.client, handle.id).read()
        requests = view.scheduler.features.feedback.requests.open if view.scheduler is not None else {}
        actual.append(view)
        return any(request.purpose == "budget" for request in requests.values())

    await eventually(asks)
    return actual[-1]


async def usage_of(handle: Handle) -> tuple[int, int, dict[str, int]]:
    document = await document_of(handle)
    usage = document["usage"]
    agents = {name: part["tokens"] for name, part in usage.get("agents", {}).items()}
    return usage["calls"], usage["tokens"], agents


async def test_agents_side_by_side_share_the_budget_and_a_person_gives_more(serve_script: Scripted) -> None:
    answers = [text_completion("one"), text_completion("two"), text_completion("three")]
    async with serve_script(*answers) as (model, runs):
        handle = await start(runs, agents_of("a", "b", "c"), {"calls": 2})
        view = await wait_for_request(runs, handle)
        assert view.scheduler is not None
        (request,) = view.scheduler.features.feedback.requests.open.values()
        expected = ("budget", "The budget of the run is used up (calls: 2 of 2 used)")
        assert (request.id, request.prompt.partition(".")[0]) == expected
        assert len(model.calls) == 2
        answer = {"request_id": "budget", "answer": {"data": {"calls": 1}}, "by": "ann"}
        await handle.execute_update("submit_feedback", answer)
        document = await checked_document(runs, handle)
        assert document["status"] == "completed"
        assert sorted(document["output"].values()) == ["one", "three", "two"]
        assert await usage_of(handle) == (3, 300, {"a": 100, "b": 100, "c": 100})


async def test_waiting_and_reserved_calls_continue_as_new(
    serve_script: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "DRAIN_AT_EVENTS", 120)
    monkeypatch.setattr(limits, "DRAIN_S", 0.3)
    async with serve_script(text_completion("one"), text_completion("two")) as (_, runs):
        steps = [
            CompiledNode(f"s{number}", tool="echo", dependencies=[number + 1] if number else ()) for number in range(40)
        ]
        plan = CompiledPlan((*agents_of("a", "b").nodes, *steps), tools={"echo": runs.tools["echo"]})
        handle = await start(runs, plan, {"calls": 1})
        await wait_for_request(runs, handle)

        async def steps_are_done() -> bool:
            view = await RunReader(runs.client, handle.id).read()
            last = view.scheduler.record_of("s39") if view.scheduler is not None else None
            return last is not None and last.status is NodeStatus.COMPLETED

        await eventually(steps_are_done)
        view = await RunReader(runs.client, handle.id).read()
        assert view.run_id != handle.first_execution_run_id
        answer = {"request_id": "budget", "answer": {"data": {"calls": 1}}, "by": "ann"}
        await runs.client.get_workflow_handle(handle.id).execute_update("submit_feedback", answer)
        document = await checked_document(runs, handle)
        assert (document["status"], document["output"]["a"], document["output"]["b"]) in (
            ("completed", "one", "two"),
            ("completed", "two", "one"),
        )
        assert await usage_of(handle) == (2, 200, {"a": 100, "b": 100})


async def test_planning_again_counts_and_is_left_out_when_the_budget_is_used_up(serve_script: Scripted) -> None:
    fragile = {**call("a", "give_up"), "on_error": "replan"}
    script = (plan_text(fragile, call("b", "add", left=1, right=2)), plan_text(fragile), text_completion("It is 3."))
    async with serve_script(*script) as (model, runs):
        budget = {"calls": 2, "on_limit": "finish"}
        handle = await start(runs, goal(runs, "What is 1 + 2?", "add", "give_up"), budget)
        document = await checked_document(runs, handle)
        usage = (await handle.result())["usage"]
    assert (document["status"], document["output"]) == ("completed_with_failures", "It is 3.")
    assert purposes([*model.calls]) == [("plan", "plan"), ("plan#2", "replan"), ("answer", "answer")]
    assert (usage["calls"], document["nodes"]["a#2"]["status"]) == (3, "failed")
    assert document["nodes"]["plan#3"]["status"] == "skipped"


async def test_a_child_of_a_terminated_run_finishes(serve_script: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SUB_PLAN_CHECK_S", 0.2)
    async with serve_script(text_completion("one")) as (_, runs):
        handle = await start(runs, agents_of("a", "b"), {"calls": 1})
        await wait_for_request(runs, handle)
        view = await RunReader(runs.client, handle.id).read()
        assert view.scheduler is not None
        [waiting] = [
            view.scheduler.plan.nodes[n].id for n, r in enumerate(view.scheduler.records) if not r.status.is_final
        ]
        below = runs.client.get_workflow_handle(limits.child_workflow_id(handle.id, waiting))
        runs.forget(handle)
        await runs.client.get_workflow_handle(handle.id).terminate("for a test")

        async def has_ended() -> bool:
            return (await RunReader(runs.client, below.id).read()).is_closed

        await eventually(has_ended)
        document = await document_of(below)
        fields = replace(await RunReader(runs.client, below.id).read(), closing_document=None, error=None).document()
        reason = fields["nodes"]["turn1"]["reason"]
        assert reason == "not started: the parent run, which holds the budget, no longer exists"
        assert document["error"]["message"].startswith("'turn1' was skipped: not started: the parent run")
        for history in await histories_of(runs.client, below):
            assert_clean(history)
            await assert_replays(history)


async def test_an_oversized_message_is_refused_with_a_note(serve_script: Scripted) -> None:
    async with serve_script(text_completion("one"), text_completion("two")) as (_, runs):
        handle = await start(runs, agents_of("a", "b"), {"calls": 1, "money": "1.00"})
        many = {f"c{number}": 1 for number in range(10_001)}
        for claims, settled in (
            (many, {}),
            ({"x" * 20_001: 1}, {}),
            ({}, {"c": {"calls": 10**16}}),
            ({}, {"c": {"money": "1e999999"}}),
        ):
            await handle.signal("budget_report", {"task": "a", "claims": claims, "settled": settled})
        view = await wait_for_request(runs, handle)
        assert sum(note["code"] == "refused" for note in view.document()["notes"]) == 4
        await handle.execute_update("set_limits", {"budget": {"money": None, "calls": 2}})
        document = await checked_document(runs, handle)
        assert document["status"] == "completed"
