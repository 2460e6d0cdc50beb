"""What one execution of a run hands on to the next: the states of the scheduler as JSON, and back.

A run whose history has grown long goes on in a new execution. The plan travels beside the carry, which holds what
became of its nodes; counters, queues and slots follow from that and are made anew.

Replay: fields may be added with a default; the meaning of a field never changes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from typing import Any

from dagwright.core.expressions.value_refs import value_from_json, value_to_json
from dagwright.core.model.errors import NodeError
from dagwright.core.model.items import StoredList, stored_list_from_json, stored_list_to_json
from dagwright.core.model.lineage import run_lineage_from_json
from dagwright.core.model.policy import policy_from_json
from dagwright.core.model.states import Chunk, ItemRecord, NodeStatus, Phase, Record
from dagwright.core.model.usage import usage_book_from_json
from dagwright.core.scheduler.extension import extension_from_json
from dagwright.core.scheduler.node_override import override_from_json
from dagwright.core.scheduler.run_state import Paused
from dagwright.features.budgets.budget import budget_from_json
from dagwright.features.fork_reuse.reuse import ReuseBook, reuse_book_from_json
from dagwright.features.run_scheduler import RunScheduler

_FORMAT = 1
_DEFAULTS = {part.name: getattr(Record(), part.name) for part in fields(Record)}
_READ_BY_THEMSELVES = frozenset({"status", "error", "blocked_by", "items", "result"})


def carry_of(scheduler: RunScheduler) -> dict[str, Any]:
    """Returns the state of a scheduler between two events, as JSON.

    Returns:
        `{"format", "records", "error", "cancelled", "is_stopped", "cancelling", "extensions", "paused", "limits",
        "usage", "lineage", "budget", "reuse", "feedback"}`, all after `is_stopped` only if not empty. `records`
        are in plan order, null for a node without a state, and without fields that have their default value.
    """
    people = _people_to_json(scheduler)
    state, budget, book = scheduler.state, scheduler.features.budget.budget, scheduler.features.reuse.book
    return ({"feedback": people} if people else {}) | {
        "format": _FORMAT,
        "records": [_record_to_json(record) for record in state.records],
        "error": state.error.to_json() if state.error else None,
        "cancelled": state.cancelled,
        "is_stopped": state.is_stopped,
        **({"cancelling": state.cancelling} if state.cancelling else {}),
        **({"extensions": [each.to_json() for each in state.extensions]} if state.extensions else {}),
        **({"paused": asdict(state.paused)} if state.paused is not None else {}),
        **({"limits": _limits_to_json(scheduler)} if state.limits_changed else {}),
        **({"usage": usage} if (usage := state.totals.usage.to_json()) else {}),
        **({"lineage": lineage} if (lineage := state.totals.lineage.to_json()) else {}),
        **({"budget": budget.to_json()} if budget is not None else {}),
        **({"reuse": _reuse_to_json(scheduler, book)} if book is not None else {}),
    }


def restore(scheduler: RunScheduler, carry: Any) -> None:
    """Puts a scheduler that has not begun into the state that `carry_of` told, instead of `begin`.

    Tasks that were running are running here too.

    Args:
        scheduler: made of the same plan, inputs and lookups.

    Raises:
        ValueError: the carry is of a newer kind, or is not what `carry_of` makes of this plan.
    """
    if not isinstance(carry, Mapping) or carry.get("format") != _FORMAT:
        raise ValueError(f"the state that was handed on is not of format {_FORMAT}, which this program reads")
    try:
        for encoded in carry.get("extensions", ()):
            scheduler.rebuild.extend(extension_from_json(encoded))
        if "limits" in carry:
            _restore_limits(scheduler, carry["limits"])
        scheduler.rebuild.resume(
            [_record_from_json(record) for record in carry["records"]],
            error=_error_from_json(carry["error"]),
            cancelled=bool(carry["cancelled"]),
            phase=_phase_from_json(carry, scheduler),
        )
        scheduler.state.cancelling.update(carry.get("cancelling", {}))
        scheduler.state.paused = Paused(**carry["paused"]) if "paused" in carry else None
        _restore_people(scheduler, carry.get("feedback", {}))
        if "budget" in carry:
            scheduler.features.budget.use(budget_from_json(carry["budget"]))
        scheduler.state.totals.usage = usage_book_from_json(carry.get("usage"))
        scheduler.state.totals.lineage = run_lineage_from_json(carry.get("lineage"))
        scheduler.features.reuse.use(reuse_book_from_json(carry["reuse"]) if "reuse" in carry else None)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"the state that was handed on cannot be read: {error!r}") from None


def _phase_from_json(carry: Mapping[str, Any], scheduler: RunScheduler) -> Phase:
    """Returns the phase of a run, which follows from what ended it and from what its plan has grown by."""
    if not carry["is_stopped"]:
        return Phase.COMPENSATING if carry["error"] is not None or carry["cancelled"] else Phase.ACTIVE
    undoes = any(node.undoes is not None for each in scheduler.state.extensions for node in each.nodes)
    return Phase.CLOSED if undoes else Phase.STOPPED


def _limits_to_json(scheduler: RunScheduler) -> dict[str, Any]:
    deadline = scheduler.features.deadline.deadline
    return {"max_parallel": scheduler.state.max_in_flight, "deadline_s": deadline.limit_s, "deadline": deadline.what}


def _restore_limits(scheduler: RunScheduler, limits: Mapping[str, Any]) -> None:
    scheduler.rebuild.limit_in_flight(limits["max_parallel"])
    deadline = scheduler.features.deadline
    deadline.deadline = replace(deadline.deadline, limit_s=limits["deadline_s"], what=str(limits["deadline"]))


def _reuse_to_json(scheduler: RunScheduler, book: ReuseBook) -> dict[str, Any]:
    """Returns what a fork may take over yet: a result is of no use any more once its node has ended."""
    ended = {
        name
        for name, kept in book.tasks.items()
        if kept.has_result and (record := scheduler.record_of(name)) is not None and record.status.is_final
    }
    return {name: kept.to_json() for name, kept in book.tasks.items() if name not in ended}


def _people_to_json(scheduler: RunScheduler) -> dict[str, Any]:
    """Returns what people were asked and decided, by parts that are not empty."""
    feedback, state = scheduler.features.feedback, scheduler.state
    approved = feedback.state.approved_nodes
    parts = {
        "requests": feedback.requests.to_json(),
        "overrides": {name: override.to_json() for name, override in state.overrides.items()},
        "inputs": feedback.state.given_inputs,
        "covered": [approved, feedback.state.approved_by] if approved else None,
        "policy": state.policy.to_json() if feedback.state.policy_changed else None,
    }
    return {name: part for name, part in parts.items() if part}


def _restore_people(scheduler: RunScheduler, people: Mapping[str, Any]) -> None:
    overrides = people.get("overrides", {})
    scheduler.state.overrides = {name: override_from_json(override) for name, override in overrides.items()}
    approved_nodes, approved_by = people.get("covered", (0, ""))
    scheduler.features.feedback.restore(
        people.get("requests", {}), people.get("inputs", {}), (approved_nodes, approved_by)
    )
    if "policy" in people:
        scheduler.features.feedback.restore_policy(policy_from_json(people["policy"]))


def tasks_in_flight(scheduler: RunScheduler) -> list[str]:
    """Returns the ids of the tasks that were started and have not ended, in plan order."""
    found: list[str] = []
    for node, record in zip(scheduler.plan.nodes, scheduler.records, strict=True):
        if record.status is NodeStatus.RUNNING and node.for_each is None:
            found.append(node.id)
        found += [f"{node.id}[{item.key}]" for item in record.items if item.record.status is NodeStatus.RUNNING]
    return found


def _record_to_json(record: Record) -> dict[str, Any] | None:
    encoded: dict[str, Any] = {}
    for name, default in _DEFAULTS.items():
        value = getattr(record, name)
        if value is default or value == default:
            continue
        match name:
            case "status":
                encoded[name] = value.value
            case "error":
                encoded[name] = value.to_json()
            case "blocked_by":
                encoded[name] = list(value)
            case "items":
                encoded[name] = [_item_to_json(item) for item in value]
            case "result":
                plain = value_to_json(value)
                encoded[name] = plain["value"]
                if "stored" in plain:
                    encoded["stored_result"] = plain["stored"]
            case _:
                encoded[name] = value
    if _is_list_of_items(record):
        encoded = {name: value for name, value in encoded.items() if name not in ("result", "stored_result")}
    return encoded or None


def _item_to_json(item: ItemRecord) -> list[Any] | dict[str, Any]:
    if item.chunk is not None:
        return {"key": item.key, "record": _record_to_json(item.record), "map_batch": _chunk_to_json(item.chunk)}
    encoded = value_to_json(item.item)
    stored = [encoded["stored"]] if "stored" in encoded else []
    return [item.key, encoded["value"], _record_to_json(item.record), *stored]


def _chunk_to_json(chunk: Chunk) -> dict[str, Any]:
    encoded: dict[str, Any] = {"first": chunk.first, "count": chunk.count}
    if isinstance(chunk.items, StoredList):
        encoded["source"] = stored_list_to_json(chunk.items)
    elif chunk.items:
        encoded["items"] = value_to_json([*chunk.items])
    if chunk.counts:
        encoded["counts"] = chunk.counts
    if chunk.pieces:
        encoded["pieces"] = [list(piece) for piece in chunk.pieces]
    if chunk.failed_key is not None:
        encoded["failed_key"] = chunk.failed_key
    return encoded


def _item_from_json(encoded: Any) -> ItemRecord:
    if isinstance(encoded, Mapping):
        return ItemRecord(
            encoded["key"], None, _record_from_json(encoded["record"]), _chunk_from_json(encoded["map_batch"])
        )
    key, item, inner, *stored = encoded
    return ItemRecord(key, value_from_json(item, *stored), _record_from_json(inner))


def _chunk_from_json(encoded: Mapping[str, Any]) -> Chunk:
    items: Sequence[Any] = ()
    if "source" in encoded:
        items = stored_list_from_json(encoded["source"])
    elif "items" in encoded:
        items = value_from_json(encoded["items"]["value"], encoded["items"].get("stored"))
    pieces = [(ref, count) for ref, count in encoded.get("pieces", ())]
    counts = dict(encoded.get("counts", {}))
    return Chunk(encoded["first"], encoded["count"], items, counts, pieces, encoded.get("failed_key"))


def _record_from_json(encoded: Mapping[str, Any] | None) -> Record:
    if encoded is None:
        return Record()
    record = Record(
        status=NodeStatus(encoded.get("status", NodeStatus.PENDING)),
        error=_error_from_json(encoded.get("error")),
        blocked_by=tuple(encoded.get("blocked_by", ())),
        items=[_item_from_json(item) for item in encoded.get("items", ())],
        result=value_from_json(encoded.get("result"), encoded.get("stored_result")),
    )
    for name, value in encoded.items():
        if name in _DEFAULTS and name not in _READ_BY_THEMSELVES:
            setattr(record, name, value)
    if _is_list_of_items(record):
        record.result = [item.record.result for item in record.items]
    return record


def _is_list_of_items(record: Record) -> bool:
    """Tells whether the result is the list of the items' own, which need not be told twice."""
    return bool(record.items) and record.status is NodeStatus.COMPLETED and record.items[0].chunk is None


def _error_from_json(encoded: Mapping[str, Any] | None) -> NodeError | None:
    return None if encoded is None else NodeError(**encoded)
