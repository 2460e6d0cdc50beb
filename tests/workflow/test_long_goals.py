"""Runs of text requests that continue as new, and forks of these runs."""

from unittest.mock import patch

import pytest
from temporalio.client import Client

from dagwright.client.errors import ForkRejected
from dagwright.client.forks import ForkDraft, Forks, with_current_tools
from dagwright.core.boundary import limits
from dagwright.history.run_reader import RunReader
from dagwright.planning.extender_specs import workflow_type_of
from dagwright.protocol.run_input import RunInput, run_input_to_json
from tests.support.goals import call_node, checked_document, goal_plan, nodes_and_purposes, plan_text
from tests.support.intents import (
    fund_intent,
    intent_statuses,
    intents_plan,
    intents_response_text,
    product_intent,
    seed_intents,
)
from tests.support.people import answer, wait_for_requests
from tests.support.runs import Handle, Runs, bare_document, chain_of, document_of, end_of
from tests.workflow.building import ServeScript

pytestmark = pytest.mark.server

_REPLANNED_NODE = {**call_node("a", "give_up"), "on_error": "replan"}
"""A node whose failure causes a replan."""


async def test_text_request_continues_as_new(client: Client, serve_script: ServeScript) -> None:
    chain = [call_node(f"n{number}", "plus", left=f"{{{{n{number - 1}.result}}}}", right=1) for number in range(1, 8)]
    plan = plan_text(call_node("n0", "plus", left=0, right=1), *chain)
    async with serve_script("No.", plan, "It is 8.") as (model, runs):
        with patch.object(limits, "DRAIN_AT_EVENTS", 20):
            handle = await runs.start_compiled_plan(goal_plan(runs, "Count to 8.", "plus"))
            document = await checked_document(runs, handle)
            execution_ends = [end_of(history) for history in await chain_of(client, handle)]
            await runs.check_runs()
    assert (document["status"], document["output"], document["nodes"]["n7"]["result"]) == ("completed", "It is 8.", 8)
    assert (execution_ends[0], execution_ends[-1]) == ("continued", "completed")
    assert nodes_and_purposes([*model.calls]) == [("plan", "plan"), ("plan#2", "repair"), ("answer", "answer")]


async def test_replanned_text_request_continues_as_new(client: Client, serve_script: ServeScript) -> None:
    chain = [call_node(f"n{number}", "plus", left=f"{{{{n{number - 1}.result}}}}", right=1) for number in range(1, 4)]
    dependent = {**call_node("b", "plus", left=1, right=1), "depends_on": ["a"]}
    plan = plan_text(_REPLANNED_NODE, dependent, call_node("n0", "plus", left=0, right=1), *chain)
    new_plan = plan_text(
        call_node("c", "plus", left="{{n3.result}}", right=1), call_node("d", "plus", left="{{c.result}}", right=1)
    )
    async with serve_script(plan, new_plan, "It is 6.") as (model, runs):
        with patch.object(limits, "DRAIN_AT_EVENTS", 15):
            handle = await runs.start_compiled_plan(goal_plan(runs, "Count to 6.", "plus", "give_up"))
            document = await checked_document(runs, handle)
            execution_ends = [end_of(history) for history in await chain_of(client, handle)]
            await runs.check_runs()
    assert (document["status"], document["output"], document["nodes"]["d"]["result"]) == ("completed", "It is 6.", 6)
    assert [document["nodes"][node_id]["status"] for node_id in "ab"] == ["superseded", "superseded"]
    assert execution_ends.count("continued") >= 2
    assert nodes_and_purposes([*model.calls]) == [("plan", "plan"), ("plan#2", "replan"), ("answer", "answer")]


