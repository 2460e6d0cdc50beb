"""Queries that read and do nothing else: what a model or a person wrote, checked against what is allowed.

`read_query` is the only way to a `ReadQuery`, and whoever asks the server takes nothing else. Everything that is not
named in the tables of these modules is refused, and what is sent is made anew of what was checked.
"""

import json
import re
from dataclasses import dataclass
from typing import Any

from dagwright_maritime.search.conditions import checked_condition
from dagwright_maritime.search.groupings import checked_groupings
from dagwright_maritime.search.limits import Check, Json, QueryRefused, members
from dagwright_maritime.search.rows import checked_sort, checked_source

DEFAULT_ROWS = 50
_KEYS = (
    "query", "aggs", "aggregations", "size", "from", "sort", "_source", "search_after", "track_total_hits", "timeout",
)  # fmt: skip
_TIMEOUT = re.compile(r"[0-9]{1,9}(ms|s|m)")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0}
_REST = re.compile(r"[a-z0-9][a-z0-9_-]{0,100}")


@dataclass(frozen=True, slots=True)
class ReadQuery:
    """A query that may be run; made by `read_query`.

    Args:
        index: one index, no pattern.
        body: as the server gets it; its size, its time and whether all hits are counted are always said.
    """

    index: str
    body: Json

    @property
    def rows(self) -> int:
        """Documents that it asks for."""
        return int(self.body["size"])

    @property
    def groups(self) -> Json:
        """Its aggregations by name."""
        found: Json = self.body.get("aggs", {})
        return found


def read_query(index: Any, body: Any, *, prefix: str, check: Check) -> ReadQuery:
    """Returns a query as it may be run.

    Args:
        prefix: of the indices that may be read, which are called `{prefix}-…`.
        check: what it may ask for, and which fields there are; new for every query.

    Raises:
        QueryRefused: some part of it may not be run; all reasons are told.
    """
    name = _index(index, prefix, check)
    if _is_small(body, check):
        body = _body(check, body)
    if check.problems:
        raise QueryRefused(check.problems)
    return ReadQuery(name, body)


def _index(index: Any, prefix: str, check: Check) -> str:
    if not isinstance(index, str) or not index.startswith(f"{prefix}-"):
        check.refuse(("index",), f"{index!r:.100} is none of the indices that may be read, {prefix}-…")
        return ""
    if _REST.fullmatch(index.removeprefix(f"{prefix}-")) is None:
        check.refuse(("index",), f"{index!r:.100} is not the name of one index; patterns and lists are not read")
    return index


def _is_small(body: Any, check: Check) -> bool:
    if not isinstance(body, dict):
        check.refuse((), "the body of a query is an object")
        return False
    try:
        written = len(json.dumps(body, allow_nan=False).encode())
    except (ValueError, TypeError, RecursionError) as error:
        check.refuse((), f"the body of the query is no JSON: {type(error).__name__}")
        return False
    if written > check.limits.body_bytes:
        check.refuse((), f"the query has {written:,} bytes, over the limit of {check.limits.body_bytes:,}")
    return written <= check.limits.body_bytes


def _body(check: Check, body: Json) -> Json:
    given = check.known(body, (), keys=_KEYS)
    if "aggs" in given and "aggregations" in given:
        check.refuse(("aggregations",), "aggs and aggregations are the same; give one of them")
    groups = given.get("aggs", given.get("aggregations"))
    told: Json = {"query": checked_condition(check, given.get("query", {"match_all": {}}), ("query",))}
    if groups is not None:
        told["aggs"] = checked_groupings(check, groups, ("aggs",))
    if "sort" in given:
        told["sort"] = checked_sort(check, given["sort"], ("sort",))
    if "_source" in given:
        told["_source"] = checked_source(check, given["_source"], ("_source",))
    if "track_total_hits" in given and given["track_total_hits"] is not True:
        check.refuse(("track_total_hits",), "all hits are counted; leave it out")
    told |= _window(check, given, default=DEFAULT_ROWS if groups is None else 0)
    return members({**told, "track_total_hits": True, "timeout": _time(check, given)})


def _window(check: Check, given: Json, *, default: int) -> Json:
    size = check.count(given.get("size", min(default, check.limits.rows)), ("size",), most=check.limits.rows)
    start = check.count(given.get("from", 0), ("from",), most=check.limits.window)
    if size is not None and start is not None and size + start > check.limits.window:
        check.refuse(
            ("from",), f"only the first {check.limits.window:,} documents can be counted off; use search_after"
        )
    told: Json = {"size": size}
    if start:
        told["from"] = start
    if "search_after" in given:
        after = _place(check, given["search_after"])
        sorts = given.get("sort", [])
        if start or len(after) != (len(sorts) if isinstance(sorts, list) else 1):
            check.refuse(("search_after",), "it has one value for each part of sort, and goes without from")
        told["search_after"] = after
    return told


def _place(check: Check, value: Any) -> list[Any]:
    """Returns the values that the last document was ordered by; one without a value has null there."""
    if not isinstance(value, list):
        check.refuse(("search_after",), "expected a list")
        return []
    return [None if each is None else check.scalar(each, ("search_after", place)) for place, each in enumerate(value)]


def _time(check: Check, given: Json) -> str:
    """Returns how long the server may search: as long as is asked for, and no longer than the limit."""
    seconds = check.limits.timeout_s
    if "timeout" in given:
        written = check.text(given["timeout"], ("timeout",), form=_TIMEOUT, what="a time such as 5s")
        if written is not None:
            number = written.rstrip("ms")
            seconds = min(seconds, max(int(number) * _UNITS[written.removeprefix(number)], 0.001))
    return f"{max(round(seconds * 1000), 1)}ms"
