"""Documents of cancelled runs, which are near the end of their histories."""

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest
from temporalio.api.common.v1 import Payload, Payloads
from temporalio.api.history.v1 import History, HistoryEvent, MarkerRecordedEventAttributes
from temporalio.api.workflowservice.v1 import (
    GetWorkflowExecutionHistoryReverseRequest,
    GetWorkflowExecutionHistoryReverseResponse,
)
from temporalio.client import Client, WorkflowExecutionStatus

from dagwright.activities.ended_runs import _outcome_of
from dagwright.core.boundary import wire
from dagwright.history.closing_event import read_recorded_document
from dagwright.protocol.conversion import data_converter

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
    """The end of one history, the newest event first, in pages of two; it counts the pages that are read."""

    def __init__(self, events: list[HistoryEvent]) -> None:
        self._events = events
        self.pages = 0

    async def read(
        self, request: GetWorkflowExecutionHistoryReverseRequest, **_: Any
    ) -> GetWorkflowExecutionHistoryReverseResponse:
        self.pages += 1
        start = int(request.next_page_token or b"0")
        token = b"%d" % (start + 2) if start + 2 < len(self._events) else b""
        page = History(events=self._events[start : start + 2])
        return GetWorkflowExecutionHistoryReverseResponse(history=page, next_page_token=token)


def _client(history: FakeHistory) -> Client:
    async def describe(**_: Any) -> Any:
        return SimpleNamespace(status=WorkflowExecutionStatus.CANCELED, run_id="1")

    service = SimpleNamespace(get_workflow_execution_history_reverse=history.read)
    # A handle that reads no history: the whole one must not be needed.
    handle = SimpleNamespace(describe=describe)
    made = SimpleNamespace(
        namespace="default",
        data_converter=data_converter,
        workflow_service=service,
        get_workflow_handle=lambda *_, **__: handle,
    )
    return cast(Client, made)


@pytest.mark.parametrize(("before", "document", "pages"), [(1, DOCUMENT, 1), (4, DOCUMENT, 3), (100, None, 5)])
async def test_document_is_sought_near_the_end_of_the_history(before: int, document: Any, pages: int) -> None:
    history = FakeHistory([HistoryEvent()] * before + [_marker(DOCUMENT)] + [HistoryEvent()] * 100)
    assert (await read_recorded_document(_client(history), "run-1", "1"), history.pages) == (document, pages)


async def test_parent_of_a_cancelled_run_finds_its_usage_and_lineage() -> None:
    found = await _outcome_of(_client(FakeHistory([_marker({**DOCUMENT, "child_snapshot": {"state": "x"}})])), "run-1")
    document = {"usage": _USAGE, "lineage": _LINEAGE, "child_snapshot": {"state": "x"}}
    assert found == {"status": "cancelled", "output": None, "error": None, **document}
    found = await _outcome_of(_client(FakeHistory([HistoryEvent()])), "run-1")
    assert found == {"status": "cancelled", "output": None, "error": None}
