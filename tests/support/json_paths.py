"""Find and replace the parts of a JSON value by their paths, for tests that break valid documents."""

from typing import Any


def paths_of(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    paths: list[tuple[Any, ...]] = []
    _add_paths(paths, value, path)
    return paths


def _add_paths(paths: list[tuple[Any, ...]], value: Any, path: tuple[Any, ...]) -> None:
    paths.append(path)
    for key, child in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        _add_paths(paths, child, (*path, key))


def value_at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def replace_at(value: Any, path: tuple[Any, ...], replacement: Any) -> Any:
    if not path:
        return replacement
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = replace_at(value[path[0]], path[1:], replacement)
    return copy
