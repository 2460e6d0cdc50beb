"""The allowed aggregations of a query, and the maximum number of their groups; everything else is rejected.

A group is a bucket. A `terms` aggregation counts as its size. The number of buckets of a histogram is unknown before
the query runs, so a histogram counts as a hundred, and the actual number is checked in the result. Deliberately
excluded: `scripted_metric` and other scripts, `global` (leaves the query), and patterns in `include`.

Source: the aggregations of OpenSearch 2.19.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from dagwright_maritime.search.conditions import check_condition, date_parameters
from dagwright_maritime.search.limits import Check, Json, Path, members
from dagwright_maritime.search.rows import check_sort, check_source

_NAME = re.compile(r"\w[\w .-]{0,79}", re.ASCII)
_ORDER = re.compile(r"_count|_key|[A-Za-z_][\w-]{0,79}(>[A-Za-z_][\w-]{0,79}){0,3}(\.[a-z_0-9.]{1,20})?", re.ASCII)
_FIXED_INTERVAL = re.compile(r"[1-9][0-9]{0,3}d")
_CALENDAR_INTERVAL = re.compile(r"day|week|month|quarter|year|1d|1w|1M|1q|1y")
"""`1m` is not allowed, because it means a minute."""
_VALUES_PER_FIGURE = {"stats": 5, "percentiles": 7}
"""Values per figure with several values; for percentiles, the number of default percents."""
_DATE_TYPES = ("date", "date_nanos")
_DIRECTIONS = ("asc", "desc")
MAX_GROUPINGS = 30
"""Maximum number of sibling aggregations."""
_ASSUMED_GROUPS = 100
"""Assumed number of buckets of a histogram: eight years of months, or three months of days."""
_DEFAULT_GROUPS = 10
"""The server's default for `terms`."""
_MAX_TOP_HITS = 10
_MAX_RANGES = 50


def check_groupings(check: Check, value: Any, path: Path) -> Json:
    """Return the aggregations of a query as they are sent to the server; problems are added to `check`."""
    checked_body = _groupings(check, value, path, depth=1, enclosing_groups=1)
    if check.buckets > check.limits.buckets:
        check.add_problem(
            path, f"the query requests at least {check.buckets:,} groups, over the limit of {check.limits.buckets:,}"
        )
    if check.figures > check.limits.figures:
        message = f"the query requests at least {check.figures:,} figures over all groups"
        check.add_problem(
            path, f"{message}, over the limit of {check.limits.figures:,}; request fewer groups or figures"
        )
    return checked_body


def _groupings(check: Check, value: Any, path: Path, *, depth: int, enclosing_groups: int) -> Json:
    if not isinstance(value, dict) or not 0 < len(value) <= MAX_GROUPINGS:
        check.add_problem(path, f"expected an object of 1 to {MAX_GROUPINGS} aggregations by name")
        return {}
    checked_body: Json = {}
    for name, aggregation in value.items():
        if _NAME.fullmatch(name) is None:
            check.add_problem(
                (*path, name), "an aggregation name must have 1 to 80 letters, digits, _, -, . and spaces"
            )
        else:
            checked_body[name] = _grouping(
                check, aggregation, (*path, name), depth=depth, enclosing_groups=enclosing_groups
            )
    return checked_body


def _grouping(check: Check, value: Any, path: Path, *, depth: int, enclosing_groups: int) -> Json:
    if not check.count_clause(path, depth):
        return {}
    if not isinstance(value, dict):
        check.add_problem(path, "expected an object with the kind of an aggregation")
        return {}
    kinds = {kind: inner for kind, inner in value.items() if kind not in ("aggs", "aggregations")}
    nested = [inner for kind, inner in value.items() if kind in ("aggs", "aggregations")]
    kind_and_body = check.single_member(kinds, path, expected="the kind of an aggregation")
    if kind_and_body is None:
        return {}
    kind, body = kind_and_body
    location = (*path, kind)
    if kind in _FIGURES:
        if nested:
            check.add_problem(path, f"{kind} makes no groups, so it cannot have aggregations")
        figure = _FIGURES[kind](check, body, location, enclosing_groups)
        check.figures += enclosing_groups * (len(figure.get("percents", ())) or _VALUES_PER_FIGURE.get(kind, 1))
        return {kind: figure}
    if kind not in _GROUPS:
        check.add_problem(location, f"unknown aggregation; allowed: {', '.join([*_GROUPS, *_FIGURES])}")
        return {}
    checked_body, groups = _GROUPS[kind](check, body, location)
    check.buckets += enclosing_groups * groups
    if not nested:
        return {kind: checked_body}
    if len(nested) > 1:
        check.add_problem(path, "aggs and aggregations are synonyms; use one of them")
    inner_groupings = _groupings(
        check, nested[0], (*path, "aggs"), depth=depth + 1, enclosing_groups=enclosing_groups * groups
    )
    return {kind: checked_body, "aggs": inner_groupings}


