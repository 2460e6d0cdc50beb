"""Parser of references in the texts of a plan: `{{id.result.path}}` and other forms (docs/reference/plan.md).

A text is parsed once into parts, when the plan is accepted.
"""

import difflib
import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from dagwright.core.expressions.paths import parse_path
from dagwright.core.expressions.references import (
    MAX_ID_BYTES,
    NODE_VALUE_FIELDS,
    Field,
    Index,
    Item,
    Placeholder,
    Reference,
    ResultOf,
    Template,
    TemplatePart,
)
from dagwright.core.expressions.stored_values import Path, Secret
from dagwright.core.name_hints import find_nearest_names, suggestion


@dataclass(frozen=True, slots=True)
class BadReference:
    """An invalid reference in double braces.

    Args:
        unknown_node: the name that is not the ID of a node, if that is the problem.
    """

    text: str
    message: str
    hint: str | None = None
    unknown_node: str | None = None


class BadReferences(Exception):
    """A text contains invalid references.

    Args:
        invalid_references: in the order of the text.
        parts: the valid parts of the text.
    """

    def __init__(self, invalid_references: Iterable[BadReference], parts: Template) -> None:
        self.invalid_references = tuple(dict.fromkeys(invalid_references))
        self.parts = parts
        super().__init__(
            "; ".join(f"{reference.text}: {reference.message}" for reference in self.invalid_references[:5])
        )


_MAX_QUOTED_FIELD_CHARACTERS = 60
"""Longest quotation of an unknown field in a message."""
_FIELD = re.compile(r"\.(result|status|error)(?=[.\[\s}]|$)")
_AMBIGUOUS_ENDINGS = ("\\", "{")
"""Endings of the text before a simple reference that make the reference ambiguous: it may be plain text, or its id may
start earlier."""
_SIMPLE_REFERENCE = re.compile(r"\{\{([^{}]+)\.(result|status|error)\}\}")
_ID_WINDOW = MAX_ID_BYTES + 16
"""Maximum number of characters after `{{` for an id, the spaces around it, and its field."""
_PLACEHOLDER = re.compile(r"\s*PLACEHOLDER_(\w+)\s*\}\}")
_SECRET = re.compile(r"\s*secret\.([A-Za-z0-9_]+)\s*\}\}")
_ITEM = re.compile(r"\s*item(?=[.\[\s}])")
_INPUT_LIKE_NAME = re.compile(r"(?:inputs\.)?(?!PLACEHOLDER_|inputs$)([^\W\d]\w*)")
"""Name of an input in the syntax of other template formats, such as `inputs.name`."""
_INDEX = re.compile(r"\s*index\s*\}\}")


def contains_reference(text: str) -> bool:
    """Return whether a text can contain references or escaped braces."""
    return "{{" in text


def parse_template(text: str, ids: Collection[str]) -> Template:
    """Parse a text into parts.

    Args:
        text: as the author wrote it; `\\{{` is an escape for two braces.
        ids: declared node ids, as a set or mapping; the longest matching id is used.

    Raises:
        BadReferences: the text contains invalid references; the exception lists all of them.
    """
    return _parse_simple(text, ids) or _parse_general(text, ids)


def _parse_simple(text: str, ids: Collection[str]) -> Template | None:
    """Parse a text with one or two simple references, the usual case, three times as fast as the general parser.

    Returns:
        `None` for other texts.
    """
    pieces = _SIMPLE_REFERENCE.split(text)
    if len(pieces) == 4:
        prefix, node_id, field, suffix = pieces
        if node_id not in ids or "{{" in prefix or "{{" in suffix or "." in suffix:
            return None
        if prefix.endswith(_AMBIGUOUS_ENDINGS):
            return None
        reference = ResultOf(node_id, field)  # type: ignore[arg-type]  # the pattern names the fields
        if not prefix and not suffix:
            return (reference,)
        return tuple(part for part in (prefix, reference, suffix) if part)
    if len(pieces) != 7:
        return None
    prefix, first_id, first_field, separator, second_id, second_field, suffix = pieces
    if first_id not in ids or second_id not in ids or f"{first_id}.{first_field}}}}}{separator}{{{{{second_id}" in ids:
        return None
    if "{{" in prefix or "{{" in separator or "{{" in suffix or "." in suffix:
        return None
    if prefix.endswith(_AMBIGUOUS_ENDINGS) or separator.endswith(_AMBIGUOUS_ENDINGS):
        return None
    first_reference = ResultOf(first_id, first_field)  # type: ignore[arg-type]  # the pattern names the fields
    second_reference = ResultOf(second_id, second_field)  # type: ignore[arg-type]  # the pattern names the fields
    return tuple(part for part in (prefix, first_reference, separator, second_reference, suffix) if part)


