"""The paths of a JSON value, and the value with a replacement at one of them, to break valid documents."""

from typing import Any


def places_of(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    actual: list[tuple[Any, ...]] = []
    _add_places(actual, value, path)
    return actual


def _add_places(found: list[tuple[Any, ...]], value: Any, path: tuple[Any, ...]) -> None:
    found.append(path)
    for key, child in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        _add_places(found, child, (*path, key))


def value_at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def replace_at(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    changed = dict(value) if isinstance(value, dict) else list(value)
    changed[path[0]] = replace_at(value[path[0]], path[1:], new)
    return changed
