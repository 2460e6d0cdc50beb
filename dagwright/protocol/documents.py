"""Documents for programs: the result of a run, and its graph."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dagwright.core.boundary import wire
from dagwright.core.expressions.value_refs import encoded_size
from dagwright.core.model.compiled import CompiledNode, agent_of, tool_of
from dagwright.core.model.lookups import resolved_lookups
from dagwright.core.model.states import NodeError, NodeStatus, Record, planned_version
from dagwright.core.model.times import format_time
from dagwright.core.model.tools import ToolDeclaration
from dagwright.core.scheduler.map_items import counts_of_items, is_batched, listed_items
from dagwright.core.scheduler.run_state import counts_of, omitted_sink_count
from dagwright.features.compensation.compensation import NOTE_UNCOMPENSATED, compensated_by, compensation_summary
from dagwright.features.lookups.positions import lookup_errors
from dagwright.planning.context_names import context_names_of
from dagwright.planning.rounds.rounds_documents import group_by_node_id, rounds_document
from dagwright.protocol.compact_documents import compact_value, first_failed_field_of
from dagwright.protocol.lineage import lineage_of_run

if TYPE_CHECKING:
    from dagwright.features.run_scheduler import RunScheduler

MAX_REQUESTS_BYTES = 1024 * 1024
"""Maximum size of the open requests in one document: half of the limit of a query result."""
OUTPUT_OMITTED = "output_omitted"
"""Code of the note about an incomplete output. Only runs of plans without `output` have this note."""


@dataclass(frozen=True, slots=True)
class RunFacts:
    """Fields of a result document that do not depend on the nodes."""

    run_id: str
    execution_id: str
    title: str | None = None
    error: Mapping[str, Any] | None = None
    notes: Sequence[Mapping[str, Any]] = ()


def result_document(scheduler: "RunScheduler | None", facts: RunFacts, *, status: str | None = None) -> dict[str, Any]:
    """Return the result document with all values in full.

    Args:
        scheduler: state of the run; `None` if the run ended before its plan was loaded.
        status: status to return instead of the scheduler's status.
    """
    document = _document_without_nodes(scheduler, facts, status=status)
    if scheduler is not None:
        document["nodes"] = dict(node_documents(scheduler))
        if offloaded_counts := _counts_of_offloaded_nodes(scheduler):
            document["nodes_ref"] = {"ref": "regions", "counts": offloaded_counts}
    return document


def result_document_with_counts(
    scheduler: "RunScheduler", facts: RunFacts, *, status: str | None = None
) -> dict[str, Any]:
    """Return `replace_nodes_by_counts(result_document(...))`, without building the documents of the nodes."""
    counts = counts_of(scheduler.plan, scheduler.records)
    counts.update(item.record.status for _, record in scheduler.state.visible_nodes() for item in listed_items(record))
    shown_counts = {status.value: count for status, count in sorted(counts.items()) if count}
    failed_nodes = (
        (name, record.error.message if record.error else None)
        for name, record in _named_records(scheduler)
        if record.status is NodeStatus.FAILED
    )
    reference = {"ref": "history", "counts": shown_counts, **first_failed_field_of(failed_nodes)}
    return {**_document_without_nodes(scheduler, facts, status=status), "nodes_ref": reference}


def _named_records(scheduler: "RunScheduler") -> Iterator[tuple[str, Record]]:
    """Yield each node and item with its name, in the order of documents."""
    for node, record in scheduler.state.visible_nodes():
        yield node.id, record
        for item in listed_items(record):
            yield f"{node.id}[{item.key}]", item.record


def _document_without_nodes(scheduler: "RunScheduler | None", facts: RunFacts, *, status: str | None) -> dict[str, Any]:
    output = scheduler.output()[0] if scheduler is not None and scheduler.is_finished else None
    error = _error_of(scheduler) or scheduler.features.extension.goal_error() if scheduler is not None else None
    notes = [dict(note) for note in facts.notes]
    omitted_count = (
        omitted_sink_count(scheduler.plan, scheduler.records) if scheduler is not None and scheduler.is_finished else 0
    )
    if omitted_count:
        notes.append(_omitted_note(omitted_count))
    lineage = lineage_of_run(scheduler) if scheduler is not None else None
    context = context_names_of(scheduler) if scheduler is not None else {}
    rounds = rounds_document(scheduler, _compact) if scheduler is not None else None
    lookups = list(resolved_lookups(scheduler.plan, scheduler.records)) if scheduler is not None else []
    lookup_problems = (
        lookup_errors(scheduler.plan, scheduler.records) if scheduler is not None and scheduler.state.error else []
    )
    return {
        "run_id": facts.run_id,
        "execution_id": facts.execution_id,
        "status": status or (scheduler.status().value if scheduler else "failed"),
        "title": facts.title,
        "output": output,
        "error": facts.error
        or ({**error.to_json(), **({"errors": lookup_problems} if lookup_problems else {})} if error else None),
        "nodes": {},
        "waiting_for": listed_requests(scheduler, facts.run_id) if scheduler else [],
        "usage": scheduler.state.totals.usage.to_document() if scheduler else {},
        "notes": notes,
        **({"context": context} if context else {}),
        **({"lookups": lookups} if lookups else {}),
        **({"rounds": rounds} if rounds is not None else {}),
        **({wire.DETAIL_LINEAGE: lineage.to_document()} if lineage else {}),
    }


def _error_of(scheduler: "RunScheduler") -> NodeError | None:
    """Return the error of a run; if the run has compensated its calls, with a summary of the compensation."""
    error = scheduler.state.error
    if error is None or not (scheduler.state.phase.forbids_compensation and scheduler.is_finished):
        return error
    message, uncompensated_notes = compensation_summary(scheduler.state)
    if scheduler.state.options.only_compensates:
        return NodeError(NOTE_UNCOMPENSATED, message) if uncompensated_notes else None
    return replace(error, message=f"{error.message}; {message}")


def listed_requests(scheduler: "RunScheduler", run_id: str) -> list[dict[str, Any]]:
    """Return the open requests in the order of their opening, as many as fit into one document."""
    documents: list[dict[str, Any]] = []
    remaining_bytes = MAX_REQUESTS_BYTES
    for request in scheduler.features.feedback.requests.open.values():
        encoded = request.to_json(run_id)
        remaining_bytes -= encoded_size(encoded)
        if remaining_bytes < 0:
            break
        documents.append(encoded)
    return documents


def _omitted_note(count: int) -> dict[str, Any]:
    message = (
        f"the plan has no `output`, and the results of its {count:,} final nodes are too many "
        "for this document; read them from the nodes, with `dagwright result RUN --full --json` or "
        "`run.nodes()` in Python, or add an `output` to the plan"
    )
    return {"code": OUTPUT_OMITTED, "node_id": None, "message": message}


def node_counts_of(scheduler: "RunScheduler | None") -> dict[str, int]:
    """Return state -> number of nodes, without items; empty if the plan is not loaded yet."""
    counts = counts_of(scheduler.plan, scheduler.records) if scheduler is not None else {}
    return {status.value: count for status, count in sorted(counts.items())}


def _counts_of_offloaded_nodes(scheduler: "RunScheduler") -> dict[str, int]:
    """Return the counts by state of the nodes that only exist inside of offloaded regions."""
    counts = counts_of(scheduler.plan, scheduler.records)
    counts.subtract(record.status for _, record in scheduler.state.visible_nodes())
    return {status.value: count for status, count in sorted(counts.items()) if count}


def node_documents(scheduler: "RunScheduler") -> Sequence[tuple[str, dict[str, Any]]]:
    """Return (id, document) of every node in plan order, each `for_each` node followed by its items."""
    documents: list[tuple[str, dict[str, Any]]] = []
    compensating_ids = compensated_by(scheduler.state)
    for node, record in scheduler.state.visible_nodes():
        documents.append((node.id, node_document(scheduler, node.id, node=node, record=record)))
        for item in listed_items(record):
            task_id = f"{node.id}[{item.key}]"
            documents.append((task_id, node_document(scheduler, task_id, node=node, record=item.record)))
    for task_id, document in documents if compensating_ids else ():
        if task_id in compensating_ids:
            document["compensated_by"] = compensating_ids[task_id]
    return documents


def node_document(scheduler: "RunScheduler", task_id: str, *, node: CompiledNode, record: Record) -> dict[str, Any]:
    """Return the document of a node or item."""
    needs = [scheduler.plan.nodes[number].id for number in scheduler.state.visible_dependencies(node)]
    declaration = tool_of(node, scheduler.plan.tools) if node.tool in scheduler.plan.tools else None
    document = document_of_record(record, title=node.title, tool=node.tool, needs=needs, declaration=declaration)
    document["supersedes"] = node.supersedes if task_id == node.id else None
    if node.compensates is not None:
        document["compensates"] = node.compensates
    if (usage := scheduler.state.totals.usage.tasks.get(task_id)) is not None:
        document["usage"] = usage.to_document()
    if (agent := agent_of(node)) is not None:
        document["lineage"]["agent"] = agent
    if (lineage := scheduler.state.totals.lineage.tasks.get(task_id)) is not None:
        document["lineage"] |= lineage.to_document()
    if answers := answer_documents(scheduler, task_id):
        document["lineage"]["answers"] = answers
    if overrides := override_entries(scheduler, task_id):
        document["lineage"]["overrides"] = overrides
    return document


def answer_documents(scheduler: "RunScheduler", task_id: str) -> list[dict[str, Any]]:
    """Return the closed requests of a node or item: answer, author and channel."""
    documents = []
    for number in range(1, scheduler.features.feedback.requests.request_counts.get(task_id, 0) + 1):
        request_id = task_id if number == 1 else f"{task_id}#{number}"
        closing = scheduler.features.feedback.requests.closed.get(request_id)
        # A node may have the ID of a later request, such as `check#2`. Then the closing belongs to that node's request.
        if closing is not None and (number == 1 or scheduler.record_of(request_id) is None):
            documents.append({"request_id": request_id, **closing.to_json()})
    return documents


def override_entries(scheduler: "RunScheduler", task_id: str) -> list[dict[str, Any]]:
    """Return the manual overrides of a node or item: action, author, time and channel."""
    override = scheduler.state.overrides.get(task_id)
    return [] if override is None else [{**entry, "at": format_time(entry["at"])} for entry in override.commands]


def document_of_record(
    record: Record, *, title: str | None, tool: str, needs: Sequence[str], declaration: ToolDeclaration | None
) -> dict[str, Any]:
    """Return the document of a node from its record.

    Args:
        needs: ids of the node's dependencies.
        declaration: declaration of the node's tool.
    """
    started_at, ended_at = format_time(record.started_at), format_time(record.ended_at)
    cached_field = {"cached": dict(record.cached)} if record.cached is not None else {}
    reused_field = {"reused": dict(record.reused)} if record.reused is not None else {}
    message_field = {"message": record.message} if record.message is not None else {}
    items_field = {"items": counts_of_items(record)} if is_batched(record) else {}
    planned_tool_version = planned_version(record, declaration)
    return {
        **items_field,
        "status": record.status.value,
        "title": title,
        "tool": tool or None,
        "result": record.result,
        "error": record.error.to_json() if record.error else None,
        "attempts": record.attempts,
        "started_at": started_at,
        "ended_at": ended_at,
        "blocked_by": list(record.blocked_by),
        "supersedes": None,
        "partial": record.partial,
        "reason": record.reason,
        **message_field,
        "lineage": {
            "inputs": list(needs),
            "effects": declaration.effects.value if declaration else None,
            "tool_version": record.tool_version or None,
            **({"planned_tool_version": planned_tool_version} if planned_tool_version else {}),
            "attempts": record.attempts,
            "started_at": started_at,
            "ended_at": ended_at,
            **cached_field,
            **reused_field,
        },
    }


def graph_document(scheduler: "RunScheduler") -> dict[str, Any]:
    """Return the graph with states: nodes in plan order, and edges from dependencies to dependents.

    `group` is the round of a node, in runs that work in rounds; `partial` marks a partial result.
    """
    nodes, groups = scheduler.plan.nodes, group_by_node_id(scheduler)
    visible_nodes = list(scheduler.state.visible_nodes())
    return {
        "nodes": [
            {
                "node_id": node.id,
                "title": node.title,
                "status": record.status.value,
                "tool": node.tool or None,
                **({"partial": True} if record.partial else {}),
                **({"group": groups[node.id]} if node.id in groups else {}),
            }
            for node, record in visible_nodes
        ],
        "edges": [
            [nodes[number].id, node.id]
            for node, _ in visible_nodes
            for number in scheduler.state.visible_dependencies(node)
        ],
    }


def _compact(value: Any, ref: str) -> Any:
    return compact_value(value, ref=ref)


def error_json(code: str, message: str) -> dict[str, Any]:
    """Return a non-retryable error of a run."""
    return NodeError(code, message).to_json()