def _parse_general(text: str, ids: Collection[str]) -> Template:
    parts: list[TemplatePart] = []
    invalid_references: list[BadReference] = []
    literal_texts: list[str] = []
    position = 0
    last_close = text.rfind("}}")
    while (opening := text.find("{{", position)) >= 0:
        if opening > position and text[opening - 1] == "\\":
            literal_texts += [text[position : opening - 1], "{{"]
            position = opening + 2
            continue
        reference_and_end = _parse_reference(text, opening + 2, ids=ids, last_close=last_close)
        if reference_and_end is None:
            literal_texts.append(text[position : opening + 1])
            position = opening + 1
            continue
        literal_texts.append(text[position:opening])
        if any(literal_texts):
            parts.append("".join(literal_texts))
        literal_texts = []
        reference, position = reference_and_end
        if isinstance(reference, BadReference):
            invalid_references.append(reference)
        else:
            parts.append(reference)
    literal_texts.append(text[position:])
    if any(literal_texts) or not parts:
        parts.append("".join(literal_texts))
    if invalid_references:
        raise BadReferences(invalid_references, tuple(parts))
    return tuple(parts)


def _parse_reference(
    text: str, start: int, *, ids: Collection[str], last_close: int
) -> tuple[Reference | BadReference, int] | None:
    """Parse the reference after `{{`; return it and the position after it, or `None` if the braces are plain text.

    Args:
        last_close: position of the last `}}` of the text; a search after each `{{` would take quadratic time.
    """
    node_reference = _longest_id(text, start, ids=ids)
    if node_reference is not None:
        node_id, field, path_start = node_reference
        path, end = _parse_rest(text, start, path_start=path_start)
        return path if isinstance(path, BadReference) else ResultOf(node_id, field, path), end
    if match := _PLACEHOLDER.match(text, start):
        return Placeholder(match[1]), match.end()
    if match := _SECRET.match(text, start):
        return Secret(match[1]), match.end()
    if match := _INDEX.match(text, start):
        return Index(), match.end()
    if match := _ITEM.match(text, start):
        path, end = _parse_rest(text, start, path_start=match.end())
        return path if isinstance(path, BadReference) else Item(path), end
    if start > last_close or text.startswith("{", start):
        return None
    end = text.find("}}", start)
    return _unknown_reference(text[start:end], ids=ids), end + 2


def _longest_id(text: str, start: int, *, ids: Collection[str]) -> tuple[str, Field, int] | None:
    longest_match: tuple[str, Field, int] | None = None
    for match in _FIELD.finditer(text, start, start + _ID_WINDOW):
        candidate = text[start : match.start()]
        if candidate not in ids:
            candidate = candidate if candidate.isascii() else unicodedata.normalize("NFC", candidate)
            if candidate not in ids:
                candidate = candidate.strip()
                if candidate not in ids:
                    continue
        longest_match = (candidate, match[1], match.end())  # type: ignore[assignment]  # the pattern names the fields
    return longest_match


def _parse_rest(text: str, start: int, *, path_start: int) -> tuple[Path | BadReference, int]:
    if text.startswith("}}", path_start):
        return (), path_start + 2
    end = _find_close(text, path_start)
    if end is None:
        # Treat the rest of the text as a part of this reference, because more searches would take quadratic time.
        return BadReference("{{" + text[start : start + 60], "it is not closed by }}"), len(text)
    try:
        return parse_path(text[path_start:end].strip()), end + 2
    except ValueError as error:
        return BadReference("{{" + text[start:end] + "}}", str(error)), end + 2


def _find_close(text: str, position: int) -> int | None:
    """Return the position of the `}}` that closes a path; braces in quotes do not close it."""
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


def _unknown_reference(text: str, *, ids: Collection[str]) -> BadReference:
    reference_text = "{{" + text + "}}"
    name = text.strip()
    if (node_and_rest := _node_and_rest(name, ids)) is not None:
        node_id, rest = node_and_rest
        if not rest:
            return BadReference(
                reference_text, f"{node_id!r} is a node and not a value", f"write {{{{{node_id}.result}}}}"
            )
        field = re.split(r"[.\[\s]", rest.lstrip(".["), maxsplit=1)[0][:_MAX_QUOTED_FIELD_CHARACTERS]
        message, hint = unknown_field_problem(node_id, field)
        return BadReference(reference_text, message, hint)
    match = _FIELD.search(text + "}")
    if match is not None:
        node_id = text[: match.start()].strip()
        return BadReference(reference_text, f"there is no node {node_id!r}", unknown_node=node_id)
    hint = _unknown_hint(name)
    node_id, dot, rest = name.partition(".")
    field = re.split(r"[.\[\s]", rest, maxsplit=1)[0]
    if dot and not hint.startswith("did you mean") and find_nearest_names(field, NODE_VALUE_FIELDS, limit=1):
        return BadReference(reference_text, f"there is no node {node_id.strip()!r}", unknown_node=node_id.strip())
    return BadReference(reference_text, "not a reference", hint)


