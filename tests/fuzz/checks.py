"""Invariants of every run, for any input and any messages."""

import re
from collections.abc import Mapping, Set
from typing import Any

from temporalio.client import Client, WorkflowHistory

from dagwright.core.boundary import wire
from dagwright.core.expressions.stored_values import ValueRef
from dagwright.core.expressions.value_refs import format_value_refs
from dagwright.history.closing_event import is_reference
from dagwright.history.replay import HistoryReplay
from dagwright.history.run_reader import RunReader
from dagwright.interfaces.cli.graph_drawing import mermaid, svg
from dagwright.protocol.compact_documents import reference_to
from dagwright.protocol.conversion import data_converter
from tests.support.runs import Document, Handle, check_history, document_of, histories_of

_FINAL_NODE_STATES = {"completed", "failed", "skipped", "blocked", "cancelled", "superseded"}
_SUCCESSFUL_NODE_STATES = {"completed", "skipped", "superseded"}
_FINAL_RUN_STATES = {"completed", "completed_with_failures", "failed", "cancelled"}
_DOCUMENT_KEYS = {
    *("run_id", "execution_id", "status", "title", "output", "error", "nodes"),
    *("waiting_for", "usage", "notes"),
}
_NODE_KEYS = {
    *("status", "title", "tool", "result", "error", "attempts", "started_at", "ended_at", "blocked_by"),
    *("supersedes", "partial", "reason", "lineage"),
}
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


async def check_run(client: Client, handle: Handle, *, may_have_internal_error: bool) -> str:
    """Check all invariants of a started run; return the final status, or the error type `InternalError`.

    Args:
        may_have_internal_error: whether the run may fail with the error type `InternalError`. This is allowed for
            inputs that no client sends.

    Raises:
        AssertionError: an invariant is violated.
    """
    histories = await histories_of(client, handle)
    for history in histories:
        await check_history(history)
    if may_have_internal_error and _is_internal_error(histories[0]):
        return wire.ERROR_INTERNAL
    document = await document_of(handle)
    check_document(document)
    check_status_query(await handle.query(wire.QUERY_STATUS), document)
    # A replay covers one execution. A run that continues as new has several executions.
    if sum(history.workflow_id == handle.id for history in histories) == 1:
        await check_replay(histories[0], document)
    await check_reader(client, handle, document)
    return str(document["status"])


def _is_internal_error(history: WorkflowHistory) -> bool:
    attributes = history.events[-1].workflow_execution_failed_event_attributes
    return attributes.failure.application_failure_info.type == wire.ERROR_INTERNAL


def check_document(document: Document) -> None:
    """Check the result document of a run against docs/reference/states.md."""
    assert set(document) >= _DOCUMENT_KEYS, document.keys()
    status = document["status"]
    assert status in _FINAL_RUN_STATES, status
    _check_error(document["error"], required_keys={"code", "message"})
    nodes = document["nodes"]
    for name, node in nodes.items():
        _check_node(name, node)
    if nodes and status == "completed":
        assert {node["status"] for node in nodes.values()} <= _SUCCESSFUL_NODE_STATES, (
            "a completed run has unsuccessful nodes"
        )
    if status == "completed_with_failures":
        assert any(node["status"] == "completed" for node in nodes.values()) or "nodes_ref" in document
    if status == "failed" and not nodes and "nodes_ref" not in document:
        assert document["error"] is not None, "a failed run has no error"
    for note in document["notes"]:
        assert set(note) >= {"code", "message"}


def _check_node(name: str, node: Mapping[str, Any]) -> None:
    assert set(node) >= _NODE_KEYS, (name, node.keys())
    assert node["status"] in _FINAL_NODE_STATES, (name, node["status"])
    assert isinstance(node["attempts"], int), (name, node["attempts"])
    assert node["attempts"] >= 0, (name, node["attempts"])
    _check_error(node["error"], required_keys={"code", "message", "retryable"})
    if node["status"] in ("failed", "blocked"):
        assert node["error"] is not None, f"{name} {node['status']} without an error"
    if node["status"] == "blocked":
        assert node["blocked_by"], name
    if node["status"] != "completed":
        assert node["result"] is None, (name, node["status"], node["result"])
    for key in ("started_at", "ended_at"):
        assert node[key] is None or _TIME.fullmatch(node[key]), (name, key, node[key])
    assert node["ended_at"] is not None, f"{name} has ended without a time"


def _check_error(error: Any, *, required_keys: Set[str]) -> None:
    if error is None:
        return
    assert required_keys <= set(error), error
    assert isinstance(error["code"], str), error
    assert isinstance(error["message"], str), error
    assert error["code"], error
    assert error["message"], error
    assert len(error["message"].encode()) < 100_000, "an error of 100 kB"


def check_status_query(response: Document, document: Document) -> None:
    """Check that the status query and the result document of an ended run agree."""
    assert response["status"] == document["status"], (response["status"], document["status"])
    _check_same_node_states(response, document, source="the query")


def _check_same_node_states(report: Document, document: Document, *, source: str) -> None:
    actual, expected = _states(report), _states(document)
    pairs = {name: (actual.get(name), expected.get(name)) for name in {**actual, **expected}}
    differences = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
    assert not differences, f"{source} and the document differ: {differences}"


def _states(document: Document) -> dict[str, Any]:
    return {name: (node["status"], node["error"], node["reason"]) for name, node in document["nodes"].items()}


async def check_replay(history: WorkflowHistory, document: Document) -> None:
    """Check that a replay of the events before the last event gives the nodes of the result document."""
    replay = HistoryReplay(history.workflow_id, data_converter)
    for event in history.events[:-1]:
        await replay.apply(event)
    await replay.complete_state()
    if replay.scheduler is None or not document["nodes"]:
        return
    differences: dict[str, Any] = {}
    for name, node in document["nodes"].items():
        record = replay.scheduler.record_of(name)
        if record is None:
            differences[name] = ("nothing", node["status"])
            continue
        error = record.error.to_json() if record.error else None
        # A call that is cancelled in the workflow task of its start leaves no event, so its attempts are not compared.
        attempts = None if record.status == "cancelled" else record.attempts
        replayed_fields = (record.status.value, error, attempts, record.partial)
        document_fields = (
            node["status"],
            node["error"],
            node["attempts"] if attempts is not None else None,
            node["partial"],
        )
        if replayed_fields != document_fields:
            differences[name] = (replayed_fields, document_fields)
        elif not is_reference(node["result"], ref=f"node:{name}") and not _is_stored(node["result"]):
            result = format_value_refs(record.result, _reference) if record.status == "completed" else None
            if result != node["result"]:
                differences[name] = (f"{result!r:.200}", f"{node['result']!r:.200}")
    assert not differences, f"the replay and the document differ: {differences}"


def _reference(part: ValueRef) -> Any:
    return reference_to(part, ref="")


def _is_stored(value: Any) -> bool:
    return isinstance(value, dict) and {"ref", "bytes"} <= value.keys()


async def check_reader(client: Client, handle: Handle, document: Document) -> None:
    """Check that the reader of a closed run agrees with the result document, and that the run can be drawn."""
    view = await RunReader(client, handle.id).read()
    document_of_view = view.document()
    assert view.is_closed
    assert document_of_view["status"] == document["status"], (document_of_view["status"], document["status"])
    if document["nodes"]:
        _check_same_node_states(document_of_view, document, source="the reader")
    check_document(document_of_view)
    graph = view.graph()
    assert svg(graph)
    assert mermaid(graph)
