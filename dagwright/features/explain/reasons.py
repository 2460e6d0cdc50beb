"""Direct reason for the state of a node or item, derived from the scheduler.

A node that has not ended waits for other nodes, a person, a worker, a slot or the next attempt. The state of an ended
node results from its own failure, other nodes, people or inputs. `dagwright.features.explain.why` follows the reasons
to their roots. The module has no side effects.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from dagwright.core.expressions.condition_parser import Read, parse_checked_condition
from dagwright.core.expressions.conditions import missing_reads
from dagwright.core.expressions.projection import PREVIEW_CHARACTERS
from dagwright.core.expressions.references import Placeholder
from dagwright.core.expressions.value_refs import format_value_refs, ref_for_display
from dagwright.core.model.actor import Actor
from dagwright.core.model.compiled import CompiledNode, tool_of
from dagwright.core.model.lookups import resolved_lookups_of_node
from dagwright.core.model.requests import Closing
from dagwright.core.model.states import NodeError, NodeStatus, Record, planned_version
from dagwright.core.model.times import format_time
from dagwright.core.model.worker_results import displayed_status
from dagwright.core.scheduler.map_items import is_batched
from dagwright.core.scheduler.readiness import can_be_paused, max_calls_of_tool
from dagwright.core.text import cut_characters, format_count

if TYPE_CHECKING:
    from dagwright.features.run_scheduler import RunScheduler

ReasonKind = Literal[
    "dependency", "items", "person", "waiting", "retry", "running", "run", "group", "paused", "limit", "ready",
    "completed", "failed", "blocked", "skipped", "cancelled", "superseded",
]  # fmt: skip
"""Cause of the wait of an open node, or outcome of an ended node. `run`: a child run executes the node. `group`: one
call executes the node together with other pure nodes."""

_MAX_CAUSING_ITEMS = 20
"""Maximum number of items of a node that are reported as causes of its state."""
_MAX_NAMES = 5
_OPEN_STATUSES = (NodeStatus.READY, NodeStatus.RUNNING, NodeStatus.WAITING)


class ServerCall(Protocol):
    """State of a call in flight, as the Temporal server reports it. `dagwright.history.pending_activities.PendingCall`
    implements this protocol."""

    @property
    def attempt(self) -> int:
        """Number of the attempt, starting with 1."""

    @property
    def state(self) -> str:
        """`backing_off` until the next attempt of the call, `scheduled` while no worker has received the call."""

    @property
    def last_failure(self) -> str | None:
        """Message of the last failed attempt."""

    @property
    def next_attempt_at(self) -> float | None:
        """Time of the next attempt in seconds since the epoch, if the state is `backing_off`."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Reason for the state of one node or item; times are seconds since the epoch.

    Args:
        message: predicate of a sentence whose subject is the id, such as `waits for check`.
        detail: additional text, such as the prompt of a request or the error of a failed node.
        since: start of the state; for an ended node, the time of its end.
        until: time at which the state ends without any command: the next attempt, or the deadline of a request.
        causes: nodes and items that cause the state.
        facts: additional JSON fields.
    """

    node_id: str
    status: NodeStatus
    kind: ReasonKind
    message: str
    detail: str = ""
    since: float | None = None
    until: float | None = None
    causes: Sequence[str] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the reason as JSON."""
        return {
            "node_id": self.node_id,
            "status": self.status.value,
            "kind": self.kind,
            "message": f"{self.message}: {self.detail}" if self.detail else self.message,
            "since": None if self.since is None else format_time(self.since),
            "until": None if self.until is None else format_time(self.until),
            "causes": list(self.causes),
            **self.facts,
        }


def reason_of(scheduler: "RunScheduler", task_id: str, *, call: ServerCall | None = None) -> Reason:
    """Return the reason for the state of a node (`id`) or an item (`id[key]`).

    Args:
        call: state of the task's call in flight, if it is known.

    Raises:
        KeyError: there is no such node or item.
    """
    node, record = scheduler.state.node_of(task_id), scheduler.record_of(task_id)
    assert record is not None
    if record.status.is_final:
        return _EndedTask(scheduler, task_id, node, record).reason()
    if record.status is NodeStatus.PENDING:
        return _pending_reason(scheduler, node, task_id)
    if record.status is NodeStatus.WAITING:
        return _waiting_reason(scheduler, task_id, record)
    if record.items:
        return _items_reason(node, record)
    if record.status is NodeStatus.READY:
        return _ready_reason(scheduler, task_id, node, record)
    return _running_reason(scheduler, task_id, record, call=call)


