"""One call of a region: what it is given, what it answers, and what that means for the run.

A call, a *slice*, is given the open nodes of its region that can run, as a small plan of their own. What they need from
nodes that have ended stands in it as nodes of the kind `reported`, with their ends beside the plan. It answers the ends
of its nodes in order. The workflow and the feed both use these functions, so what the feed shows is what the run knows.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pydantic_core

from dagwright.core.boundary.limits import REGION_BATCH_INPUT_BYTES, REGION_BATCH_INPUT_LIMIT_BYTES
from dagwright.core.expressions.references import Placeholder, Reference, ResultOf, references_in
from dagwright.core.expressions.value_refs import value_from_json, value_to_json
from dagwright.core.model.compiled import CompiledNode, CompiledPlan, node_to_json, plan_from_json
from dagwright.core.model.errors import NodeError
from dagwright.core.model.states import NodeStatus, Record
from dagwright.core.model.tasks import Task
from dagwright.features.run_scheduler import RunScheduler

_STATUS_OF = {status.value: status for status in NodeStatus}
"""Half as slow as the enumeration itself, which a large region asks for each node."""


class SliceTooLarge(Exception):
    """What a single node of a region needs is more than Temporal should carry."""


@dataclass(frozen=True, slots=True)
class SliceInput:
    """What a slice is given.

    Args:
        plan: the nodes to run, and those that have ended, which come first.
        ended: (node id, its end) of the latter.
        inputs: values of the inputs that the nodes read.
    """

    plan: CompiledPlan
    ended: Sequence[tuple[str, Record]]
    inputs: Mapping[str, Any]


# What a slice is given.


def encode_slice(scheduler: RunScheduler, task: Task) -> bytes:
    """Returns the payload of the next slice of a region: as many of its open nodes as fit, at least one.

    Raises:
        SliceTooLarge: not even one fits.
    """
    chosen = _Choice(scheduler)
    for number in scheduler.state.regions.open_members(task.ref.node, scheduler.records):
        if not chosen.take(number):
            break
    return chosen.encoded()


class _Choice:
    """The nodes of one slice."""

    def __init__(self, scheduler: RunScheduler) -> None:
        self._scheduler = scheduler
        self._places: dict[int, int] = {}
        self._dropped: set[int] = set()
        self._ended: dict[int, bytes] = {}
        self._in_full: set[int] = set()
        self._chosen: list[tuple[dict[str, Any], Sequence[int]]] = []
        """Nodes without their dependencies, and these."""
        self._inputs: dict[str, Any] = {}
        self._bytes = 0

    def take(self, number: int) -> bool:
        """Takes a node into the slice if it can run; returns whether there may be room for another.

        Raises:
            SliceTooLarge: it is the first, and there is no room for it.
        """
        node, records = self._scheduler.plan.nodes[number], self._scheduler.records
        outside = [needed for needed in node.dependencies if needed not in self._places]
        if any(each in self._dropped or records[each].status is not NodeStatus.COMPLETED for each in outside):
            # It hangs on what failed or was skipped, so it will not run; the run ends it by itself.
            self._dropped.add(number)
            return True
        needed = self._ends_of(node, outside) if outside else {}
        inputs = self._inputs_of(node)
        encoded = node_to_json(node)
        encoded.pop("dependencies", None)
        # It is a node as ever there; what it is for is of no use to a worker.
        encoded.pop("kind", None)
        encoded.pop("title", None)
        added = sum(map(len, needed.values())) + len(pydantic_core.to_json(encoded)) + 8 * len(node.dependencies)
        if inputs:
            added += len(pydantic_core.to_json(value_to_json(inputs)))
        if self._chosen and self._bytes + added > REGION_BATCH_INPUT_BYTES:
            return False
        if self._bytes + added > REGION_BATCH_INPUT_LIMIT_BYTES:
            raise SliceTooLarge(node.id)
        self._bytes += added
        self._ended |= needed
        self._places[number] = len(self._chosen)
        self._chosen.append((encoded, node.dependencies))
        self._inputs |= inputs
        return True

    def _ends_of(self, node: CompiledNode, outside: Iterable[int]) -> dict[int, bytes]:
        """Returns the ends that a node adds; the result only if it is read."""
        scheduler = self._scheduler
        read = {part.node for part in _references_of(node) if isinstance(part, ResultOf)}
        found: dict[int, bytes] = {}
        for each in outside:
            record = scheduler.records[each]
            if each in self._in_full:
                continue
            name = scheduler.state.name_of(each)
            if node.when is not None or name in read:
                found[each] = pydantic_core.to_json([name, *end_to_json(record)])
                self._in_full.add(each)
            elif each not in self._ended:
                found[each] = pydantic_core.to_json([name, *end_to_json(replace(record, result=None))])
        return found

    def _inputs_of(self, node: CompiledNode) -> dict[str, Any]:
        """Returns the inputs that a node adds."""
        given = self._scheduler.state.inputs
        names: dict[str, None] = {} if node.when is None else dict.fromkeys(given)
        for part in _references_of(node):
            if isinstance(part, Placeholder) and part.name in given:
                names[part.name] = None
        return {name: given[name] for name in names if name not in self._inputs}

    def encoded(self) -> bytes:
        stubs = list(self._ended)
        at = {number: place for place, number in enumerate(stubs)}
        at |= {number: len(stubs) + place for number, place in self._places.items()}
        nodes = [node_to_json(CompiledNode(id=self._scheduler.state.name_of(each), kind="reported")) for each in stubs]
        for encoded, dependencies in self._chosen:
            nodes.append({**encoded, "dependencies": [at[each] for each in dependencies]} if dependencies else encoded)
        inputs = value_to_json(self._inputs)
        message = {
            "plan": {"format": 1, "nodes": nodes, "on_failure": self._scheduler.plan.on_failure},
            "inputs": inputs["value"],
        }
        if "stored" in inputs:
            message["stored_inputs"] = inputs["stored"]
        return pydantic_core.to_json(message)[:-1] + b',"ended":[' + b",".join(self._ended.values()) + b"]}"


def _references_of(node: CompiledNode) -> Iterable[Reference]:
    return references_in(template for _, template in node.holes)


def read_slice(message: Mapping[str, Any]) -> SliceInput:
    """Returns what a slice is given.

    Raises:
        ValueError: the message is not what `encode_slice` makes.
    """
    try:
        return SliceInput(
            plan=plan_from_json(message["plan"]),
            ended=[(entry[0], end_from_json(entry[1:])) for entry in message["ended"]],
            inputs=value_from_json(message["inputs"], message.get("stored_inputs")),
        )
    except (KeyError, TypeError, IndexError) as error:
        raise ValueError(f"this is no slice of a region: {error!r}") from None


# What it answers.


def end_to_json(record: Record) -> list[Any]:
    """Returns the end of a node as `[status, result, started_at, ended_at, rest]`, without a `rest` of nothing.

    What of the result lies in the payload store stands in `rest`.
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
    end = [record.status.value, result["value"], _rounded(record.started_at), _rounded(record.ended_at)]
    return [*end, rest] if rest else end


