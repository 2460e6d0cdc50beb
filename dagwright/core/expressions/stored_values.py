"""Stored values: values in the payload store. A run has only references to them.

A result over 8 KiB never reaches the workflow. The workflow receives its reference, and the small projections that the
plan names. All other reads of the value happen in the worker that needs it, or in the client that shows the run. So a
JSON value of a run may contain, at any place, a `StoredValue`, or a `DeferredText` made of stored values.

`StoredValue` and `DeferredText` are plain classes, not dataclasses: pydantic would silently encode a dataclass as
JSON, and both must never be mistaken for plain JSON.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

MAX_SMALL_VALUE_BYTES = 8 * 1024
"""Maximum JSON size of a result, or of a part that the plan names; larger values stay in the store."""
MAX_DECISION_PARTS_BYTES = 192 * 1024
"""Maximum JSON size of all parts of one result that the run needs for decisions."""
MAX_VALUE_PARTS_BYTES = 32 * 1024
"""Maximum JSON size of all parts of one result that are not for decisions; a plan may name a thousand parts."""
MAX_FOREIGN_RESULT_BYTES = 2 * 1024 * 1024
"""Largest result of an activity of another program. No Dagwright worker can store it, so the limit of the server
applies."""
MAX_COMBINED_RESULTS_BYTES = 256 * 1024
"""Maximum size of the results that a sub-plan or a region batch returns together."""

Path = tuple[str | int, ...] | str
"""Steps of a singular path (object keys and list indices), or a whole RFC 9535 query, which starts with `$`."""
BindingPath = tuple[str | int, ...]

Projection = tuple[Path, Literal["value", "whole"]]
"""A projection: the path of a part of a result that the plan reads, and its use. The use is `whole` if the run needs
the part for a decision (`when`, `for_each`), else `value`. A large part stays in the store, unless its use is
`whole`."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Type, size and preview of a value that is not loaded.

    Args:
        type: `list`, `object` or `text`.
        size_bytes: size of its JSON.
        length: number of items of a list, keys of an object, or bytes of UTF-8 of a text.
        preview: first characters of the text or of the JSON.
    """

    type: Literal["list", "object", "text"]
    size_bytes: int
    length: int
    preview: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the shape as JSON."""
        return {"type": self.type, "bytes": self.size_bytes, "length": self.length, "preview": self.preview}


