"""Paths into JSON values: the part after `.result` in a reference.

Names, `[0]` and `["any key"]` are resolved here, because the message for a missing step lists the existing keys.
`query_analysis` evaluates everything else of RFC 9535 (wildcards, slices, filters). The Python package
that evaluates queries is imported with the first query, because the import takes a tenth of a second and most plans
have no query. Workers import the package when they start.
"""

import json
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from dagwright.core.expressions.compute_budget import ComputeBudget, ComputeBudgetExceeded, TooLargeForRun
from dagwright.core.expressions.stored_values import DeferredText, Path, ProjectedPart, StoredValue, is_inline_value

if TYPE_CHECKING:
    from dagwright.core.expressions.query_analysis import Query


class QueryFailed(Exception):
    """A query cannot be applied to a value; the message has the reason."""


def parse_query(text: str) -> "Query":
    """Parse and check a query, which starts with `$`.

    Raises:
        ValueError: the text is not a query, or the query could take too long.
    """
    from dagwright.core.expressions import query_analysis  # noqa: PLC0415 - see the module docstring

    return query_analysis.parse_query(text)


def element_steps(text: str) -> tuple[str | int, ...] | None:
    """Return the steps that a query takes within each element, after `[*]`: `("a", 0)` for `$[*].a[0]`.

    Returns:
        `None` if the query has another form.
    """
    from dagwright.core.expressions import query_analysis  # noqa: PLC0415 - see the module docstring

    return query_analysis.element_steps(text)


def find_matches(text: str, value: Any, *, budget: ComputeBudget) -> list[Any]:
    """Return all matches of a query, in document order.

    Raises:
        QueryFailed: the query cannot be applied to the value.
        ComputeBudgetExceeded: the query would take too long.
    """
    from dagwright.core.expressions import query_analysis  # noqa: PLC0415 - see the module docstring

    try:
        return query_analysis.find_matches(query_analysis.parse_query(text), value, budget=budget)
    except query_analysis.QUERY_ERRORS as error:
        raise QueryFailed(str(error)) from None


_NAME = re.compile(r"""\.([^\s.\[\]{}"'*?$@()]+)""")
_INDEX = re.compile(r"\[\s*(-?[0-9]{1,9})\s*\]")
_QUOTED_KEY = re.compile(r"""\[\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')\s*\]""", re.DOTALL)
_MAX_SHOWN_KEYS = 12


class MissingValue(Exception):
    """A path does not exist in a value. The message names the missing step and describes the value that lacks it."""


def parse_path(text: str) -> Path:
    """Parse the text of a path after `.result`.

    Raises:
        ValueError: the text is neither a list of steps nor an RFC 9535 query, or the query could take too long.
    """
    steps: list[str | int] = []
    position = 0
    while position < len(text):
        if match := _NAME.match(text, position):
            steps.append(match[1])
        elif match := _INDEX.match(text, position):
            steps.append(int(match[1]))
        elif match := _QUOTED_KEY.match(text, position):
            steps.append(_unquote(match[1]))
        else:
            return _parse_query_path(text)
        position = match.end()
    return tuple(steps)


def _unquote(text: str) -> str:
    if text[0] == "'":
        text = '"' + text[1:-1].replace("\\'", "'").replace('"', '\\"') + '"'
    value = json.loads(text, strict=False)
    assert isinstance(value, str)
    return value


def _parse_query_path(text: str) -> str:
    query = "$" + text
    parse_query(query)
    return query


def get_value(value: Any, path: Path, *, name: str, budget: ComputeBudget | None = None) -> Any:
    """Return the value at a path; for a query the list of all matches, in document order.

    A part in the payload store is returned as a stored value. If the run already has the content of a small part (as a
    `ProjectedPart`), the content is returned.

    Args:
        value: any JSON value.
        path: as returned by `parse_path`.
        name: name of `value` in a message, such as `fetch.result`.
        budget: budget of a query; by default a full new budget.

    Raises:
        MissingValue: a step does not exist, or a query cannot be applied.
        ComputeBudgetExceeded: a query would take too long.
    """
    if isinstance(value, StoredValue):
        return _get_stored_value(value, path, name=name)
    if isinstance(path, str) and not is_inline_value(value):
        return _query_elements(value, path, name=name)
    if isinstance(path, str):
        try:
            return find_matches(path, value, budget=budget or ComputeBudget())
        except QueryFailed as error:
            raise MissingValue(f"the query {path!r} cannot be applied to {name}: {error}") from None
        except ComputeBudgetExceeded as error:
            raise ComputeBudgetExceeded(f"the query {path!r} on {name}: {error}") from None
    for number, step in enumerate(path):
        # Most steps exist. `location` is formatted only after this check, because formatting takes time.
        if isinstance(value, dict) and step in value:
            value = value[step]
            continue
        location = name + format_path(path[:number])
        if isinstance(value, StoredValue):
            return _get_stored_value(value, path[number:], name=location)
        value = _get_step(value, step, location=location)
    return value