# Groups: each function returns the checked aggregation and its maximum number of groups.


def _terms(check: Check, value: Any, path: Path) -> tuple[Json, int]:
    keys = ("field", "size", "order", "min_doc_count", "missing", "include", "exclude")
    body = check.allowed_members(value, path, keys=keys)
    checked_body: Json = {"field": check.field_name(body.get("field"), (*path, "field")), "size": _DEFAULT_GROUPS}
    if "size" in body:
        checked_body["size"] = check.count(body["size"], (*path, "size"), minimum=1, maximum=check.limits.buckets)
    if "missing" in body:
        checked_body["missing"] = check.scalar(body["missing"], (*path, "missing"))
    for name in ("include", "exclude"):
        if name in body:
            # A text would be a pattern.
            checked_body[name] = check.scalars(body[name], (*path, name))
    checked_body |= _order(check, body, path) | _explicit_min_doc_count(check, body, path)
    return members(checked_body), checked_body["size"] or 1


def _date_histogram(check: Check, value: Any, path: Path) -> tuple[Json, int]:
    keys = ("field", "calendar_interval", "fixed_interval", "format", "time_zone", "order", "min_doc_count")
    body = check.allowed_members(value, path, keys=keys)
    checked_body: Json = {"field": check.field_name(body.get("field"), (*path, "field"))}
    if ("calendar_interval" in body) == ("fixed_interval" in body):
        check.add_problem(path, "expected either calendar_interval or fixed_interval")
    elif "calendar_interval" in body:
        location = (*path, "calendar_interval")
        expected = "day, week, month, quarter or year"
        checked_body["calendar_interval"] = check.text(
            body["calendar_interval"], location, form=_CALENDAR_INTERVAL, expected=expected
        )
    else:
        location = (*path, "fixed_interval")
        checked_body["fixed_interval"] = check.text(
            body["fixed_interval"], location, form=_FIXED_INTERVAL, expected="days, such as 7d"
        )
    checked_body |= date_parameters(check, body, path) | _order(check, body, path)
    return members(checked_body | _min_doc_count(check, body, path)), _ASSUMED_GROUPS


def _histogram(check: Check, value: Any, path: Path) -> tuple[Json, int]:
    body = check.allowed_members(value, path, keys=("field", "interval", "order", "min_doc_count"))
    checked_body: Json = {"field": check.field_name(body.get("field"), (*path, "field"))}
    interval = check.scalar(body.get("interval"), (*path, "interval"))
    if isinstance(interval, bool | str) or (interval is not None and interval < 1):
        check.add_problem((*path, "interval"), "expected a number from 1")
    checked_body |= {"interval": interval, **_order(check, body, path)}
    return members(checked_body | _min_doc_count(check, body, path)), _ASSUMED_GROUPS


def _range(check: Check, value: Any, path: Path) -> tuple[Json, int]:
    body = check.allowed_members(value, path, keys=("field", "ranges"))
    return _ranges(check, body, path)


def _date_range(check: Check, value: Any, path: Path) -> tuple[Json, int]:
    body = check.allowed_members(value, path, keys=("field", "ranges", "format", "time_zone"))
    checked_body, count = _ranges(check, body, path)
    return checked_body | date_parameters(check, body, path), count


def _ranges(check: Check, body: Json, path: Path) -> tuple[Json, int]:
    checked_body: Json = {"field": check.field_name(body.get("field"), (*path, "field")), "ranges": []}
    ranges, location = body.get("ranges"), (*path, "ranges")
    if not isinstance(ranges, list) or not 0 < len(ranges) <= _MAX_RANGES:
        check.add_problem(location, f"expected a list of 1 to {_MAX_RANGES} ranges")
        return members(checked_body), 1
    for position, range_body in enumerate(ranges):
        allowed = check.allowed_members(range_body, (*location, position), keys=("from", "to", "key"))
        checked_body["ranges"].append(
            {name: check.scalar(allowed[name], (*location, position, name)) for name in allowed}
        )
    return members(checked_body), len(ranges)


def _filter(check: Check, value: Any, path: Path) -> tuple[Json, int]:
    return check_condition(check, value, path), 1


def _filters(check: Check, value: Any, path: Path) -> tuple[Json, int]:
    body = check.allowed_members(value, path, keys=("filters", "other_bucket", "other_bucket_key"))
    filters, location = body.get("filters"), (*path, "filters")
    if not isinstance(filters, dict) or not 0 < len(filters) <= _MAX_RANGES:
        check.add_problem(location, f"expected an object of 1 to {_MAX_RANGES} conditions by name")
        return {}, 1
    checked_body: Json = {"filters": {}}
    for name, condition in filters.items():
        if check.scalar(name, location) is not None:
            checked_body["filters"][name] = check_condition(check, condition, (*location, name))
    if "other_bucket" in body:
        checked_body["other_bucket"] = check.flag(body["other_bucket"], (*path, "other_bucket"))
    if "other_bucket_key" in body:
        checked_body["other_bucket_key"] = check.scalar(body["other_bucket_key"], (*path, "other_bucket_key"))
    return members(checked_body), len(filters) + 1


