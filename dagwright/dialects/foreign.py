"""What the published formats of model-written plans have in common: arguments by position, references of their own."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from pydantic import JsonValue

from dagwright.core.expressions.references import KEY_HINT, Reference, reference_key_message, walk_keys
from dagwright.core.model.document import Document
from dagwright.core.model.errors import PlanInvalid, Problem
from dagwright.core.model.tools import ToolDeclaration
from dagwright.dialects.draft import Draft
from dagwright.dialects.json_reader import describe

Tools = Mapping[str, ToolDeclaration]
T = TypeVar("T")

BACKSLASH = "a backslash right before a reference cannot be told from an escape; leave it out"


class WholeText(Mapping[str, str]):
    """The pointers of a document that is a text: into every place leads the one pointer that a text has, the empty."""

    def __getitem__(self, native: str) -> str:
        return ""

    def __contains__(self, native: object) -> bool:
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
    find: Callable[[str], Sequence[T]],
    take: Callable[[Draft, Sequence[T]], None],
    like: str,
) -> Document:
    """Returns the document of a text.

    Args:
        find: returns what the lines of a text say, such as its calls.
        take: puts it into the draft of the document.
        like: an example of such a line.

    Raises:
        PlanInvalid: there is no such line; or `take` raises it.
    """
    found = find(raw) if isinstance(raw, str) else ()
    if not found:
        got = "a text without such a line" if isinstance(raw, str) else describe(raw)
        message = f"a plan in the dialect {dialect} is a text with lines like {like}, not {got}"
        raise PlanInvalid([Problem("invalid_field", message)])
    draft = Draft(dialect, "")
    take(draft, found)
    return replace(draft.document(), pointers=WholeText())


_LINE = re.compile(r"[^\n]*\n|[^\n]+")


def lines_of(text: str) -> Iterator[tuple[int, int, str]]:
    """Yields the number, from 1, the offset and the text of each line, its line break included."""
    for number, match in enumerate(_LINE.finditer(text), start=1):
        yield number, match.start(), match[0]


def literal(text: str) -> str:
    """Returns how the plan's own dialect writes a text in which nothing is a reference."""
    return text.replace("{{", "\\{{")


def with_references(text: str, pattern: re.Pattern[str], resolve: Callable[[re.Match[str]], Reference | None]) -> str:
    """Returns how the plan's own dialect writes a text with references of another format.

    Args:
        pattern: matches what is a reference.
        resolve: returns what it refers to; `None` leaves it as it is.

    Raises:
        ValueError: with the reason, for a text that cannot be written.
    """
    pieces: list[str] = []
    end = 0
    for match in pattern.finditer(text):
        reference = resolve(match)
        if reference is None:
            continue
        before = literal(text[end : match.start()])
        if before.endswith("\\"):
            raise ValueError(BACKSLASH)
        pieces += [before, "{{", str(reference), "}}"]
        end = match.end()
    return "".join([*pieces, literal(text[end:])])


def with_texts(
    value: JsonValue, change: Callable[[str, tuple[str | int, ...]], str], *, at: tuple[str | int, ...] = ()
) -> Any:
    """Returns a value in which every text is changed; keys stay.

    Args:
        change: is given a text and its path.
    """
    if isinstance(value, str):
        return change(value, at)
    if isinstance(value, list):
        return [with_texts(item, change, at=(*at, index)) for index, item in enumerate(value)]
    if isinstance(value, dict):
        return {key: with_texts(item, change, at=(*at, key)) for key, item in value.items()}
    return value


def key_problems(value: JsonValue, pattern: re.Pattern[str]) -> Iterator[tuple[str, tuple[str | int, ...], str]]:
    """Yield message, path and hint for each key of an object that holds a reference of another format.

    Args:
        pattern: matches what is a reference.
    """
    for path, key in walk_keys(value):
        if pattern.search(key) is not None:
            yield reference_key_message(key), path, KEY_HINT


def by_name(values: Sequence[Any], tool: str, *, tools: Tools) -> dict[str, Any]:
    """Returns arguments that were given by position under the names that the tool declares for them.

    A tool that declares none gets one value as `query`, and several as `arg1`, `arg2`, ….

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
        raise ValueError(f"{tool} takes {_counted(names)}, not {len(values)}")
    return dict(zip(names, values, strict=False))


def _counted(names: Sequence[str]) -> str:
    return f"{len(names)} argument{'s' if len(names) > 1 else ''} ({', '.join(names)})"
