"""References in the texts of a plan: `{{id.result.path}}` and its kin (contract.md section 2).

A text is parsed once, when the plan is accepted, into parts. What came out of a result is never parsed.
"""

import difflib
import hashlib
import json
import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from dagwright.plan.model import MAX_ID_BYTES
from dagwright.plan.paths import format_path, parse_path
from dagwright.plan.stored import Path

Field = Literal["result", "status", "error", "identity"]
"""`identity` is what `@result_N` stands for: the result's `id` if it is an object that has one, else the result."""


@dataclass(frozen=True, slots=True)
class ResultOf:
    """A value that another node makes: `{{node.result.path}}`."""

    node: str
    field: Field
    path: Path = ()

    def __str__(self) -> str:
        return f"{self.node}.{self.field}{format_path(self.path)}" if self.field != "identity" else self.node


@dataclass(frozen=True, slots=True)
class Placeholder:
    """A value that a person gives before the run: `{{PLACEHOLDER_name}}`."""

    name: str

    def __str__(self) -> str:
        return f"PLACEHOLDER_{self.name}"


@dataclass(frozen=True, slots=True)
class Item:
    """The item of the `for_each` that the text stands in: `{{item.path}}`."""

    path: Path = ()

    def __str__(self) -> str:
        return f"item{format_path(self.path)}"


@dataclass(frozen=True, slots=True)
class Index:
    """The position of the item, from 0: `{{index}}`."""

    def __str__(self) -> str:
        return "index"


@dataclass(frozen=True, slots=True)
class Secret:
    """A secret that is put in inside the activity only: `{{secret.NAME}}`."""

    name: str

    def __str__(self) -> str:
        return f"secret.{self.name}"


@dataclass(frozen=True, slots=True)
class Lookup:
    """The id of a party that is looked up before anything runs.

    In a plan it stands as an input that nobody is asked for, under a name that no plan can write.

    Args:
        search_text: of a party that is known the id.
        entity_type: of a party that is known the kinds that are taken, such as `company or fund`.
        jurisdiction: ISO 3166 code of the parties that are meant; `None` if any can be.
        known_as: how the plan names a party that is looked at and not searched for: `@cbu` if the session has it,
            `BY_ID` if its id is written out.
        called: name of a party that is known, for people; empty if only its id is.
    """

    search_text: str
    entity_type: str
    jurisdiction: str | None = None
    known_as: str | None = None
    called: str = field(default="", compare=False)

    @property
    def input(self) -> str:
        """Name of the input; the same for the same lookup."""
        told = [self.search_text, self.entity_type, self.jurisdiction, self.known_as]
        return LOOKUP_INPUT + hashlib.sha256(json.dumps(told, ensure_ascii=True).encode()).hexdigest()[:20]


BY_ID = "id"
LOOKUP_INPUT = "~lookup:"
"""Begins the names of the inputs that are looked up."""
Reference = ResultOf | Placeholder | Item | Index | Secret
Part = str | Reference
Template = tuple[Part, ...]
"""A text in parts. One part that is a reference keeps the type of its value; otherwise the parts make one text."""


@dataclass(frozen=True, slots=True)
class BadReference:
    """Something in double braces is no reference; `unknown` is the name in it that no node has, if that is why."""

    text: str
    message: str
    hint: str | None = None
    unknown: str | None = None


class BadReferences(Exception):
    """A text holds what is no reference.

    Args:
        found: each of them, in the order of the text.
        parts: the other parts of the text.
    """

    def __init__(self, found: Iterable[BadReference], parts: Template) -> None:
        self.found = tuple(dict.fromkeys(found))
        self.parts = parts
        super().__init__("; ".join(f"{bad.text}: {bad.message}" for bad in self.found[:5]))


