"""Runs of the batches of a large map: their input and their result.

The run of a batch contains only the map node, with the same ID and path as in the parent run. So the items have the
same IDs, item keys and idempotency keys as in the parent run. The dependencies of the map node are nodes of the kind
`external`, whose ends are in the input next to the plan. The workflow and the history reader both use these functions.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pydantic_core

from dagwright.core.boundary.limits import MAX_INLINE_BATCH_RESULTS_BYTES
from dagwright.core.compiler.projections import parts_of_key
from dagwright.core.expressions.references import Placeholder, Reference, ResultOf, references_in
from dagwright.core.expressions.stored_values import StoredValue
from dagwright.core.expressions.value_refs import value_to_json
from dagwright.core.model.compiled import CompiledNode, CompiledPlan, projections_to_json
from dagwright.core.model.states import NodeError, NodeStatus, Record, Task
from dagwright.core.model.tools import ToolDeclaration, with_compensating_tools
from dagwright.core.scheduler.map_items import StoredList, stored_list_to_json
from dagwright.core.scheduler.run_state import task_of_call
from dagwright.protocol.map_batch_messages import MapBatchInput
from dagwright.protocol.run_input import RunInput

if TYPE_CHECKING:
    from dagwright.features.run_scheduler import RunScheduler

_ITEMS = "~items"
"""Name of the input that has the items of the batch."""
_MAX_PIECE_BYTES = 1_000_000
"""Largest JSON of results that are stored together: half of the limit of an activity input."""


# Input.


def map_batch_run_input(scheduler: "RunScheduler", task: Task) -> RunInput:
    """Return the input of the run of a batch, without the fields that only the workflow knows."""
    plan, map_batch = _plan_and_input_of_map_batch(scheduler, task)
    return RunInput(
        compiled=plan,
        inputs={name: scheduler.state.inputs[name] for name in plan.inputs},
        max_in_flight=scheduler.state.map_concurrency(task.ref.node).max_items,
        map_batch=map_batch,
    )


def map_batch_concurrency(scheduler: "RunScheduler", call: str) -> int | None:
    """Return the concurrency of the items of a batch; `None` if the call does not start the run of a batch.

    Args:
        call: id of the call.
    """
    task_id = task_of_call(scheduler.state, call)
    map_batch = scheduler.state.map_batch_of(task_id) if task_id is not None else None
    if task_id is None or map_batch is None or not map_batch.count:
        return None
    number = scheduler.state.number_of(scheduler.state.node_of(task_id).id)
    assert number is not None
    return scheduler.state.map_concurrency(number).max_items


def concurrency_message(concurrency: int) -> dict[str, Any]:
    """Return the message that changes the concurrency of the run of a batch."""
    return {"max_parallel": concurrency, "reason": "the limit of the parent run was changed"}


def _plan_and_input_of_map_batch(scheduler: "RunScheduler", task: Task) -> tuple[CompiledPlan, MapBatchInput]:
    assert task.map_batch is not None
    plan, node, map_batch = scheduler.plan, task.node, task.map_batch
    tool = plan.tools.get(node.tool)
    map_node = replace(
        node,
        for_each=(Placeholder(_ITEMS),),
        item_bindings=(),
        first_index=map_batch.first,
        dependencies=tuple(range(len(node.dependencies))),
        join=("all_done", 0),
        max_parallel=None,
    )
    dependency_stubs = [
        CompiledNode(id=scheduler.state.reference_id(number), kind="external") for number in node.dependencies
    ]
    input_names = [name for name in scheduler.state.inputs if node.when is not None or name in _input_names(node)]
    child_plan = CompiledPlan(
        nodes=(*dependency_stubs, map_node),
        tools=_tools_of(plan, tool) if tool is not None else {},
        title=node.title,
        inputs={name: {} for name in input_names},
    )
    node_ends = [
        (stub.id, _end_for_map_node(scheduler.records[number], stub.id, node))
        for stub, number in zip(dependency_stubs, node.dependencies, strict=True)
    ]
    if isinstance(map_batch.items, StoredList):
        return child_plan, MapBatchInput(node_ends, source=map_batch.items.without_parts())
    return child_plan, MapBatchInput(node_ends, items=map_batch.items)


def _tools_of(plan: CompiledPlan, tool: ToolDeclaration) -> dict[str, ToolDeclaration]:
    names = with_compensating_tools([tool.name], plan.tools)
    return {name: plan.tools[name] for name in names if name in plan.tools} | {
        tool.name: replace(tool, max_parallel=None)
    }


def _end_for_map_node(record: Record, node_id: str, map_node: CompiledNode) -> Record:
    """Return the end of a dependency for the map node. A result that the map node does not read is omitted."""
    if map_node.when is not None:
        return record
    is_read = any(isinstance(part, ResultOf) and part.node_id == node_id for part in _references_of(map_node))
    result = record.result if is_read else None
    if isinstance(result, StoredValue):
        # Large parts are only for conditions of other nodes. The workers of the map node load large values themselves.
        parts = {path: part for path, part in result.parts.items() if part.state in ("small", "missing")}
        result = StoredValue(result.ref, name=result.name, paths=result.paths, shape=result.shape, parts=parts)
    return replace(record, result=result, items=[])


def _input_names(node: CompiledNode) -> set[str]:
    return {part.name for part in _references_of(node) if isinstance(part, Placeholder)}


def _references_of(node: CompiledNode) -> Iterable[Reference]:
    return references_in([template for _, template in node.bindings] + ([node.key] if node.key is not None else []))


def load_items_message(source: StoredList, node: CompiledNode) -> dict[str, Any]:
    """Return the input of the activity that loads the items of a batch.

    The input names the parts of the items that `key` reads.
    """
    projections = parts_of_key(node)
    return stored_list_to_json(source) | ({"projections": projections_to_json(projections)} if projections else {})


def with_items(inputs: Mapping[str, Any], items: Sequence[Any]) -> dict[str, Any]:
    """Return the inputs of the run of a batch with its items."""
    return {**inputs, _ITEMS: [*items]}


def start_map_batch(scheduler: "RunScheduler", map_batch: MapBatchInput, *, at: float) -> None:
    """Report the ends of the dependencies to a run that has started; the map node starts after the last end."""
    for node_id, record in map_batch.node_ends:
        scheduler.features.regions.handle_node_end(node_id, record, at=at)


# Result.


def record_of_map(scheduler: "RunScheduler") -> Record:
    """Return the record of the map node in the run of a batch."""
    return scheduler.records[scheduler.plan.visible_count - 1]


def pieces_of_results(record: Record) -> list[tuple[str, int]]:
    """Return (JSON, count) of each piece of the results that has to be stored; an empty list if all results fit
    into the report.

    Values that are in the store already are encoded as references.
    """
    pieces: list[tuple[str, int]] = []
    piece_values: list[Any] = []
    size = 0
    for value in record.result or ():
        encoded = value_to_json(value)
        added_bytes = len(pydantic_core.to_json(encoded))
        if piece_values and size + added_bytes > _MAX_PIECE_BYTES:
            pieces.append(_piece(piece_values))
            piece_values, size = [], 0
        piece_values.append(value)
        size += added_bytes
    if not pieces and size <= MAX_INLINE_BATCH_RESULTS_BYTES:
        return []
    return [*pieces, _piece(piece_values)]


def _piece(values: Sequence[Any]) -> tuple[str, int]:
    return pydantic_core.to_json(value_to_json([*values])).decode(), len(values)


def map_batch_end_to_json(scheduler: "RunScheduler", pieces: Sequence[tuple[str, int]]) -> dict[str, Any]:
    """Encode the end of a batch for its parent run.

    The end of a completed batch has the error of the first item whose result was replaced with the value of `on_error`.

    Args:
        pieces: (reference, count) of the stored results, if they were stored.
    """
    record = record_of_map(scheduler)
    counts: dict[str, int] = {}
    for item in record.items:
        counts[item.record.status.value] = counts.get(item.record.status.value, 0) + 1
    end: dict[str, Any] = {"status": record.status.value, "counts": counts}
    failed_item = next((item for item in record.items if item.record.status is NodeStatus.FAILED), None)
    if failed_item is not None and failed_item.record.error is not None:
        end |= {"failed_key": failed_item.key, "error": failed_item.record.error.to_json()}
    elif record.error is not None:
        end["error"] = record.error.to_json()
    elif (replaced_error := next((item.record.error for item in record.items if item.record.error), None)) is not None:
        end["error"] = replaced_error.to_json()
    if record.status is NodeStatus.COMPLETED:
        end |= {"pieces": [list(piece) for piece in pieces]} if pieces else {"results": value_to_json(record.result)}
    return {"map_batch": end}


def map_batch_failure_to_json(scheduler: "RunScheduler", error: NodeError) -> dict[str, Any]:
    """Encode the end of a batch whose results cannot be stored: all of its items count as failed."""
    count = len(record_of_map(scheduler).items)
    return {"map_batch": {"status": NodeStatus.FAILED.value, "counts": {"failed": count}, "error": error.to_json()}}


def join_input(scheduler: "RunScheduler", task: Task) -> dict[str, Any]:
    """Return the input of the activity that joins the results of a large map."""
    lists: list[dict[str, Any]] = []
    for item in scheduler.records[task.ref.node].items:
        if item.map_batch is not None and item.map_batch.pieces:
            lists.append({"pieces": [ref for ref, _ in item.map_batch.pieces]})
        elif item.map_batch is not None and item.map_batch.count:
            lists.append(value_to_json(item.record.result))
    return {"lists": lists, "name": f"{task.node.id}.result"}