async def test_fork_reuses_the_plan_and_can_answer_again(serve_script: ServeScript) -> None:
    plan = plan_text(call_node("a", "plus", left=1, right=2), call_node("b", "flaky", succeeds_at=1))
    async with serve_script(plan, "First.", "Second.") as (_, runs):
        handle = await runs.start_compiled_plan(goal_plan(runs, "Add.", "plus", "flaky"))
        assert (await checked_document(runs, handle))["output"] == "First."
        assert [*(await _create_draft(runs, handle.id)).prediction.reused] == ["plan", "read", "a", "b", "answer"]
        new_answer_draft = await _create_draft(runs, handle.id, "answer")
        assert [*new_answer_draft.prediction.reused] == ["plan", "read", "a", "b"]
        document = bare_document(await document_of(await _start_fork(runs, new_answer_draft)))
    assert (document["status"], document["output"]) == ("completed", "Second.")


@pytest.mark.parametrize("rerun", ["plan", "read#2"])
async def test_fork_that_reruns_a_planner_node_runs_the_resulting_plan(serve_script: ServeScript, rerun: str) -> None:
    first_text = plan_text(
        call_node("a", "plus", left=1, right=2), call_node("b", "plus", left="{{a.result}}", right=1)
    )
    second_text = plan_text(
        call_node("a", "plus", left=5, right=5), call_node("c", "plus", left="{{a.result}}", right=1)
    )
    second_responses = [] if rerun == "read#2" else [second_text]
    async with serve_script("No.", first_text, "It is 4.", *second_responses, "Again.") as (_, runs):
        handle = await runs.start_compiled_plan(goal_plan(runs, "Add.", "plus"))
        assert [*(await checked_document(runs, handle))["nodes"]] == [
            "plan",
            "read",
            "plan#2",
            "read#2",
            "a",
            "b",
            "answer",
        ]
        draft = await _create_draft(runs, handle.id, rerun)
        assert [*draft.prediction.executed.items()] == [(rerun, "was selected to run again")]
        document = bare_document(await document_of(await _start_fork(runs, draft)))
        with pytest.raises(ForkRejected, match="rerun 'b': the fork has no such node or item"):
            await _create_draft(runs, handle.id, rerun, "b")
    planner_node_ids = ["plan", "read"] if rerun == "plan" else ["plan", "read", "plan#2", "read#2"]
    plan_node_ids = ["a", "b"] if rerun == "read#2" else ["a", "c"]
    expected = ("completed", "Again.", [*planner_node_ids, *plan_node_ids, "answer"])
    assert (document["status"], document["output"], [*document["nodes"]]) == expected
    assert document["nodes"]["a"]["result"] == (3.0 if rerun == "read#2" else 10.0)


async def test_run_of_intents_continues_as_new_and_can_be_forked(client: Client, serve_script: ServeScript) -> None:
    valid_intents = intents_response_text(
        fund_intent("Apex"), *[product_intent("CUSTODY", f"@result_{number}") for number in (1, 1)]
    )
    script = (
        intents_response_text(*seed_intents("circular")),
        valid_intents,
        intents_response_text(fund_intent("Other")),
    )
    async with serve_script(*script) as (model, runs):
        with patch.object(limits, "DRAIN_AT_EVENTS", 15):
            handle = await runs.start_compiled_plan(
                intents_plan(runs, confidence=0.95, context={"cbu": {"id": "prt_1"}})
            )
            await wait_for_requests(runs.client, handle.id, "approve")
            await answer(handle, "approve", {"approved": True})
            document = await checked_document(runs, handle)
            execution_ends = [end_of(history) for history in await chain_of(client, handle)]
            await runs.check_runs()
        assert [*(await _create_draft(runs, handle.id)).prediction.reused] == [*document["nodes"]]
        same_plan_document = bare_document(
            await document_of(await _start_fork(runs, await _create_draft(runs, handle.id, "@result_2")))
        )
        fork_handle = await _start_fork(runs, await _create_draft(runs, handle.id, "plan#2"))
        await wait_for_requests(runs.client, fork_handle.id, "approve")
        await answer(fork_handle, "approve", {"approved": True})
        new_plan_document = bare_document(await document_of(fork_handle))
    assert (document["status"], execution_ends[0], execution_ends[-1]) == ("completed", "continued", "completed")
    assert [*intent_statuses(document)] == ["@result_1", "@result_2", "@result_3"]
    # The repeated intent finds the existing product.
    expected_result = {**document["nodes"]["@result_2"]["result"], "created": False}
    assert same_plan_document["nodes"]["@result_2"]["result"] | {"created": False} == expected_result
    expected = ("completed", {"@result_1": "completed"}, "Other")
    assert (
        new_plan_document["status"],
        intent_statuses(new_plan_document),
        new_plan_document["nodes"]["@result_1"]["result"]["name"],
    ) == expected
    assert nodes_and_purposes([*model.calls]) == [("plan", "plan"), ("plan#2", "repair"), ("plan#2", "repair")]