_FIELD = re.compile(r"\.(result|status|error)(?=[.\[\s}]|$)")
_NOT_BEFORE = ("\\", "{")
"""With one of these before it, a usual reference may be text, or its id may begin earlier."""
_USUAL = re.compile(r"\{\{([^{}]+)\.(result|status|error)\}\}")
_ID_WINDOW = MAX_ID_BYTES + 16
"""Characters after `{{` in which an id, spaces around it and its field must stand."""
_PLACEHOLDER = re.compile(r"\s*PLACEHOLDER_(\w+)\s*\}\}")
_SECRET = re.compile(r"\s*secret\.([A-Za-z0-9_]+)\s*\}\}")
_ITEM = re.compile(r"\s*item(?=[.\[\s}])")
_AS_INPUT = re.compile(r"(?:inputs\.)?(?!PLACEHOLDER_|inputs$)([^\W\d]\w*)")
"""What looks like an input, as other formats write it."""
_INDEX = re.compile(r"\s*index\s*\}\}")


def holds_reference(text: str) -> bool:
    """Tells whether a text can hold anything but itself."""
    return "{{" in text


def parse_template(text: str, ids: Collection[str]) -> Template:
    """Returns the parts of a text.

    Args:
        text: as the author wrote it; `\\{{` stands for two braces.
        ids: declared node ids; the longest one that fits is taken. Needs a fast `in`.

    Raises:
        BadReferences: something in double braces is no reference; all such things are told.
    """
    return _parse_usual(text, ids) or _parse_any(text, ids)


def _parse_usual(text: str, ids: Collection[str]) -> Template | None:
    """Returns the parts of a text with one or two plain references, as nearly all are, at a third of the cost."""
    pieces = _USUAL.split(text)
    if len(pieces) == 4:
        before, first, field, rest = pieces
        if first not in ids or "{{" in before or "{{" in rest or "." in rest or before.endswith(_NOT_BEFORE):
            return None
        reference = ResultOf(first, field)  # type: ignore[arg-type]  # the pattern names the fields
        if not before and not rest:
            return (reference,)
        return tuple(part for part in (before, reference, rest) if part)
    if len(pieces) != 7:
        return None
    before, first, field, between, second, field_of_second, rest = pieces
    if first not in ids or second not in ids or f"{first}.{field}}}}}{between}{{{{{second}" in ids:
        return None
    if "{{" in before or "{{" in between or "{{" in rest or "." in rest:
        return None
    if before.endswith(_NOT_BEFORE) or between.endswith(_NOT_BEFORE):
        return None
    one = ResultOf(first, field)  # type: ignore[arg-type]  # the pattern names the fields
    two = ResultOf(second, field_of_second)  # type: ignore[arg-type]  # the pattern names the fields
    return tuple(part for part in (before, one, between, two, rest) if part)


def _parse_any(text: str, ids: Collection[str]) -> Template:
    parts: list[Part] = []
    bad: list[BadReference] = []
    literal: list[str] = []
    position = 0
    while (opening := text.find("{{", position)) >= 0:
        if opening > position and text[opening - 1] == "\\":
            literal += [text[position : opening - 1], "{{"]
            position = opening + 2
            continue
        parsed = _parse_reference(text, opening + 2, ids=ids)
        if parsed is None:
            literal.append(text[position : opening + 1])
            position = opening + 1
            continue
        literal.append(text[position:opening])
        if any(literal):
            parts.append("".join(literal))
        literal = []
        reference, position = parsed
        if isinstance(reference, BadReference):
            bad.append(reference)
        else:
            parts.append(reference)
    literal.append(text[position:])
    if any(literal) or not parts:
        parts.append("".join(literal))
    if bad:
        raise BadReferences(bad, tuple(parts))
    return tuple(parts)


def _parse_reference(text: str, start: int, *, ids: Collection[str]) -> tuple[Reference | BadReference, int] | None:
    """Returns the reference that starts after `{{` and the position after it; `None` if the braces are only text."""
    found = _longest_id(text, start, ids=ids)
    if found is not None:
        node, field, path_start = found
        path, end = _parse_rest(text, start, path_start=path_start)
        return path if isinstance(path, BadReference) else ResultOf(node, field, path), end
    if match := _PLACEHOLDER.match(text, start):
        return Placeholder(match[1]), match.end()
    if match := _SECRET.match(text, start):
        return Secret(match[1]), match.end()
    if match := _INDEX.match(text, start):
        return Index(), match.end()
    if match := _ITEM.match(text, start):
        path, end = _parse_rest(text, start, path_start=match.end())
        return path if isinstance(path, BadReference) else Item(path), end
    close = text.find("}}", start)
    if close < 0 or text.startswith("{", start):
        return None
    return _unknown_reference(text[start:close], ids=ids), close + 2


