"""Find JSON in the response of a language model, which may also contain fences, thinking and prose.

There are two readers for two uses. `read_written_json` reads plans: it repairs unambiguous slips and rejects a text
with several values. `json_values` reads responses for which the caller has a schema: it repairs nothing and yields each
valid JSON value, and the caller uses the first value that matches the schema.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dagwright.core.errors import PlanInvalid, Problem
from dagwright.dialects.written_values import ParsedValue, Repair, UnreadableValue, read_value

_START = re.compile(r"[{\[]")
_THINKING = re.compile(r"\s*<(think|thinking)>.*?(?:</\1>|\Z)", re.DOTALL)
_LABELLED_FENCE = re.compile(r"(?:```|~~~)[\w-]*\s*\Z")
_FENCED_BLOCK = re.compile(r"```[\w-]*[ \t]*\n(.*?)\n?[ \t]*```", re.DOTALL)
_MAX_SHOWN_LINES = 5
_MAX_PARSED_BRACKETS = 1_000
"""Maximum number of brackets at which `json_values` tries to parse: a text of many brackets must not take minutes."""


@dataclass(frozen=True, slots=True)
class WrittenJson:
    """A JSON value that a model has written in its response.

    Args:
        start: offset of the first character of the value in the response.
    """

    value: Any
    start: int
    repairs: Sequence[Repair]


def read_written_json(text: str) -> WrittenJson:
    """Return the only JSON object, or list of objects, in the response of a model.

    Raises:
        PlanInvalid: `empty_plan`, `invalid_syntax` (with line and column) or `ambiguous` (several values).

    Complexity: linear in the length of the text.
    """
    values = list(_values_in(text))
    if len({json.dumps(parsed_value.value, sort_keys=True) for _, parsed_value in values}) > 1:
        lines = [line_of(text, start) for start, _ in values]
        line_list = ", ".join(map(str, lines[:_MAX_SHOWN_LINES])) + (", …" if len(lines) > _MAX_SHOWN_LINES else "")
        message = (
            f"the text has {len(values)} JSON values (at lines {line_list}), and it is unclear which one is the plan"
        )
        raise PlanInvalid([Problem("ambiguous", message, hint="write one JSON value only")])
    start, parsed_value = values[0]
    return WrittenJson(parsed_value.value, start, [*_repairs_of_ignored_text(text, values), *parsed_value.repairs])


class ConflictingValues:
    """Marker in place of a key's value, if an object has the key twice with different values.

    The marker cannot be encoded as JSON.
    """


def json_values(text: str) -> Iterator[Any]:
    """Yield the valid JSON values of a text, the likeliest first: the whole text, fenced blocks, objects and lists."""
    answer = text[answer_start(text) :]
    for candidate in (answer, *(match[1] for match in _FENCED_BLOCK.finditer(answer))):
        try:
            yield _DECODER.decode(candidate.strip())
        except (ValueError, RecursionError):
            continue
    yield from _outermost_values(answer)


def _outermost_values(text: str) -> Iterator[Any]:
    position = 0
    for _ in range(_MAX_PARSED_BRACKETS):
        match = _START.search(text, position)
        if match is None:
            return
        try:
            value, position = _DECODER.raw_decode(text, match.start())
        except (ValueError, RecursionError):
            position = match.end()
        else:
            yield value


def _mark_conflicts(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for key, value in pairs:
        members[key] = value if key not in members or members[key] == value else ConflictingValues()
    return members


_DECODER = json.JSONDecoder(object_pairs_hook=_mark_conflicts)


def line_of(text: str, offset: int) -> int:
    """Return the line number of an offset, from 1."""
    return text.count("\n", 0, offset) + 1


def answer_start(text: str) -> int:
    """Return the offset of the answer, which follows the thinking of the model; 0 if there is no thinking."""
    match = _THINKING.match(text)
    return match.end() if match else 0


def _values_in(text: str) -> Iterator[tuple[int, ParsedValue]]:
    """Yield objects and lists of objects with their offsets; an empty value only if there is no other value."""
    position = answer_start(text)
    empty_value: tuple[int, ParsedValue] | None = None
    has_values = False
    first_failure: UnreadableValue | None = None
    while match := _START.search(text, position):
        try:
            parsed_value = read_value(text, match.start())
        except UnreadableValue as failure:
            if failure.looks_like_value:
                raise PlanInvalid([_syntax_problem(text, failure)]) from None
            first_failure = first_failure or failure
            position = max(failure.offset, match.end())
            continue
        position = parsed_value.end
        if not parsed_value.value:
            empty_value = empty_value or (match.start(), parsed_value)
        elif isinstance(parsed_value.value, dict) or any(isinstance(item, dict) for item in parsed_value.value):
            has_values = True
            yield match.start(), parsed_value
    if has_values:
        return
    if empty_value is not None:
        yield empty_value
    elif first_failure is not None:
        raise PlanInvalid([_syntax_problem(text, first_failure)])
    else:
        raise PlanInvalid([Problem("empty_plan", "the text has no JSON object and no list of objects")])


def _repairs_of_ignored_text(text: str, values: Sequence[tuple[int, ParsedValue]]) -> Iterator[Repair]:
    """Yield repairs for the ignored text around the value: thinking, fences, prose, duplicates of the value."""
    start, parsed_value = values[0]
    if answer_offset := answer_start(text):
        yield Repair("thinking", "the thoughts of the model before its answer were skipped", 0)
    text_before, text_after = text[answer_offset:start], text[parsed_value.end :]
    fence = _LABELLED_FENCE.search(text_before)
    if fence is not None:
        yield Repair("fenced", "the plan is in a fenced block", answer_offset + fence.start())
        text_before, text_after = text_before[: fence.start()], text_after.replace("```", "").replace("~~~", "")
    if text_before.strip("\ufeff \t\r\n"):
        yield Repair("prose", "text before the plan was skipped", answer_offset)
    if text_after.strip() and len(values) == 1:
        yield Repair("prose", "text after the plan was skipped", parsed_value.end)
    for start, _ in values[1:]:
        yield Repair("repeated", f"the same plan occurs again at line {line_of(text, start)}", start)


def _syntax_problem(text: str, failure: UnreadableValue) -> Problem:
    column = failure.offset - text.rfind("\n", 0, failure.offset)
    location = f"line {line_of(text, failure.offset)}, column {column}"
    return Problem("invalid_syntax", f"the text is ambiguous or invalid JSON: {failure.message} at {location}")
