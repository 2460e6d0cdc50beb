"""Results of the Python API from documents of a real scheduler, without a server."""

import json
import pickle
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pydantic_core
import pytest
from temporalio.api.common.v1 import Payload, Payloads
from temporalio.api.history.v1 import History, HistoryEvent, MarkerRecordedEventAttributes
from temporalio.api.workflowservice.v1 import (
    GetWorkflowExecutionHistoryReverseRequest,
    GetWorkflowExecutionHistoryReverseResponse,
)
from temporalio.client import Client, WorkflowExecutionStatus

from dagwright.activities.ended_runs import _outcome_of
from dagwright.client.errors import FeedbackRejected
from dagwright.client.feedback.feedback_request import answer_content
from dagwright.client.results import RunCancelled, RunFailed, ValueNotLoaded, read_nodes, read_result
from dagwright.core.boundary import wire
from dagwright.core.expressions.projection import project_value
from dagwright.core.model.states import NodeError, RunStatus
from dagwright.features.run_scheduler import RunScheduler
from dagwright.history.closing_event import read_recorded_document
from dagwright.history.run_view import RunView
from dagwright.protocol.compact_documents import full_closing_document
from dagwright.protocol.conversion import data_converter
from tests.support.memory_store import MemoryStore
from tests.support.plan_building import node
from tests.unit.interfaces.cli.views import START, start_all_ready_tasks, view_of


async def store_value(store: MemoryStore, value: Any, *, name: str) -> Any:
    content = pydantic_core.to_json(value)
    ref = await store.put(content)
    return project_value(value, ref, size_bytes=len(content), projections=(), name=f"{name}.result")


def ended_run(*nodes: dict[str, Any], results: dict[str, Any]) -> RunView:
    """Return the view of a run whose nodes have ended with these results or errors."""

    def step(scheduler: RunScheduler) -> None:
        for name, result in results.items():
            if isinstance(result, NodeError):
                scheduler.fail(name, result, at=START + 1)
            else:
                scheduler.complete(name, result, at=START + 1)
            start_all_ready_tasks(scheduler)

    return view_of(*nodes, step=step)


async def test_values_of_the_store_are_loaded() -> None:
    store = MemoryStore()
    view = ended_run(node("a"), node("b", "a"), results={"a": await store_value(store, "x" * 50_000, name="a"), "b": 2})
    result = await read_result(view, store)
    assert (result.nodes["a"].result, result.nodes["b"].result) == ("x" * 50_000, 2)
    assert (result.output, result.status) == ({"b": 2}, RunStatus.COMPLETED)
    assert result.raise_on_failure() is result


async def test_printed_results_are_short() -> None:
    view = ended_run(node("a"), node("b", "a"), results={"a": {"text": "x" * 50_000}, "b": NodeError("bad", "no luck")})
    result = await read_result(view, MemoryStore())
    assert str(result) == f"RunResult({view.run_id!r}, status='failed', error=\"'b' failed: no luck\")"
    assert str(result.nodes["a"]).startswith("NodeResult('a', status='completed', result={'text': 'xxx")
    assert len(str(result.nodes["a"])) < 300
    assert str(result.nodes["b"]) == "NodeResult('b', status='failed', error='no luck')"
    assert str(result.nodes) == "NodeResults(2 nodes: ['a', 'b'])"
    completed = await read_result(ended_run(node("a"), results={"a": list(range(1_000))}), MemoryStore())
    assert str(completed).startswith("RunResult('run-1', status='completed', output={'a': [0, 1, 2")
    assert len(str(completed)) < 300


async def test_values_over_the_limit_are_not_loaded_and_can_be_read_one_by_one() -> None:
    store = MemoryStore()
    values = {name: await store_value(store, name * 50_000, name=name) for name in "abc"}
    view = ended_run(*(node(name) for name in "abc"), results=values)
    result = await read_result(view, store, max_bytes=60_000)
    assert [(name, each.is_loaded) for name, each in result.nodes.items()] == [("a", True), ("b", False), ("c", False)]
    with pytest.raises(ValueNotLoaded, match=r"'c' is not loaded: .*run\.nodes\(\)"):
        _ = result.nodes["c"].result
    assert [node.result[:1] async for node in read_nodes(view, store)] == ["a", "b", "c"]
    assert {len(value) for value in result.output.values()} == {50_000}


async def test_value_that_is_lost_is_an_error_and_not_a_reference() -> None:
    store = MemoryStore()
    lost_value = await store_value(store, "x" * 50_000, name="a")
    store.contents.clear()
    result = await read_result(ended_run(node("a"), node("b", "a"), results={"a": lost_value, "b": 2}), store)
    assert result.output == {"b": 2}
    with pytest.raises(ValueNotLoaded, match="'a' is not loaded: a: "):
        _ = result.nodes["a"].result
    result = await read_result(ended_run(node("a"), results={"a": lost_value}), store)
    with pytest.raises(ValueNotLoaded, match="the output of the run 'run-1' is not loaded"):
        _ = result.output