def open_task_ids(record: Record, node: CompiledNode) -> Iterator[str]:
    """Yield the ids of the open tasks of a node: its own id, or those of its items."""
    for item in record.items:
        if item.record.status in _OPEN_STATUSES:
            yield f"{node.id}[{item.key}]"
    if record.status in _OPEN_STATUSES and not record.items:
        yield node.id


def join_names(names: Sequence[str], *, conjunction: str = "and") -> str:
    """Join names for a sentence: `a`, `a and b`, `a, b and 3 more`."""
    first_names, omitted_count = names[:_MAX_NAMES], len(names) - _MAX_NAMES
    parts = [*first_names, f"{omitted_count:,} more"] if omitted_count > 0 else first_names
    return f" {conjunction} ".join(filter(None, [", ".join(parts[:-1]), parts[-1]])) if parts else ""


# Open nodes.


def _pending_reason(scheduler: "RunScheduler", node: CompiledNode, task_id: str) -> Reason:
    dependency_ids = [scheduler.plan.nodes[number].id for number in node.dependencies]
    open_ids = [node_id for node_id in dependency_ids if not _status_of(scheduler, node_id).is_final]
    kind, required_count = node.join
    names = join_names(open_ids, conjunction="or" if kind == "any" else "and")
    if kind == "any":
        message = f"waits for {'one of ' if len(open_ids) > 1 else ''}{names}"
    elif kind == "at_least":
        message = f"waits for {required_count} of {len(dependency_ids)} nodes to be done; not done yet: {names}"
    else:
        message = f"waits for {names}"
    return Reason(task_id, NodeStatus.PENDING, "dependency", message, causes=open_ids)


def _status_of(scheduler: "RunScheduler", task_id: str) -> NodeStatus:
    record = scheduler.record_of(task_id)
    return NodeStatus.PENDING if record is None else record.status


def _waiting_reason(scheduler: "RunScheduler", task_id: str, record: Record) -> Reason:
    request = scheduler.features.feedback.requests.of_task(task_id)
    if request is None:
        return Reason(task_id, record.status, "waiting", "waits", record.reason or "")
    facts: dict[str, Any] = {"request_id": request.id, "assignee": request.assignee}
    since = request.opened_at
    if request.escalations:
        document = request.to_json("")
        facts |= {"requested_from": request.requested_from, "requested_at": document["opened_at"]}
        facts["escalations"] = document["escalations"]
        since = request.escalations[-1]["at"]
    return Reason(
        task_id,
        record.status,
        "person",
        f"waits for {request.assignee or 'anyone'}",
        request.prompt,
        since=since,
        until=request.deadline_at,
        facts=facts,
    )


def _items_reason(node: CompiledNode, record: Record) -> Reason:
    open_ids = [*open_task_ids(record, node)]
    items_text = "the runs of its items" if is_batched(record) else "its items"
    message = f"waits for {len(open_ids):,} of {items_text}"
    causes = open_ids[:_MAX_CAUSING_ITEMS]
    return Reason(node.id, record.status, "items", message, since=record.started_at, causes=causes)


def _ready_reason(scheduler: "RunScheduler", task_id: str, node: CompiledNode, record: Record) -> Reason:
    if node.kind == "external":
        return Reason(task_id, record.status, "group", "runs with other pure nodes in one call")
    if (paused := scheduler.state.paused) is not None:
        message = f"is ready, and the run is {Actor(paused.by).describe('paused')}"
        return Reason(task_id, record.status, "paused", message, paused.reason or "", since=paused.at)
    if (limit := _reached_limit(scheduler, node)) is not None:
        return Reason(task_id, record.status, "limit", "waits for a free slot", limit)
    return Reason(task_id, record.status, "ready", "is about to start")


