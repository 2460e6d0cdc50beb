"""Region batches: input and output of one activity execution of a region, and their effect on the run.

The input contains the open nodes of the region that can run, as a small plan. Dependencies that have ended are nodes of
the kind `external` in this plan; a separate list contains their ends. The end of a node is its final record. The output
is the list of the ends of the nodes that ran, in order. The workflow and the history reader use the same functions, so
both have the same state.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pydantic_core

from dagwright.core.boundary.limits import MAX_REGION_NODE_INPUT_BYTES, REGION_BATCH_INPUT_BYTES
from dagwright.core.expressions.references import Placeholder, Reference, ResultOf, references_in
from dagwright.core.expressions.value_refs import value_from_json, value_to_json
from dagwright.core.model.compiled import CompiledNode, CompiledPlan, node_to_json, plan_from_json
from dagwright.core.model.states import NodeError, NodeStatus, Record, Task

if TYPE_CHECKING:
    from dagwright.features.run_scheduler import RunScheduler

_STATUS_BY_VALUE = {status.value: status for status in NodeStatus}
"""The access takes half the time of `NodeStatus(value)`, and a large region decodes one status for each node."""


class BatchTooLarge(Exception):
    """The input of a single node of a region exceeds the payload limit."""


@dataclass(frozen=True, slots=True)
class BatchInput:
    """Input of a region batch.

    Args:
        plan: nodes that have ended, followed by the nodes to run.
        ends: (node id, final record) of the nodes that have ended.
        inputs: values of the inputs that the nodes read.
    """

    plan: CompiledPlan
    ends: Sequence[tuple[str, Record]]
    inputs: Mapping[str, Any]


# Input of a batch.


def encode_batch(scheduler: "RunScheduler", task: Task) -> bytes:
    """Return the payload of the next batch of a region: as many of its open nodes as fit, at least one.

    Raises:
        BatchTooLarge: not even one node fits.
    """
    batch = BatchNodes(scheduler)
    for number in scheduler.state.regions.open_members(task.ref.node, scheduler.records):
        if not batch.add(number):
            break
    return batch.encode()


class BatchNodes:
    """Nodes of one batch.

    Args:
        awaited_numbers: numbers of nodes outside the batch that end while the batch runs.
    """

    def __init__(self, scheduler: "RunScheduler", *, awaited_numbers: Sequence[int] = ()) -> None:
        self._scheduler = scheduler
        self._awaited_numbers = dict.fromkeys(awaited_numbers)
        self._positions: dict[int, int] = {}
        """Number of an added node -> its position in the batch."""
        self._dropped_numbers: set[int] = set()
        """Numbers of the nodes that cannot run, because a dependency failed or was skipped."""
        self._encoded_ends: dict[int, bytes] = {}
        """Number of a node outside the batch that has ended -> its encoded end."""
        self._numbers_with_result: set[int] = set()
        """Numbers of the nodes outside the batch whose encoded ends include their results."""
        self._nodes: list[tuple[dict[str, Any], Sequence[int]]] = []
        """Encoded nodes without the field `dependencies`, each with the numbers of its dependencies."""
        self._inputs: dict[str, Any] = {}
        self._input_bytes = 0

    def add(self, number: int) -> bool:
        """Add a node to the batch if it can run; return whether there may be room for another node.

        Raises:
            BatchTooLarge: the node is the first node of the batch and does not fit.
        """
        node, records = self._scheduler.plan.nodes[number], self._scheduler.records
        outside_numbers = [
            dependency
            for dependency in node.dependencies
            if dependency not in self._positions and dependency not in self._awaited_numbers
        ]
        if any(
            dependency in self._dropped_numbers or records[dependency].status is not NodeStatus.COMPLETED
            for dependency in outside_numbers
        ):
            # A dependency failed or was skipped, so the node cannot run; the scheduler ends it.
            self._dropped_numbers.add(number)
            return True
        ends = self._ends_of(node, outside_numbers) if outside_numbers else {}
        inputs = self._inputs_of(node)
        encoded_node = node_to_json(node)
        encoded_node.pop("dependencies", None)
        # In the batch, the node has the default kind, and the worker does not need the title.
        encoded_node.pop("kind", None)
        encoded_node.pop("title", None)
        added_bytes = sum(map(len, ends.values())) + len(pydantic_core.to_json(encoded_node))
        added_bytes += 8 * len(node.dependencies)
        if inputs:
            added_bytes += len(pydantic_core.to_json(value_to_json(inputs)))
        if self._nodes and self._input_bytes + added_bytes > REGION_BATCH_INPUT_BYTES:
            return False
        if self._input_bytes + added_bytes > MAX_REGION_NODE_INPUT_BYTES:
            raise BatchTooLarge(node.id)
        self._input_bytes += added_bytes
        self._encoded_ends |= ends
        self._positions[number] = len(self._nodes)
        self._nodes.append((encoded_node, node.dependencies))
        self._inputs |= inputs
        return True

    def _ends_of(self, node: CompiledNode, outside_numbers: Iterable[int]) -> dict[int, bytes]:
        """Return the encoded ends of dependencies whose ends are not in the batch yet, with the results that the node
        may read."""
        scheduler = self._scheduler
        ids_read = {part.node_id for part in _references_of(node) if isinstance(part, ResultOf)}
        ends: dict[int, bytes] = {}
        for number in outside_numbers:
            record = scheduler.records[number]
            if number in self._numbers_with_result:
                continue
            node_id = scheduler.state.reference_id(number)
            if node.when is not None or node_id in ids_read:
                ends[number] = pydantic_core.to_json([node_id, *end_to_json(record)])
                self._numbers_with_result.add(number)
            elif number not in self._encoded_ends:
                ends[number] = pydantic_core.to_json([node_id, *end_to_json(replace(record, result=None))])
        return ends

    def _inputs_of(self, node: CompiledNode) -> dict[str, Any]:
        """Return the inputs of the run that a node reads and that are not in the batch yet."""
        inputs = self._scheduler.state.inputs
        names: dict[str, None] = {} if node.when is None else dict.fromkeys(inputs)
        for part in _references_of(node):
            if isinstance(part, Placeholder) and part.name in inputs:
                names[part.name] = None
        return {name: inputs[name] for name in names if name not in self._inputs}

    def encode(self) -> bytes:
        """Return the payload: the nodes as a plan, the inputs that the nodes read, and the ends of nodes outside."""
        stub_numbers = [*self._awaited_numbers, *self._encoded_ends]
        batch_numbers = {number: index for index, number in enumerate(stub_numbers)}
        batch_numbers |= {number: len(stub_numbers) + position for number, position in self._positions.items()}
        nodes = [
            node_to_json(CompiledNode(id=self._scheduler.state.reference_id(number), kind="external"))
            for number in stub_numbers
        ]
        for encoded_node, dependencies in self._nodes:
            nodes.append(
                {**encoded_node, "dependencies": [batch_numbers[dependency] for dependency in dependencies]}
                if dependencies
                else encoded_node
            )
        inputs = value_to_json(self._inputs)
        message = {
            "plan": {"format": 1, "nodes": nodes, "on_failure": self._scheduler.plan.on_failure},
            "inputs": inputs["value"],
        }
        if "stored" in inputs:
            message["stored_inputs"] = inputs["stored"]
        return pydantic_core.to_json(message)[:-1] + b',"node_ends":[' + b",".join(self._encoded_ends.values()) + b"]}"


def _references_of(node: CompiledNode) -> Iterable[Reference]:
    return references_in(template for _, template in node.bindings)


def read_batch(message: Mapping[str, Any]) -> BatchInput:
    """Decode the input of a batch.

    Raises:
        ValueError: the message does not have the form of `encode_batch`.
    """
    try:
        return BatchInput(
            plan=plan_from_json(message["plan"]),
            ends=[(entry[0], end_from_json(entry[1:])) for entry in message["node_ends"]],
            inputs=value_from_json(message["inputs"], message.get("stored_inputs")),
        )
    except (KeyError, TypeError, IndexError) as error:
        raise ValueError(f"not a region batch: {error!r}") from None


# Output of a batch.


def end_to_json(record: Record) -> list[Any]:
    """Encode the end of a node as `[status, result, started_at, ended_at, rest]`, without an empty `rest`.

    Store references in the result are in `rest`.
    """
    rest: dict[str, Any] = {}
    if record.error is not None:
        rest["error"] = record.error.to_json()
    if record.partial:
        rest["partial"] = True
    if record.message is not None:
        rest["message"] = record.message
    if record.attempts != 1:
        rest["attempts"] = record.attempts
    if record.tool_version:
        rest["tool_version"] = record.tool_version
    if record.cached is not None:
        rest["cached"] = record.cached
    if record.blocked_by:
        rest["blocked_by"] = list(record.blocked_by)
    result = value_to_json(record.result)
    if "stored" in result:
        rest["stored"] = result["stored"]
    end = [record.status.value, result["value"], _round_seconds(record.started_at), _round_seconds(record.ended_at)]
    return [*end, rest] if rest else end


def end_from_json(encoded: Sequence[Any]) -> Record:
    """Decode the result of `end_to_json`.

    Raises:
        ValueError, TypeError: `encoded` has another form.
    """
    status, result, started_at, ended_at, *optional_parts = encoded
    rest = optional_parts[0] if optional_parts else {}
    error = rest.get("error")
    return Record(
        status=_STATUS_BY_VALUE.get(status) or NodeStatus(status),
        result=value_from_json(result, rest.get("stored")),
        error=NodeError(**error) if error else None,
        attempts=rest.get("attempts", 1),
        started_at=started_at,
        ended_at=ended_at,
        partial=rest.get("partial", False),
        message=rest.get("message"),
        tool_version=rest.get("tool_version", ""),
        cached=rest.get("cached"),
        blocked_by=tuple(rest.get("blocked_by", ())),
    )


def _round_seconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


def apply_batch(scheduler: "RunScheduler", task_id: str, output: Any, *, at: float) -> None:
    """Apply the output of a batch: the ends of its nodes in order, then the end of the batch.

    If the output contains no expected end, the nodes run as single tasks, not in another batch.
    """
    try:
        versions = output.get("versions", {})
        ends = [(str(entry[0]), end_from_json(entry[1:])) for entry in output["node_ends"]]
    except (ValueError, TypeError, KeyError, AttributeError, IndexError):
        ends, versions = [], {}
    has_progress = apply_ends(scheduler, ends, versions, at=at)
    scheduler.features.regions.handle_batch_end(task_id, at=at, has_progress=has_progress)


def apply_ends(
    scheduler: "RunScheduler", ends: Iterable[tuple[str, Record]], versions: Mapping[str, str], *, at: float
) -> bool:
    """Apply the ends of nodes in the output of a batch; return whether at least one of them was expected.

    Args:
        versions: tool -> its version.
    """
    has_progress = False
    for node_id, end in ends:
        if scheduler.state.number_of(node_id) is None or not end.status.is_final:
            continue
        if end.attempts:
            end.tool_version = versions.get(scheduler.state.node_of(node_id).tool, "")
        has_progress |= scheduler.features.regions.handle_node_end(node_id, end, at=at)
    return has_progress
