"""Requests to people that no human node opens: for approvals, failures, running tools and missing inputs."""

from typing import Any
from unittest.mock import patch

import pytest
from temporalio.api.sdk.v1 import WorkflowMetadata
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes

from dagwright.core.boundary import limits, wire
from tests.support.eventually import eventually
from tests.support.goals import call_node
from tests.support.people import (
    answer,
    echo_node,
    human_node,
    rejection_of,
    signal_answer,
    tool_node,
    wait_for_request_set,
    wait_for_requests,
    wait_for_requests_of_children,
)
from tests.support.plan_building import plan_of
from tests.support.run_views import view_of, wait_for_notes
from tests.support.runs import (
    Handle,
    Runs,
    bare_document,
    blocked_node,
    chain_of,
    completed_node,
    document_of,
    end_of,
    failed_node,
    without_cache,
)
from tests.support.tools import CallHarness
from tests.workflow.building import ended_document, wait_for_continue_as_new

pytestmark = pytest.mark.server

_ASK_WRITES = {"rules": [{"effects": ["write"], "then": "ask"}]}


def _change_node(node_id: str, name: str, **fields: Any) -> dict[str, Any]:
    return {"id": node_id, "tool": "change", "arguments": {"name": name}, **fields}


def _answers_in(lineage: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Return the request ID, the answer or outcome, the person and the channel of each answer."""
    return [
        (result["request_id"], result["answer"] or result["outcome"], result["by"], result["source"])
        for result in lineage["answers"]
    ]


# Approvals.


async def test_call_is_approved_edited_or_rejected_by_an_answer(
    runs: Runs, harness: CallHarness, unique_name: str
) -> None:
    plan = plan_of(
        _change_node("yes", f"{unique_name} yes", approval="required"),
        _change_node("edited", f"{unique_name} edited", approval={"prompt": "Really?", "assignee": "ann"}),
        _change_node("no", f"{unique_name} no", approval="required"),
        tool_node("dependent", "echo", "no"),
    )
    handle = await runs.start(plan)
    await wait_for_requests(runs.client, handle.id, "yes", "edited", "no")
    requests = (await view_of(runs, handle)).document()["waiting_for"]
    assert [(request["tool"], request["arguments"], request["prompt"]) for request in requests] == [
        ("change", {"name": f"{unique_name} yes"}, "Approve 'change'?"),
        ("change", {"name": f"{unique_name} edited"}, "Really?"),
        ("change", {"name": f"{unique_name} no"}, "Approve 'change'?"),
    ]
    await answer(handle, "yes", {"approved": True})
    await answer(handle, "edited", {"approved": True, "arguments": {"name": f"{unique_name} changed"}})
    await answer(handle, "no", {"approved": False, "reason": "too dear"}, note="see the budget")
    document = await ended_document(runs, handle)
    assert bare_document(document)["nodes"] == {
        "yes": completed_node(f"{unique_name} yes"),
        "edited": completed_node(f"{unique_name} changed"),
        "no": failed_node("rejected: rejected by ann: too dear"),
        "dependent": blocked_node("no"),
    }
    (result,) = document["nodes"]["no"]["lineage"]["answers"]
    assert result == {
        **{"request_id": "no", "outcome": "answered", "answer": "rejected", "by": "ann", "at": result["at"]},
        **{"source": "update", "note": "see the budget"},
    }
    assert [len(harness.effects[f"{unique_name} {name}"]) for name in ("yes", "edited", "changed", "no")] == [
        1,
        0,
        1,
        0,
    ]


async def test_remembered_approval_applies_to_later_calls_and_sub_plans(runs: Runs, unique_name: str) -> None:
    child_plan = plan_of(
        {"id": "wait", "human": {"type": "CLARIFICATION"}}, _change_node("c", unique_name, depends_on=["wait"])
    )
    nodes = [
        _change_node("a", unique_name),
        _change_node("b", unique_name),
        _change_node("later", unique_name, depends_on=["a"]),
        {"id": "started_before", "plan": child_plan},
        {"id": "started_after", "plan": {"nodes": [_change_node("d", unique_name)]}, "depends_on": ["later"]},
    ]
    handle = await runs.start_raw({"plan": {"nodes": nodes}, "options": {"policy": _ASK_WRITES}})
    await wait_for_requests_of_children(runs, handle, "a", "b", "started_before/wait")
    await answer(handle, "a", {"approved": True, "remember": True})
    child = runs.client.get_workflow_handle(f"{handle.id}/started_before")
    await eventually(lambda: _has_received_policy(child))
    await answer(handle, "started_before/wait", {"text": "go"})
    document = await ended_document(runs, handle)
    expected = dict.fromkeys(("a", "b", "later", "started_before", "started_after"), "completed")
    assert {name: node["status"] for name, node in document["nodes"].items()} == expected
    assert _answers_in(document["nodes"]["a"]["lineage"]) == [("a", "approved", "ann", "update")]
    assert _answers_in(document["nodes"]["b"]["lineage"]) == [("b", "approved", "ann", "policy")]


async def test_remembered_approval_in_a_sub_plan_does_not_apply_to_its_parent(runs: Runs, unique_name: str) -> None:
    child_node = {"id": "child", "plan": {"nodes": [_change_node("e", unique_name)]}, "depends_on": ["d"]}
    child_plan = plan_of(_change_node("c", unique_name), _change_node("d", unique_name, depends_on=["c"]), child_node)
    nodes = [{"id": "sub_plan", "plan": child_plan}, _change_node("next", unique_name, depends_on=["sub_plan"])]
    handle = await runs.start_raw({"plan": {"nodes": nodes}, "options": {"policy": _ASK_WRITES}})
    await wait_for_requests_of_children(runs, handle, "sub_plan/c")
    await answer(handle, "sub_plan/c", {"approved": True, "remember": True})
    await wait_for_requests(runs.client, handle.id, "next")
    await answer(handle, "next", {"approved": True})
    document = await document_of(handle)
    expected = {"sub_plan": "completed", "next": "completed"}
    assert {name: node["status"] for name, node in document["nodes"].items()} == expected


async def _has_received_policy(handle: Handle) -> bool:
    history = await handle.fetch_history()
    names = [event.workflow_execution_signaled_event_attributes.signal_name for event in history.events]
    return wire.SET_POLICY in names


async def test_changed_policy_applies_to_waiting_and_later_calls(runs: Runs, unique_name: str) -> None:
    nodes = [
        _change_node("a", unique_name),
        {**human_node("check"), "depends_on": ["a"]},
        _change_node("b", unique_name, depends_on=["check"]),
    ]
    handle = await runs.start_raw({"plan": {"nodes": nodes}, "options": {"policy": _ASK_WRITES}})
    await wait_for_requests(runs.client, handle.id, "a")
    message = {"policy": {"rules": [{"then": "perhaps"}]}, "by": "ann"}
    assert "rules[0].then" in await rejection_of(handle, message, update=wire.SET_POLICY)
    result = await handle.execute_update(wire.SET_POLICY, {"policy": {"otherwise": "run"}, "by": "ann"})
    assert result == {"ok": True, "message": "the policy is changed"}
    await wait_for_requests(runs.client, handle.id, "check")
    await handle.signal(wire.SET_POLICY, {"policy": {"otherwise": "deny"}})
    await answer(handle, "check", {"approved": True})
    document = await ended_document(runs, handle)
    expected = failed_node("not_allowed: the policy of the run denies this call of 'change'")
    assert bare_document(document)["nodes"]["b"] == expected
    assert _answers_in(document["nodes"]["a"]["lineage"]) == [("a", "policy changed", "ann", "policy")]


# Failures.


async def test_person_can_replace_skip_stop_or_retry_a_failed_node(
    runs: Runs, harness: CallHarness, unique_name: str
) -> None:
    failing_fields = {"tool": "fail", "arguments": {"message": "odd"}, "on_error": "ask"}
    nodes = [{"id": name, **failing_fields} for name in ("value", "skip", "stop", "retry")]
    handle = await runs.start({"nodes": [*nodes, tool_node("dependent", "echo", "skip")]})
    requests = await wait_for_request_set(runs.client, handle.id, "value", "skip", "stop", "retry")
    assert requests["value"]["prompt"] == "'value' failed: odd. What should be done?"
    await answer(handle, "value", {"selected": ["value"], "value": {"n": 1}})
    await answer(handle, "skip", {"selected": ["skip"]})
    await signal_answer(handle, "stop", {"selected": ["stop"]})
    await answer(handle, "retry", {"selected": ["retry"]})
    await wait_for_requests(runs.client, handle.id, "retry#2")
    await answer(handle, "retry#2", {"selected": ["retry"], "arguments": {"message": "odder"}})
    await wait_for_requests(runs.client, handle.id, "retry#3")
    await answer(handle, "retry#3", {"selected": ["value"], "value": 7})
    document = await ended_document(runs, handle)
    error_text = "tool_failed: odd"
    assert bare_document(document)["nodes"] == {
        "value": completed_node({"n": 1}, error=error_text),
        "skip": {"status": "skipped", "error": error_text},
        "stop": failed_node(error_text),
        "retry": {"status": "superseded", "error": error_text, "attempts": 2},
        "dependent": {"status": "skipped"},
        "retry#3": completed_node(7, error="tool_failed: odder"),
    }
    assert _answers_in(document["nodes"]["retry"]["lineage"]) == [
        ("retry", "retry", "ann", "update"),
        ("retry#2", "retry", "ann", "update"),
    ]
    assert _answers_in(document["nodes"]["retry#3"]["lineage"]) == [("retry#3", "value", "ann", "update")]


# Requests of running tools.


async def test_tool_with_requests_continues_from_its_checkpoint(
    runs: Runs, harness: CallHarness, unique_name: str
) -> None:
    handle = await runs.start({"nodes": [call_node("o", "order", name=unique_name, choices=["red", "blue"])]})
    await wait_for_requests(runs.client, handle.id, "o")
    (request,) = (await view_of(runs, handle)).document()["waiting_for"]
    expected = ("SELECTION", ["red", "blue"], "ann", "raised")
    assert (request["type"], request["options"], request["assignee"], request["purpose"]) == expected
    await answer(handle, "o", {"selected": ["blue"]})
    await wait_for_requests(runs.client, handle.id, "o#2")
    await signal_answer(handle, "o#2", {"text": "It is cheap"})
    document = await ended_document(runs, handle)
    result = {"started": 1, "chosen": ["blue"], "why": "It is cheap"}
    assert bare_document(document)["nodes"] == {"o": completed_node(result, attempts=3)}
    # The effect started once and completed once, both times with the same key.
    assert harness.effects[f"{unique_name} started"] == harness.effects[unique_name]
    assert len(harness.effects[unique_name]) == 1
    assert _answers_in(document["nodes"]["o"]["lineage"]) == [
        ("o", "answered", "ann", "update"),
        ("o#2", "answered", "bob", "signal"),
    ]


async def test_tool_with_an_invalid_request_fails(runs: Runs) -> None:
    cases: dict[str, tuple[Any, str]] = {
        "type": ({"type": "GUESS", "prompt": "?"}, "type: Input should be 'APPROVAL'"),
        "options": (
            {"type": "SELECTION", "prompt": "?", "options": []},
            "options: a SELECTION has 1 to 1,000 options, not 0",
        ),
        "key": ({"promt": "?"}, "unknown field 'promt'; did you mean 'prompt'?"),
        "number": (7, "Input should be a valid dictionary or instance of Human"),
    }
    nodes = [call_node(name, "ask_wrongly", request=request) for name, (request, _) in cases.items()]
    document = await runs.run({"nodes": nodes})
    assert document["status"] == "failed"
    for name, (_, expected) in cases.items():
        message = f"invalid_human_request: invalid question: {expected}"
        assert document["nodes"][name]["error"].startswith(message)


async def test_tool_with_too_many_requests_fails(runs: Runs) -> None:
    request = {"type": "CLARIFICATION", "deadline": "1ms", "on_timeout": {"default": {"text": "go on"}}}
    with patch("dagwright.features.feedback.request_opening.MAX_REQUESTS_OF_CALL", 3):
        document = await runs.run({"nodes": [call_node("a", "ask_wrongly", request=request)]})
        await runs.check_runs()
    expected = {"a": failed_node("too_many_human_requests: it asked 3 times, and asks again", attempts=4)}
    assert document["nodes"] == expected


# Inputs.


async def test_one_request_for_all_missing_inputs_comes_before_any_node_runs(runs: Runs) -> None:
    plan = plan_of(
        call_node("a", "echo", n="{{PLACEHOLDER_n}}"),
        call_node("b", "echo", text="{{PLACEHOLDER_given}} {{PLACEHOLDER_free}}"),
        inputs={"n": {"type": "integer", "minimum": 1}, "given": {"type": "string"}},
    )
    handle = await runs.start_raw({"plan": plan, "inputs": {"given": "x"}})
    await wait_for_requests(runs.client, handle.id, "inputs")
    view = await view_of(runs, handle)
    [request] = view.document()["waiting_for"]
    assert (request["node_id"], request["prompt"], view.status) == (None, "The plan needs n, free", "waiting")
    assert {node["status"] for node in view.document()["nodes"].values()} == {"pending"}
    assert "minimum" in await rejection_of(handle, {"request_id": "inputs", "answer": {"data": {"n": 0, "free": "y"}}})
    await answer(handle, "inputs", {"data": {"n": 3, "free": "y"}})
    document = await ended_document(runs, handle)
    assert bare_document(document)["nodes"] == {"a": completed_node({"n": 3}), "b": completed_node({"text": "x y"})}


# Continue-as-new, and requests in the lists of Temporal.


@without_cache
async def test_open_requests_and_early_answers_survive_continue_as_new(runs: Runs) -> None:
    map_node = human_node("each", "CLARIFICATION", deadline="1h") | {"for_each": ["a", "b"], "key": "{{item}}"}
    plan = {"nodes": [map_node, {**human_node("then"), "depends_on": ["each"]}, echo_node("end", "then", "each")]}
    handle = await runs.start(plan)
    await wait_for_requests(runs.client, handle.id, "each[a]", "each[b]")
    await answer(handle, "then", {"approved": True})
    await answer(handle, "each[b]", {"text": "B"})
    with patch.object(limits, "DRAIN_AT_EVENTS", 30):
        for number in range(8):
            await signal_answer(handle, "unknown", {"text": "?"})
            await wait_for_notes(runs, handle, number + 1)
        newest_execution = await wait_for_continue_as_new(runs, handle)
        await wait_for_requests(runs.client, handle.id, "each[a]")
        assert "answered by ann" in await rejection_of(
            newest_execution, {"request_id": "each[b]", "answer": {"text": "C"}}
        )
        await answer(newest_execution, "each[a]", {"text": "A"})
        document = await ended_document(runs, handle)
        expected = completed_node({"then": {"approved": True, "reason": None}, "each": [{"text": "A"}, {"text": "B"}]})
        assert bare_document(document)["nodes"]["end"] == expected
        assert [end_of(history) for history in await chain_of(runs.client, handle)][-1] == "completed"
        await runs.check_runs()


async def test_temporal_lists_the_assignees_and_the_open_requests(runs: Runs) -> None:
    state_key = SearchAttributeKey.for_keyword(wire.SEARCH_STATE)
    awaiting_key = SearchAttributeKey.for_keyword_list(wire.SEARCH_AWAITING)
    start_attributes = TypedSearchAttributes([SearchAttributePair(state_key, "running")])
    plan = {"nodes": [human_node("a", assignee="ann"), human_node("b"), human_node("c", assignee="ann")]}
    handle = await runs.start_raw({"plan": plan}, search_attributes=start_attributes)

    async def has_assignees(*names: str) -> bool:
        attributes = (await handle.describe()).typed_search_attributes
        return (attributes.get(state_key), attributes.get(awaiting_key)) == ("waiting", list(names))

    await eventually(lambda: has_assignees("ann", "anyone"))
    metadata = await handle.query("__temporal_workflow_metadata", result_type=WorkflowMetadata)
    assert metadata.current_details.splitlines()[:9] == [
        "**waiting**: 3 waiting",
        "",
        "| request | type | assignee | question | until |",
        "|---|---|---|---|---|",
        "| a | APPROVAL | ann | What of a? |  |",
        "| b | APPROVAL | anyone | What of b? |  |",
        "| c | APPROVAL | ann | What of c? |  |",
        "",
        'To answer, send the signal `feedback`, such as `{"request_id": "a", "answer": {"approved": true, '
        '"reason": ""}, "by": "your name"}`',
    ]
    for name in "acb":
        await answer(handle, name, {"approved": True})
    assert (await document_of(handle))["status"] == "completed"
    attributes = (await handle.describe()).typed_search_attributes
    assert (attributes.get(state_key), attributes.get(awaiting_key)) == ("completed", None)
