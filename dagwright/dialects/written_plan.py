"""Plans as language models write them: what is repaired is told, what is ambiguous is refused, nothing is guessed.

For answers of models only. What people write in files is read strictly, by `reading`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from pydantic import JsonValue

from dagwright.core.model.document import Document
from dagwright.core.model.errors import PlanInvalid, Problem, pointer
from dagwright.core.model.tools import ToolDeclaration
from dagwright.dialects import TEXT_DIALECTS, text_dialect, to_document
from dagwright.dialects.draft import STAND_IN
from dagwright.dialects.llmcompiler import tasks_of
from dagwright.dialects.rewoo import steps_of
from dagwright.dialects.written_references import repair_references, with_text_ids
from dagwright.dialects.written_text import read_written_json, without_thinking
from dagwright.dialects.written_values import CUT_OFF, Repair, bounded, folded

MAX_WRITTEN_CHARACTERS: Final = 4_000_000
"""A model's longest answers have some 100,000 tokens; more was not written by one."""

_JSON_START = re.compile(r"[{\[]\s*(?:[{\"'\u201c]|[A-Za-z_]\w*\s*:)")
_SIGNS = re.compile(r"[\s._\-/]+")
_NEAR: Final = 80.0
"""How alike two names must be, of 100, so that one may stand for the other: one or two letters of a word."""

_CLEAR: Final = 8.0
"""How much more alike the nearest name must be than the next one."""

_CANDIDATE: Final = 60.0
_MOST_NAMES: Final = 500
"""Wrong names of tools in one plan that are compared with the right ones; what has more has nothing to do with them."""


def read_written_plan(
    text: str,
    *,
    dialect: str | None = None,
    context: Mapping[str, JsonValue] | None = None,
    tools: Mapping[str, ToolDeclaration] | None = None,
) -> tuple[Document, Sequence[Repair]]:
    """Returns the document that a model's answer holds, and what was repaired to read it.

    The repairs are among the notes of the document too. It is not checked yet: its problems are those of its dialect,
    and what is ambiguous in it.

    Args:
        text: the whole answer, with prose and fences, in any dialect.
        dialect: its name; `None` tells it from the shape.
        context: as in `to_document`.
        tools: name -> declaration; a name that is nearly one of these is read as that.

    Raises:
        PlanInvalid: there is nothing in it that could be checked, or more than one such thing (`ambiguous`).

    Complexity: linear in the length of the text.
    """
    if len(text) > MAX_WRITTEN_CHARACTERS:
        message = f"the text has {len(text):,} characters; at most {MAX_WRITTEN_CHARACTERS:,} are read"
        raise PlanInvalid([Problem("too_large", message)])
    raw, repairs = _value_of(text, dialect)
    raw, id_repairs = with_text_ids(raw)
    document = to_document(raw, dialect=dialect, context=context, tools=tools)
    document, reference_repairs = repair_references(document)
    document, tool_repairs = repair_tool_names(document, tools or {})
    told = bounded([*repairs, *id_repairs, *reference_repairs, *tool_repairs])
    return replace(document, notes=[*document.notes, *(repair.to_note() for repair in folded(told))]), told


def is_cut_off(repairs: Sequence[Repair]) -> bool:
    """Tells whether a part of the plan is missing because the text ended before it."""
    return any(repair.code == CUT_OFF for repair in repairs)


def _value_of(text: str, dialect: str | None) -> tuple[JsonValue, Sequence[Repair]]:
    """Returns the JSON value of a document: the text itself, if it is in one of the text dialects."""
    begin = without_thinking(text)
    answer = text[begin:]
    found = text_dialect(answer)
    start = _JSON_START.search(answer)
    is_text = found is not None and (start is None or found[1] < start.start())
    if dialect in TEXT_DIALECTS or (dialect is None and is_text):
        thinking = [Repair("thinking", "what the model thought before its answer was skipped", 0)] if begin else []
        kept, repairs = _whole_steps(answer, offset=begin)
        return kept, [*thinking, *repairs]
    written = read_written_json(text)
    return written.value, written.repairs


