"""State of a scheduler as JSON, which one execution of a run passes to the next.

The plan is passed separately. Counters, queues and slots are rebuilt from the records of the nodes in the state.

Replay: fields may be added with a default; the meaning of a field never changes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from typing import TYPE_CHECKING, Any

from dagwright.core.expressions.value_refs import value_from_json, value_to_json
from dagwright.core.model.lineage import run_lineage_from_json
from dagwright.core.model.policy import policy_from_json
from dagwright.core.model.states import ItemRecord, MapBatch, NodeError, NodeStatus, Phase, Record, run_usage_from_json
from dagwright.core.scheduler.extension import extension_from_json
from dagwright.core.scheduler.map_items import StoredList, stored_list_from_json, stored_list_to_json
from dagwright.core.scheduler.run_state import ActivePause, override_from_json
from dagwright.features.budgets.budget import budget_from_json
from dagwright.features.fork_reuse.reuse import ReuseTable, reuse_table_from_json

if TYPE_CHECKING:
    from dagwright.features.run_scheduler import RunScheduler

_FORMAT = 1
_DEFAULTS = {part.name: getattr(Record(), part.name) for part in fields(Record)}
_DECODED_SEPARATELY = frozenset({"status", "error", "blocked_by", "items", "result"})


def state_to_json(scheduler: "RunScheduler") -> dict[str, Any]:
    """Encode the state of a scheduler between two events.

    Returns:
        `{"format", "records", "error", "cancelled", "is_stopped", "cancelling", "extensions", "paused", "limits",
        "usage", "lineage", "budget", "reuse", "feedback"}`. Fields after `is_stopped` are omitted if they are empty.
        `records` are in plan order, without default values; null is a record with defaults only.
    """
    feedback = _feedback_to_json(scheduler)
    state, budget, table = scheduler.state, scheduler.features.budget.budget, scheduler.features.reuse.table
    return ({"feedback": feedback} if feedback else {}) | {
        "format": _FORMAT,
        "records": [_record_to_json(record) for record in state.records],
        "error": state.error.to_json() if state.error else None,
        "cancelled": state.cancelled,
        "is_stopped": state.is_stopped,
        **({"cancelling": state.cancel_deadlines} if state.cancel_deadlines else {}),
        **({"extensions": [extension.to_json() for extension in state.extensions]} if state.extensions else {}),
        **({"paused": asdict(state.paused)} if state.paused is not None else {}),
        **({"limits": _limits_to_json(scheduler)} if state.limits_changed else {}),
        **({"usage": usage} if (usage := state.totals.usage.to_json()) else {}),
        **({"lineage": lineage} if (lineage := state.totals.lineage.to_json()) else {}),
        **({"budget": budget.to_json()} if budget is not None else {}),
        **({"reuse": _reuse_to_json(scheduler, table)} if table is not None else {}),
    }


def restore_state(scheduler: "RunScheduler", state: Any) -> None:
    """Restore the state from `state_to_json` into a scheduler that has not started, instead of starting it.

    Tasks that were running are running again.

    Args:
        scheduler: created with the same plan, inputs and lookups.

    Raises:
        ValueError: the state has a newer format, or does not match the plan.
    """
    if not isinstance(state, Mapping) or state.get("format") != _FORMAT:
        raise ValueError(f"the state of the previous execution is not of format {_FORMAT}, the only supported format")
    try:
        for encoded in state.get("extensions", ()):
            scheduler.rebuild.extend(extension_from_json(encoded))
        if "limits" in state:
            _restore_limits(scheduler, state["limits"])
        scheduler.rebuild.resume(
            [_record_from_json(record) for record in state["records"]],
            error=_error_from_json(state["error"]),
            cancelled=bool(state["cancelled"]),
            phase=_phase_from_json(state, scheduler),
        )
        scheduler.state.cancel_deadlines.update(state.get("cancelling", {}))
        scheduler.state.paused = ActivePause(**state["paused"]) if "paused" in state else None
        _restore_feedback(scheduler, state.get("feedback", {}))
        if "budget" in state:
            scheduler.features.budget.set_budget(budget_from_json(state["budget"]))
        scheduler.state.totals.usage = run_usage_from_json(state.get("usage"))
        scheduler.state.totals.lineage = run_lineage_from_json(state.get("lineage"))
        scheduler.features.reuse.set_table(reuse_table_from_json(state["reuse"]) if "reuse" in state else None)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"invalid state of the previous execution: {error!r}") from None


def _phase_from_json(state: Mapping[str, Any], scheduler: "RunScheduler") -> Phase:
    """Return the phase of a run, which follows from its end and from the extensions of its plan."""
    if not state["is_stopped"]:
        return Phase.COMPENSATING if state["error"] is not None or state["cancelled"] else Phase.ACTIVE
    is_compensating = any(
        node.compensates is not None for extension in scheduler.state.extensions for node in extension.nodes
    )
    return Phase.CLOSED if is_compensating else Phase.STOPPED


def _limits_to_json(scheduler: "RunScheduler") -> dict[str, Any]:
    deadline = scheduler.features.deadline.deadline
    return {"max_parallel": scheduler.state.max_in_flight, "deadline_s": deadline.limit_s, "deadline": deadline.name}


def _restore_limits(scheduler: "RunScheduler", limits: Mapping[str, Any]) -> None:
    scheduler.rebuild.limit_in_flight(limits["max_parallel"])
    deadline = scheduler.features.deadline
    deadline.deadline = replace(deadline.deadline, limit_s=limits["deadline_s"], name=str(limits["deadline"]))


def _reuse_to_json(scheduler: "RunScheduler", table: ReuseTable) -> dict[str, Any]:
    """Return the data that a fork may still reuse: a result is not needed any more once its node has ended."""
    ended_ids = {
        name
        for name, reusable_result in table.results.items()
        if reusable_result.has_result and (record := scheduler.record_of(name)) is not None and record.status.is_final
    }
    return {name: reusable_result.to_json() for name, reusable_result in table.results.items() if name not in ended_ids}


def _feedback_to_json(scheduler: "RunScheduler") -> dict[str, Any]:
    """Return the requests, the answers and the decisions of people. Empty parts are omitted."""
    feedback, state = scheduler.features.feedback, scheduler.state
    approved_count = feedback.state.approved_node_count
    parts = {
        "requests": feedback.requests.to_json(),
        "overrides": {name: override.to_json() for name, override in state.overrides.items()},
        "inputs": feedback.state.given_inputs,
        "approved_nodes": [approved_count, feedback.state.approved_by] if approved_count else None,
        "policy": state.policy.to_json() if feedback.state.policy_changed else None,
    }
    return {name: part for name, part in parts.items() if part}


def _restore_feedback(scheduler: "RunScheduler", feedback: Mapping[str, Any]) -> None:
    overrides = feedback.get("overrides", {})
    scheduler.state.overrides = {name: override_from_json(override) for name, override in overrides.items()}
    approved_node_count, approved_by = feedback.get("approved_nodes", (0, ""))
    scheduler.features.feedback.restore(
        feedback.get("requests", {}), feedback.get("inputs", {}), (approved_node_count, approved_by)
    )
    if "policy" in feedback:
        scheduler.features.feedback.restore_policy(policy_from_json(feedback["policy"]))


def tasks_in_flight(scheduler: "RunScheduler") -> list[str]:
    """Return the ids of the tasks that have started and not ended, in plan order."""
    task_ids: list[str] = []
    for node, record in zip(scheduler.plan.nodes, scheduler.records, strict=True):
        if record.status is NodeStatus.RUNNING and node.for_each is None:
            task_ids.append(node.id)
        task_ids += [f"{node.id}[{item.key}]" for item in record.items if item.record.status is NodeStatus.RUNNING]
    return task_ids


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
                value_json = value_to_json(value)
                encoded[name] = value_json["value"]
                if "stored" in value_json:
                    encoded["stored_result"] = value_json["stored"]
            case _:
                encoded[name] = value
    if _has_result_per_item(record):
        encoded = {name: value for name, value in encoded.items() if name not in ("result", "stored_result")}
    return encoded or None


def _item_to_json(item: ItemRecord) -> list[Any] | dict[str, Any]:
    if item.map_batch is not None:
        return {
            "key": item.key,
            "record": _record_to_json(item.record),
            "map_batch": _map_batch_to_json(item.map_batch),
        }
    encoded = value_to_json(item.item)
    stored_parts = [encoded["stored"]] if "stored" in encoded else []
    return [item.key, encoded["value"], _record_to_json(item.record), *stored_parts]


def _map_batch_to_json(map_batch: MapBatch) -> dict[str, Any]:
    encoded: dict[str, Any] = {"first": map_batch.first, "count": map_batch.count}
    if isinstance(map_batch.items, StoredList):
        encoded["source"] = stored_list_to_json(map_batch.items)
    elif map_batch.items:
        encoded["items"] = value_to_json([*map_batch.items])
    if map_batch.counts:
        encoded["counts"] = map_batch.counts
    if map_batch.pieces:
        encoded["pieces"] = [list(piece) for piece in map_batch.pieces]
    if map_batch.failed_key is not None:
        encoded["failed_key"] = map_batch.failed_key
    return encoded


def _item_from_json(encoded: Any) -> ItemRecord:
    if isinstance(encoded, Mapping):
        return ItemRecord(
            encoded["key"], None, _record_from_json(encoded["record"]), _map_batch_from_json(encoded["map_batch"])
        )
    key, item, encoded_record, *stored_parts = encoded
    return ItemRecord(key, value_from_json(item, *stored_parts), _record_from_json(encoded_record))


def _map_batch_from_json(encoded: Mapping[str, Any]) -> MapBatch:
    items: Sequence[Any] = ()
    if "source" in encoded:
        items = stored_list_from_json(encoded["source"])
    elif "items" in encoded:
        items = value_from_json(encoded["items"]["value"], encoded["items"].get("stored"))
    pieces = [(ref, count) for ref, count in encoded.get("pieces", ())]
    counts = dict(encoded.get("counts", {}))
    return MapBatch(encoded["first"], encoded["count"], items, counts, pieces, encoded.get("failed_key"))


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
        if name in _DEFAULTS and name not in _DECODED_SEPARATELY:
            setattr(record, name, value)
    if _has_result_per_item(record):
        record.result = [item.record.result for item in record.items]
    return record


def _has_result_per_item(record: Record) -> bool:
    """Return whether the result is the list of the results in the records of its items."""
    return bool(record.items) and record.status is NodeStatus.COMPLETED and record.items[0].map_batch is None


def _error_from_json(encoded: Mapping[str, Any] | None) -> NodeError | None:
    return None if encoded is None else NodeError(**encoded)
