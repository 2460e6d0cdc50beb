"""The typed result of a run, read from its history and the payload store.

Values in the payload store load transparently, up to a limit for all nodes of a result together, so that a run with
gigabytes of results does not fill the memory. A value over the limit raises `ValueNotLoaded` when it is read.
`Run.node` and `Run.nodes` load values of any size, one node at a time.

RunEnded              a run ended without success; `result` is its result
├── RunFailed         read `failures`, fix their cause, then fork the run
└── RunCancelled      the run was cancelled
ValueNotLoaded        read the node alone, or raise the limit
"""

import reprlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from dagwright.client.errors import OptionInvalid
from dagwright.core.errors import DagwrightError, Note, Problem, note_from_json, problem_from_error
from dagwright.core.expressions.value_refs import encoded_size
from dagwright.core.model.states import NO_USAGE, NodeError, NodeStatus, RunStatus, Usage, usage_from_json
from dagwright.core.model.times import utc_datetime
from dagwright.core.name_hints import suggestion
from dagwright.core.text import cut_characters
from dagwright.history.document_hydration import NOT_LOADED, full_document
from dagwright.protocol.compact_documents import compact_value
from dagwright.store import PayloadStore

if TYPE_CHECKING:
    from dagwright.history.run_view import RunView

MAX_RESULT_BYTES = 64 * 1024 * 1024
"""Default limit of the total size of the node results in one `RunResult`, as JSON."""
_MAX_REPR_CHARACTERS = 200
"""Maximum length of a value in `repr`."""
_NODE_OVERHEAD_BYTES = 1024
"""Bytes counted for each node in addition to its result: a region may have hundreds of thousands of small nodes."""


class ValueNotLoaded(DagwrightError):
    """A value is not in memory, because it is too large or cannot be read from the payload store."""


@dataclass(frozen=True, slots=True)
class UnloadedValue:
    """Placeholder of a value that was not loaded.

    Args:
        reason: why the value was not loaded, and how to read the value.
        preview: first characters of the value.
    """

    reason: str
    preview: str = ""


def _short_repr(value: object) -> str:
    formatter = reprlib.Repr()
    formatter.maxlevel, formatter.maxdict, formatter.maxlist = 4, 20, 20
    formatter.maxstring = formatter.maxother = _MAX_REPR_CHARACTERS
    return formatter.repr(value)


def _display_text(value: Any) -> str:
    """Return the first characters of a value for people."""
    if isinstance(value, UnloadedValue):
        return f"<not loaded: {value.preview[:_MAX_REPR_CHARACTERS]}>"
    # A string is cut before it is quoted, because it may be large. `_short_repr` shortens each item of a container.
    text = repr(value[:_MAX_REPR_CHARACTERS]) if isinstance(value, str) else _short_repr(value)
    return cut_characters(text, _MAX_REPR_CHARACTERS)


class NodeResults(Mapping[str, "NodeResult"]):
    """Nodes by ID, in plan order. `nodes["load[north]"]` is an item of a map."""

    def __init__(self, nodes: Mapping[str, "NodeResult"], *, run_id: str, omitted: int = 0) -> None:
        self._nodes = nodes
        self._run_id = run_id
        self.omitted = omitted
        """Number of omitted nodes of large regions; `Run.nodes` yields them."""

    def __getitem__(self, node_id: str) -> "NodeResult":
        node = self._nodes.get(node_id)
        if node is None and node_id.endswith("]"):
            name, _, key = node_id[:-1].partition("[")
            node = self._nodes[name].items.get(key) if name in self._nodes else None
        if node is None:
            raise KeyError(self._unknown_node_message(node_id))
        return node

    def _unknown_node_message(self, node_id: str) -> str:
        message = f"the result of the run {self._run_id!r} has no node {node_id!r}"
        if self.omitted:
            return (
                f"{message}; {self.omitted:,} nodes are not in the result: `await run.node({node_id!r})` reads a node"
            )
        hint = suggestion(node_id, [*self._nodes])
        return f"{message}; {hint}" if hint else message

    def __iter__(self) -> Iterator[str]:
        return iter(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)

    def __repr__(self) -> str:
        return f"NodeResults({len(self._nodes):,} nodes: {_short_repr([*self._nodes])})"