def _whole_steps(text: str, *, offset: int) -> tuple[str, Sequence[Repair]]:
    """Returns a text plan without a last step that is not whole because the text ends in it."""
    tasks, steps = tasks_of(text), steps_of(text)
    starts = [task.start for task in tasks[-1:] if task.is_open and len(tasks) > 1]
    starts += [step.start for step in steps[-1:] if step.is_open and len(steps) > 1]
    if not starts:
        return text, ()
    count = max(len(tasks), len(steps)) - 1
    message = f"the text ends early; of its steps {count} are whole, number {count + 1} is incomplete and was left out"
    return text[: starts[0]], [Repair(CUT_OFF, message, offset + len(text))]


def repair_tool_names(document: Document, tools: Mapping[str, ToolDeclaration]) -> tuple[Document, list[Repair]]:
    """Returns a document in which names that are nearly those of tools are those, with what was repaired.

    A name that is near to several tools becomes a problem with all of them.
    """
    nodes = document.plan.get("nodes")
    if not isinstance(nodes, list) or not tools:
        return document, []
    made: list[Any] = []
    repairs: list[Repair] = []
    problems: list[Problem] = []
    known: dict[str, list[str]] = {}
    plain = {tool: _plain(tool) for tool in tools}
    for index, node in enumerate(nodes):
        name = node.get("tool") if isinstance(node, dict) else None
        if not isinstance(name, str) or name in tools or (len(known) >= _MOST_NAMES and name not in known):
            made.append(node)
            continue
        node_id = node.get("id") if isinstance(node.get("id"), str) else None
        at = document.written_pointer(pointer("nodes", index, "tool"))
        if name not in known:
            known[name] = _near_names(name, plain)
        near = known[name]
        if len(near) == 1:
            repairs.append(Repair("tool", f"the tool {name!r} was read as {near[0]!r}", None, at, node_id))
            made.append({**node, "tool": near[0]})
        elif near:
            candidates = ", ".join(map(repr, near))
            message = f"there is no tool {name!r}, and it is unclear which one is meant: {candidates}"
            problems.append(Problem("unknown_tool", message, at, node_id, "write the name of one of them"))
            made.append({**{key: value for key, value in node.items() if key != "tool"}, **STAND_IN})
        else:
            made.append(node)
    if not repairs and not problems:
        return document, []
    plan = {**document.plan, "nodes": made}
    return replace(document, plan=plan, problems=[*document.problems, *problems]), repairs


def _near_names(name: str, tools: Mapping[str, str]) -> list[str]:
    """Returns the one tool that a name surely stands for; several if it is unclear which; none if none is near.

    Args:
        tools: name -> the same without signs and capitals.
    """
    plain = _plain(name)
    same = [tool for tool, other in tools.items() if other == plain]
    if same:
        return same
    scored = ((_similarity(plain, other), tool) for tool, other in tools.items())
    near = sorted(((score, tool) for score, tool in scored if score >= _CANDIDATE), key=lambda each: -each[0])[:4]
    if not near or near[0][0] < _NEAR:
        return [tool for _, tool in near] if len(near) > 1 else []
    is_clear = len(near) == 1 or near[0][0] - near[1][0] >= _CLEAR
    return [near[0][1]] if is_clear else [tool for score, tool in near if near[0][0] - score < _CLEAR]


def _similarity(left: str, right: str) -> float:
    """Return how similar two names are, from 0 to 100: twice their longest common subsequence over all characters.

    Returns 0 without comparing them if their lengths alone make them no candidates.

    Source: Hyyrö, "Bit-parallel LCS-length computation revisited" (2004).
    """
    total = len(left) + len(right)
    if 200 * min(len(left), len(right)) < _CANDIDATE * total:
        return 0.0
    places: dict[str, int] = {}
    for index, character in enumerate(left):
        places[character] = places.get(character, 0) | 1 << index
    row = mask = (1 << len(left)) - 1
    for character in right:
        matched = row & places.get(character, 0)
        row = (row + matched | row - matched) & mask
    return 200.0 * (len(left) - row.bit_count()) / total if total else 100.0


def _plain(name: str) -> str:
    return _SIGNS.sub("", name).casefold()
