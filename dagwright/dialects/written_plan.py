"""Read plans written by language models: repairs are reported, ambiguous plans are rejected, and nothing is guessed.

This module is for responses of models only. Files that people write are parsed strictly (`reading`).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from pydantic import JsonValue

from dagwright.core.errors import PlanInvalid, Problem, pointer
from dagwright.core.model.dialect import TEXT_DIALECTS
from dagwright.core.model.document import Document
from dagwright.core.model.tools import ToolDeclaration
from dagwright.dialects import text_dialect_and_offset, to_document
from dagwright.dialects.draft import STAND_IN_ACTION
from dagwright.dialects.llmcompiler import tasks_of
from dagwright.dialects.rewoo import steps_of
from dagwright.dialects.written_references import convert_ids_to_text, repair_references
from dagwright.dialects.written_text import answer_start, read_written_json
from dagwright.dialects.written_values import TRUNCATED, Repair, limit_repairs, summarize_repairs

MAX_WRITTEN_CHARACTERS: Final = 4_000_000
"""Maximum length of a response. The longest responses of models have about 100,000 tokens."""

_JSON_START = re.compile(r"[{\[]\s*(?:[{\"'\u201c]|[A-Za-z_]\w*\s*:)")
_SEPARATORS = re.compile(r"[\s._\-/]+")
_NEAR_SCORE: Final = 80.0
"""Minimum similarity, from 0 to 100, of a tool name that may replace an unknown name."""

_CLEAR_MARGIN: Final = 8.0
"""Minimum difference between the similarities of the best and the second-best name."""

_CANDIDATE_SCORE: Final = 60.0
"""Minimum similarity of a tool name that a problem suggests."""
_MAX_COMPARED_NAMES: Final = 500
"""Maximum number of unknown tool names of one plan that are compared with known names."""


def read_written_plan(
    text: str,
    *,
    dialect: str | None = None,
    context: Mapping[str, JsonValue] | None = None,
    tools: Mapping[str, ToolDeclaration] | None = None,
) -> tuple[Document, Sequence[Repair]]:
    """Return the document in a model's response, and the repairs that were needed to read it.

    The repairs are also in the notes of the document. The document is not validated yet: its problems are
    ambiguities, and errors that the dialect itself found.

    Args:
        text: the whole response, with prose and fences, in any dialect.
        dialect: name of the dialect; `None` detects it from the shape.
        context: as in `to_document`.
        tools: name -> declaration; an unknown name that is very similar to a known name is replaced with that name.

    Raises:
        PlanInvalid: the response has no document, or more than one (`ambiguous`).

    Complexity: linear in the length of the text.
    """
    if len(text) > MAX_WRITTEN_CHARACTERS:
        message = f"the text has {len(text):,} characters; at most {MAX_WRITTEN_CHARACTERS:,} are read"
        raise PlanInvalid([Problem("too_large", message)])
    raw, repairs = _value_of(text, dialect)
    raw, id_repairs = convert_ids_to_text(raw)
    document = to_document(raw, dialect=dialect, context=context, tools=tools)
    document, reference_repairs = repair_references(document)
    document, tool_repairs = repair_tool_names(document, tools or {})
    bounded_repairs = limit_repairs([*repairs, *id_repairs, *reference_repairs, *tool_repairs])
    return replace(
        document, notes=[*document.notes, *(repair.to_note() for repair in summarize_repairs(bounded_repairs))]
    ), bounded_repairs


def _value_of(text: str, dialect: str | None) -> tuple[JsonValue, Sequence[Repair]]:
    """Return the JSON value in a response and the repairs; a plan in a text dialect is returned as text."""
    start_of_answer = answer_start(text)
    answer = text[start_of_answer:]
    name_and_offset = text_dialect_and_offset(answer)
    json_start = _JSON_START.search(answer)
    is_text_plan = name_and_offset is not None and (json_start is None or name_and_offset[1] < json_start.start())
    if dialect in TEXT_DIALECTS or (dialect is None and is_text_plan):
        thinking_repairs = (
            [Repair("thinking", "the thoughts of the model before its answer were skipped", 0)]
            if start_of_answer
            else []
        )
        text_plan, repairs = _omit_truncated_step(answer, offset=start_of_answer)
        return text_plan, [*thinking_repairs, *repairs]
    written_json = read_written_json(text)
    return written_json.value, written_json.repairs


def _omit_truncated_step(text: str, *, offset: int) -> tuple[str, Sequence[Repair]]:
    """Return a text plan without its last step if that step was truncated, and the repair."""
    tasks, steps = tasks_of(text), steps_of(text)
    starts = [task.start for task in tasks[-1:] if task.is_open and len(tasks) > 1]
    starts += [step.start for step in steps[-1:] if step.is_open and len(steps) > 1]
    if not starts:
        return text, ()
    count = max(len(tasks), len(steps)) - 1
    message = f"the text ends early; complete steps: {count}; step {count + 1} is incomplete and was omitted"
    return text[: starts[0]], [Repair(TRUNCATED, message, offset + len(text))]


def repair_tool_names(document: Document, tools: Mapping[str, ToolDeclaration]) -> tuple[Document, list[Repair]]:
    """Replace tool names with very similar known names; return the document and the repairs.

    A name similar to several tools becomes a problem that lists them.
    """
    nodes = document.plan.get("nodes")
    if not isinstance(nodes, list) or not tools:
        return document, []
    repaired_nodes: list[Any] = []
    repairs: list[Repair] = []
    problems: list[Problem] = []
    candidates_of_name: dict[str, list[str]] = {}
    normalized_names = {tool: _normalize(tool) for tool in tools}
    for index, node in enumerate(nodes):
        name = node.get("tool") if isinstance(node, dict) else None
        if (
            not isinstance(name, str)
            or name in tools
            or (len(candidates_of_name) >= _MAX_COMPARED_NAMES and name not in candidates_of_name)
        ):
            repaired_nodes.append(node)
            continue
        node_id = node.get("id") if isinstance(node.get("id"), str) else None
        at = document.written_pointer(pointer("nodes", index, "tool"))
        if name not in candidates_of_name:
            candidates_of_name[name] = _near_names(name, normalized_names)
        tool_candidates = candidates_of_name[name]
        if len(tool_candidates) == 1:
            repairs.append(Repair("tool", f"the tool {name!r} was read as {tool_candidates[0]!r}", None, at, node_id))
            repaired_nodes.append({**node, "tool": tool_candidates[0]})
        elif tool_candidates:
            candidates_text = ", ".join(map(repr, tool_candidates))
            message = f"there is no tool {name!r}, and it is unclear which one is meant: {candidates_text}"
            problems.append(Problem("unknown_tool", message, at, node_id, "write the name of one of them"))
            repaired_nodes.append({**{key: value for key, value in node.items() if key != "tool"}, **STAND_IN_ACTION})
        else:
            repaired_nodes.append(node)
    if not repairs and not problems:
        return document, []
    plan = {**document.plan, "nodes": repaired_nodes}
    return replace(document, plan=plan, problems=[*document.problems, *problems]), repairs


def _near_names(name: str, normalized_names: Mapping[str, str]) -> list[str]:
    """Return the tool that a name clearly means; several if the name is ambiguous; empty if no tool is similar.

    Args:
        normalized_names: name of a tool -> the name in lower case without punctuation.
    """
    normalized_name = _normalize(name)
    equal_names = [tool for tool, normalized_tool in normalized_names.items() if normalized_tool == normalized_name]
    if equal_names:
        return equal_names
    scores = (
        (_similarity(normalized_name, normalized_tool), tool) for tool, normalized_tool in normalized_names.items()
    )
    best_matches = sorted(
        ((score, tool) for score, tool in scores if score >= _CANDIDATE_SCORE), key=lambda match: -match[0]
    )[:4]
    if not best_matches or best_matches[0][0] < _NEAR_SCORE:
        return [tool for _, tool in best_matches] if len(best_matches) > 1 else []
    is_clear = len(best_matches) == 1 or best_matches[0][0] - best_matches[1][0] >= _CLEAR_MARGIN
    return (
        [best_matches[0][1]]
        if is_clear
        else [tool for score, tool in best_matches if best_matches[0][0] - score < _CLEAR_MARGIN]
    )


def _similarity(left: str, right: str) -> float:
    """Return the similarity of two names, from 0 to 100: 200 times the length of their longest common
    subsequence, divided by the sum of their lengths.

    Returns 0 if their lengths alone exclude a match.

    Source: Hyyrö, "Bit-parallel LCS-length computation revisited" (2004).
    """
    total = len(left) + len(right)
    if 200 * min(len(left), len(right)) < _CANDIDATE_SCORE * total:
        return 0.0
    positions: dict[str, int] = {}
    for index, character in enumerate(left):
        positions[character] = positions.get(character, 0) | 1 << index
    row = mask = (1 << len(left)) - 1
    for character in right:
        matched_bits = row & positions.get(character, 0)
        row = (row + matched_bits | row - matched_bits) & mask
    return 200.0 * (len(left) - row.bit_count()) / total if total else 100.0


def _normalize(name: str) -> str:
    return _SEPARATORS.sub("", name).casefold()