def _missing(check: Check, value: Any, path: Path) -> tuple[Json, int]:
    return _field_only(check, value, path, 1), 1


def _order(check: Check, body: Json, path: Path) -> Json:
    if "order" not in body:
        return {}
    orders, checked_orders = body["order"], []
    for order in (orders if isinstance(orders, list) else [orders])[:5]:
        key_and_direction = check.single_member(order, (*path, "order"), expected="the sort key of the groups")
        if key_and_direction is None:
            return {}
        expected = "_count, _key or the name of a figure"
        name = check.text(key_and_direction[0], (*path, "order"), form=_ORDER, expected=expected)
        direction = check.choice(key_and_direction[1], (*path, "order", str(name)), choices=_DIRECTIONS)
        if name is not None and direction is not None:
            checked_orders.append({name: direction})
    return {"order": checked_orders} if checked_orders else {}


def _explicit_min_doc_count(check: Check, body: Json, path: Path) -> Json:
    if "min_doc_count" not in body:
        return {}
    return {"min_doc_count": check.count(body["min_doc_count"], (*path, "min_doc_count"), minimum=1, maximum=2**31 - 1)}


def _min_doc_count(check: Check, body: Json, path: Path) -> Json:
    """Return `min_doc_count` of a histogram, by default 1: the number of empty groups would be unlimited."""
    return {"min_doc_count": 1} | _explicit_min_doc_count(check, body, path)


# Figures: each function returns the checked aggregation.


def _field_only(check: Check, value: Any, path: Path, enclosing_groups: int) -> Json:  # noqa: ARG001 - as every figure
    body = check.allowed_members(value, path, keys=("field",))
    return members({"field": check.field_name(body.get("field"), (*path, "field"))})


def _sum(check: Check, value: Any, path: Path, enclosing_groups: int) -> Json:
    checked_body = _field_only(check, value, path, enclosing_groups)
    if check.fields is not None and check.fields.get(checked_body.get("field", "")) in _DATE_TYPES:
        check.add_problem((*path, "field"), "dates cannot be summed; use min, max or avg")
    return checked_body


def _cardinality(check: Check, value: Any, path: Path, enclosing_groups: int) -> Json:  # noqa: ARG001
    body = check.allowed_members(value, path, keys=("field", "precision_threshold"))
    checked_body: Json = {"field": check.field_name(body.get("field"), (*path, "field"))}
    if "precision_threshold" in body:
        location = (*path, "precision_threshold")
        checked_body["precision_threshold"] = check.count(body["precision_threshold"], location, maximum=40_000)
    return members(checked_body)


def _percentiles(check: Check, value: Any, path: Path, enclosing_groups: int) -> Json:  # noqa: ARG001
    body = check.allowed_members(value, path, keys=("field", "percents"))
    checked_body: Json = {"field": check.field_name(body.get("field"), (*path, "field"))}
    if "percents" in body:
        percents = check.scalars(body["percents"], (*path, "percents"))
        if not 0 < len(percents) <= 20 or not all(
            type(percent) in (int, float) and 0 <= percent <= 100 for percent in percents
        ):
            check.add_problem((*path, "percents"), "expected a list of 1 to 20 numbers from 0 to 100")
        checked_body["percents"] = percents
    return members(checked_body)


def _top_hits(check: Check, value: Any, path: Path, enclosing_groups: int) -> Json:
    body = check.allowed_members(value, path, keys=("size", "sort", "_source"))
    checked_body: Json = {"size": 3}
    if "size" in body:
        checked_body["size"] = check.count(body["size"], (*path, "size"), minimum=1, maximum=_MAX_TOP_HITS)
    if "sort" in body:
        checked_body["sort"] = check_sort(check, body["sort"], (*path, "sort"))
    if "_source" in body:
        checked_body["_source"] = check_source(check, body["_source"], (*path, "_source"))
    check.buckets += enclosing_groups * (checked_body["size"] or 1)
    return members(checked_body)


_GROUPS: Mapping[str, Callable[[Check, Any, Path], tuple[Json, int]]] = {
    "terms": _terms,
    "date_histogram": _date_histogram,
    "histogram": _histogram,
    "range": _range,
    "date_range": _date_range,
    "filter": _filter,
    "filters": _filters,
    "missing": _missing,
}
_FIGURES: Mapping[str, Callable[[Check, Any, Path, int], Json]] = {
    "avg": _field_only,
    "sum": _sum,
    "min": _field_only,
    "max": _field_only,
    "stats": _field_only,
    "value_count": _field_only,
    "cardinality": _cardinality,
    "percentiles": _percentiles,
    "top_hits": _top_hits,
}
GROUP_KINDS, FIGURE_KINDS = tuple(_GROUPS), tuple(_FIGURES)