@dataclass(frozen=True, slots=True, repr=False)
class NodeResult:
    """A node or an item of a map.

    Args:
        node_id: `load[north]` for an item.
        attempts: number of calls of the node's tool, including failed calls.
        usage: usage of the models that the node called.
        items: items of a map, key -> item, in order.
        blocked_by: IDs of the failed nodes that blocked this node.
        reason: why the node waits, or was cancelled.
        lineage: the sources of the result; `Run.lineage` returns them for one node.
    """

    node_id: str
    status: NodeStatus
    _value: Any = field(default=None, repr=False)
    error: NodeError | None = None
    attempts: int = 0
    title: str | None = None
    tool: str | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    usage: Usage = NO_USAGE
    items: "Mapping[str, NodeResult]" = field(default_factory=dict)
    blocked_by: Sequence[str] = ()
    reason: str | None = None
    lineage: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def result(self) -> Any:
        """Result of the node; `None` if the node has no result.

        Raises:
            ValueNotLoaded: the result is not in memory.
        """
        if isinstance(self._value, UnloadedValue):
            raise ValueNotLoaded(f"the result of the node {self.node_id!r} is not loaded: {self._value.reason}")
        return self._value

    def __repr__(self) -> str:
        outcome = (
            f", error={self.error.message!r:.{_MAX_REPR_CHARACTERS}}"
            if self.error
            else f", result={_display_text(self._value)}"
        )
        return f"NodeResult({self.node_id!r}, status={self.status.value!r}{outcome})"

    @property
    def is_loaded(self) -> bool:
        """Whether `result` can be read."""
        return not isinstance(self._value, UnloadedValue)


@dataclass(frozen=True, slots=True, repr=False)
class RunResult:
    """Status, output and nodes of a run: final if the run has ended, otherwise as far as they are known.

    Args:
        error: why the run failed; its `node_id` is the node that caused the failure, if any.
        failures: one for each failed node, also if the run completed with failures; if no node failed, the error of
            the run.
        usage: usage of all models that the run and its sub-plans called.
        notes: further information, such as that a value is no longer in the store.
        context: entities that the run bound to names, such as `order`, for the next turns of its session.
    """

    run_id: str
    status: RunStatus
    _value: Any = field(default=None, repr=False)
    nodes: NodeResults = field(default_factory=lambda: NodeResults({}, run_id=""), repr=False)
    title: str | None = None
    error: Problem | None = None
    failures: Sequence[Problem] = ()
    usage: Usage = NO_USAGE
    started_at: datetime | None = None
    ended_at: datetime | None = None
    notes: Sequence[Note] = ()
    context: Mapping[str, Any] = field(default_factory=dict)

    @property
    def output(self) -> Any:
        """Whole output of the plan, of any size.

        Raises:
            ValueNotLoaded: a part of the output cannot be read from the payload store.
        """
        if isinstance(self._value, UnloadedValue):
            raise ValueNotLoaded(f"the output of the run {self.run_id!r} is not loaded: {self._value.reason}")
        return self._value

    def __repr__(self) -> str:
        outcome = (
            f", error={self.error.message!r:.{_MAX_REPR_CHARACTERS}}"
            if self.error
            else f", output={_display_text(self._value)}"
        )
        return f"RunResult({self.run_id!r}, status={self.status.value!r}{outcome})"

    @property
    def is_success(self) -> bool:
        """Whether the run was completed, with or without failures that the plan tolerates."""
        return self.status in (RunStatus.COMPLETED, RunStatus.COMPLETED_WITH_FAILURES)

    def raise_on_failure(self) -> "RunResult":
        """Return this result if the run was completed.

        Raises:
            RunFailed, RunCancelled: the run was not completed.
        """
        if self.is_success:
            return self
        raise RunCancelled(self) if self.status is RunStatus.CANCELLED else RunFailed(self)


