"""The runs of the chunks of a large map: what one is given, and what it hands back.

A chunk's run has the map's node alone, under the same id and path, so its items have the ids, keys and idempotency keys
that they would have in the run above. What the node needs from others stands in its plan as nodes of the kind
`reported`, with their ends beside the plan. The workflow and the feed both use these functions.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pydantic_core

from dagwright.core.boundary.limits import INLINE_BATCH_RESULTS_BYTES
from dagwright.core.expressions.references import Placeholder, Reference, ResultOf, references_in
from dagwright.core.expressions.stored_values import StoredValue
from dagwright.core.expressions.value_refs import value_from_json, value_to_json
from dagwright.core.model.compiled import CompiledNode, CompiledPlan, projections_to_json
from dagwright.core.model.errors import NodeError
from dagwright.core.model.items import StoredList, parts_of_key, stored_list_to_json
from dagwright.core.model.states import Chunk, NodeStatus, Record
from dagwright.core.model.tasks import Task
from dagwright.core.model.tools import ToolDeclaration, with_compensating_tools
from dagwright.core.scheduler.map_batches import ChunkEnd
from dagwright.core.scheduler.task_creation import task_of_call
from dagwright.features.run_scheduler import RunScheduler
from dagwright.protocol.map_batch_inputs import ChunkInput
from dagwright.protocol.messages import RunInput

_ITEMS = "~items"
"""Input under which a chunk's run finds its items."""
_ENDS = (NodeStatus.COMPLETED, NodeStatus.FAILED, NodeStatus.CANCELLED)
_PIECE_BYTES = 1_000_000
"""JSON of the results that go to the store together: half of what an activity may be given."""


# What a run is given.


def chunk_run_input(scheduler: RunScheduler, task: Task) -> RunInput:
    """Returns the input of the run of a chunk, without what only the workflow knows."""
    plan, chunk = _plan_of_chunk(scheduler, task)
    return RunInput(
        compiled=plan,
        inputs={name: scheduler.state.inputs[name] for name in plan.inputs},
        max_in_flight=scheduler.state.width_of(task.ref.node).each,
        chunk=chunk,
    )


def width_of_chunk(scheduler: RunScheduler, call: str) -> int | None:
    """Returns how many items of a chunk run at once; `None` if a call is no run of a chunk.

    Args:
        call: its id.
    """
    task_id = task_of_call(scheduler.state, call)
    chunk = scheduler.state.chunk_of(task_id) if task_id is not None else None
    if task_id is None or chunk is None or not chunk.count:
        return None
    number = scheduler.state.number_of(scheduler.state.node_of(task_id).id)
    assert number is not None
    return scheduler.state.width_of(number).each


def width_message(width: int) -> dict[str, Any]:
    """Returns what the run of a chunk is told when that has changed."""
    return {"max_parallel": width, "reason": "the limit of the run above was changed"}


def _plan_of_chunk(scheduler: RunScheduler, task: Task) -> tuple[CompiledPlan, ChunkInput]:
    assert task.chunk is not None
    plan, node, chunk = scheduler.plan, task.node, task.chunk
    tool = plan.tools.get(node.tool)
    own = replace(
        node,
        for_each=(Placeholder(_ITEMS),),
        item_bindings=(),
        first_index=chunk.first,
        dependencies=tuple(range(len(node.dependencies))),
        join=("all_done", 0),
        max_parallel=None,
    )
    stubs = [CompiledNode(id=scheduler.state.name_of(number), kind="reported") for number in node.dependencies]
    names = [name for name in scheduler.state.inputs if node.when is not None or name in _input_names(node)]
    below = CompiledPlan(
        nodes=(*stubs, own),
        tools=_tools_of(plan, tool) if tool is not None else {},
        title=node.title,
        inputs={name: {} for name in names},
    )
    given = [
        (stub.id, _given(scheduler.records[number], stub.id, node))
        for stub, number in zip(stubs, node.dependencies, strict=True)
    ]
    if isinstance(chunk.items, StoredList):
        return below, ChunkInput(given, source=chunk.items.bare())
    return below, ChunkInput(given, items=chunk.items)


def _tools_of(plan: CompiledPlan, tool: ToolDeclaration) -> dict[str, ToolDeclaration]:
    names = with_compensating_tools([tool.name], plan.tools)
    return {name: plan.tools[name] for name in names if name in plan.tools} | {
        tool.name: replace(tool, max_parallel=None)
    }


def _given(record: Record, node_id: str, reader: CompiledNode) -> Record:
    """Returns the end of a node as its reader needs it: without what is not read."""
    if reader.when is not None:
        return record
    is_read = any(isinstance(part, ResultOf) and part.node == node_id for part in _references_of(reader))
    result = record.result if is_read else None
    if isinstance(result, StoredValue):
        # What was told in whole was told for others: this one reads parts, and its worker loads them.
        parts = {path: part for path, part in result.parts.items() if part.state in ("small", "missing")}
        result = StoredValue(result.ref, name=result.name, paths=result.paths, shape=result.shape, parts=parts)
    return replace(record, result=result, items=[])


def _input_names(node: CompiledNode) -> set[str]:
    return {part.name for part in _references_of(node) if isinstance(part, Placeholder)}


def _references_of(node: CompiledNode) -> Iterable[Reference]:
    return references_in([template for _, template in node.bindings] + ([node.key] if node.key is not None else []))