def _longest_id(text: str, start: int, *, ids: Collection[str]) -> tuple[str, Field, int] | None:
    best: tuple[str, Field, int] | None = None
    for match in _FIELD.finditer(text, start, start + _ID_WINDOW):
        written = text[start : match.start()]
        if written not in ids:
            written = written if written.isascii() else unicodedata.normalize("NFC", written)
            if written not in ids:
                written = written.strip()
                if written not in ids:
                    continue
        best = (written, match[1], match.end())  # type: ignore[assignment]  # the pattern names the fields
    return best


def _parse_rest(text: str, start: int, *, path_start: int) -> tuple[Path | BadReference, int]:
    if text.startswith("}}", path_start):
        return (), path_start + 2
    end = _find_close(text, path_start)
    if end is None:
        # Whatever follows belongs to it: looking further would take quadratic time.
        return BadReference("{{" + text[start : start + 60], "it is not closed by }}"), len(text)
    try:
        return parse_path(text[path_start:end].strip()), end + 2
    except ValueError as error:
        return BadReference("{{" + text[start:end] + "}}", str(error)), end + 2


def _find_close(text: str, position: int) -> int | None:
    """Returns where the `}}` stands that ends a path; braces in quotes inside of brackets do not end it."""
    quote = ""
    while position < len(text):
        character = text[position]
        if quote:
            if character == "\\":
                position += 1
            elif character == quote:
                quote = ""
        elif character in "\"'":
            quote = character
        elif text.startswith("}}", position):
            return position
        position += 1
    return None


def _unknown_reference(inner: str, *, ids: Collection[str]) -> BadReference:
    written = "{{" + inner + "}}"
    match = _FIELD.search(inner + "}")
    if match is None:
        name = inner.strip()
        if name.split(".")[0].split("[")[0] in ids or name in ids:
            return BadReference(written, "after the node's id comes .result, .status or .error")
        text = "write \\{{ where two braces are meant as text"
        if as_input := _AS_INPUT.fullmatch(name):
            text = f"write {{{{PLACEHOLDER_{as_input[1]}}}}} for the input {as_input[1]!r}, or {text[6:]}"
        return BadReference(written, "it is no reference", text)
    name = inner[: match.start()].strip()
    return BadReference(written, f"there is no node {name!r}", unknown=name)


def suggestion(name: str, known: Collection[str]) -> str | None:
    """Returns `did you mean 'x'?` for the nearest known name, or nothing if none is near.

    Complexity: linear in the names, about 10 µs for each; whoever asks often needs a budget.
    """
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"did you mean {near[0]!r}?" if near else None


def references_in(templates: Iterable[Template]) -> Iterator[Reference]:
    """Yields the references of templates, in order."""
    return (part for template in templates for part in template if not isinstance(part, str))


def walk_texts(value: Any, *, at: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yields every text inside a JSON value that can hold a reference, with its path, in document order."""
    stack: list[tuple[tuple[str | int, ...], Any]] = [(at, value)]
    while stack:
        path, current = stack.pop()
        if isinstance(current, str):
            if holds_reference(current):
                yield path, current
            continue
        if isinstance(current, dict):
            children: Iterable[tuple[str | int, Any]] = current.items()
        elif isinstance(current, list):
            children = enumerate(current)
        else:
            continue
        held = [((*path, key), child) for key, child in children if _can_hold_reference(child)]
        held.reverse()
        stack += held


def _can_hold_reference(value: Any) -> bool:
    return "{{" in value if isinstance(value, str) else isinstance(value, dict | list)