def _reached_limit(scheduler: "RunScheduler", node: CompiledNode) -> str | None:
    """Return a text about the limit that keeps a ready task waiting, or `None`."""
    running_counts: Counter[str] = Counter()
    call_counts: Counter[str] = Counter()
    total_count = 0
    for other_node, record in zip(scheduler.plan.nodes, scheduler.records, strict=True):
        tasks = [(f"{other_node.id}[{item.key}]", item.record) for item in record.items] or [(other_node.id, record)]
        count = sum(_is_in_flight(scheduler, task_id, task_record) for task_id, task_record in tasks)
        running_counts[other_node.id] = count
        total_count += count
        call_counts[other_node.tool] += count if other_node.kind != "region" else 0
    tools = scheduler.plan.tools
    tool, call_count = tools.get(node.tool), call_counts[node.tool]
    if node.max_parallel is not None and running_counts[node.id] >= node.max_parallel:
        running_text = f"{format_count(running_counts[node.id], 'item')} of {node.id} in progress"
        return f"{running_text}, and its `max_parallel` is {node.max_parallel}"
    if tool is not None and tool.max_parallel is not None and call_count >= tool.max_parallel:
        running_text = f"{format_count(call_count, 'call')} of {node.tool} in progress"
        return f"{running_text}, and its `max_parallel` is {tool.max_parallel}"
    pausable_counts = {name: count for name, count in call_counts.items() if name and can_be_paused(tools.get(name))}
    other_call_count = sum(pausable_counts.values()) - pausable_counts.get(node.tool, 0)
    if node.tool in pausable_counts and call_count >= max_calls_of_tool(other_call_count):
        other_calls_text = f" and {other_call_count} calls of other tools" if other_call_count else ""
        calls_text = f"{call_count} calls of {node.tool}{other_calls_text} run"
        return f"{calls_text}; the remaining slots are reserved for other tools"
    if total_count >= scheduler.state.max_in_flight:
        return (
            f"{total_count} tasks of the run are in flight, and its `max_parallel` is {scheduler.state.max_in_flight}"
        )
    return None


def _is_in_flight(scheduler: "RunScheduler", task_id: str, record: Record) -> bool:
    """Return whether a task runs, or its call waits for a worker; a task that waits for a person occupies no slot."""
    if record.status is NodeStatus.WAITING:
        return scheduler.features.feedback.requests.of_task(task_id) is None
    return record.status is NodeStatus.RUNNING


def _running_reason(scheduler: "RunScheduler", task_id: str, record: Record, *, call: ServerCall | None) -> Reason:
    node, map_batch = scheduler.state.node_of(task_id), scheduler.state.map_batch_of(task_id)
    if node.kind == "plan" or (map_batch is not None and map_batch.count):
        return Reason(task_id, record.status, "run", "runs as a child run", since=record.started_at)
    if call is not None and call.state == "backing_off":
        failure = f"attempt {call.attempt - 1} failed: {call.last_failure or 'without a message'}"
        message = f"waits for attempt {call.attempt}"
        return Reason(task_id, record.status, "retry", message, failure, until=call.next_attempt_at)
    if call is not None and call.state == "scheduled" and call.attempt > 1:
        failure = f"attempt {call.attempt - 1} failed: {call.last_failure or 'without a message'}"
        return Reason(task_id, record.status, "retry", f"waits for a worker to take attempt {call.attempt}", failure)
    if call is not None and call.state == "scheduled":
        return Reason(task_id, record.status, "limit", "waits for a free slot of a worker")
    tool = scheduler.plan.tools.get(node.tool)
    if tool is not None and tool.workflow is not None:
        message = f"runs as a child workflow of the type {tool.workflow!r}"
        return Reason(task_id, record.status, "running", message, since=record.started_at)
    attempt = f" in attempt {call.attempt}" if call is not None and call.attempt > 1 else ""
    failure = f"the previous attempt failed: {call.last_failure}" if call is not None and call.last_failure else ""
    return Reason(task_id, record.status, "running", f"runs{attempt}", failure, since=record.started_at)


# Ended nodes.


def _error_message(error: NodeError) -> str:
    """Return the code and message of an error. A message that starts with the code is not prefixed again."""
    has_code = error.message.startswith(f"{error.code.replace('_', ' ')}:")
    return error.message if has_code else f"{error.code}: {error.message}"


