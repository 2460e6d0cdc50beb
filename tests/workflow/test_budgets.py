"""Budgets with a scripted model: concurrent agents, a person who raises the budget, and child runs."""

from dataclasses import replace

import pytest

from dagwright.core.boundary import limits
from dagwright.core.model.compiled import CompiledNode, CompiledPlan
from dagwright.history.run_view import RunView
from dagwright.planning.agent_loop.spec import AgentSpec, agent_plan
from dagwright.testing import Completion, Tokens
from tests.support.agents import checked_document
from tests.support.goals import call_node, goal_plan, nodes_and_purposes, plan_text
from tests.support.run_views import view_of, wait_for_node, wait_for_view
from tests.support.runs import Handle, Runs, check_histories, document_of
from tests.workflow.building import ServeScript

pytestmark = pytest.mark.server


def completion_of_100_tokens(text: str) -> Completion:
    return Completion(text, tokens=Tokens(prompt=60, completion=40))


def plan_with_agents(*names: str) -> CompiledPlan:
    nodes = [
        CompiledNode(
            name,
            kind="plan",
            arguments={"objective": f"Say {name}."},
            sub_plan=agent_plan(AgentSpec(name), prompt="You are brief.", result_titles={}),
            timeout_s=0.0,
        )
        for name in names
    ]
    return CompiledPlan(tuple(nodes))


async def wait_for_budget_request(runs: Runs, handle: Handle) -> RunView:
    """Wait until a run requests more budget, and return its view."""

    def has_request(view: RunView) -> bool:
        requests = view.scheduler.features.feedback.requests.open if view.scheduler is not None else {}
        return any(request.purpose == "budget" for request in requests.values())

    return await wait_for_view(runs.client, handle.id, has_request)


async def usage_of(handle: Handle) -> tuple[int, int, dict[str, int]]:
    """Return the number of model calls of a run, the number of tokens, and the number of tokens of each agent."""
    usage = (await document_of(handle))["usage"]
    agents = {name: agent_usage["tokens"] for name, agent_usage in usage.get("agents", {}).items()}
    return usage["calls"], usage["tokens"], agents


async def test_concurrent_agents_share_a_budget_that_a_person_raises(serve_script: ServeScript) -> None:
    answers = [completion_of_100_tokens("one"), completion_of_100_tokens("two"), completion_of_100_tokens("three")]
    async with serve_script(*answers) as (model, runs):
        handle = await runs.start_compiled_plan(plan_with_agents("a", "b", "c"), budget={"calls": 2})
        view = await wait_for_budget_request(runs, handle)
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


async def test_waiting_calls_and_reservations_survive_continue_as_new(
    serve_script: ServeScript, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "DRAIN_AT_EVENTS", 120)
    monkeypatch.setattr(limits, "HISTORY_DRAIN_S", 0.3)
    async with serve_script(completion_of_100_tokens("one"), completion_of_100_tokens("two")) as (_, runs):
        # The agents are the nodes 0 and 1, so the step before `s<number>` is the node `number + 1`.
        steps = [
            CompiledNode(f"s{number}", tool="echo", dependencies=[number + 1] if number else ()) for number in range(40)
        ]
        plan = CompiledPlan((*plan_with_agents("a", "b").nodes, *steps), tools={"echo": runs.tools["echo"]})
        handle = await runs.start_compiled_plan(plan, budget={"calls": 1})
        await wait_for_budget_request(runs, handle)

        await wait_for_node(runs, handle, "s39", "completed")
        assert (await view_of(runs, handle)).execution_id != handle.first_execution_run_id
        answer = {"request_id": "budget", "answer": {"data": {"calls": 1}}, "by": "ann"}
        await runs.client.get_workflow_handle(handle.id).execute_update("submit_feedback", answer)
        document = await checked_document(runs, handle)
        assert (document["status"], document["output"]["a"], document["output"]["b"]) in (
            ("completed", "one", "two"),
            ("completed", "two", "one"),
        )
        assert await usage_of(handle) == (2, 200, {"a": 100, "b": 100})


async def test_replan_uses_the_budget_and_is_skipped_when_the_budget_is_used_up(serve_script: ServeScript) -> None:
    replanned_node = {**call_node("a", "give_up"), "on_error": "replan"}
    script = (
        plan_text(replanned_node, call_node("b", "add", left=1, right=2)),
        plan_text(replanned_node),
        completion_of_100_tokens("It is 3."),
    )
    async with serve_script(*script) as (model, runs):
        budget = {"calls": 2, "on_limit": "finish"}
        handle = await runs.start_compiled_plan(goal_plan(runs, "What is 1 + 2?", "add", "give_up"), budget=budget)
        document = await checked_document(runs, handle)
        usage = (await handle.result())["usage"]
    assert (document["status"], document["output"]) == ("completed_with_failures", "It is 3.")
    assert nodes_and_purposes([*model.calls]) == [("plan", "plan"), ("plan#2", "replan"), ("answer", "answer")]
    # The call that writes the answer is allowed although the budget is used up.
    assert (usage["calls"], document["nodes"]["a#2"]["status"]) == (3, "failed")
    assert document["nodes"]["plan#3"]["status"] == "skipped"


async def test_child_of_a_terminated_run_skips_its_waiting_call_and_ends(
    serve_script: ServeScript, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SUB_PLAN_CHECK_S", 0.2)
    async with serve_script(completion_of_100_tokens("one")) as (_, runs):
        handle = await runs.start_compiled_plan(plan_with_agents("a", "b"), budget={"calls": 1})
        await wait_for_budget_request(runs, handle)
        view = await view_of(runs, handle)
        assert view.scheduler is not None
        [waiting_node] = [
            node.id for node, record in view.scheduler.state.visible_nodes() if not record.status.is_final
        ]
        child = runs.client.get_workflow_handle(limits.child_workflow_id(handle.id, waiting_node))
        runs.exclude_from_checks(handle)
        await runs.client.get_workflow_handle(handle.id).terminate("for a test")
        await wait_for_view(runs.client, child.id, lambda view: view.is_closed)
        document = await document_of(child)
        # Without the document that the run stored at its end, the document is rebuilt from the history.
        rebuilt_document = replace(await view_of(runs, child), closing_document=None, error=None).document()
        reason = rebuilt_document["nodes"]["turn1"]["reason"]
        assert reason == "not started: the parent run, which holds the budget, no longer exists"
        assert document["error"]["message"].startswith("'turn1' was skipped: not started: the parent run")
        await check_histories(runs.client, child)


async def test_oversized_budget_report_is_rejected_with_a_note(serve_script: ServeScript) -> None:
    async with serve_script(completion_of_100_tokens("one"), completion_of_100_tokens("two")) as (_, runs):
        handle = await runs.start_compiled_plan(plan_with_agents("a", "b"), budget={"calls": 1, "money": "1.00"})
        too_many_reservations = {f"c{number}": 1 for number in range(10_001)}
        for reservations, usage_of_ended_calls in (
            (too_many_reservations, {}),
            ({"x" * 20_001: 1}, {}),
            ({}, {"c": {"calls": 10**16}}),
            ({}, {"c": {"money": "1e999999"}}),
        ):
            report = {"task": "a", "reservations": reservations, "settled": usage_of_ended_calls}
            await handle.signal("budget_report", report)
        view = await wait_for_budget_request(runs, handle)
        assert sum(note["code"] == "message_rejected" for note in view.document()["notes"]) == 4
        await handle.execute_update("set_limits", {"budget": {"money": None, "calls": 2}})
        assert (await checked_document(runs, handle))["status"] == "completed"
