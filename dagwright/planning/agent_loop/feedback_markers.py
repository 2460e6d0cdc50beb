"""Detect requests to people in the answer of an agent (`AgentSpec.feedback_policy`).

An agent can ask with a tool (`planning.agent_loop.tool_calls`) or in its answer. An answer is a request if it contains
the marker `[[FEEDBACK type: prompt]]`, with `| option` after the prompt for a SELECTION and `| {JSON Schema}` for an
INFORMATION. With the policy `heuristic`, an answer that consists of a question is a request too.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dagwright.features.feedback.questions import BadQuestion, validate_question_fields
from dagwright.planning.agent_loop.spec import AgentSpec

_MARKER_START = re.compile(r"\[\[\s*FEEDBACK\b\s*([A-Za-z]*)\s*:")
_BOUNDED_MARKER_START = re.compile(r"\[\[\s{0,9}FEEDBACK\b[^\[\]:]{0,40}:")
"""Start of a marker of limited length, so that the search takes linear time for answers of any length."""
_MARKER_END = re.compile(r"\s*\]\]")
_SCHEMA_START = re.compile(r"\|\s*(?=\{)")
_MAX_MARKER_CHARACTERS = 2_000
"""Maximum length of a marker, so that the search takes linear time for answers of any length."""
_MAX_QUESTION_CHARACTERS = 500
"""Maximum length of an answer that counts as a question. Longer answers contain more than a question."""
_MARKER_SYNTAX = "write [[FEEDBACK INFORMATION: question | {JSON Schema}]]"


@dataclass(frozen=True, slots=True)
class ParsedAnswer:
    """Answer of a model, parsed for requests to people.

    Args:
        text: the answer without markers.
        request: the request to a person, with the fields of a `human` node; `None` if there is no request.
        problem: error message for the model if a marker is invalid; empty otherwise.
    """

    text: str
    request: Mapping[str, Any] | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class _Marker:
    """Position and content of a marker in a text.

    Args:
        schema: the parsed schema; `None` if it is missing or invalid JSON.
    """

    start: int
    end: int
    type: str
    content: str
    schema: Any = None


def find_marker(text: str) -> str | None:
    """Return the first marker of an answer as written; `None` without a marker. Takes linear time for any length."""
    for start_match in _BOUNDED_MARKER_START.finditer(text):
        part = text[start_match.start() : start_match.start() + _MAX_MARKER_CHARACTERS]
        if (marker := _marker_at(part, 0)) is not None:
            return part[: marker.end]
    return None


def parse_answer(text: str, spec: AgentSpec) -> ParsedAnswer:
    """Parse the answer of an agent; if it contains several requests, the first one counts."""
    if not spec.can_send_requests or spec.output is not None:
        return ParsedAnswer(text)
    if markers := [*_markers(text)]:
        text_without_markers, end = "", 0
        for marker in markers:
            text_without_markers, end = text_without_markers + text[end : marker.start], marker.end
        return _parse_marker(markers[0], (text_without_markers + text[end:]).strip(), spec)
    if spec.feedback_policy == "heuristic" and _is_question(text):
        return ParsedAnswer(text, {"type": "CLARIFICATION", "prompt": text.strip()})
    return ParsedAnswer(text)


def _markers(text: str) -> Iterator[_Marker]:
    position = 0
    while (start_match := _MARKER_START.search(text, position)) is not None:
        marker = _marker_at(text, start_match.start())
        if marker is None:
            return
        yield marker
        position = marker.end


def _marker_at(text: str, start: int) -> _Marker | None:
    """Return the marker that starts at an index; `None` if it has no end. The JSON of a schema may contain `]]`."""
    start_match = _MARKER_START.match(text, start)
    if start_match is None:
        return None
    kind, end = start_match[1].upper(), text.find("]]", start_match.end())
    schema = _SCHEMA_START.search(text, start_match.end()) if kind == "INFORMATION" else None
    if schema is not None and (end < 0 or schema.start() < end):
        try:
            value, stop = json.JSONDecoder().raw_decode(text, schema.end())
        except (ValueError, RecursionError):
            value, stop = None, schema.end()
        if value is not None and (end_match := _MARKER_END.match(text, stop)) is not None:
            return _Marker(start, end_match.end(), kind, text[start_match.end() : schema.start()], value)
    return None if end < 0 else _Marker(start, end + 2, kind, text[start_match.end() : end])


def _parse_marker(marker: _Marker, text: str, spec: AgentSpec) -> ParsedAnswer:
    """Return the request of a marker, or the problem for the model if the request is invalid."""
    if marker.type != "INFORMATION" or marker.type not in spec.request_types:
        return ParsedAnswer(text, _request_of(marker, spec))
    if marker.schema is None and _SCHEMA_START.search(marker.content) is not None:
        return ParsedAnswer(
            text, problem=f"the schema of an INFORMATION request is not a JSON object; {_MARKER_SYNTAX}"
        )
    request: dict[str, Any] = {"type": marker.type, "prompt": marker.content.strip() or "The agent asks for help"}
    if marker.schema is not None:
        request["schema"] = marker.schema
    try:
        return ParsedAnswer(text, validate_question_fields(request))
    except BadQuestion as error:
        return ParsedAnswer(text, problem=f"{error}; {_MARKER_SYNTAX}")


def _request_of(marker: _Marker, spec: AgentSpec) -> Mapping[str, Any]:
    prompt, *options = (part.strip() for part in marker.content.split("|"))
    options = list(dict.fromkeys(filter(None, options)))
    if marker.type == "SELECTION" and options:
        return {"type": marker.type, "prompt": prompt, "options": options}
    is_allowed_type = marker.type in spec.request_types and marker.type not in ("SELECTION", "INFORMATION")
    return {
        "type": marker.type if is_allowed_type else "CLARIFICATION",
        "prompt": marker.content.strip() or "The agent asks for help",
    }


def _is_question(text: str) -> bool:
    stripped_text = text.strip()
    is_single_question = (
        stripped_text.endswith("?") and "\n\n" not in stripped_text and len(stripped_text) <= _MAX_QUESTION_CHARACTERS
    )
    # A preceding sentence may be the actual answer.
    return is_single_question and re.search(r"[.!:]\s", stripped_text) is None
