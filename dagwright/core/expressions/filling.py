"""Fills the holes of a value: secrets, stored values, and texts made of them (`dagwright.core.expressions.value_refs`).

Whoever has the values does this: a worker with the arguments of a call, the feed with the document of a run.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from dagwright.core.expressions.compute_budget import TooMuchWork
from dagwright.core.expressions.paths import MissingValue, format_path, get_value
from dagwright.core.expressions.projection import worker_budget
from dagwright.core.expressions.resolution import MissingData, as_text
from dagwright.core.expressions.stored_values import Path, paths_from_json

Part = Mapping[str, Any]
Take = Callable[[str, Sequence[Path], str], Any]
"""(reference, paths, name of the value) -> what the paths lead to in a stored value, for the caller to keep."""


class HoleMisplaced(Exception):
    """A hole is at a place that the value does not have."""


def secret_names(holes: Sequence[Any]) -> set[str]:
    """Returns the names of the secrets in holes."""
    return {part["secret"] for part in _parts(holes) if "secret" in part}


def stored_refs(holes: Sequence[Any]) -> list[str]:
    """Returns the references of the stored values in holes, distinct, in the order of their first mention."""
    return list(dict.fromkeys(part["stored"] for part in _parts(holes) if "stored" in part))


def _parts(holes: Sequence[Any]) -> Iterator[Part]:
    for _, parts in holes:
        for part in parts:
            yield part
            yield from _parts(part.get("holes", ()))


def fill(arguments: Any, holes: Sequence[Any], *, secrets: Mapping[str, str], take: Take) -> None:
    """Puts what is missing into `arguments`, in place.

    Raises:
        HoleMisplaced: a hole is at a place that the arguments do not have.
        MissingData: a path leads nowhere.
    """
    for path, parts in holes:
        values = [_value_of(part, secrets=secrets, take=take) for part in parts]
        is_one_value = len(values) == 1 and "secret" not in parts[0]
        _put(arguments, path, values[0] if is_one_value else "".join(map(as_text, values)))


def _value_of(part: Part, *, secrets: Mapping[str, str], take: Take) -> Any:
    if "text" in part:
        return part["text"]
    if "secret" in part:
        return secrets[part["secret"]]
    if "stored" in part:
        return take(part["stored"], paths_from_json(part.get("paths", ())), part.get("name") or part["stored"])
    value = part["value"]
    fill(value, part["holes"], secrets=secrets, take=take)
    return value


def _put(arguments: Any, path: Sequence[str | int], value: Any) -> None:
    place: Any = arguments
    try:
        for piece in path[:-1]:
            place = place[piece]
        place[path[-1]] = value
    except (LookupError, TypeError):
        raise HoleMisplaced(f"there is no place {list(path)} to put a value") from None


def walk(value: Any, paths: Sequence[Path], name: str) -> Any:
    """Returns what paths lead to, one behind the other.

    Raises:
        MissingData: one of them leads nowhere, or takes too long.
    """
    budget, place = worker_budget(), name
    try:
        for path in paths:
            value = get_value(value, path, start=place, budget=budget)
            place += format_path(path)
    except (MissingValue, TooMuchWork) as error:
        reference = name + "".join(map(format_path, paths))
        raise MissingData(f"Missing data: {reference}: {error}") from None
    return value
