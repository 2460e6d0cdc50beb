"""State of the rounds as text for the planner: a line for each sub-goal, in a limited size.

The text is one message of a planner call, and its size does not grow with the number of rounds. Long values are
shortened; worker tools receive whole values, by reference. Values are JSON without line breaks, so they cannot add
lines with instructions.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pydantic_core

from dagwright.core.expressions.stored_values import StoredValue, is_inline_value
from dagwright.core.model.states import NodeError
from dagwright.core.text import cut_bytes, cut_for_model, one_line
from dagwright.planning.model_calls.message_preparation import json_line
from dagwright.planning.rounds.rounds_spec import MAX_ROUNDS_REACHED
from dagwright.planning.rounds.sub_goals import INPUTS

if TYPE_CHECKING:
    from dagwright.planning.rounds.rounds_state import RoundsState, SubGoalProgress

STATE_BYTES = 64 * 1024
"""Limit for the sub-goals in one call, as JSON. Over the limit, the oldest sub-goals are shortened."""
ALL_REASONS_BYTES = 8 * 1024
"""Limit for the JSON of all reasons of the planner in one call."""
SLOTS_BYTES = 40_000
"""Limit for the JSON of all slots in one call."""
MAX_SLOT_BYTES = 4_000
MIN_SLOT_BYTES = 200
MAX_MESSAGE_CHARACTERS = 1_000
"""Limit for a message or an error of a worker tool."""
_PARAMS_BYTES = 1_000
_ONE_REASON_BYTES = 800
_BRIEF_DESCRIPTION_BYTES = 60
_BRIEF_SLOTS = 10
_CONTROL_CHARACTERS = re.compile("[\x00-\x1f]")
MAX_CAVEATS = 40
"""Maximum number of partial, failed or never started sub-goals in the prompt of the answer, or in its text."""


def state_message(rounds_state: "RoundsState", *, round_number: int) -> str:
    """Return the message with the state of the run for the planner.

    Args:
        round_number: round to plan, from 1.
    """
    max_rounds = rounds_state.spec.max_rounds
    last_round_note = (
        " It is the last round: its sub-goals still run, and you are not asked again."
        if round_number >= max_rounds
        else ""
    )
    head = f"This is round {round_number} of {max_rounds}.{last_round_note}"
    if not rounds_state.sub_goals:
        return f"{head}\nNo sub-goal exists yet."
    return "\n".join([head, *_reasons(rounds_state), *_state_lines(rounds_state)])


def shorten_oldest(parts: Sequence[tuple[Any, Any]], *, max_bytes: int) -> Sequence[Any]:
    """Return each part in its full form, but the oldest parts in their short form if the JSON exceeds `max_bytes`.

    Args:
        parts: full form and short form of each part, oldest first.
        max_bytes: limit of the JSON.
    """
    sizes = [tuple(len(pydantic_core.to_json(value)) for value in pair) for pair in parts]
    total = sum(size for size, _ in sizes)
    forms: list[Any] = []
    for (full_form, short_form), (full_size, short_size) in zip(parts, sizes, strict=True):
        is_shortened = total > max_bytes and short_size < full_size
        total -= full_size - short_size if is_shortened else 0
        forms.append(short_form if is_shortened else full_form)
    return forms


def _reasons(rounds_state: "RoundsState") -> Iterator[str]:
    """Yield the planner's reasons in earlier rounds, for as many of the newest rounds as fit."""
    accepted_calls = {
        call.round: call for call in rounds_state.calls if call.action is not None and call.reasoning.strip()
    }
    lines = []
    for call in accepted_calls.values():
        text = cut_bytes(one_line(call.reasoning), max_bytes=_ONE_REASON_BYTES)
        lines.append(f"- {json_line({'round': call.round, 'reasoning': text})}")
    entries = [line for line in shorten_oldest([(line, "") for line in lines], max_bytes=ALL_REASONS_BYTES) if line]
    if entries:
        yield "Your reasoning in earlier rounds:"
        yield from entries


