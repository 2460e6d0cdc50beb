"""Queries of RFC 9535 over results.

`query_analysis` evaluates them. Its library takes a tenth of a second to import, and most programs and plans have no
query, so it is imported with the first one. Workers import it when they start.
"""

from typing import TYPE_CHECKING, Any

from dagwright.core.expressions.compute_budget import ComputeBudget

if TYPE_CHECKING:
    from dagwright.core.expressions.query_analysis import Query


class QueryFailed(Exception):
    """A query cannot be applied to a value; the message has the reason."""


def parse_query(text: str) -> "Query":
    """Parse and check a query, which starts with `$`.

    Raises:
        ValueError: the text is not a query, or the query could take too long.
    """
    from dagwright.core.expressions import query_analysis  # noqa: PLC0415 - see the module

    return query_analysis.parse_query(text)


def steps_for_each(text: str) -> tuple[str | int, ...] | None:
    """Return the steps of a query in each element, such as `("a", 0)` for `$[*].a[0]`; `None` for other queries."""
    from dagwright.core.expressions import query_analysis  # noqa: PLC0415 - see the module

    return query_analysis.steps_for_each(text)


def answer_query(text: str, value: Any, *, budget: ComputeBudget) -> list[Any]:
    """Return all matches of a query, in document order.

    Raises:
        QueryFailed: the query cannot be applied to the value.
        ComputeBudgetExceeded: the query would take too long.
    """
    from dagwright.core.expressions import query_analysis  # noqa: PLC0415 - see the module

    try:
        return query_analysis.answer_query(query_analysis.parse_query(text), value, budget=budget)
    except query_analysis.QUERY_ERRORS as error:
        raise QueryFailed(str(error)) from None
