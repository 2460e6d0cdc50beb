"""What a planner of rounds is told of what was done so far: each sub-goal on a line of its own, within a fixed size.

It stands as text in the call, so that a run that went on for ten rounds says no more than one of two: values are shown
by their beginning, and go to workers whole and by reference. Nothing of a value can end its line and say more.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pydantic_core

from dagwright.core.boundary.text import cut_bytes, cut_for_model, one_line
from dagwright.core.expressions.stored_values import StoredValue, is_whole
from dagwright.core.model.errors import NodeError
from dagwright.planning.model_calls.messages import json_line
from dagwright.planning.rounds.rounds import MAX_ROUNDS_REACHED
from dagwright.planning.rounds.state import RoundsState, SubGoalProgress
from dagwright.planning.rounds.sub_goals import INPUTS

STATE_BYTES = 64 * 1024
"""What one call is told of all sub-goals, as it travels; of the oldest ones the beginning is told where it is more."""
REASONS_BYTES = 8 * 1024
"""The same of why the planner did what it did."""
SLOTS_BYTES = 40_000
"""JSON of all slots that one call is told of."""
MAX_SLOT_BYTES = 4_000
MIN_SLOT_BYTES = 200
WORDS_CHARACTERS = 1_000
"""Of a message or an error of a worker."""
_PARAMS_BYTES = 1_000
_REASON_BYTES = 800
_BRIEF_BYTES = 60
_BRIEF_SLOTS = 10
_CONTROLS = re.compile("[\x00-\x1f]")
CAVEATS = 40
"""Sub-goals that the answer is told of because they are partial, failed or were never begun."""


def state_message(run: RoundsState, *, number: int) -> str:
    """Returns what the planner is told for a round.

    Args:
        number: of the round that it plans, from 1.
    """
    most = run.rounds.max_rounds
    last = " It is the last round: its sub-goals still run, and you are not asked again." if number >= most else ""
    head = f"This is round {number} of {most}.{last}"
    if not run.sub_goals:
        return f"{head}\nNo sub-goal exists yet."
    return "\n".join([head, *_reasons(run), *_state_lines(run)])


def in_short(parts: Sequence[tuple[Any, Any]], *, most: int) -> Sequence[Any]:
    """Returns the first of each two values, or the second where all of the first would be too much.

    Args:
        parts: a value and what is told in its place, the oldest first, which are told in short first.
        most: bytes of JSON.
    """
    sizes = [tuple(len(pydantic_core.to_json(value)) for value in pair) for pair in parts]
    total = sum(size for size, _ in sizes)
    found: list[Any] = []
    for (whole, brief), (size, brief_size) in zip(parts, sizes, strict=True):
        is_brief = total > most and brief_size < size
        total -= size - brief_size if is_brief else 0
        found.append(brief if is_brief else whole)
    return found


def _reasons(run: RoundsState) -> Iterator[str]:
    """Yields why the planner did what it did, of as many of the newest rounds as there is room for."""
    taken = {call.round: call for call in run.calls if call.action is not None and call.reasoning.strip()}
    lines = []
    for call in taken.values():
        words = cut_bytes(one_line(call.reasoning), max_bytes=_REASON_BYTES)
        lines.append(f"- {json_line({'round': call.round, 'reasoning': words})}")
    told = [line for line in in_short([(line, "") for line in lines], most=REASONS_BYTES) if line]
    if told:
        yield "Your reasoning in earlier rounds:"
        yield from told


def _state_lines(run: RoundsState) -> Iterator[str]:
    each = [*run.sub_goals.values()]
    slots = sum(len(one.slots) for one in each if one.is_done)
    limit = max(MIN_SLOT_BYTES, min(MAX_SLOT_BYTES, SLOTS_BYTES // max(1, slots)))
    by_age = sorted(each, key=lambda one: one.number)
    told = in_short([(_line(_told(one, run, limit=limit)), _line(_brief(one))) for one in by_age], most=STATE_BYTES)
    lines = {one.number: line for one, line in zip(by_age, told, strict=True)}
    groups = (
        ("Completed sub-goals:", [one for one in each if one.is_done]),
        ("Failed sub-goals:", [one for one in each if one.status == "failed"]),
        (
            "Pending sub-goals, which start by themselves as soon as their inputs are available:",
            [one for one in each if one.status in ("pending", "running")],
        ),
    )
    for title, group in groups:
        if group:
            yield title
            yield from (lines[one.number] for one in group)


def _line(told: Mapping[str, Any]) -> str:
    return f"- {json_line(told)}"


def _told(one: SubGoalProgress, run: RoundsState, *, limit: int) -> dict[str, Any]:
    if one.is_done:
        return _done(one, limit=limit)
    return _failed(one) if one.status == "failed" else _pending(one, run)


def _brief(one: SubGoalProgress) -> dict[str, Any]:
    """Returns what is told of a sub-goal for which there is no room: what it can be used for."""
    description = cut_bytes(_CONTROLS.sub(" ", one.sub_goal.description), max_bytes=_BRIEF_BYTES)
    told = {"id": one.sub_goal.id, "worker": one.sub_goal.worker, "description": description, "status": one.status}
    return {**told, "slots": list(one.slots[:_BRIEF_SLOTS]), "truncated": "other fields are omitted"}


def _head(one: SubGoalProgress) -> dict[str, Any]:
    told: dict[str, Any] = {
        "id": one.sub_goal.id,
        "worker": one.sub_goal.worker,
        "description": one.sub_goal.description,
    }
    if one.sub_goal.params:
        told["params"] = _shown(dict(one.sub_goal.params), limit=_PARAMS_BYTES)
    if one.sub_goal.inputs:
        told["inputs"] = INPUTS.encode(one.sub_goal.inputs)
    return told


def _done(one: SubGoalProgress, *, limit: int) -> dict[str, Any]:
    outputs = {slot: _shown(one.value_of(slot), limit=limit) for slot in one.sub_goal.outputs}
    return {**_head(one), "goal_type": one.sub_goal.goal_type, "status": one.status, **_said(one), "outputs": outputs}


def _failed(one: SubGoalProgress) -> dict[str, Any]:
    tries = {"tries": one.tries} if one.tries > 1 else {}
    return {**_head(one), "error": _cut(one.error or ""), **_said(one), **tries}


def _pending(one: SubGoalProgress, run: RoundsState) -> dict[str, Any]:
    waits = [source for source in one.sub_goal.sources if source in run.sub_goals and not run.sub_goals[source].is_done]
    told = [{"sub_goal": source, "status": run.sub_goals[source].status} for source in waits]
    return {**_head(one), "waits_for": told}


def _said(one: SubGoalProgress) -> dict[str, str]:
    return {"message": _cut(one.message)} if one.message else {}


def _cut(text: str) -> str:
    return cut_for_model(text, WORDS_CHARACTERS)


def _shown(value: Any, *, limit: int) -> Any:
    """Returns a value, or its size and beginning if it is long."""
    if isinstance(value, StoredValue):
        shape = value.shape
        size = {"type": shape.type, "length": shape.length, "bytes": shape.size_bytes} if shape is not None else {}
        return {"truncated": "workers receive the whole value", **size, "preview": shape.preview if shape else ""}
    if not is_whole(value):
        return {"truncated": "workers receive the whole value"}
    text = json.dumps(value, ensure_ascii=False)
    if (bytes_of := len(text.encode(errors="replace"))) <= limit:
        return value
    size = {"length": len(value)} if isinstance(value, list | Mapping) else {}
    beginning = value if isinstance(value, str) else text
    return {
        "truncated": "workers receive the whole value",
        **size,
        "bytes": bytes_of,
        "preview": cut_bytes(beginning, max_bytes=limit),
    }


# What the answer is told beside the slots that it is made of.


def caveats(run: RoundsState, stopped: NodeError | None) -> str:
    """Returns what whoever answers has to know of what is missing; empty if nothing is.

    Args:
        stopped: why the planner did not come to its end, if it did not.
    """
    told = [line for one in run.sub_goals.values() if (line := _caveat(one)) is not None]
    lines = [f"- {json_line(line)}" for line in told[:CAVEATS]]
    if (left := len(told) - CAVEATS) > 0:
        lines.append(f"- and {left} more")
    why = [_why_stopped(stopped)] if stopped is not None else []
    return "\n".join([*why, *(["Incomplete findings:", *lines] if lines else [])])


def _why_stopped(stopped: NodeError) -> str:
    if stopped.code == MAX_ROUNDS_REACHED:
        return "The work ended at the limit of rounds.\nAnswer from the findings."
    return f"The work ended early: {json_line(_cut(stopped.message))}.\nAnswer from the findings."


def gap_lines(gaps: Sequence[SubGoalProgress], stopped: NodeError | None) -> Sequence[str]:
    """Format the gaps of an assembled answer, a line of Markdown each; empty if there are none.

    Args:
        stopped: why the planner did not finish, if it did not.
    """
    lines = [f"The work ended early: {_short_line(stopped.message)}"] if stopped is not None else []
    for one in gaps[:CAVEATS]:
        status = "not started" if one.status == "pending" else one.status
        reason = one.message if one.status == "partial" else one.error
        about = _short_line(one.sub_goal.description or one.sub_goal.worker)
        lines.append(f"{about}: {status}{f': {_short_line(reason)}' if reason else ''}")
    if (left := len(gaps) - CAVEATS) > 0:
        lines.append(f"and {left} more")
    return lines


def _short_line(text: str) -> str:
    """Return a text without line breaks, shortened, so that it cannot end its line."""
    return _cut(one_line(text))


def _caveat(one: SubGoalProgress) -> dict[str, Any] | None:
    told = {"sub_goal": one.sub_goal.description or one.sub_goal.worker, "status": one.status}
    if one.status == "partial":
        return {**told, **_said(one)}
    if one.status == "failed":
        return {**told, "error": _cut(one.error or ""), **_said(one)}
    return {**told, "status": "not started"} if one.status == "pending" else None
