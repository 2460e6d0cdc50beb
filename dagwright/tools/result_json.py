"""Convert a tool's return value to strict JSON, or report the path that is not JSON.

JSON here means JSON that every parser reads as the same value: no NaN, no lone surrogates, no non-string keys.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import pydantic_core
from pydantic import BaseModel, TypeAdapter

from dagwright.core.text import cut_characters
from dagwright.tools.errors import InvalidResult

DEPTH_LIMIT = 100
"""Maximum depth of objects and lists, as in parsers of other languages, such as protobuf's JSON."""

INTEGER_LIMIT_BITS = 14_000
"""About 4,214 decimal digits. Python cannot write or read integers with more than 4,300 digits."""


def plain_json(value: Any) -> Any:
    """Convert `value` to objects, lists, text, numbers, booleans and null.

    Pydantic models and dataclasses become objects.

    Raises:
        InvalidResult: a part is not JSON; the message names its path as a JSON pointer.
    """
    return _Converter().convert(value, ())


def json_bytes(value: Any) -> bytes:
    """Encode `value` as compact UTF-8 JSON.

    Raises:
        InvalidResult: see `plain_json`.
    """
    return encode_plain_json(plain_json(value))


def encode_plain_json(value: Any) -> bytes:
    """Encode the result of `plain_json` as compact UTF-8 JSON."""
    return pydantic_core.to_json(value)


def pointer_of(path: tuple[str | int, ...]) -> str:
    """Return the RFC 6901 pointer of `path`, truncated to a readable length."""
    text = "".join("/" + str(piece).replace("~", "~0").replace("/", "~1") for piece in path)
    return cut_characters(text, 200)


class _Converter:
    """Converts one value. Tracks the containers of the current part, to detect cycles."""

    def __init__(self) -> None:
        self._open_containers: set[int] = set()

    def convert(self, value: Any, path: tuple[str | int, ...]) -> Any:
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return _checked_text(value, path)
        if isinstance(value, int):
            return _checked_integer(value, path)
        if isinstance(value, float):
            if not math.isfinite(value):
                raise _invalid_result(path, f"{float(value)} is not a JSON number")
            return float(value)
        return self._convert_container(value, path)

    def _convert_container(self, value: Any, path: tuple[str | int, ...]) -> Any:
        if len(path) >= DEPTH_LIMIT:
            raise _invalid_result(path, f"nested more than {DEPTH_LIMIT} deep")
        if id(value) in self._open_containers:
            raise _invalid_result(path, "contains itself")
        self._open_containers.add(id(value))
        try:
            if isinstance(value, Mapping):
                return {_checked_key(key, path): self.convert(part, (*path, key)) for key, part in value.items()}
            if isinstance(value, list | tuple):
                return [self.convert(part, (*path, index)) for index, part in enumerate(value)]
            return self.convert(_dump(value, path), path)
        finally:
            self._open_containers.discard(id(value))


def _dump(value: Any, path: tuple[str | int, ...]) -> Any:
    if not isinstance(value, BaseModel) and (not dataclasses.is_dataclass(value) or isinstance(value, type)):
        raise _invalid_result(path, f"{type(value).__name__} is not JSON, a pydantic model or a dataclass")
    adapter: TypeAdapter[Any] = TypeAdapter(type(value))
    try:
        python_value = adapter.dump_python(value, by_alias=True)
        json_value = adapter.dump_python(value, mode="json", by_alias=True)
    # Pydantic raises several unrelated types here, and a user's serializer may raise anything.
    except Exception as error:
        raise _invalid_result(path, f"{type(value).__name__} cannot be encoded as JSON: {error}") from error
    # Pydantic encodes NaN in a field of type Any as null, which would lose it silently.
    _check_finite(python_value, path)
    return json_value


def _check_finite(value: Any, path: tuple[str | int, ...]) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise _invalid_result(path, f"{float(value)} is not a JSON number")
    if isinstance(value, Mapping):
        for key, part in value.items():
            _check_finite(part, (*path, key))
    elif isinstance(value, list | tuple):
        for index, part in enumerate(value):
            _check_finite(part, (*path, index))


def _checked_text(value: str, path: tuple[str | int, ...]) -> str:
    text = str.__str__(value)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise _invalid_result(path, f"text with a lone surrogate (half a character) at {error.start}") from error
    return text


def _checked_integer(value: int, path: tuple[str | int, ...]) -> int:
    if value.bit_length() > INTEGER_LIMIT_BITS:
        raise _invalid_result(path, f"an integer of more than {INTEGER_LIMIT_BITS} bits")
    return int(value)


def _checked_key(key: Any, path: tuple[str | int, ...]) -> str:
    if not isinstance(key, str):
        key_text = str(key) if isinstance(key, int | float | None) else type(key).__name__
        raise _invalid_result(path, f"the key {key_text} is {type(key).__name__}, and JSON keys must be text")
    return _checked_text(key, path)


def _invalid_result(path: tuple[str | int, ...], problem: str) -> InvalidResult:
    location = f"at {pointer_of(path)}" if path else "as a whole"
    return InvalidResult(f"The value is not JSON {location}: {problem}")
