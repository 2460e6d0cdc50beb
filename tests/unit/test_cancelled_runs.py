"""The document of a cancelled run is read from the end of its history: for lists and for the parent of a run."""

import json
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest
from temporalio.api.common.v1 import Payload, Payloads
from temporalio.api.history.v1 import History, HistoryEvent, MarkerRecordedEventAttributes
from temporalio.api.workflowservice.v1 import (
    GetWorkflowExecutionHistoryReverseRequest,
    GetWorkflowExecutionHistoryReverseResponse,
)
from temporalio.client import Client, WorkflowExecution, WorkflowExecutionStatus
from temporalio.common import TypedSearchAttributes

from activities.find_ended import _end_of
from dagwright.cancelled_runs import read_recorded_document
from dagwright.client import Runs
from dagwright.contracts import wire
from dagwright.server import Connection, Server
from dagwright.store import open_store

_USAGE = {"calls": 1, "prompt_tokens": 2, "completion_tokens": 3}
_LINEAGE = {"files": ["a.txt"], "urls": []}
DOCUMENT = {
    "status": "cancelled",
    "output": None,
    "error": None,
    "nodes": {"a": {"status": "completed"}, "b": {"status": "cancelled"}},
    "usage": _USAGE,
    "lineage": _LINEAGE,
}


def _payloads(value: Any) -> Payloads:
    return Payloads(payloads=[Payload(metadata={"encoding": b"json/plain"}, data=json.dumps(value).encode())])


def _marker(document: Any) -> HistoryEvent:
    details = {"data": _payloads({"activity_type": wire.ACTIVITY_END_CANCELLED}), "result": _payloads(document)}
    marker = MarkerRecordedEventAttributes(marker_name="core_local_activity", details=details)
    return HistoryEvent(marker_recorded_event_attributes=marker)


class FakeHistory:
    """The end of one history, the newest event first, in pages of two; it counts the pages that are read."""

    def __init__(self, events: list[HistoryEvent]) -> None:
        self._events = events
        self.pages = 0

    async def read(
        self, request: GetWorkflowExecutionHistoryReverseRequest, **_: Any
    ) -> GetWorkflowExecutionHistoryReverseResponse:
        self.pages += 1
        begin = int(request.next_page_token or b"0")
        token = b"%d" % (begin + 2) if begin + 2 < len(self._events) else b""
        page = History(events=self._events[begin : begin + 2])
        return GetWorkflowExecutionHistoryReverseResponse(history=page, next_page_token=token)


def _client(history: FakeHistory) -> Client:
    async def describe(**_: Any) -> Any:
        return SimpleNamespace(status=WorkflowExecutionStatus.CANCELED, run_id="1")

    service = SimpleNamespace(get_workflow_execution_history_reverse=history.read)
    # A handle that reads no history: the whole one must not be needed.
    handle = SimpleNamespace(describe=describe)
    made = SimpleNamespace(namespace="default", workflow_service=service, get_workflow_handle=lambda *_, **__: handle)
    return cast(Client, made)


@pytest.mark.parametrize(("before", "pages"), [(1, 1), (4, 3)])
async def test_document_is_found_near_the_end_of_the_history(before: int, pages: int) -> None:
    history = FakeHistory([HistoryEvent()] * before + [_marker(DOCUMENT)] + [HistoryEvent()] * 100)
    assert await read_recorded_document(_client(history), "run-1", "1") == DOCUMENT
    assert history.pages == pages


async def test_long_history_without_a_document_is_not_read_in_full() -> None:
    history = FakeHistory([HistoryEvent()] * 100)
    assert await read_recorded_document(_client(history), "run-1", "1") is None
    assert history.pages == 5


async def test_line_of_a_cancelled_run_needs_no_whole_history() -> None:
    async def memo() -> dict[str, Any]:
        return {wire.MEMO_NODES: 2, wire.MEMO_TITLE: "Report"}

    now = datetime(2026, 1, 1, tzinfo=UTC)
    run = SimpleNamespace(id="run-1", run_id="1", memo=memo, start_time=now, close_time=now)
    run.status, run.typed_search_attributes = WorkflowExecutionStatus.CANCELED, TypedSearchAttributes.empty
    connection = Connection(_client(FakeHistory([_marker(DOCUMENT)])), Server("nowhere", "default"), frozenset())
    runs = Runs(connection, task_queue="q", store=open_store("unused"))
    found = await runs._summary(cast(WorkflowExecution, run))
    assert (found.status, found.title, found.nodes_done, found.nodes_total) == ("cancelled", "Report", 1, 2)


async def test_parent_of_a_cancelled_run_finds_its_usage_and_lineage() -> None:
    found = await _end_of(_client(FakeHistory([_marker({**DOCUMENT, "below": {"state": "x"}})])), "run-1")
    told = {"usage": _USAGE, "lineage": _LINEAGE, "below": {"state": "x"}}
    assert found == {"status": "cancelled", "output": None, "error": None, **told}
    found = await _end_of(_client(FakeHistory([HistoryEvent()])), "run-1")
    assert found == {"status": "cancelled", "output": None, "error": None}
