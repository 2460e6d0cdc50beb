"""Slices of a region whose inside is not in the run's plan: what one is given, what it answers, what that means.

The run knows such an inside by counts alone, and of its nodes those that something outside needs. What a slice told of
all its nodes lies in the store, each slice with the reference of the one before. So whoever has the last reference has
everything, and a worker that never saw the region can go on with it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pydantic_core

from dagwright.core.boundary.limits import OFFLOADED_BATCH_INPUT_BYTES
from dagwright.core.expressions.value_refs import value_to_json
from dagwright.core.model.compiled import CompiledPlan
from dagwright.core.model.errors import NodeError
from dagwright.core.model.states import NodeStatus, Record
from dagwright.core.model.tasks import Task
from dagwright.core.scheduler.region_members import InnerState
from dagwright.features.regions.batches import SliceTooLarge, end_from_json, end_to_json, take_ends
from dagwright.features.run_scheduler import RunScheduler


@dataclass(frozen=True, slots=True)
class InnerSlice:
    """What a slice is given.

    Args:
        inner: reference of the inside.
        before: reference of what the slice before told; `None` for the first.
        outside: of the first: the ends of the nodes outside, and the inputs, as `Outside.from_json` reads them.
    """

    inner: str
    before: str | None
    outside: Mapping[str, Any] | None


def encode_inner_slice(scheduler: RunScheduler, task: Task) -> bytes:
    """Returns the payload of the next slice.

    Raises:
        SliceTooLarge: what the region reads from outside is more than Temporal should carry.
    """
    state: InnerState | None = scheduler.records[task.ref.node].result
    given: dict[str, Any] = {"inner": task.node.inner, "before": state["slice"] if state else None}
    if state is None:
        given["outside"] = _outside(scheduler, task)
    encoded = pydantic_core.to_json(given)
    if len(encoded) > OFFLOADED_BATCH_INPUT_BYTES:
        told = f"what its {task.node.inner_count:,} pure nodes read from outside has {len(encoded):,} bytes, the inputs"
        allowed = f"of the run with it; at most {OFFLOADED_BATCH_INPUT_BYTES:,} are allowed"
        raise SliceTooLarge(f"{told} {allowed}; let a tool make one value of it, which travels by reference")
    return encoded


def _outside(scheduler: RunScheduler, task: Task) -> dict[str, Any]:
    """Returns what the region needs to know; nodes outside that it does not read, and that completed, are not told."""
    ended = []
    read = set(task.node.reads)
    for number in task.node.dependencies:
        record = scheduler.records[number]
        if number not in read:
            if record.status is NodeStatus.COMPLETED:
                continue
            record = Record(record.status, blocked_by=record.blocked_by)
        ended.append([scheduler.plan.nodes[number].id, *end_to_json(record)])
    inputs = value_to_json(dict(scheduler.state.inputs))
    outside = {"ended": ended, "inputs": inputs["value"]}
    return {**outside, "stored_inputs": inputs["stored"]} if "stored" in inputs else outside


def read_inner_slice(message: Mapping[str, Any]) -> InnerSlice:
    """Returns what a slice is given.

    Raises:
        ValueError: the message is not what `encode_inner_slice` makes.
    """
    inner, before, outside = message.get("inner"), message.get("before"), message.get("outside")
    if not isinstance(inner, str) or not isinstance(before, str | None) or not isinstance(outside, dict | None):
        raise ValueError("this is no slice of a region")
    if (before is None) == (outside is None):
        raise ValueError("a slice of a region goes on from another one, or is given what it needs from outside")
    return InnerSlice(inner, before, outside)


def take_inner_slice(scheduler: RunScheduler, task_id: str, answer: Any, *, at: float) -> None:
    """Takes what a slice answered.

    Args:
        answer: `{"slice", "counts", "open", "ends", "ended", "versions", "error"}`; the first four are the state of the
            inside as a whole, `ended` the ends of those nodes that something outside needs.
    """
    before: InnerState | None = None
    if (record := scheduler.record_of(task_id)) is not None:
        before = record.result
    try:
        state = _state(answer)
        ends = [(str(entry[0]), end_from_json(entry[1:])) for entry in answer["ended"]]
        error = NodeError(**answer["error"]) if answer.get("error") else None
    except (ValueError, TypeError, KeyError, AttributeError, IndexError) as unreadable:
        failure = NodeError("invalid_result", f"the answer of a region cannot be read: {unreadable!r}")
        scheduler.features.regions.end_batch(task_id, at=at, goes_on=False, error=failure)
        return
    scheduler.features.regions.set_inner_state(task_id, state)
    take_ends(scheduler, ends, answer.get("versions", {}), at=at)
    if error is not None:
        scheduler.abort(error, at)
    is_of_use = state["open"] < (before["open"] if before else scheduler.state.node_of(task_id).inner_count)
    stuck = NodeError("region_failed", "a part of the region told nothing new")
    scheduler.features.regions.end_batch(task_id, at=at, goes_on=is_of_use, error=stuck)


def _state(answer: Mapping[str, Any]) -> InnerState:
    counts = {NodeStatus(name).value: int(count) for name, count in answer["counts"].items()}
    return InnerState(slice=str(answer["slice"]), counts=counts, open=int(answer["open"]), ends=int(answer["ends"]))


def told_to_json(scheduler: RunScheduler, numbers: Sequence[int], versions: Mapping[str, str]) -> dict[str, Any]:
    """Returns the ends of nodes as a slice puts them into the store, in the order of the numbers."""
    records = scheduler.records
    return {"ended": [[number, *end_to_json(records[number])] for number in numbers], "versions": dict(versions)}


def told_from_json(told: Mapping[str, Any], plan: CompiledPlan) -> list[tuple[int, Record]]:
    """Returns what `told_to_json` made.

    Args:
        plan: of the inside.

    Raises:
        ValueError: it is nothing of that kind.
    """
    try:
        versions = told["versions"]
        return [told_end(entry, versions, tool=plan.nodes[int(entry[0])].tool) for entry in told["ended"]]
    except (KeyError, TypeError, IndexError) as error:
        raise ValueError(f"these are no ends of nodes: {error!r}") from None


def told_end(entry: Sequence[Any], versions: Mapping[str, str], *, tool: str) -> tuple[int, Record]:
    """Returns number and end of one node of what a slice told.

    Args:
        versions: tool -> its version.
        tool: of the node.

    Raises:
        ValueError, TypeError, IndexError: it is none.
    """
    record = end_from_json(entry[1:])
    record.tool_version = versions.get(tool, "") if record.attempts else ""
    return int(entry[0]), record