def _state_lines(rounds_state: "RoundsState") -> Iterator[str]:
    all_progress = [*rounds_state.sub_goals.values()]
    slot_count = sum(len(progress.slots) for progress in all_progress if progress.is_done)
    max_bytes = max(MIN_SLOT_BYTES, min(MAX_SLOT_BYTES, SLOTS_BYTES // max(1, slot_count)))
    sorted_progress = sorted(all_progress, key=lambda progress: progress.number)
    entries = shorten_oldest(
        [
            (_json_entry(_describe(progress, rounds_state, max_bytes=max_bytes)), _json_entry(_short_form(progress)))
            for progress in sorted_progress
        ],
        max_bytes=STATE_BYTES,
    )
    lines = {progress.number: line for progress, line in zip(sorted_progress, entries, strict=True)}
    groups = (
        ("Completed sub-goals:", [progress for progress in all_progress if progress.is_done]),
        ("Failed sub-goals:", [progress for progress in all_progress if progress.status == "failed"]),
        (
            "Pending sub-goals, which start by themselves as soon as their inputs are available:",
            [progress for progress in all_progress if progress.status in ("pending", "running")],
        ),
    )
    for title, group in groups:
        if group:
            yield title
            yield from (lines[progress.number] for progress in group)


def _json_entry(document: Mapping[str, Any]) -> str:
    return f"- {json_line(document)}"


def _describe(progress: "SubGoalProgress", rounds_state: "RoundsState", *, max_bytes: int) -> dict[str, Any]:
    if progress.is_done:
        return _completed_sub_goal(progress, max_bytes=max_bytes)
    return _failed_sub_goal(progress) if progress.status == "failed" else _pending_sub_goal(progress, rounds_state)


def _short_form(progress: "SubGoalProgress") -> dict[str, Any]:
    """Return the short form of a sub-goal, with the fields that are needed to refer to it."""
    description = cut_bytes(
        _CONTROL_CHARACTERS.sub(" ", progress.sub_goal.description), max_bytes=_BRIEF_DESCRIPTION_BYTES
    )
    document = {
        "id": progress.sub_goal.id,
        "worker": progress.sub_goal.worker,
        "description": description,
        "status": progress.status,
    }
    return {**document, "slots": list(progress.slots[:_BRIEF_SLOTS]), "truncated": "other fields are omitted"}


def _common_fields(progress: "SubGoalProgress") -> dict[str, Any]:
    document: dict[str, Any] = {
        "id": progress.sub_goal.id,
        "worker": progress.sub_goal.worker,
        "description": progress.sub_goal.description,
    }
    if progress.sub_goal.params:
        document["params"] = _shorten(dict(progress.sub_goal.params), max_bytes=_PARAMS_BYTES)
    if progress.sub_goal.inputs:
        document["inputs"] = INPUTS.encode(progress.sub_goal.inputs)
    return document


def _completed_sub_goal(progress: "SubGoalProgress", *, max_bytes: int) -> dict[str, Any]:
    outputs = {slot: _shorten(progress.value_of(slot), max_bytes=max_bytes) for slot in progress.sub_goal.outputs}
    return {
        **_common_fields(progress),
        "goal_type": progress.sub_goal.goal_type,
        "status": progress.status,
        **_message_field(progress),
        "outputs": outputs,
    }


def _failed_sub_goal(progress: "SubGoalProgress") -> dict[str, Any]:
    attempts = {"attempts": progress.attempt_count} if progress.attempt_count > 1 else {}
    return {**_common_fields(progress), "error": _cut(progress.error or ""), **_message_field(progress), **attempts}


def _pending_sub_goal(progress: "SubGoalProgress", rounds_state: "RoundsState") -> dict[str, Any]:
    unfinished_sources = [
        source
        for source in progress.sub_goal.sources
        if source in rounds_state.sub_goals and not rounds_state.sub_goals[source].is_done
    ]
    entries = [{"sub_goal": source, "status": rounds_state.sub_goals[source].status} for source in unfinished_sources]
    return {**_common_fields(progress), "waits_for": entries}


def _message_field(progress: "SubGoalProgress") -> dict[str, str]:
    return {"message": _cut(progress.message)} if progress.message else {}


def _cut(text: str) -> str:
    return cut_for_model(text, MAX_MESSAGE_CHARACTERS)


def _shorten(value: Any, *, max_bytes: int) -> Any:
    """Return a value, or its size and first bytes if it is long."""
    if isinstance(value, StoredValue):
        shape = value.shape
        size_fields = (
            {"type": shape.type, "length": shape.length, "bytes": shape.size_bytes} if shape is not None else {}
        )
        return {
            "truncated": "workers receive the whole value",
            **size_fields,
            "preview": shape.preview if shape else "",
        }
    if not is_inline_value(value):
        return {"truncated": "workers receive the whole value"}
    text = json.dumps(value, ensure_ascii=False)
    if (size_bytes := len(text.encode(errors="replace"))) <= max_bytes:
        return value
    size_fields = {"length": len(value)} if isinstance(value, list | Mapping) else {}
    preview = value if isinstance(value, str) else text
    return {
        "truncated": "workers receive the whole value",
        **size_fields,
        "bytes": size_bytes,
        "preview": cut_bytes(preview, max_bytes=max_bytes),
    }


# Missing information: caveats for the model that writes the answer, or lines of an answer assembled without a model.


def format_caveats(rounds_state: "RoundsState", stop_error: NodeError | None) -> str:
    """Format the missing information for the model that writes the answer; empty if nothing is missing.

    Args:
        stop_error: why the planner did not finish; `None` if it finished.
    """
    caveats = [caveat for progress in rounds_state.sub_goals.values() if (caveat := _caveat(progress)) is not None]
    lines = [f"- {json_line(caveat)}" for caveat in caveats[:MAX_CAVEATS]]
    if (omitted_count := len(caveats) - MAX_CAVEATS) > 0:
        lines.append(f"- and {omitted_count} more")
    stop_lines = [_stop_line(stop_error)] if stop_error is not None else []
    return "\n".join([*stop_lines, *(["Incomplete findings:", *lines] if lines else [])])


def _stop_line(stop_error: NodeError) -> str:
    if stop_error.code == MAX_ROUNDS_REACHED:
        return "The work ended at the limit of rounds.\nAnswer from the findings."
    return f"The work ended early: {json_line(_cut(stop_error.message))}.\nAnswer from the findings."


def lines_of_missing_results(
    incomplete_sub_goals: "Sequence[SubGoalProgress]", stop_error: NodeError | None
) -> Sequence[str]:
    """Return the lines about missing results in an answer that is assembled without a model.

    There is one line if the planner did not finish, and one line for each incomplete sub-goal.

    Args:
        incomplete_sub_goals: the result of `RoundsState.incomplete_sub_goals`.
        stop_error: why the planner did not finish; `None` if it finished.
    """
    lines = [f"The work ended early: {_short_line(stop_error.message)}"] if stop_error is not None else []
    for progress in incomplete_sub_goals[:MAX_CAVEATS]:
        status = "not started" if progress.status == "pending" else progress.status
        reason = progress.message if progress.status == "partial" else progress.error
        title = _short_line(progress.sub_goal.description or progress.sub_goal.worker)
        lines.append(f"{title}: {status}{f': {_short_line(reason)}' if reason else ''}")
    if (omitted_count := len(incomplete_sub_goals) - MAX_CAVEATS) > 0:
        lines.append(f"and {omitted_count} more")
    return lines


def _short_line(text: str) -> str:
    """Return a shortened text on one line, so that the text cannot add lines with instructions."""
    return _cut(one_line(text))


def _caveat(progress: "SubGoalProgress") -> dict[str, Any] | None:
    document = {"sub_goal": progress.sub_goal.description or progress.sub_goal.worker, "status": progress.status}
    if progress.status == "partial":
        return {**document, **_message_field(progress)}
    if progress.status == "failed":
        return {**document, "error": _cut(progress.error or ""), **_message_field(progress)}
    return {**document, "status": "not started"} if progress.status == "pending" else None