def _get_stored_value(value: StoredValue, path: Path, *, name: str) -> Any:
    part, rest = value.part_at(path)
    if not isinstance(part, ProjectedPart):
        return part
    if part.state == "missing":
        raise MissingValue(part.reason)
    return get_value(part.value, rest, name=name + format_path(path[: len(path) - len(rest)]))


def _query_elements(value: Any, query: str, *, name: str) -> list[Any]:
    """Return the matches of a query in a value with stored parts, if the query reads each element separately."""
    steps = element_steps(query)
    if steps is None:
        raise TooLargeForRun(f"the query {query!r} reads a value that is too large: a part of {name}", None)
    matches = []
    for element in value if isinstance(value, list) else value.values() if isinstance(value, dict) else ():
        try:
            matches.append(get_value(element, steps, name=name))
        except MissingValue:
            continue
    return matches


def _get_step(value: Any, step: str | int, *, location: str) -> Any:
    if isinstance(value, dict):
        key = str(step)
        if key in value:
            return value[key]
        keys = sorted(map(str, value))
        key_list = ", ".join(keys[:_MAX_SHOWN_KEYS]) + (", …" if len(keys) > _MAX_SHOWN_KEYS else "")
        raise MissingValue(f"{key!r} not found in {location}; it has {key_list or 'no keys'}")
    if isinstance(value, list):
        if not isinstance(step, int):
            raise MissingValue(f"{step!r} not found in {location}; it is a list of {len(value)}")
        if -len(value) <= step < len(value):
            return value[step]
        raise MissingValue(f"[{step}] not found in {location}; it has {len(value)} items")
    raise MissingValue(f"{step!r} not found in {location}; it is {describe_type(value)}")


def describe_type(value: Any) -> str:
    """Return the JSON type of a value after "a" or "an", such as `a list`; `null` for `None`."""
    if isinstance(value, StoredValue):
        return f"a {value.shape.type}" if value.shape is not None and value.shape.type != "object" else "an object"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str | DeferredText):
        return "a text"
    return "a list" if isinstance(value, list) else "an object"


def format_path(path: Path) -> str:
    """Return the text of a path, such as `.data[0]["odd key"]`."""
    if isinstance(path, str):
        return path[1:]
    return "".join(_format_step(step) for step in path)


def _format_step(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    return f".{step}" if _NAME.fullmatch("." + step) else f"[{json.dumps(step, ensure_ascii=False)}]"


def replace_parts(value: Any, parts: Iterable[tuple[tuple[str | int, ...], Any]]) -> Any:
    """Return a JSON value with replaced parts at some paths; all other parts are shared, not copied.

    Raises:
        LookupError: a path does not exist in the value.
    """
    copies: dict[tuple[str | int, ...], Any] = {}
    for path, part in parts:
        if not path:
            return part
        if len(path) == 1:
            # The most frequent case: a reference that is a whole argument.
            if () not in copies:
                copies[()] = value.copy()
            copies[()][path[0]] = part
            continue
        _copy_container(value, path[:-1], copies)[path[-1]] = part
    return copies.get((), value)


def _copy_container(value: Any, path: tuple[str | int, ...], copies: dict[tuple[str | int, ...], Any]) -> Any:
    """Return the copy of the container at a path; the first use copies the container and the containers around it."""
    container = copies.get(path)
    if container is None:
        if path:
            parent = _copy_container(value, path[:-1], copies)
            container = parent[path[-1]] = parent[path[-1]].copy()
        else:
            container = value.copy()
        copies[path] = container
    return container
