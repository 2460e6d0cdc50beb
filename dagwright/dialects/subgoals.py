"""The dialect `subgoals`: `{"sub_goals": [{"id", "worker", "inputs", "params", "outputs", …}]}`.

An input names a slot of another sub-goal, `{"from_sub_goal": 1, "slot": "es_query"}`, or is a list of such objects.
The slot must be among the `outputs` of that sub-goal. The other fields of a planner's response (`action`,
`reasoning`) are accepted.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import JsonValue

from dagwright.core.errors import Problem, pointer
from dagwright.core.expressions.references import ResultOf
from dagwright.core.model.document import Document
from dagwright.core.model.worker_results import SUB_GOAL_PREFIX
from dagwright.core.name_hints import suggestion
from dagwright.dialects.draft import STAND_IN_ACTION, DocumentDraft, ObjectReader, action_of_tool
from dagwright.dialects.json_reader import describe

_KEYS = frozenset({"id", "worker", "description", "inputs", "params", "outputs", "goal_type"})
_STATE_KEYS = frozenset({"status", "result", "error"})
"""Keys that the run sets in a sub-goal. A plan may have them, but only with the values in `_PENDING_VALUES`."""
_INPUT_KEYS = frozenset({"from_sub_goal", "slot"})
_MAX_ID = 10**15
_PENDING_VALUES = (None, "pending")

Slots = Mapping[int, frozenset[str]]
"""ID of a sub-goal -> its declared slots."""


def read_subgoals(raw: JsonValue) -> Document:
    """Return the document of a list of sub-goals.

    Raises:
        PlanInvalid: there is no list of sub-goals, or it is empty.
    """
    draft = DocumentDraft("subgoals", "/sub_goals")
    if isinstance(raw, dict):
        _read_metadata(raw, draft)
    sub_goals = draft.entries_under_key(raw, "sub_goals", other_keys=("action", "reasoning"))
    slots = _declared_slots(sub_goals)
    for index, sub_goal in enumerate(sub_goals):
        number = _id_of(sub_goal)
        node_id = f"{SUB_GOAL_PREFIX}{number}" if number is not None else f"sub-goal {index + 1}"
        name = f"sub-goal {number}" if number is not None else f"sub-goal at position {index + 1}"
        entry = draft.entry(sub_goal, index, name=name, node_id=node_id)
        node: dict[str, Any] = {"id": node_id, **STAND_IN_ACTION}
        if entry is not None:
            node = {"id": node_id, **_fields(entry, slots)}
            draft.worker_tool_nodes.add(index)
        draft.nodes.append(node)
    return draft.document(additional_pointers=lambda: _pointers(sub_goals))


def _pointers(sub_goals: Sequence[Any]) -> Iterator[tuple[str, str]]:
    for index, sub_goal in enumerate(sub_goals):
        for node_field, sub_goal_field in (("tool", "worker"), ("title", "description"), ("arguments", "params")):
            yield f"/nodes/{index}/{node_field}", f"/sub_goals/{index}/{sub_goal_field}"
        for name in ("outputs", "goal_type"):
            yield f"/nodes/{index}/metadata/{name}", f"/sub_goals/{index}/{name}"
        inputs = sub_goal.get("inputs") if isinstance(sub_goal, dict) else None
        for key in inputs if isinstance(inputs, dict) else ():
            yield pointer("nodes", index, "arguments", key), pointer("sub_goals", index, "inputs", key)


def _read_metadata(raw: Mapping[str, Any], draft: DocumentDraft) -> None:
    action, reasoning = raw.get("action", "continue"), raw.get("reasoning")
    if action != "continue":
        message = f"'action' must be 'continue' in a document with sub-goals, not {describe(action)}"
        draft.problems.append(Problem("invalid_field", message, "/action"))
    if isinstance(reasoning, str):
        draft.metadata["reasoning"] = reasoning
    elif reasoning is not None:
        message = f"'reasoning' must be a text, not {describe(reasoning)}"
        draft.problems.append(Problem("invalid_field", message, "/reasoning"))


def _id_of(sub_goal: Any) -> int | None:
    number = sub_goal.get("id") if isinstance(sub_goal, dict) else None
    is_id = isinstance(number, int) and not isinstance(number, bool) and 0 <= number <= _MAX_ID
    return number if is_id else None


def _declared_slots(sub_goals: list[Any]) -> Slots:
    slots: dict[int, frozenset[str]] = {}
    for sub_goal in sub_goals:
        number = _id_of(sub_goal)
        if number is None:
            continue
        outputs = sub_goal.get("outputs")
        output_slots = [slot for slot in outputs if isinstance(slot, str)] if isinstance(outputs, list) else []
        slots[number] = slots.get(number, frozenset()).union(output_slots)
    return slots


def _fields(entry: ObjectReader, slots: Slots) -> dict[str, Any]:
    entry.expect_keys(_KEYS | _STATE_KEYS)
    for key in sorted(_STATE_KEYS & entry.raw.keys()):
        if entry.raw[key] not in _PENDING_VALUES:
            entry.report("invalid_field", f"{key!r} is set by the run and must be omitted", key)
    if _id_of(entry.raw) is None:
        _report_invalid_id(entry)
    worker_tool = entry.nonempty_text("worker")
    description = entry.optional_text("description")
    fields: dict[str, Any] = {"title": description} if description is not None else {}
    fields |= action_of_tool(worker_tool)
    arguments = dict(entry.optional_object("params"))
    for key, value in entry.optional_object("inputs").items():
        if key in arguments:
            entry.report("invalid_field", f"{key!r} is given twice, in params and in inputs", "inputs", key)
            continue
        arguments[key] = _read_input(entry, key, value, slots=slots)
    fields["arguments"] = arguments
    return fields | _metadata(entry)


def _report_invalid_id(entry: ObjectReader) -> None:
    if "id" in entry.raw:
        message = f"'id' must be a whole number from 0, not {describe(entry.raw['id'])}"
        entry.report("invalid_field", message, "id")
    else:
        entry.report("invalid_field", "the key 'id' is missing")


def _metadata(entry: ObjectReader) -> dict[str, Any]:
    metadata: dict[str, Any] = {}
    if entry.raw.get("outputs") is not None:
        metadata["outputs"] = entry.texts("outputs")
    goal_type = entry.optional_text("goal_type")
    if goal_type is not None:
        metadata["goal_type"] = goal_type
        if goal_type not in ("support", "deliverable"):
            message = f"'goal_type' must be 'support' or 'deliverable', not {describe(goal_type)}"
            entry.report("invalid_field", message, "goal_type")
    return {"metadata": metadata} if metadata else {}


def _read_input(entry: ObjectReader, key: str, value: Any, *, slots: Slots) -> JsonValue:
    if isinstance(value, list):
        return [_read_ref(entry, item, slots=slots, at=("inputs", key, index)) for index, item in enumerate(value)]
    return _read_ref(entry, value, slots=slots, at=("inputs", key))


def _read_ref(entry: ObjectReader, value: Any, *, slots: Slots, at: tuple[str | int, ...]) -> str | None:
    location = f"{at[1]!r}" if len(at) == 2 else f"{at[1]!r}[{at[2]}]"
    if not isinstance(value, dict):
        shape = '{"from_sub_goal": 1, "slot": "…"}'
        entry.report(
            "invalid_field", f"input {location} must be {shape} or a list of such objects, not {describe(value)}", *at
        )
        return None
    ref_reader = ObjectReader(
        value, entry.at + pointer(*at), f"{entry.name}, input {location}", entry.node_id, entry.problems
    )
    ref_reader.expect_keys(_INPUT_KEYS)
    slot = ref_reader.text("slot")
    source = _id_of({"id": value.get("from_sub_goal")})
    if source is None:
        given_id = describe(value["from_sub_goal"]) if "from_sub_goal" in value else "nothing"
        ref_reader.report("invalid_field", f"'from_sub_goal' must be the id of a sub-goal, not {given_id}")
    if slot is None or source is None:
        return None
    if source not in slots:
        ref_reader.report("invalid_reference", f"Invalid reference: there is no sub-goal {source}", "from_sub_goal")
        return None
    if slot not in slots[source]:
        declared_slots_text = ", ".join(sorted(slots[source])) or "no slots"
        problem_text = f"sub-goal {source} does not declare the slot {slot!r}; it declares {declared_slots_text}"
        message = f"Invalid reference: {problem_text}"
        ref_reader.report("invalid_reference", message, "slot", hint=suggestion(slot, slots[source]))
    return "{{" + str(ResultOf(f"{SUB_GOAL_PREFIX}{source}", "result", (slot,))) + "}}"
