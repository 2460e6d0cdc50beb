"""Values that a run does not hold: they lie in the payload store, and a reference stands for them.

A result over 8 KiB never reaches the workflow. It gets the reference, and the parts that the plan names as far as
they are small. Everything else that a plan does with such a value is done where it can be read: by the worker that
needs it, or by whoever looks at the run. So a JSON value of a run may hold, at any place, a `StoredValue`, or a
`WorkerText` made of such values.

The two are no dataclasses: pydantic would write one as JSON in silence, and they must never be taken for plain JSON.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from dagwright.core.expressions.compute_budget import TooMuchWork

Path = tuple[str | int, ...] | str
"""Steps of a singular path (object keys and list indices), or a whole RFC 9535 query, which starts with `$`."""

Want = tuple[Path, Literal["value", "whole"]]
"""A part of a result that the plan names: `value` where it can stay in the store if it is large, `whole` where the run
decides by it (`when`, `for_each`), so that more of it is told."""


class TooLargeHere(TooMuchWork):
    """A run needs a part of a stored value that is too large to be told; the message says which, and what to do."""

    def __init__(self, name: str, size_bytes: int | None) -> None:
        size = "" if size_bytes is None else f" has {size_bytes:,} bytes as JSON and"
        super().__init__(
            f"{name}{size} lies in the payload store, where the run itself cannot read it; name a smaller part of it, "
            "or let a tool work it out and read its result"
        )


@dataclass(frozen=True, slots=True)
class Shape:
    """What is known of a value that is not here.

    Args:
        type: `list`, `object` or `text`.
        size_bytes: of its JSON.
        length: of a list its items, of an object its keys, of a text its bytes of UTF-8.
        preview: its first characters.
    """

    type: Literal["list", "object", "text"]
    size_bytes: int
    length: int
    preview: str = ""

    def to_json(self) -> dict[str, Any]:
        """Returns the shape as it travels."""
        return {"type": self.type, "bytes": self.size_bytes, "length": self.length, "preview": self.preview}


@dataclass(frozen=True, slots=True)
class Part:
    """What a stored value tells of one of its parts.

    Args:
        state: `small` (the value is here), `whole` (it is here, but too large to be handed on), `large` or `missing`.
        value: the part itself, if it is here.
        shape: of a part that is over 8 KiB.
        words: why a missing part is not there.
    """

    state: Literal["small", "whole", "large", "missing"]
    value: Any = None
    shape: Shape | None = None
    words: str = ""

    def to_json(self) -> dict[str, Any]:
        """Returns the part as it travels."""
        if self.state == "missing":
            return {"missing": self.words}
        encoded = {} if self.state == "large" else {"value": self.value}
        return encoded if self.shape is None else {**encoded, **self.shape.to_json()}


class StoredValue:
    """A value in the payload store, or a part of one. It never changes.

    Args:
        ref: where the whole value lies.
        name: what the whole value is called in messages, such as `fetch.result`.
        paths: leads from the whole value to this part, one path after the other.
        shape: of this part, if it is known.
        parts: path inside of this part -> what is known of what stands there.
    """

    __slots__ = ("name", "parts", "paths", "ref", "shape")

    def __init__(
        self,
        ref: str,
        *,
        name: str = "",
        paths: Sequence[Path] = (),
        shape: Shape | None = None,
        parts: Mapping[Path, Part] | None = None,
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
    def told(self) -> Part | None:
        """What is known of the value itself."""
        own = self.parts.get(())
        return Part("large", shape=self.shape) if own is None and self.shape is not None else own

    def at(self, path: Path) -> "tuple[Part | StoredValue, Path]":
        """Returns what stands at a path, and what is left of the path for the caller to walk in a value that is here.

        A part that is not here, or too large to be handed on, is a stored value, and then nothing is left.
        """
        exact = self.parts.get(path)
        if exact is not None:
            return (exact if exact.state in ("small", "missing") else self._narrowed(path)), ()
        for length in range(len(path) - 1, -1, -1) if not isinstance(path, str) else ():
            part = self.parts.get(path[:length])
            if part is not None and part.state != "large":
                return part, path[length:]
        return self._narrowed(path), ()

    def _narrowed(self, path: Path) -> "StoredValue":
        if path == ():
            return self
        own = self.parts.get(path)
        inside: dict[Path, Part] = {}
        if not isinstance(path, str):
            size = len(path)
            inside = {
                key[size:]: part for key, part in self.parts.items() if not isinstance(key, str) and key[:size] == path
            }
            start = query_of(path)
            inside |= {
                "$" + key.removeprefix(start): part
                for key, part in self.parts.items()
                if isinstance(key, str) and key.startswith(start)
            }
        elif own is not None:
            inside = {(): own}
        shape = own.shape if own is not None else None
        return StoredValue(self.ref, name=self.name, paths=_joined(self.paths, path), shape=shape, parts=inside)


def query_of(path: tuple[str | int, ...]) -> str:
    """Returns a path as the beginning of a query, which goes on with `[`."""
    return "$" + "".join(f"[{json.dumps(step, ensure_ascii=False)}]" for step in path)


class WorkerText:
    """A text that cannot be put together here, because a part of it is a secret or lies in the store.

    Args:
        parts: texts, secrets, stored values, and JSON values that hold such.
    """

    __slots__ = ("parts",)

    def __init__(self, parts: Sequence[Any]) -> None:
        self.parts = tuple(parts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WorkerText) and self.parts == other.parts

    def __hash__(self) -> int:
        return hash(len(self.parts))

    def __repr__(self) -> str:
        return f"WorkerText({self.parts!r})"


Unfilled = StoredValue | WorkerText
OPEN = (dict, list, StoredValue, WorkerText)
"""Types of what can hold something that is not here, or is not here itself."""


def unfilled_places(value: Any) -> Iterator[tuple[tuple[str | int, ...], Unfilled]]:
    """Yields every place of a value at which something stands that is not here, in document order."""
    stack: list[tuple[tuple[str | int, ...], Any]] = [((), value)]
    while stack:
        path, current = stack.pop()
        if isinstance(current, StoredValue | WorkerText):
            yield path, current
        elif isinstance(current, dict):
            stack += [((*path, key), part) for key, part in reversed(current.items()) if isinstance(part, OPEN)]
        elif isinstance(current, list):
            stack += [
                ((*path, index), part) for index, part in reversed([*enumerate(current)]) if isinstance(part, OPEN)
            ]


def is_whole(value: Any) -> bool:
    """Tells whether all of a value is here."""
    return not isinstance(value, OPEN) or next(unfilled_places(value), None) is None


def _joined(paths: tuple[Path, ...], path: Path) -> tuple[Path, ...]:
    if paths and isinstance(paths[-1], tuple) and isinstance(path, tuple):
        return (*paths[:-1], (*paths[-1], *path))
    return (*paths, path)


def stored_to_json(value: StoredValue) -> dict[str, Any]:
    """Returns a stored value as it travels; only metadata or a place of its own tells it from somebody's object."""
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
    """Returns the stored value of its JSON form.

    Args:
        name: stands for the name that is written there.

    Raises:
        ValueError: it is none.
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
        raise ValueError(f"this is no stored value: {error!r}") from None


def _part_from_json(encoded: Mapping[str, Any]) -> Part:
    if "missing" in encoded:
        return Part("missing", words=_text(encoded["missing"]))
    shape = _shape_from_json(encoded)
    if "value" not in encoded:
        return Part("large", shape=shape)
    return Part("small" if shape is None else "whole", encoded["value"], shape)


def _shape_from_json(encoded: Mapping[str, Any]) -> Shape | None:
    if "type" not in encoded:
        return None
    if encoded["type"] not in ("list", "object", "text"):
        raise ValueError(f"{encoded['type']!r} is no type of a stored value")
    return Shape(encoded["type"], int(encoded["bytes"]), int(encoded["length"]), _text(encoded.get("preview", "")))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r:.60} is no text")
    return value


def path_to_json(path: Path) -> str | list[str | int]:
    """Returns a path as JSON."""
    return path if isinstance(path, str) else list(path)


def path_from_json(encoded: Any) -> Path:
    """Returns the path of its JSON form.

    Raises:
        ValueError: it is none.
    """
    if isinstance(encoded, str):
        return encoded
    if not isinstance(encoded, list) or not all(isinstance(step, str | int) for step in encoded):
        raise ValueError(f"{encoded!r:.60} is no path")
    return tuple(encoded)


def paths_to_json(paths: Sequence[Path]) -> list[Any]:
    """Returns paths as JSON."""
    return [path_to_json(path) for path in paths]


def paths_from_json(encoded: Sequence[Any]) -> tuple[Path, ...]:
    """Returns the paths of their JSON form.

    Raises:
        ValueError: one of them is none.
    """
    return tuple(path_from_json(path) for path in encoded)