def _node_and_rest(name: str, ids: Collection[str]) -> tuple[str, str] | None:
    """Return the longest node id at the start of a name, and the text after it."""
    normalized_name = name if name.isascii() else unicodedata.normalize("NFC", name)
    ends = [len(normalized_name), *(match.start() for match in re.finditer(r"[.\[]", normalized_name[:_ID_WINDOW]))]
    for end in sorted(ends, reverse=True):
        if normalized_name[:end].strip() in ids:
            return normalized_name[:end].strip(), normalized_name[end:]
    return None


def _unknown_hint(name: str) -> str:
    head, sign, rest = name.partition("_")
    if sign and rest and _is_near(head.upper(), "PLACEHOLDER"):
        return f"did you mean {'{{'}PLACEHOLDER_{rest}{'}}'}?"
    head, sign, rest = name.partition(".")
    if sign and rest and (near_names := difflib.get_close_matches(head.lower(), ("secret", "item"), n=1, cutoff=0.7)):
        return f"did you mean {'{{'}{near_names[0]}.{rest}{'}}'}?"
    text = "write \\{{ where two braces are meant as text"
    if match := _INPUT_LIKE_NAME.fullmatch(name):
        text = f"write {{{{PLACEHOLDER_{match[1]}}}}} for the input {match[1]!r}, or {text[6:]}"
    return text


def item_hint(reference: BadReference) -> str | None:
    """Return the hint for an invalid reference in a node with `for_each`, where `{{item}}` has a meaning."""
    near_names = (
        find_nearest_names(reference.text[2:-2].strip(), ("item", "index"), limit=1)
        if reference.unknown_node is None
        else []
    )
    return f"did you mean {{{{{near_names[0]}}}}}? {reference.hint or ''}".rstrip() if near_names else reference.hint


def _is_near(name: str, known_name: str) -> bool:
    return bool(difflib.get_close_matches(name, (known_name,), n=1, cutoff=0.75))


def unknown_field_problem(node_id: str, field: str) -> tuple[str, str]:
    """Return the message and the hint for a field that no node has."""
    message = f"{node_id!r} has no field {field!r}; a node has {', '.join(NODE_VALUE_FIELDS)}"
    return message, suggestion(field, NODE_VALUE_FIELDS) or f"write {node_id}.result.{field} for a part of its result"


def walk_texts(value: Any, *, base: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield every text inside a JSON value that can contain a reference, with its path, in document order.

    Args:
        base: path of `value`, with which the yielded paths start.
    """
    stack: list[tuple[tuple[str | int, ...], Any]] = [(base, value)]
    while stack:
        path, part = stack.pop()
        if isinstance(part, str):
            if contains_reference(part):
                yield path, part
            continue
        if isinstance(part, dict):
            children: Iterable[tuple[str | int, Any]] = part.items()
        elif isinstance(part, list):
            children = enumerate(part)
        else:
            continue
        candidates = [((*path, key), child) for key, child in children if _may_contain_reference(child)]
        candidates.reverse()
        stack += candidates


def _may_contain_reference(value: Any) -> bool:
    return "{{" in value if isinstance(value, str) else isinstance(value, dict | list)


KEY_HINT = 'references are allowed in values only; write a list of {"name": …, "value": …} objects or use a tool'


def reference_key_message(key: str) -> str:
    """Return the message for an object key with a reference."""
    return f"Invalid reference: the key {key!r:.80} holds a reference, and keys are never resolved"


def references_in_keys(value: Any, ids: Collection[str]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield the path of each object key in a JSON value that contains a reference, and the error message for the key.

    Args:
        ids: declared node ids, as a set or mapping.
    """
    for path, key in walk_keys(value):
        if not contains_reference(key):
            continue
        try:
            is_text = all(isinstance(part, str) for part in parse_template(key, ids))
        except BadReferences:
            is_text = False
        if not is_text:
            yield path, reference_key_message(key)


def walk_keys(value: Any) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield every object key inside a JSON value, with the path that ends with it, in document order."""
    stack: list[tuple[tuple[str | int, ...], Any]] = [((), value)]
    while stack:
        path, part = stack.pop()
        children: list[tuple[str | int, Any]] = []
        if isinstance(part, dict):
            yield from (((*path, key), key) for key in part)
            children = list(part.items())
        elif isinstance(part, list):
            children = list(enumerate(part))
        stack += [((*path, key), child) for key, child in reversed(children) if isinstance(child, dict | list)]