def load_items_message(source: StoredList, node: CompiledNode) -> dict[str, Any]:
    """Returns what the activity that loads the items of a chunk is given; `wanted` is what the keys read of each."""
    wanted = parts_of_key(node)
    return stored_list_to_json(source) | ({"wanted": projections_to_json(wanted)} if wanted else {})


def with_items(inputs: Mapping[str, Any], items: Sequence[Any]) -> dict[str, Any]:
    """Returns the inputs of a chunk's run with its items."""
    return {**inputs, _ITEMS: [*items]}


def begin_chunk(scheduler: RunScheduler, chunk: ChunkInput, *, at: float) -> None:
    """Tells a run that has begun what the nodes above came to; its own node starts with the last of them."""
    for node_id, record in chunk.given:
        scheduler.features.regions.report(node_id, record, at=at)


# What a run hands back.


def own_record(scheduler: RunScheduler) -> Record:
    """Returns the record of the map's node in the run of a chunk."""
    return scheduler.records[scheduler.plan.written_count - 1]


def pieces_of_results(record: Record) -> list[tuple[str, int]]:
    """Returns (JSON, count) of each stretch of the results that has to go to the store; none if they need not.

    What of them lies in the store already is told there by reference.
    """
    pieces: list[tuple[str, int]] = []
    pending: list[Any] = []
    size = 0
    for value in record.result or ():
        encoded = value_to_json(value)
        added = len(pydantic_core.to_json(encoded))
        if pending and size + added > _PIECE_BYTES:
            pieces.append(_piece(pending))
            pending, size = [], 0
        pending.append(value)
        size += added
    if not pieces and size <= INLINE_BATCH_RESULTS_BYTES:
        return []
    return [*pieces, _piece(pending)]


def _piece(values: Sequence[Any]) -> tuple[str, int]:
    return pydantic_core.to_json(value_to_json([*values])).decode(), len(values)


def chunk_end_to_json(scheduler: RunScheduler, pieces: Sequence[tuple[str, int]]) -> dict[str, Any]:
    """Return the end of a chunk for its parent run.

    The error of a completed chunk is that of its first item that failed and has the value of `on_error` as its result.

    Args:
        pieces: (reference, count) of the results in the store, if they went there.
    """
    record = own_record(scheduler)
    counts: dict[str, int] = {}
    for item in record.items:
        counts[item.record.status.value] = counts.get(item.record.status.value, 0) + 1
    end: dict[str, Any] = {"status": record.status.value, "counts": counts}
    failed = next((item for item in record.items if item.record.status is NodeStatus.FAILED), None)
    if failed is not None and failed.record.error is not None:
        end |= {"failed_key": failed.key, "error": failed.record.error.to_json()}
    elif record.error is not None:
        end["error"] = record.error.to_json()
    elif (replaced := next((item.record.error for item in record.items if item.record.error), None)) is not None:
        end["error"] = replaced.to_json()
    if record.status is NodeStatus.COMPLETED:
        end |= {"pieces": [list(piece) for piece in pieces]} if pieces else {"results": value_to_json(record.result)}
    return {"map_batch": end}


def chunk_failure_to_json(scheduler: RunScheduler, error: NodeError) -> dict[str, Any]:
    """Returns the end of a chunk whose results cannot be handed up: all of its items count as failed."""
    count = len(own_record(scheduler).items)
    return {"map_batch": {"status": NodeStatus.FAILED.value, "counts": {"failed": count}, "error": error.to_json()}}


def chunk_end_from_json(encoded: Any, chunk: Chunk) -> ChunkEnd:
    """Returns what the run of a chunk told.

    Args:
        chunk: the chunk that it is about.

    Raises:
        ValueError: it is no end of that chunk.
    """
    try:
        status = NodeStatus(encoded["status"])
        counts = {NodeStatus(name).value: int(count) for name, count in encoded["counts"].items()}
        error = NodeError(**encoded["error"]) if encoded.get("error") else None
        pieces = [(str(ref), int(count)) for ref, count in encoded.get("pieces", ())]
        results = encoded.get("results")
        values = value_from_json(results["value"], results.get("stored")) if results is not None else None
    except (KeyError, TypeError, AttributeError, ValueError) as wrong:
        raise ValueError(f"this is no end of a chunk: {wrong!r}") from None
    told = len(values) if isinstance(values, list) else sum(piece[1] for piece in pieces)
    if status is NodeStatus.COMPLETED and told != chunk.count:
        raise ValueError(f"a chunk of {chunk.count} items has {told} results")
    if status not in _ENDS or sum(counts.values()) > chunk.count:
        raise ValueError(f"{status.value} with {counts} is no end of a chunk of {chunk.count} items")
    return ChunkEnd(status, counts, values, pieces, error, encoded.get("failed_key"))


def join_input(scheduler: RunScheduler, task: Task) -> dict[str, Any]:
    """Returns what the activity that joins the results of a large map is given."""
    lists: list[dict[str, Any]] = []
    for item in scheduler.records[task.ref.node].items:
        if item.chunk is not None and item.chunk.pieces:
            lists.append({"pieces": [ref for ref, _ in item.chunk.pieces]})
        elif item.chunk is not None and item.chunk.count:
            lists.append(value_to_json(item.record.result))
    return {"lists": lists, "name": f"{task.node.id}.result"}