@dataclass(frozen=True, slots=True)
class ProjectedPart:
    """A projected part of a stored value.

    Args:
        state: `small` (has a value), `whole` (has a value over 8 KiB, only for decisions), `large` (no value) or
            `missing`.
        value: value of the part, if `state` is `small` or `whole`.
        shape: shape of a part over 8 KiB.
        reason: for a missing part, the reason.
    """

    state: Literal["small", "whole", "large", "missing"]
    value: Any = None
    shape: Shape | None = None
    reason: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the part as JSON."""
        if self.state == "missing":
            return {"missing": self.reason}
        encoded = {} if self.state == "large" else {"value": self.value}
        return encoded if self.shape is None else {**encoded, **self.shape.to_json()}


class StoredValue:
    """A value in the payload store, or a part of such a value. It is immutable.

    Args:
        ref: reference of the whole value.
        name: name of the whole value in messages, such as `fetch.result`.
        paths: paths from the whole value to this part, each applied to the result of the previous path.
        shape: shape of this part, if it is known.
        parts: path inside this part -> the projected part.
    """

    __slots__ = ("name", "parts", "paths", "ref", "shape")

    def __init__(
        self,
        ref: str,
        *,
        name: str = "",
        paths: Sequence[Path] = (),
        shape: Shape | None = None,
        parts: Mapping[Path, ProjectedPart] | None = None,
    ) -> None:
        self.ref = ref
        self.name = name
        self.paths = tuple(paths)
        self.shape = shape
        self.parts = parts or {}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StoredValue):
            return NotImplemented
        return stored_to_json(self) == stored_to_json(other)

    def __hash__(self) -> int:
        return hash((self.ref, self.paths))

    def __repr__(self) -> str:
        return f"StoredValue({stored_to_json(self)!r})"

    @property
    def root_part(self) -> ProjectedPart | None:
        """The projected part for the value itself."""
        part = self.parts.get(())
        return ProjectedPart("large", shape=self.shape) if part is None and self.shape is not None else part

    def part_at(self, path: Path) -> "tuple[ProjectedPart | StoredValue, Path]":
        """Return the part at a path, and the rest of the path, which the caller applies to the value of the part.

        If the part was not projected, or is over 8 KiB, the result is a stored value and an empty rest.
        """
        exact_part = self.parts.get(path)
        if exact_part is not None:
            return (exact_part if exact_part.state in ("small", "missing") else self._narrow_to(path)), ()
        for length in range(len(path) - 1, -1, -1) if not isinstance(path, str) else ():
            part = self.parts.get(path[:length])
            if part is not None and part.state != "large":
                return part, path[length:]
        return self._narrow_to(path), ()

    def _narrow_to(self, path: Path) -> "StoredValue":
        if path == ():
            return self
        exact_part = self.parts.get(path)
        inner_parts: dict[Path, ProjectedPart] = {}
        if not isinstance(path, str):
            size = len(path)
            inner_parts = {
                key[size:]: part for key, part in self.parts.items() if not isinstance(key, str) and key[:size] == path
            }
            start = query_of(path)
            inner_parts |= {
                "$" + key.removeprefix(start): part
                for key, part in self.parts.items()
                if isinstance(key, str) and key.startswith(start)
            }
        elif exact_part is not None:
            inner_parts = {(): exact_part}
        shape = exact_part.shape if exact_part is not None else None
        return StoredValue(
            self.ref, name=self.name, paths=_append_path(self.paths, path), shape=shape, parts=inner_parts
        )


def query_of(path: tuple[str | int, ...]) -> str:
    """Return a path as a query, such as `$["rows"][0]`.

    The query of a projection inside the part at this path, such as `$["rows"][0][*]["id"]`, starts with this text.
    """
    return "$" + "".join(f"[{json.dumps(step, ensure_ascii=False)}]" for step in path)


@dataclass(frozen=True, slots=True)
class Secret:
    """Reference to a secret, which only the activity fills in: `{{secret.NAME}}`."""

    name: str

    def __str__(self) -> str:
        return f"secret.{self.name}"


class DeferredText:
    """A text that only a worker can assemble, because a part of it is a secret or in the store.

    Args:
        parts: texts, secrets, stored values, and JSON values that contain such parts.
    """

    __slots__ = ("parts",)

    def __init__(self, parts: Sequence[Any]) -> None:
        self.parts = tuple(parts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DeferredText) and self.parts == other.parts

    def __hash__(self) -> int:
        return hash(len(self.parts))

    def __repr__(self) -> str:
        return f"DeferredText({self.parts!r})"


ValueRef = StoredValue | DeferredText
REF_OR_CONTAINER_TYPES = (dict, list, StoredValue, DeferredText)
"""Types of value references, and of values that may contain value references."""


def find_value_refs(value: Any) -> Iterator[tuple[tuple[str | int, ...], ValueRef]]:
    """Yield the path of every stored value or deferred text in a value, in document order."""
    stack: list[tuple[tuple[str | int, ...], Any]] = [((), value)]
    while stack:
        path, part = stack.pop()
        if isinstance(part, StoredValue | DeferredText):
            yield path, part
        elif isinstance(part, dict):
            stack += [
                ((*path, key), child)
                for key, child in reversed(part.items())
                if isinstance(child, REF_OR_CONTAINER_TYPES)
            ]
        elif isinstance(part, list):
            stack += [
                ((*path, index), child)
                for index, child in reversed([*enumerate(part)])
                if isinstance(child, REF_OR_CONTAINER_TYPES)
            ]


def is_inline_value(value: Any) -> bool:
    """Return whether a value contains no stored values and no deferred texts."""
    return not isinstance(value, REF_OR_CONTAINER_TYPES) or next(find_value_refs(value), None) is None


def _append_path(paths: tuple[Path, ...], path: Path) -> tuple[Path, ...]:
    if paths and isinstance(paths[-1], tuple) and isinstance(path, tuple):
        return (*paths[:-1], (*paths[-1], *path))
    return (*paths, path)


def stored_to_json(value: StoredValue) -> dict[str, Any]:
    """Return the JSON form. Readers can distinguish it from plain objects only by metadata or by its location."""
    encoded: dict[str, Any] = {"ref": value.ref}
    if value.name:
        encoded["name"] = value.name
    if value.paths:
        encoded["paths"] = paths_to_json(value.paths)
    if value.shape is not None:
        encoded |= value.shape.to_json()
    if value.parts:
        encoded["projections"] = [[path_to_json(path), part.to_json()] for path, part in value.parts.items()]
    return encoded


def stored_from_json(encoded: Any, *, name: str | None = None) -> StoredValue:
    """Parse the JSON form of a stored value.

    Args:
        name: replaces the name in the JSON form.

    Raises:
        ValueError: the form is invalid.
    """
    try:
        return StoredValue(
            _text(encoded["ref"]),
            name=_text(encoded.get("name", "")) if name is None else name,
            paths=paths_from_json(encoded.get("paths", ())),
            shape=_shape_from_json(encoded),
            parts={path_from_json(path): _part_from_json(part) for path, part in encoded.get("projections", ())},
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a stored value: {error!r}") from None


def _part_from_json(encoded: Mapping[str, Any]) -> ProjectedPart:
    if "missing" in encoded:
        return ProjectedPart("missing", reason=_text(encoded["missing"]))
    shape = _shape_from_json(encoded)
    if "value" not in encoded:
        return ProjectedPart("large", shape=shape)
    return ProjectedPart("small" if shape is None else "whole", encoded["value"], shape)


def _shape_from_json(encoded: Mapping[str, Any]) -> Shape | None:
    if "type" not in encoded:
        return None
    if encoded["type"] not in ("list", "object", "text"):
        raise ValueError(f"{encoded['type']!r} is not a type of a stored value")
    return Shape(encoded["type"], int(encoded["bytes"]), int(encoded["length"]), _text(encoded.get("preview", "")))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"expected a text, not {value!r:.60}")
    return value


def path_to_json(path: Path) -> str | list[str | int]:
    """Return a path as JSON."""
    return path if isinstance(path, str) else list(path)


def path_from_json(encoded: Any) -> Path:
    """Parse the JSON form of a path.

    Raises:
        ValueError: the form is invalid.
    """
    if isinstance(encoded, str):
        return encoded
    if not isinstance(encoded, list) or not all(isinstance(step, str | int) for step in encoded):
        raise ValueError(f"{encoded!r:.60} is not a path")
    return tuple(encoded)


def paths_to_json(paths: Sequence[Path]) -> list[Any]:
    """Return paths as JSON."""
    return [path_to_json(path) for path in paths]


def paths_from_json(encoded: Sequence[Any]) -> tuple[Path, ...]:
    """Parse the JSON form of paths.

    Raises:
        ValueError: a path is invalid.
    """
    return tuple(path_from_json(path) for path in encoded)
