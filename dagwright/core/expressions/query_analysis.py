"""Queries of RFC 9535 with python-jsonpath: the allowed syntax, and the cost of a query.

Other modules call this module through `paths`, which imports it with the first query.

Queries are evaluated in workflow code, so `match()` and `search()` are rejected, because their patterns can take
exponential time. Syntax that reads the whole value again for each element is rejected too. The cost of an allowed query
is the number of values that it reads. If the query descends twice, the number is multiplied by the depth of the values.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import jsonpath
from jsonpath import filter as filters
from jsonpath.segments import JSONPathRecursiveDescentSegment
from jsonpath.selectors import Filter, IndexSelector, NameSelector, SliceSelector, WildcardSelector

if TYPE_CHECKING:
    from dagwright.core.expressions.compute_budget import ComputeBudget


_MAX_DESCENTS = 2
_MAX_FILTERS = 3
_MAX_SELECTORS = 16
"""Maximum number of selectors, multiplied over all brackets; `[0,0][0,0]…` would double the work with every pair of
brackets."""
_WORK_OF_ELEMENT = 10
"""Work for each value that a query reads: five microseconds in the library."""

_SINGULAR_SELECTORS = (NameSelector, IndexSelector)
QUERY_ERRORS = (jsonpath.JSONPathError, RecursionError)
"""Errors of the library for a query and for its application to a value."""


@dataclass(frozen=True, slots=True)
class Query:
    """A checked query.

    Args:
        path: query as compiled by the library.
        start: first selectors of the query, as long as each of them selects one value or a slice.
        is_flat: whether the rest of the query reads only the elements of one list or object, and no deeper values.
        descents: number of `..` in the query.
        factor: maximum number of times that the query reads each value.
    """

    path: jsonpath.JSONPath
    start: Sequence[NameSelector | IndexSelector | SliceSelector]
    is_flat: bool
    descents: int
    factor: int


@lru_cache(maxsize=1024)
def parse_query(text: str) -> Query:
    """Parse and check a query, which starts with `$`.

    Raises:
        ValueError: the text is not a query, or the query could take too long.
    """
    try:
        path = jsonpath.JSONPathEnvironment(strict=True).compile(text)
    except QUERY_ERRORS as error:
        raise ValueError(f"{text[1:]!r} is not a path: {str(error).splitlines()[0]}") from None
    if not isinstance(path, jsonpath.JSONPath):
        raise ValueError(f"{text[1:]!r} is not a path: it is more than one query")
    cost = _CostCounter()
    cost.count_path(path)
    if cost.descents > _MAX_DESCENTS or cost.filters > _MAX_FILTERS or cost.selector_product > _MAX_SELECTORS:
        raise ValueError(
            f"{text[1:]!r} could take too long: a query has at most {_MAX_DESCENTS} times '..', {_MAX_FILTERS} "
            f"filters, and {_MAX_SELECTORS} selectors multiplied over its brackets"
        )
    start = _start_of(path)
    is_flat = (
        len(path.segments) <= len(start) + 1 + cost.trailing_singular_segments
        and not cost.descents
        and not cost.has_deep_filter
    )
    return Query(path, start, is_flat, cost.descents, cost.selector_product * (1 + cost.comparisons))


@lru_cache(maxsize=1024)
def element_steps(text: str) -> tuple[str | int, ...] | None:
    """Return the steps that a query takes within each element, after `[*]`: `("a", 0)` for `$[*].a[0]`.

    Returns:
        `None` if the query has another form.
    """
    first_segment, *later_segments = parse_query(text).path.segments
    if isinstance(first_segment, JSONPathRecursiveDescentSegment) or len(first_segment.selectors) != 1:
        return None
    steps: list[str | int] = []
    for segment in later_segments:
        selector = segment.selectors[0]
        if isinstance(segment, JSONPathRecursiveDescentSegment) or len(segment.selectors) != 1:
            return None
        if isinstance(selector, NameSelector):
            steps.append(selector.name)
        elif isinstance(selector, IndexSelector):
            steps.append(selector.index)
        else:
            return None
    return tuple(steps) if isinstance(first_segment.selectors[0], WildcardSelector) else None


def find_matches(query: Query, value: Any, *, budget: "ComputeBudget") -> list[Any]:
    """Return all matches of a query, in document order.

    Raises:
        JSONPathError, RecursionError: the query cannot be applied to the value.
        ComputeBudgetExceeded: the query would take too long.
    """
    elements = _count_values_read(query, value, limit=budget.remaining // (_WORK_OF_ELEMENT * query.factor))
    budget.spend(_WORK_OF_ELEMENT * (1 + elements * query.factor))
    return list(query.path.findall(value))


class _CostCounter:
    """Counter of the syntax that makes a query expensive."""

    def __init__(self) -> None:
        self.descents = 0
        self.filters = 0
        self.selector_product = 1
        self.comparisons = 0
        self.trailing_singular_segments = 0
        self.has_deep_filter = False

    def count_path(self, path: jsonpath.JSONPath, *, is_in_filter: bool = False) -> None:
        for segment in path.segments:
            self.descents += isinstance(segment, JSONPathRecursiveDescentSegment)
            self.selector_product *= len(segment.selectors)
            for selector in segment.selectors:
                if isinstance(selector, Filter):
                    self.filters += 1
                    self.count_expression(selector.expression)
                self.has_deep_filter |= is_in_filter and not isinstance(selector, _SINGULAR_SELECTORS)
        if not is_in_filter:
            for segment in reversed(path.segments):
                if len(segment.selectors) != 1 or not isinstance(segment.selectors[0], _SINGULAR_SELECTORS):
                    break
                self.trailing_singular_segments += 1

    def count_expression(self, expression: filters.BaseExpression) -> None:
        if isinstance(expression, filters.FunctionExtension):
            if expression.name in ("match", "search"):
                raise ValueError(
                    f"{expression.name}() cannot be used in a query; let a tool or `when` compare the text"
                )
            for argument in expression.args:
                self.count_expression(argument)
        elif isinstance(expression, filters.RelativeFilterQuery):
            self.comparisons += 1
            self.count_path(expression.path, is_in_filter=True)
        elif isinstance(expression, filters.FilterQuery):
            raise ValueError("a filter cannot use `$`, only `@`: `$` would read the whole value again for each element")
        else:
            for child in expression.children():
                self.count_expression(child)


def _start_of(path: jsonpath.JSONPath) -> list[NameSelector | IndexSelector | SliceSelector]:
    start: list[NameSelector | IndexSelector | SliceSelector] = []
    for segment in path.segments:
        if isinstance(segment, JSONPathRecursiveDescentSegment) or len(segment.selectors) != 1:
            break
        selector = segment.selectors[0]
        if not isinstance(selector, NameSelector | IndexSelector | SliceSelector):
            break
        start.append(selector)
        if isinstance(selector, SliceSelector):
            break
    return start


def _count_values_read(query: Query, value: Any, *, limit: int) -> int:
    """Return an upper estimate of the number of values that a query reads; counting stops above `limit`."""
    for selector in query.start:
        try:
            match selector:
                case NameSelector():
                    value = value[selector.name] if isinstance(value, dict) else None
                case IndexSelector():
                    value = value[selector.index] if isinstance(value, list) else None
                case SliceSelector():
                    value = value[selector.slice] if isinstance(value, list) else None
        except (LookupError, ValueError):
            value = None
    if query.is_flat:
        return len(value) if isinstance(value, list | dict) else 0
    count, depth, level = 0, 0, [value]
    while level and count <= limit:
        count += len(level)
        depth += 1
        next_level: list[Any] = []
        for element in level:
            if isinstance(element, dict):
                next_level += element.values()
            elif isinstance(element, list):
                next_level += element
        level = next_level
    # With two descents, a value is read once for each value that contains it.
    return count * depth if query.descents > 1 else count
