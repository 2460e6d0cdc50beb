"""What a planner of rounds is told of what was done so far: each sub-goal on a line of its own, within a fixed size.

It stands as text in the call, so that a run that went on for ten rounds says no more than one of two: values are shown
by their beginning, and go to workers whole and by reference. Nothing of a value can end its line and say more.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from dagwright.contracts.model_messages import json_line
from dagwright.contracts.rounds import MAX_ROUNDS_REACHED
from dagwright.contracts.rounds_so_far import Progress, RoundsSoFar
from dagwright.contracts.sub_goals import inputs_to_json
from dagwright.plan.errors import NodeError
from dagwright.plan.stored import StoredValue, is_whole

SLOTS_CHARACTERS = 48_000
"""JSON of all slots that one call is told of."""
MOST_OF_SLOT = 4_000
LEAST_OF_SLOT = 200
WORDS_CHARACTERS = 1_000
"""Of a message or an error of a worker."""
_PARAMS_CHARACTERS = 1_000
CAVEATS = 40
"""Sub-goals that the answer is told of because they are partial, failed or were never begun."""


def state_words(run: RoundsSoFar, *, number: int) -> str:
    """Returns what the planner is told for a round.

    Args:
        number: of the round that it plans, from 1.
    """
    most = run.rounds.max_rounds
    last = " It is the last one: what you begin still runs, and you are not asked again." if number >= most else ""
    head = f"This is round {number} of {most}.{last}"
    if not run.sub_goals:
        return f"{head}\nNothing has been done yet."
    return "\n".join([head, *_state_lines(run)])


def _state_lines(run: RoundsSoFar) -> Iterator[str]:
    each = [*run.sub_goals.values()]
    slots = sum(len(one.slots) for one in each if one.is_done)
    limit = max(LEAST_OF_SLOT, min(MOST_OF_SLOT, SLOTS_CHARACTERS // max(1, slots)))
    groups = (
        ("Completed sub-goals:", [_done(one, limit=limit) for one in each if one.is_done]),
        ("Failed sub-goals:", [_failed(one) for one in each if one.status == "failed"]),
        (
            "Pending sub-goals, which begin by themselves as soon as what they wait for is there:",
            [_pending(one, run) for one in each if one.status in ("pending", "running")],
        ),
    )
    for title, told in groups:
        if told:
            yield title
            yield from (f"- {json_line(line)}" for line in told)


def _head(one: Progress) -> dict[str, Any]:
    told: dict[str, Any] = {
        "id": one.sub_goal.id,
        "worker": one.sub_goal.worker,
        "description": one.sub_goal.description,
    }
    if one.sub_goal.params:
        told["params"] = _shown(dict(one.sub_goal.params), limit=_PARAMS_CHARACTERS)
    if one.sub_goal.inputs:
        told["inputs"] = inputs_to_json(one.sub_goal.inputs)
    return told


def _done(one: Progress, *, limit: int) -> dict[str, Any]:
    outputs = {slot: _shown(one.value_of(slot), limit=limit) for slot in one.sub_goal.outputs}
    return {**_head(one), "goal_type": one.sub_goal.goal_type, "status": one.status, **_said(one), "outputs": outputs}


def _failed(one: Progress) -> dict[str, Any]:
    tries = {"tries": one.tries} if one.tries > 1 else {}
    return {**_head(one), "error": _cut(one.error or ""), **_said(one), **tries}


def _pending(one: Progress, run: RoundsSoFar) -> dict[str, Any]:
    waits = [source for source in one.sub_goal.sources if source in run.sub_goals and not run.sub_goals[source].is_done]
    told = [{"sub_goal": source, "which": run.sub_goals[source].status} for source in waits]
    return {**_head(one), "waits_for": told}


def _said(one: Progress) -> dict[str, str]:
    return {"message": _cut(one.message)} if one.message else {}


def _cut(text: str, limit: int = WORDS_CHARACTERS) -> str:
    return text if len(text) <= limit else f"{text[:limit]} […cut]"


def _shown(value: Any, *, limit: int) -> Any:
    """Returns a value, or its size and beginning if it is long."""
    if isinstance(value, StoredValue):
        shape = value.shape
        size = {"type": shape.type, "length": shape.length, "bytes": shape.size_bytes} if shape is not None else {}
        return {"not_shown": "it is long; workers get all of it", **size, "begins": shape.preview if shape else ""}
    if not is_whole(value):
        return {"not_shown": "it is long; workers get all of it"}
    text = json.dumps(value, ensure_ascii=False)
    if len(text) <= limit:
        return value
    size = {"length": len(value)} if isinstance(value, list | Mapping) else {}
    beginning = value if isinstance(value, str) else text
    return {"not_shown": "it is long; workers get all of it", **size, "bytes": len(text), "begins": beginning[:limit]}


# What the answer is told beside the slots that it is made of.


def caveats(run: RoundsSoFar, stopped: NodeError | None) -> str:
    """Returns what whoever answers has to know of what is missing; empty if nothing is.

    Args:
        stopped: why the planner did not come to its end, if it did not.
    """
    told = [line for one in run.sub_goals.values() if (line := _caveat(one)) is not None]
    lines = [f"- {json_line(line)}" for line in told[:CAVEATS]]
    if (left := len(told) - CAVEATS) > 0:
        lines.append(f"- and {left} more")
    why = [_why_stopped(stopped)] if stopped is not None else []
    return "\n".join([*why, *(["What is not whole:", *lines] if lines else [])])


def _why_stopped(stopped: NodeError) -> str:
    if stopped.code == MAX_ROUNDS_REACHED:
        return "The work had to end here, as there were as many rounds as there may be. Answer with what there is."
    return f"The work had to end here: {json_line(_cut(stopped.message))}. Answer with what there is."


def _caveat(one: Progress) -> dict[str, Any] | None:
    told = {"sub_goal": one.sub_goal.description or one.sub_goal.worker, "status": one.status}
    if one.status == "partial":
        return {**told, **_said(one)}
    if one.status == "failed":
        return {**told, "error": _cut(one.error or ""), **_said(one)}
    return {**told, "status": "not begun"} if one.status == "pending" else None