async def test_fork_of_a_replanned_request_must_plan_again(serve_script: ServeScript) -> None:
    failing_plan = plan_text({**call_node("a", "give_up", message="no response"), "on_error": "replan"})
    successful_plan = plan_text(call_node("a", "plus", left=1, right=1))
    async with serve_script(failing_plan, successful_plan, "It is 2.", successful_plan, "Two.") as (_, runs):
        handle = await runs.start_compiled_plan(goal_plan(runs, "Add.", "plus", "give_up"))
        assert [*(await checked_document(runs, handle))["nodes"]] == [
            "plan",
            "read",
            "a",
            "plan#2",
            "read#2",
            "a#2",
            "answer",
        ]
        with pytest.raises(ForkRejected, match="or add 'plan' to `rerun` to have the model plan again"):
            await _create_draft(runs, handle.id)
        document = bare_document(
            await document_of(await _start_fork(runs, await _create_draft(runs, handle.id, "plan")))
        )
    assert (document["status"], document["output"]) == ("completed", "Two.")
    assert [*document["nodes"]] == ["plan", "read", "a", "answer"]


async def test_fork_that_reruns_a_replan_reuses_the_results_before_the_replan(serve_script: ServeScript) -> None:
    plan, first_replan = (
        plan_text(_REPLANNED_NODE, call_node("b", "plus", left=1, right=2)),
        plan_text(call_node("a", "plus", left=1, right=1)),
    )
    second_replan = plan_text(call_node("c", "plus", left="{{b.result}}", right=1))
    async with serve_script(plan, first_replan, "It is 2.", second_replan, "It is 4.") as (_, runs):
        handle = await runs.start_compiled_plan(goal_plan(runs, "Add.", "plus", "give_up"))
        assert (await checked_document(runs, handle))["output"] == "It is 2."
        with pytest.raises(ForkRejected, match="have superseded other nodes"):
            await _create_draft(runs, handle.id)
        draft = await _create_draft(runs, handle.id, "plan#2")
        assert [*draft.prediction.reused] == ["plan", "read", "b"]
        document = bare_document(await document_of(await _start_fork(runs, draft)))
    assert (document["status"], document["output"], document["nodes"]["c"]["result"]) == ("completed", "It is 4.", 4)
    assert [*document["nodes"]] == ["plan", "read", "a", "b", "plan#2", "read#2", "c", "answer"]


async def _start_fork(runs: Runs, draft: ForkDraft) -> Handle:
    snapshot = (await _create_forks(runs).create_run_input(draft)).snapshot
    run_input = run_input_to_json(RunInput(compiled=draft.plan, snapshot=snapshot))
    return await runs.start_raw(run_input, workflow_id=draft.run_id, workflow=workflow_type_of(draft.plan))


async def _create_draft(runs: Runs, run_id: str, *rerun: str) -> ForkDraft:
    """Create the draft of a fork, as the command `fork` does."""
    view = await RunReader(runs.client, run_id).read()
    assert view.scheduler is not None
    plan = with_current_tools(view.scheduler.plan, runs.tools, rerun=rerun)
    return await _create_forks(runs).draft(view, plan, inputs={}, rerun=rerun)


def _create_forks(runs: Runs) -> Forks:
    return Forks(lambda run_id: RunReader(runs.client, run_id), runs.store)
