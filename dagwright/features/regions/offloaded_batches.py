"""Batches of an offloaded region: input and output of one activity execution, and their effect on the run.

The run only has counts of the members of an offloaded region, and the records of members on which nodes outside depend.
The ends of all members are in the payload store: each batch stores the ends of its nodes with a reference to the
previous batch. The last reference therefore leads to all ends, and any worker can continue the region.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pydantic_core

from dagwright.core.boundary.limits import OFFLOADED_BATCH_INPUT_BYTES
from dagwright.core.expressions.value_refs import value_to_json
from dagwright.core.model.compiled import CompiledPlan
from dagwright.core.model.states import NodeError, NodeStatus, Record, Task
from dagwright.core.scheduler.run_state import RegionState
from dagwright.features.regions.batches import BatchTooLarge, apply_ends, end_from_json, end_to_json

if TYPE_CHECKING:
    from dagwright.features.run_scheduler import RunScheduler


@dataclass(frozen=True, slots=True)
class OffloadedBatchInput:
    """Input of a batch.

    Args:
        region_ref: store reference of the offloaded region.
        previous_ref: store reference of the previous batch; `None` for the first batch.
        outside_data: for the first batch: ends of nodes outside the region, and inputs, encoded by `_outside_data`.
    """

    region_ref: str
    previous_ref: str | None
    outside_data: Mapping[str, Any] | None


def encode_offloaded_batch(scheduler: "RunScheduler", task: Task) -> bytes:
    """Return the payload of the next batch.

    Raises:
        BatchTooLarge: the values that the region reads from outside exceed the payload limit.
    """
    state: RegionState | None = scheduler.records[task.ref.node].result
    message: dict[str, Any] = {"inner": task.node.inner, "before": state["batch"] if state else None}
    if state is None:
        message["outside"] = _outside_data(scheduler, task)
    encoded = pydantic_core.to_json(message)
    if len(encoded) > OFFLOADED_BATCH_INPUT_BYTES:
        raise BatchTooLarge(
            f"its {task.node.inner_count:,} pure nodes read {len(encoded):,} bytes from outside, including the inputs "
            f"of the run; at most {OFFLOADED_BATCH_INPUT_BYTES:,} are allowed; "
            "combine the values with a tool, whose result is passed by reference"
        )
    return encoded


def _outside_data(scheduler: "RunScheduler", task: Task) -> dict[str, Any]:
    """Return the data that the region needs from outside, without completed nodes that it does not read."""
    ends = []
    numbers_read = set(task.node.reads)
    for number in task.node.dependencies:
        record = scheduler.records[number]
        if number not in numbers_read:
            if record.status is NodeStatus.COMPLETED:
                continue
            record = Record(record.status, blocked_by=record.blocked_by)
        ends.append([scheduler.plan.nodes[number].id, *end_to_json(record)])
    inputs = value_to_json(dict(scheduler.state.inputs))
    outside_data = {"node_ends": ends, "inputs": inputs["value"]}
    return {**outside_data, "stored_inputs": inputs["stored"]} if "stored" in inputs else outside_data


def read_offloaded_batch(message: Mapping[str, Any]) -> OffloadedBatchInput:
    """Decode the input of a batch.

    Raises:
        ValueError: the message does not have the form of `encode_offloaded_batch`.
    """
    region_ref, previous_ref, outside_data = message.get("inner"), message.get("before"), message.get("outside")
    if (
        not isinstance(region_ref, str)
        or not isinstance(previous_ref, str | None)
        or not isinstance(outside_data, dict | None)
    ):
        raise ValueError("not a batch of an offloaded region")
    if (previous_ref is None) == (outside_data is None):
        raise ValueError("a batch of an offloaded region needs either 'before' or 'outside'")
    return OffloadedBatchInput(region_ref, previous_ref, outside_data)


def apply_offloaded_batch(scheduler: "RunScheduler", task_id: str, output: Any, *, at: float) -> None:
    """Apply the output of a batch.

    Args:
        output: `{"batch", "counts", "open", "ends", "node_ends", "versions", "error"}`; the first four are the state of
            the whole region; `node_ends` contains the ends of the members on which nodes outside depend.
    """
    previous_state: RegionState | None = None
    if (record := scheduler.record_of(task_id)) is not None:
        previous_state = record.result
    try:
        state = _state(output)
        ends = [(str(entry[0]), end_from_json(entry[1:])) for entry in output["node_ends"]]
        error = NodeError(**output["error"]) if output.get("error") else None
    except (ValueError, TypeError, KeyError, AttributeError, IndexError) as decode_error:
        failure = NodeError("invalid_result", f"invalid result of a region batch: {decode_error!r}")
        scheduler.features.regions.handle_batch_end(task_id, at=at, has_progress=False, error=failure)
        return
    scheduler.features.regions.set_region_state(task_id, state)
    apply_ends(scheduler, ends, output.get("versions", {}), at=at)
    if error is not None:
        scheduler.abort(error, at)
    has_progress = state["open"] < (
        previous_state["open"] if previous_state else scheduler.state.node_of(task_id).inner_count
    )
    no_progress_error = NodeError("region_failed", "a batch of the region made no progress")
    scheduler.features.regions.handle_batch_end(task_id, at=at, has_progress=has_progress, error=no_progress_error)


def _state(output: Mapping[str, Any]) -> RegionState:
    counts = {NodeStatus(name).value: int(count) for name, count in output["counts"].items()}
    return RegionState(batch=str(output["batch"]), counts=counts, open=int(output["open"]), ends=int(output["ends"]))


def ends_to_json(scheduler: "RunScheduler", numbers: Sequence[int], versions: Mapping[str, str]) -> dict[str, Any]:
    """Encode the ends of nodes for the payload store, in the order of the numbers."""
    records = scheduler.records
    return {"node_ends": [[number, *end_to_json(records[number])] for number in numbers], "versions": dict(versions)}


def ends_from_json(encoded: Mapping[str, Any], plan: CompiledPlan) -> list[tuple[int, Record]]:
    """Decode the result of `ends_to_json`.

    Args:
        plan: plan of the offloaded region.

    Raises:
        ValueError: the value has another form.
    """
    try:
        versions = encoded["versions"]
        return [
            numbered_end_from_json(entry, versions, tool=plan.nodes[int(entry[0])].tool)
            for entry in encoded["node_ends"]
        ]
    except (KeyError, TypeError, IndexError) as error:
        raise ValueError(f"not the ends of nodes: {error!r}") from None


def numbered_end_from_json(entry: Sequence[Any], versions: Mapping[str, str], *, tool: str) -> tuple[int, Record]:
    """Decode the number and the end of one node.

    Args:
        versions: tool -> its version.
        tool: tool of the node.

    Raises:
        ValueError, TypeError, IndexError: `entry` has another form.
    """
    record = end_from_json(entry[1:])
    record.tool_version = versions.get(tool, "") if record.attempts else ""
    return int(entry[0]), record