async def test_failed_run_raises_with_a_problem_for_each_failed_node() -> None:
    error = NodeError("tool_failed", "out of stock")
    view = ended_run(node("a"), node("b"), node("c", "a", "b"), results={"a": error, "b": error})
    result = await read_result(replace(view, status="failed"), MemoryStore())
    with pytest.raises(RunFailed, match="the run 'run-1' failed: 'a' failed: out of stock; 1 more failed") as caught:
        result.raise_on_failure()
    failures = [(failure.node_id, failure.code) for failure in caught.value.failures]
    assert failures == [("a", "tool_failed"), ("b", "tool_failed")]
    assert result.nodes["c"].blocked_by == ("a", "b")
    assert pickle.loads(pickle.dumps(caught.value)).result.status == RunStatus.FAILED
    with pytest.raises(RunCancelled, match="was cancelled"):
        replace(result, status=RunStatus.CANCELLED, error=None).raise_on_failure()


def test_answers_have_the_format_that_runs_read() -> None:
    assert answer_content({"approved": True, "reason": "fine", "by": "ann"}) == {"approved": True, "reason": "fine"}
    assert answer_content({"selected": "large"}) == {"selected": ["large"]}
    assert answer_content({"nodes": [{"id": "a"}]}) == {"text": ""}
    assert answer_content({"data": {"amount": 3}, "note": "checked"}) == {"data": {"amount": 3}}
    with pytest.raises(FeedbackRejected, match="an answer is missing"):
        answer_content({"by": "ann"})


_USAGE = {"calls": 1, "prompt_tokens": 2, "completion_tokens": 3}
_LINEAGE = {"files": ["a.txt"], "urls": []}
DOCUMENT = {
    **{"status": "cancelled", "output": None, "error": None, "usage": _USAGE, "lineage": _LINEAGE},
    "nodes": {"a": {"status": "completed"}, "b": {"status": "cancelled"}},
}


def _payloads(value: Any) -> Payloads:
    return Payloads(payloads=[Payload(metadata={"encoding": b"json/plain"}, data=json.dumps(value).encode())])


def _marker(document: Any) -> HistoryEvent:
    details = {"data": _payloads({"activity_type": wire.ACTIVITY_END_CANCELLED}), "result": _payloads(document)}
    marker = MarkerRecordedEventAttributes(marker_name="core_local_activity", details=details)
    return HistoryEvent(marker_recorded_event_attributes=marker)


class FakeHistory:
    """Fake server that returns the newest events of one history first, in pages of two.

    The fake counts the pages that are read.
    """

    def __init__(self, events: list[HistoryEvent]) -> None:
        self._events = events
        self.page_count = 0

    async def read(
        self, request: GetWorkflowExecutionHistoryReverseRequest, **_: Any
    ) -> GetWorkflowExecutionHistoryReverseResponse:
        self.page_count += 1
        start = int(request.next_page_token or b"0")
        token = b"%d" % (start + 2) if start + 2 < len(self._events) else b""
        page = History(events=self._events[start : start + 2])
        return GetWorkflowExecutionHistoryReverseResponse(history=page, next_page_token=token)


def _client(history: FakeHistory) -> Client:
    async def describe(**_: Any) -> Any:
        return SimpleNamespace(status=WorkflowExecutionStatus.CANCELED, run_id="1")

    def get_workflow_handle(*_: Any, **__: Any) -> Any:
        # The handle has no history, because the whole history must not be read.
        return SimpleNamespace(describe=describe)

    service = SimpleNamespace(get_workflow_execution_history_reverse=history.read)
    fake_client = SimpleNamespace(
        namespace="default",
        data_converter=data_converter,
        workflow_service=service,
        get_workflow_handle=get_workflow_handle,
    )
    return cast("Client", fake_client)


@pytest.mark.parametrize(
    ("newer_event_count", "document", "page_count"), [(1, DOCUMENT, 1), (4, DOCUMENT, 3), (100, None, 5)]
)
async def test_document_is_read_from_the_end_of_the_history(
    newer_event_count: int, document: Any, page_count: int
) -> None:
    history = FakeHistory([HistoryEvent()] * newer_event_count + [_marker(DOCUMENT)] + [HistoryEvent()] * 100)
    full_document = document and full_closing_document(document)
    assert (await read_recorded_document(_client(history), "run-1", "1"), history.page_count) == (
        full_document,
        page_count,
    )


async def test_parent_run_finds_usage_and_lineage_of_a_cancelled_child_run() -> None:
    actual = await _outcome_of(_client(FakeHistory([_marker({**DOCUMENT, "child_snapshot": {"state": "x"}})])), "run-1")
    document = {"usage": _USAGE, "lineage": _LINEAGE, "child_snapshot": {"state": "x"}}
    assert actual == {"status": "cancelled", "output": None, "error": None, **document}
    actual = await _outcome_of(_client(FakeHistory([HistoryEvent()])), "run-1")
    assert actual == {"status": "cancelled", "output": None, "error": None}