def end_from_json(encoded: Sequence[Any]) -> Record:
    """Returns the record of an end.

    Raises:
        ValueError, TypeError: it is none.
    """
    status, result, started_at, ended_at, *more = encoded
    rest = more[0] if more else {}
    error = rest.get("error")
    return Record(
        status=_STATUS_OF.get(status) or NodeStatus(status),
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


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


def take_slice(scheduler: RunScheduler, task_id: str, answer: Any, *, at: float) -> None:
    """Takes what a slice answered: the ends of its nodes in order, then its own.

    If it told nothing that was awaited, another call would not either, and the nodes are run one by one.
    """
    try:
        versions = answer.get("versions", {})
        ends = [(str(entry[0]), end_from_json(entry[1:])) for entry in answer["ended"]]
    except (ValueError, TypeError, KeyError, AttributeError, IndexError):
        ends, versions = [], {}
    is_of_use = take_ends(scheduler, ends, versions, at=at)
    scheduler.features.regions.end_batch(task_id, at=at, goes_on=is_of_use)


def take_ends(
    scheduler: RunScheduler, ends: Iterable[tuple[str, Record]], versions: Mapping[str, str], *, at: float
) -> bool:
    """Takes the ends that a slice told; returns whether one of them was awaited.

    Args:
        versions: tool -> its version.
    """
    is_of_use = False
    for node_id, end in ends:
        if scheduler.state.number_of(node_id) is None or not end.status.is_final:
            continue
        if end.attempts:
            end.tool_version = versions.get(scheduler.state.node_of(node_id).tool, "")
        is_of_use |= scheduler.features.regions.report(node_id, end, at=at)
    return is_of_use
