"""Fill the bindings of arguments with secrets, stored values, and texts made of both (see `expressions.value_refs`).

A binding is a path in the arguments, and the parts that make up the value at this path. A worker fills the arguments of
a call. The run reader fills the result document of a run in the same way.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from dagwright.core.expressions.compute_budget import ComputeBudgetExceeded
from dagwright.core.expressions.paths import MissingValue, format_path, get_value
from dagwright.core.expressions.projection import worker_budget
from dagwright.core.expressions.references import UnresolvedReference, as_text
from dagwright.core.expressions.stored_values import Path, paths_from_json

BindingPart = Mapping[str, Any]
PartLoader = Callable[[str, Sequence[Path], str], Any]
"""(reference of a stored value, paths, name of the value in messages) -> part of the stored value. Each path is applied
to the result of the previous path.
"""


class MisplacedBinding(Exception):
    """A binding is at a path that the arguments do not have."""


def secret_names(bindings: Sequence[Any]) -> set[str]:
    """Return the names of the secrets in bindings."""
    return {part["secret"] for part in _parts(bindings) if "secret" in part}


def stored_refs(bindings: Sequence[Any]) -> list[str]:
    """Return the references of the stored values in bindings, distinct, in the order of their first mention."""
    return list(dict.fromkeys(part["stored"] for part in _parts(bindings) if "stored" in part))


def _parts(bindings: Sequence[Any]) -> Iterator[BindingPart]:
    for _, parts in bindings:
        for part in parts:
            yield part
            yield from _parts(part.get("bindings", ()))


def hydrate(arguments: Any, bindings: Sequence[Any], *, secrets: Mapping[str, str], load: PartLoader) -> None:
    """Fill the bindings of `arguments` in place.

    Raises:
        MisplacedBinding: a binding is at a path that the arguments do not have.
        UnresolvedReference: a path does not exist in a stored value.
    """
    for path, parts in bindings:
        values = [_value_of(part, secrets=secrets, load=load) for part in parts]
        keeps_type = len(values) == 1 and "secret" not in parts[0]
        _set_at(arguments, path, values[0] if keeps_type else "".join(map(as_text, values)))


def _value_of(part: BindingPart, *, secrets: Mapping[str, str], load: PartLoader) -> Any:
    if "text" in part:
        return part["text"]
    if "secret" in part:
        return secrets[part["secret"]]
    if "stored" in part:
        return load(part["stored"], paths_from_json(part.get("paths", ())), part.get("name") or part["stored"])
    value = part["value"]
    hydrate(value, part["bindings"], secrets=secrets, load=load)
    return value


def _set_at(arguments: Any, path: Sequence[str | int], value: Any) -> None:
    container: Any = arguments
    try:
        for step in path[:-1]:
            container = container[step]
        container[path[-1]] = value
    except (LookupError, TypeError):
        raise MisplacedBinding(f"the arguments have no path {list(path)} to fill in") from None


def value_at_paths(value: Any, paths: Sequence[Path], name: str) -> Any:
    """Return the value at a sequence of paths, each applied to the result of the previous path.

    Raises:
        UnresolvedReference: a path does not exist in the value, or a query takes too long.
    """
    budget, current_name = worker_budget(), name
    try:
        for path in paths:
            value = get_value(value, path, name=current_name, budget=budget)
            current_name += format_path(path)
    except (MissingValue, ComputeBudgetExceeded) as error:
        reference = name + "".join(map(format_path, paths))
        raise UnresolvedReference(f"Missing data: {reference}: {error}") from None
    return value
