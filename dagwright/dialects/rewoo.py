"""The dialect `rewoo`: a text with a line `#E1 = Tool[input]` for each step, and a line `Plan: …` before it.

`#E1` in an input is the result of that step. The input is one string, up to the last `]` of the line, and becomes
the first argument of the tool; the line `Plan:` becomes the title.

Source: Xu et al., "ReWOO: Decoupling Reasoning from Observations for Efficient Augmented Language Models" (2023).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic import JsonValue

from dagwright.core.errors import Problem
from dagwright.core.expressions.references import ResultOf
from dagwright.core.model.document import Document
from dagwright.dialects.draft import STAND_IN_ACTION, DocumentDraft
from dagwright.dialects.foreign import (
    Tools,
    document_of_text,
    escape_references,
    lines_of,
    named_arguments,
    translate_references,
)

STEP_START: Final = re.compile(r"#(?P<id>E[0-9]{1,9})[ \t]*=[ \t]*(?P<tool>[A-Za-z_][\w.-]*)[ \t]*\[")
"""Start of a step, within its line."""

_REFERENCE = re.compile(r"#(E[0-9]{1,9})(?!\w)")
_PLAN = re.compile(r"[ \t]*Plan[ \t]*[0-9]*:[ \t]*(.*)")


@dataclass(frozen=True, slots=True)
class RewooStep:
    """A step of the plan, on one line.

    Args:
        tool_input: input of its tool.
        start: offset of its `#`.
        line: number of its line, from 1.
        is_open: whether the closing `]` is missing.
    """

    id: str
    tool: str
    tool_input: str
    title: str | None
    start: int
    line: int
    is_open: bool


def steps_of(text: str) -> list[RewooStep]:
    """Return the steps of a text, in order."""
    return list(_steps_of(text))


def _steps_of(text: str) -> Iterator[RewooStep]:
    title: str | None = None
    for number, offset, line in lines_of(text):
        match = STEP_START.search(line)
        title_match = _PLAN.match(line[: match.start()] if match else line)
        if title_match is not None:
            title = title_match[1].strip() or None
        if match is not None:
            end = line.rfind("]")
            is_open = end < match.end()
            call_text = line[match.end() :].rstrip() if is_open else line[match.end() : end]
            yield RewooStep(match["id"], match["tool"], call_text, title, offset + match.start(), number, is_open)
            title = None


def read_rewoo(raw: JsonValue, *, tools: Tools) -> Document:
    """Return the document of a text with steps.

    Raises:
        PlanInvalid: the text has no steps.
    """

    def add_lines(draft: DocumentDraft, steps: Sequence[RewooStep]) -> None:
        ids = {step.id: None for step in steps}
        draft.nodes = [_node(step, ids=ids, tools=tools, problems=draft.problems) for step in steps]

    return document_of_text(raw, "rewoo", parse_lines=steps_of, add_lines=add_lines, example="#E1 = Tool[input]")


def _node(step: RewooStep, *, ids: Mapping[str, Any], tools: Tools, problems: list[Problem]) -> dict[str, Any]:
    def report(code: str, message: str, hint: str | None = None) -> None:
        problems.append(Problem(code, f"#{step.id} (line {step.line}): {message}", "", step.id, hint))

    def resolve(match: re.Match[str]) -> ResultOf | None:
        if match[1] in ids:
            return ResultOf(match[1], "result")
        report("invalid_reference", f"Invalid reference: there is no step {match[0]}")
        return None

    if step.is_open:
        report(
            "invalid_syntax", f"{step.tool}: its ']' is missing", f"write #{step.id} = {step.tool}[input] in one line"
        )
        return {"id": step.id, **STAND_IN_ACTION}
    try:
        text = translate_references(step.tool_input.strip(), _REFERENCE, resolve)
    except ValueError as error:
        report("invalid_reference", str(error))
        text = escape_references(step.tool_input)
    title = {"title": step.title} if step.title is not None else {}
    return {"id": step.id, **title, "tool": step.tool, "arguments": named_arguments([text], step.tool, tools=tools)}
