"""Read-only queries: the check of a query from a model or a person against the allowed subset.

Only `parse_query` creates a `CheckedQuery`, and requests accept nothing else. Anything that `conditions`,
`groupings` and `rows` do not list is rejected, and the query is built from the checked parts.
"""

import json
import re
from dataclasses import dataclass
from typing import Any

from dagwright_maritime.search.conditions import check_condition
from dagwright_maritime.search.groupings import check_groupings
from dagwright_maritime.search.limits import Check, Json, QueryRejected, present_members
from dagwright_maritime.search.rows import check_sort, check_source

DEFAULT_ROWS = 50
_KEYS = (
    "query", "aggs", "aggregations", "size", "from", "sort", "_source", "search_after", "track_total_hits", "timeout",
)  # fmt: skip
_TIMEOUT = re.compile(r"[0-9]{1,9}(ms|s|m)")
_SECONDS_PER_UNIT = {"ms": 0.001, "s": 1.0, "m": 60.0}
_INDEX_SUFFIX = re.compile(r"[a-z0-9][a-z0-9_-]{0,100}")


@dataclass(frozen=True, slots=True)
class CheckedQuery:
    """An allowed query; created by `parse_query`.

    Args:
        index: one index, not a pattern.
        body: body that is sent to the server; the size, the timeout and the counting of all hits are always set.
    """

    index: str
    body: Json

    @property
    def rows(self) -> int:
        """Maximum number of documents of the result."""
        return int(self.body["size"])

    @property
    def aggregations(self) -> Json:
        """Aggregations of the query, by name."""
        aggregations: Json = self.body.get("aggs", {})
        return aggregations


def parse_query(index: Any, body: Any, *, prefix: str, check: Check) -> CheckedQuery:
    """Check a query and return it in its checked form.

    Args:
        prefix: prefix of the allowed indices, `{prefix}-…`.
        check: the limits and the field types; create a new object for every query.

    Raises:
        QueryRejected: a part of the query is not allowed; the error lists all problems.
    """
    name = _check_index(index, prefix, check)
    if _check_size(body, check):
        body = _check_body(check, body)
    if check.problems:
        raise QueryRejected(check.problems)
    return CheckedQuery(name, body)


def _check_index(index: Any, prefix: str, check: Check) -> str:
    if not isinstance(index, str) or not index.startswith(f"{prefix}-"):
        check.add_problem(("index",), f"{index!r:.100} is not one of the allowed indices, {prefix}-…")
        return ""
    if _INDEX_SUFFIX.fullmatch(index.removeprefix(f"{prefix}-")) is None:
        check.add_problem(
            ("index",), f"{index!r:.100} is not the name of one index; patterns and lists are not allowed"
        )
    return index


def _check_size(body: Any, check: Check) -> bool:
    if not isinstance(body, dict):
        check.add_problem((), "the body of a query must be an object")
        return False
    try:
        size_bytes = len(json.dumps(body, allow_nan=False).encode())
    except (ValueError, TypeError, RecursionError) as error:
        check.add_problem((), f"the body of the query is not valid JSON: {type(error).__name__}")
        return False
    if size_bytes > check.limits.body_bytes:
        check.add_problem((), f"the query has {size_bytes:,} bytes, over the limit of {check.limits.body_bytes:,}")
    return size_bytes <= check.limits.body_bytes


def _check_body(check: Check, body: Json) -> Json:
    members = check.allowed_members(body, (), keys=_KEYS)
    if "aggs" in members and "aggregations" in members:
        check.add_problem(("aggregations",), "aggs and aggregations are synonyms; use one of them")
    groups = members.get("aggs", members.get("aggregations"))
    checked_body: Json = {"query": check_condition(check, members.get("query", {"match_all": {}}), ("query",))}
    if groups is not None:
        checked_body["aggs"] = check_groupings(check, groups, ("aggs",))
    if "sort" in members:
        checked_body["sort"] = check_sort(check, members["sort"], ("sort",))
    if "_source" in members:
        checked_body["_source"] = check_source(check, members["_source"], ("_source",))
    if "track_total_hits" in members and members["track_total_hits"] is not True:
        check.add_problem(("track_total_hits",), "all hits are always counted; remove track_total_hits")
    checked_body |= _check_window(check, members, default_size=DEFAULT_ROWS if groups is None else 0)
    return present_members({**checked_body, "track_total_hits": True, "timeout": _timeout(check, members)})


def _check_window(check: Check, body: Json, *, default_size: int) -> Json:
    size = check.integer(body.get("size", min(default_size, check.limits.rows)), ("size",), maximum=check.limits.rows)
    start = check.integer(body.get("from", 0), ("from",), maximum=check.limits.window)
    if size is not None and start is not None and size + start > check.limits.window:
        check.add_problem(
            ("from",), f"from and size together are limited to {check.limits.window:,} documents; use search_after"
        )
    checked_body: Json = {"size": size}
    if start:
        checked_body["from"] = start
    if "search_after" in body:
        search_after = _check_search_after(check, body["search_after"])
        sorts = body.get("sort", [])
        if start or len(search_after) != (len(sorts) if isinstance(sorts, list) else 1):
            check.add_problem(("search_after",), "expected one value for each sort field, and no from")
        checked_body["search_after"] = search_after
    return checked_body


def _check_search_after(check: Check, value: Any) -> list[Any]:
    """Return the sort values of the last document of the previous page; a value may be null."""
    if not isinstance(value, list):
        check.add_problem(("search_after",), "expected a list")
        return []
    return [
        None if sort_value is None else check.scalar(sort_value, ("search_after", position))
        for position, sort_value in enumerate(value)
    ]


def _timeout(check: Check, body: Json) -> str:
    """Return the timeout of the search: the requested timeout, up to the limit."""
    seconds = check.limits.timeout_s
    if "timeout" in body:
        time_text = check.text(body["timeout"], ("timeout",), pattern=_TIMEOUT, expected="a time such as 5s")
        if time_text is not None:
            number = time_text.rstrip("ms")
            seconds = min(seconds, max(int(number) * _SECONDS_PER_UNIT[time_text.removeprefix(number)], 0.001))
    return f"{max(round(seconds * 1000), 1)}ms"
