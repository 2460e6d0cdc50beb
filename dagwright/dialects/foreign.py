"""Functions for the dialects of published plan formats: positional arguments, and references in foreign syntax."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from pydantic import JsonValue

from dagwright.core.errors import PlanInvalid, Problem
from dagwright.core.expressions.reference_parser import KEY_HINT, reference_key_message, walk_keys
from dagwright.core.expressions.references import Reference
from dagwright.core.model.document import Document
from dagwright.core.model.tools import ToolDeclaration
from dagwright.dialects.draft import DocumentDraft
from dagwright.dialects.json_reader import describe

Tools = Mapping[str, ToolDeclaration]
T = TypeVar("T")

BACKSLASH_MESSAGE = "a backslash right before a reference looks like an escape; remove it"


class TextPointers(Mapping[str, str]):
    """The pointers of a text document: every pointer into the plan maps to the empty pointer, because a text has no
    other pointer.
    """

    def __getitem__(self, plan_pointer: str) -> str:
        return ""

    def __contains__(self, plan_pointer: object) -> bool:
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def __bool__(self) -> bool:
        return True


def document_of_text(
    raw: JsonValue,
    dialect: str,
    *,
    parse_lines: Callable[[str], Sequence[T]],
    add_lines: Callable[[DocumentDraft, Sequence[T]], None],
    example: str,
) -> Document:
    """Return the document of a text.

    Args:
        parse_lines: returns the parsed lines of a text that have a call or step.
        add_lines: adds the parsed lines to the draft of the document.
        example: an example of a line with a call or step.

    Raises:
        PlanInvalid: the text has no line with a call or step, or `add_lines` raises the error.
    """
    lines = parse_lines(raw) if isinstance(raw, str) else ()
    if not lines:
        actual = "a text without such a line" if isinstance(raw, str) else describe(raw)
        message = f"a plan in the dialect {dialect} is a text with lines like {example}, not {actual}"
        raise PlanInvalid([Problem("invalid_field", message)])
    draft = DocumentDraft(dialect, "")
    add_lines(draft, lines)
    return replace(draft.document(), pointers=TextPointers())


_LINE = re.compile(r"[^\n]*\n|[^\n]+")


def lines_of(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield the number (from 1), the offset and the text with its line break, for each line."""
    for number, match in enumerate(_LINE.finditer(text), start=1):
        yield number, match.start(), match[0]


def escape_references(text: str) -> str:
    """Escape a text so that no part of it is read as a Dagwright reference."""
    return text.replace("{{", "\\{{")


def translate_references(
    text: str, pattern: re.Pattern[str], resolve: Callable[[re.Match[str]], Reference | None]
) -> str:
    """Translate the references in a text to Dagwright's syntax.

    Args:
        pattern: matches a reference.
        resolve: returns the target of a reference; `None` leaves the match unchanged.

    Raises:
        ValueError: the text cannot be translated; the message has the reason.
    """
    pieces: list[str] = []
    end = 0
    for match in pattern.finditer(text):
        reference = resolve(match)
        if reference is None:
            continue
        text_before = escape_references(text[end : match.start()])
        if text_before.endswith("\\"):
            raise ValueError(BACKSLASH_MESSAGE)
        pieces += [text_before, "{{", str(reference), "}}"]
        end = match.end()
    return "".join([*pieces, escape_references(text[end:])])


def map_texts(
    value: JsonValue, change: Callable[[str, tuple[str | int, ...]], str], *, at: tuple[str | int, ...] = ()
) -> Any:
    """Return a value with every string changed; keys are unchanged.

    Args:
        change: called with a string and its path.
    """
    if isinstance(value, str):
        return change(value, at)
    if isinstance(value, list):
        return [map_texts(item, change, at=(*at, index)) for index, item in enumerate(value)]
    if isinstance(value, dict):
        return {key: map_texts(item, change, at=(*at, key)) for key, item in value.items()}
    return value


def key_problems(value: JsonValue, pattern: re.Pattern[str]) -> Iterator[tuple[str, tuple[str | int, ...], str]]:
    """Yield message, path and hint for each object key with a reference in foreign syntax.

    Args:
        pattern: matches a reference.
    """
    for path, key in walk_keys(value):
        if pattern.search(key) is not None:
            yield reference_key_message(key), path, KEY_HINT


def named_arguments(values: Sequence[Any], tool: str, *, tools: Tools) -> dict[str, Any]:
    """Name positional arguments after the declared parameters of the tool.

    If the tool declares no parameters, a single value is named `query`; several values are named `arg1`, `arg2`, ….

    Raises:
        ValueError: there are more values than the tool has parameters.
    """
    declaration = tools.get(tool)
    schema = (declaration.input_schema if declaration is not None else None) or {}
    properties = schema.get("properties")
    names = list(properties) if isinstance(properties, Mapping) else []
    if not names:
        names = ["query"] if len(values) == 1 else [f"arg{number}" for number in range(1, len(values) + 1)]
    if len(values) > len(names):
        raise ValueError(f"{tool} takes {_arguments_text(names)}, not {len(values)}")
    return dict(zip(names, values, strict=False))


def _arguments_text(names: Sequence[str]) -> str:
    return f"{len(names)} argument{'s' if len(names) > 1 else ''} ({', '.join(names)})"