class RunEnded(DagwrightError):
    """A run ended without success.

    Args:
        result: result of the run, with the nodes that completed before the run ended.
    """

    def __init__(self, result: RunResult) -> None:
        super().__init__(result)
        self.result = result

    @property
    def failures(self) -> Sequence[Problem]:
        """Failures of the nodes, one for each failed node; if no node failed, the error of the run."""
        return self.result.failures


class RunFailed(RunEnded):
    """A run failed."""

    def __str__(self) -> str:
        error = self.result.error
        return f"the run {self.result.run_id!r} failed{f': {error.message}' if error is not None else ''}"


class RunCancelled(RunEnded):
    """A run was cancelled."""

    def __str__(self) -> str:
        error = self.result.error
        return f"the run {self.result.run_id!r} was cancelled{f': {error.message}' if error is not None else ''}"


async def read_result(view: "RunView", store: PayloadStore, *, max_bytes: int | None = MAX_RESULT_BYTES) -> RunResult:
    """Read the result of a run.

    Args:
        view: the run; if it has not ended, the result is incomplete.
        max_bytes: maximum size of the results of all nodes as JSON; `None` loads all.
    """
    if max_bytes is not None and max_bytes < 0:
        raise OptionInvalid(f"max_bytes must be at least 0, not {max_bytes}")
    parts: dict[str, Any] = {}
    nodes: dict[str, NodeResult] = {}
    omitted = 0
    async for name, part in full_document(view, store):
        if name == "nodes":
            nodes, omitted = await _load_nodes(view, _entries(part), max_bytes=max_bytes)
        else:
            parts[name] = {key: value async for key, value in part} if isinstance(part, AsyncIterator) else part
    notes = [note_from_json(note) for note in parts["notes"]]
    # A note without a node is about the output of the run.
    lost_messages = {note.node_id: note.message for note in notes if note.code in NOT_LOADED}
    nodes = {name: _mark_if_lost(node, lost_messages.get(name)) for name, node in nodes.items()}
    error = problem_from_error(parts["error"])
    return RunResult(
        run_id=view.run_id,
        status=RunStatus(view.status),
        _value=UnloadedValue(lost_messages[None]) if None in lost_messages else parts["output"],
        nodes=NodeResults(group_items(nodes), run_id=view.run_id, omitted=omitted),
        title=view.title,
        error=error,
        failures=_failures_of(nodes, error),
        usage=usage_from_json(parts["usage"]) if parts["usage"] else NO_USAGE,
        started_at=None if view.started_at is None else utc_datetime(view.started_at),
        ended_at=None if view.ended_at is None else utc_datetime(view.ended_at),
        notes=tuple(notes),
        context=parts.get("context", {}),
    )


async def read_nodes(view: "RunView", store: PayloadStore) -> AsyncGenerator[NodeResult, None]:
    """Yield the nodes and items of a run one by one, each with its whole result; for runs of any size."""
    async for name, part in full_document(view, store):
        if name == "nodes":
            async for node_id, document in _entries(part):
                yield node_of(node_id, document)


def node_of(node_id: str, document: Mapping[str, Any]) -> NodeResult:
    """Return the result of one node from its document."""
    error = document["error"]
    return NodeResult(
        node_id=node_id,
        status=NodeStatus(document["status"]),
        _value=document["result"],
        error=_error_of(error) if error else None,
        attempts=document["attempts"],
        title=document["title"],
        tool=document["tool"],
        started_at=_parse_time(document["started_at"]),
        ended_at=_parse_time(document["ended_at"]),
        usage=usage_from_json(document["usage"]) if document.get("usage") else NO_USAGE,
        blocked_by=tuple(document["blocked_by"]),
        reason=document["reason"],
        lineage=document["lineage"],
    )