class _EndedTask:
    """An ended node or item, with the reason for its state."""

    def __init__(self, scheduler: "RunScheduler", task_id: str, node: CompiledNode, record: Record) -> None:
        self._scheduler = scheduler
        self._id = task_id
        self._node = node
        self._record = record

    def reason(self) -> Reason:
        match self._record.status:
            case NodeStatus.COMPLETED:
                return self._completion_reason()
            case NodeStatus.FAILED:
                return self._failure_reason()
            case NodeStatus.BLOCKED:
                blockers = [*self._record.blocked_by]
                return self._reason("blocked", f"is blocked by {join_names(blockers)}", causes=blockers)
            case NodeStatus.SKIPPED:
                return self._skip_reason()
            case NodeStatus.CANCELLED:
                causes = [*self._record.blocked_by]
                return self._reason("cancelled", "was cancelled", self._record.reason or "", causes=causes)
            case _:
                error = self._record.error
                if displayed_status(self._record) is NodeStatus.FAILED and error is not None:
                    message = f"failed, and {self._record.reason}"
                    return self._reason("superseded", message, _error_message(error))
                newest_id = self._scheduler.state.newest_id(self._id)
                by_text = "" if newest_id == self._id else f" by {newest_id}"
                return self._reason("superseded", f"was superseded{by_text}", self._record.reason or "")

    def _reason(self, kind: ReasonKind, message: str, detail: str = "", *, causes: Sequence[str] = ()) -> Reason:
        status, ended_at = self._record.status, self._record.ended_at
        return Reason(self._id, status, kind, message, detail, since=ended_at, causes=causes, facts=self._facts())

    def _completion_reason(self) -> Reason:
        causes = [
            self._scheduler.plan.nodes[number].id for number in self._scheduler.state.visible_dependencies(self._node)
        ]
        message = "completed"
        if any(closing.answer == "value" for _, closing in self._closings(self._id)):
            message = "failed and was given a value manually"
        elif self._record.error is not None:
            message = "failed and continued with the value of its on_error"
        elif any(entry.get("command") == "set_result" for entry in self._override_commands()):
            # The result does not depend on other nodes.
            message, causes = "was given its result manually", []
        elif (origin := self._record.reused or self._record.cached) is not None:
            message = f"reused the result of {origin['node_id']!r} in the run {origin['run_id']!r}"
        detail = self._record.error.message if self._record.error else ""
        return self._reason("completed", message, detail, causes=causes)

    def _failure_reason(self) -> Reason:
        error = self._record.error
        failed_items = [item for item in self._record.items if item.record.status is NodeStatus.FAILED]
        causes = [f"{self._node.id}[{item.key}]" for item in failed_items[:_MAX_CAUSING_ITEMS]]
        return self._reason("failed", "failed", _error_message(error) if error else "", causes=causes)

    def _skip_reason(self) -> Reason:
        node = self._node
        if self._id == node.id:
            causes = [node_id for node_id in self._dependency_ids() if self._skips_dependents(node_id)]
            if causes and node.join[0] in ("all", "any", "at_least"):
                return self._reason("skipped", f"was skipped because of {join_names(causes)}", causes=causes)
        if any(closing.answer == "skip" for _, closing in self._closings(self._id)):
            return self._reason("skipped", "was skipped manually")
        if node.when is not None:
            causes = [node_id for node_id in self._ids_in_condition() if self._scheduler.record_of(node_id) is not None]
            missing_text = "; ".join(missing_value_texts(self._scheduler, node))
            detail = f"its condition is false: {node.when}{f' ({missing_text})' if missing_text else ''}"
            detail = "; ".join([detail, *self._decisions(causes)])
            return self._reason("skipped", "was skipped", detail, causes=causes)
        return self._reason("skipped", "was skipped", "its for_each is null" if node.for_each else "")

    def _decisions(self, node_ids: Sequence[str]) -> Iterator[str]:
        """Yield the decision of each approval node, such as `check was rejected by ann`, if it has a decision."""
        for node_id in node_ids:
            for _, closing in self._closings(node_id)[-1:]:
                if closing.answer in ("approved", "rejected"):
                    yield f"{node_id} was {closing.answer}{f' by {closing.by}' if closing.by else ''}"

    def _dependency_ids(self) -> list[str]:
        return [self._scheduler.plan.nodes[number].id for number in self._node.dependencies]

    def _skips_dependents(self, node_id: str) -> bool:
        node, status = self._scheduler.state.node_of(node_id), _status_of(self._scheduler, node_id)
        return status is NodeStatus.SKIPPED or (status is NodeStatus.FAILED and node.on_error == "skip")

    def _ids_in_condition(self) -> Sequence[str]:
        try:
            return parse_checked_condition(
                self._node.when or "", lambda name: self._scheduler.state.number_of(name) is not None
            ).nodes
        except ValueError:
            return ()

    # Facts.

    def _facts(self) -> dict[str, Any]:
        record, tool = self._record, self._scheduler.plan.tools.get(self._node.tool)
        facts = {
            "tool": self._node.tool or None,
            "tool_version": record.tool_version or None,
            "planned_tool_version": planned_version(record, tool),
            "effects": tool_of(self._node, self._scheduler.plan.tools).effects.value if tool else None,
            "attempts": record.attempts or None,
            "started_at": None if record.started_at is None else format_time(record.started_at),
            "inputs": self._inputs(),
            "lookups": self._lookups(),
            "answers": self._answers(self._id),
            "overrides": self._override_commands(),
            "cached": dict(record.cached) if record.cached is not None else None,
            "reused": dict(record.reused) if record.reused is not None else None,
            "result": _preview(record.result) if record.status is NodeStatus.COMPLETED else None,
        }
        return {name: fact for name, fact in facts.items() if fact not in (None, [], {})}

    def _inputs(self) -> dict[str, Any]:
        """Return the inputs of the run that the node reads, as short texts."""
        node = self._node
        templates = [template for _, template in (*node.bindings, *node.item_bindings, *node.approval_bindings)]
        templates += [template for template in (node.for_each, node.key) if isinstance(template, tuple)]
        names = [part.name for template in templates for part in template if isinstance(part, Placeholder)]
        inputs = self._scheduler.state.inputs
        return {name: _preview(inputs[name]) for name in dict.fromkeys(names) if name in inputs}

    def _lookups(self) -> list[dict[str, Any]]:
        """Return the lookups of the node: text, entity, reason for the match, and answers of people."""
        scheduler = self._scheduler
        return [
            {"argument": argument, **match, "answers": self._answers(lookup_id)}
            for argument, lookup_id, match in resolved_lookups_of_node(self._node, scheduler.plan, scheduler.records)
        ]

    def _answers(self, task_id: str) -> list[dict[str, Any]]:
        return [{"request_id": request_id, **closing.to_json()} for request_id, closing in self._closings(task_id)]

    def _closings(self, task_id: str) -> list[tuple[str, Closing]]:
        """Return the closed requests of a node or item: id and closing, in order."""
        registry = self._scheduler.features.feedback.requests
        count = registry.request_counts.get(task_id, 0)
        request_ids = [task_id, *(f"{task_id}#{number}" for number in range(2, count + 1))] if count else []
        return [
            (request_id, registry.closed[request_id]) for request_id in request_ids if request_id in registry.closed
        ]

    def _override_commands(self) -> list[dict[str, Any]]:
        override = self._scheduler.state.overrides.get(self._id)
        return [] if override is None else [{**entry, "at": format_time(entry["at"])} for entry in override.commands]


def _preview(value: Any) -> Any:
    """Return a short value unchanged, or the truncated text of a long value."""
    display_value = format_value_refs(value, ref_for_display)
    text = (
        display_value if isinstance(display_value, str) else json.dumps(display_value, ensure_ascii=False, default=str)
    )
    return display_value if len(text) <= PREVIEW_CHARACTERS else cut_characters(text, PREVIEW_CHARACTERS)


def missing_value_texts(scheduler: "RunScheduler", node: CompiledNode) -> list[str]:
    """Return a text for each missing or null value that the condition of a node reads."""

    def get_root_value(read: Read) -> Any:
        if read.source == "inputs":
            return scheduler.state.inputs
        record = scheduler.record_of(scheduler.state.newest_id(read.node_id))
        if record is None:
            return {}
        result = record.result if record.status is NodeStatus.COMPLETED else None
        error = record.error.to_json() if record.error is not None else None
        return {"result": result, "status": record.status.value, "error": error}

    try:
        condition = parse_checked_condition(node.when or "", lambda name: scheduler.state.number_of(name) is not None)
    except ValueError:
        return []
    return missing_reads(condition, get_root_value)