def group_items(nodes: Mapping[str, NodeResult]) -> dict[str, NodeResult]:
    """Return the nodes, each map with its items.

    Args:
        nodes: nodes and items; each map is followed by its items.
    """
    items: dict[str, dict[str, NodeResult]] = {}
    map_id = ""
    for name, node in nodes.items():
        if map_id and name.startswith(f"{map_id}[") and name.endswith("]"):
            items[map_id][name[len(map_id) + 1 : -1]] = node
        else:
            map_id, items[name] = name, {}
    return {
        name: replace(nodes[name], items=map_items) if map_items else nodes[name] for name, map_items in items.items()
    }


async def _load_nodes(
    view: "RunView", entries: AsyncGenerator[tuple[str, Any], None], *, max_bytes: int | None
) -> tuple[dict[str, NodeResult], int]:
    """Return the nodes, with their results until the limit is reached, and the number of omitted nodes."""
    loaded_nodes: dict[str, NodeResult] = {}
    remaining_bytes = max_bytes
    async with aclosing(entries):
        async for name, document in entries:
            loaded_nodes[name] = node_of(name, document)
            if remaining_bytes is not None and max_bytes is not None:
                size = encoded_size(document["result"]) + _NODE_OVERHEAD_BYTES
                if (remaining_bytes := remaining_bytes - size) < 0:
                    loaded_nodes[name] = _with_placeholder(loaded_nodes[name], document["result"], max_bytes=max_bytes)
                    return _add_unloaded_nodes(loaded_nodes, view, max_bytes=max_bytes)
    return loaded_nodes, 0


def _add_unloaded_nodes(
    loaded_nodes: dict[str, NodeResult], view: "RunView", *, max_bytes: int
) -> tuple[dict[str, NodeResult], int]:
    """Return all nodes in plan order, and the number of omitted nodes. Placeholders replace unloaded results."""
    document = view.document_with_refs()
    unloaded_nodes = {
        name: _with_placeholder(node_of(name, node), node["result"], max_bytes=max_bytes)
        for name, node in document["nodes"].items()
        if name not in loaded_nodes
    }
    document_nodes = document["nodes"]
    region_node_ids = [name for name in loaded_nodes if name not in document_nodes]
    omitted_count = sum(document.get("nodes_ref", {}).get("counts", {}).values()) - len(region_node_ids)
    all_nodes = loaded_nodes | unloaded_nodes
    return {name: all_nodes[name] for name in (*document_nodes, *region_node_ids)}, max(omitted_count, 0)


def _with_placeholder(node: NodeResult, result: Any, *, max_bytes: int) -> NodeResult:
    if result is None:
        return node
    compact_result = compact_value(result, ref=f"node:{node.node_id}")
    preview = (
        str(compact_result["preview"]) if isinstance(compact_result, Mapping) and "preview" in compact_result else ""
    )
    reason = (
        f"the results of the run are over {max_bytes:,} bytes; `await run.node({node.node_id!r})` reads one node, "
        "`run.nodes()` all of them one by one, and `run.result(max_bytes=None)` loads everything"
    )
    return replace(node, _value=UnloadedValue(reason, preview))


def _mark_if_lost(node: NodeResult, message: str | None) -> NodeResult:
    """Return a node. If its result could not be loaded, a placeholder replaces the reference to the result."""
    is_reference = isinstance(node._value, Mapping) and {"ref", "bytes", "preview"} <= node._value.keys()
    if message is None or not is_reference:
        return node
    return replace(node, _value=UnloadedValue(message, str(node._value["preview"])))


def _failures_of(nodes: Mapping[str, NodeResult], error: Problem | None) -> tuple[Problem, ...]:
    node_failures = tuple(
        Problem(node.error.code, node.error.message, node_id=name)
        for name, node in nodes.items()
        if node.status is NodeStatus.FAILED and node.error is not None
    )
    return node_failures or (() if error is None else (error,))


def _error_of(error: Mapping[str, Any]) -> NodeError:
    return NodeError(error["code"], error["message"], bool(error.get("retryable")), error.get("ref"))


async def _entries(part: Any) -> AsyncGenerator[tuple[str, Any], None]:
    if isinstance(part, AsyncIterator):
        async for entry in part:
            yield entry
    else:
        for item in part.items():
            yield item


def _parse_time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
