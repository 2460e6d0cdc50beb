"""The allowed aggregations of a query, and the maximum number of their groups; everything else is rejected.

A group is a bucket. A `terms` aggregation counts as `size` buckets. The number of buckets of a histogram is unknown
before the query runs, so a histogram counts as a hundred buckets, and the actual number is checked in the result.
Deliberately excluded: `scripted_metric` and other scripts, `global` (ignores the query), and patterns in `include`.

Source: the aggregations of OpenSearch 2.19.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from dagwright_maritime.search.conditions import check_condition, check_date_parameters
from dagwright_maritime.search.limits import Check, Json, Path, present_members
from dagwright_maritime.search.rows import check_sort, check_source

_NAME = re.compile(r"\w[\w .-]{0,79}", re.ASCII)
_ORDER = re.compile(r"_count|_key|[A-Za-z_][\w-]{0,79}(>[A-Za-z_][\w-]{0,79}){0,3}(\.[a-z_0-9.]{1,20})?", re.ASCII)
_FIXED_INTERVAL = re.compile(r"[1-9][0-9]{0,3}d")
_CALENDAR_INTERVAL = re.compile(r"day|week|month|quarter|year|1d|1w|1M|1q|1y")
"""`1m` is not allowed, because it means a minute."""
_VALUES_PER_FIGURE = {"stats": 5, "percentiles": 7}
"""Number of values of figures with several values; for `percentiles`, the number of default percents."""
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
    checked_body = _check_groupings(check, value, path, depth=1, enclosing_groups=1)
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


def _check_groupings(check: Check, value: Any, path: Path, *, depth: int, enclosing_groups: int) -> Json:
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
            checked_body[name] = _check_grouping(
                check, aggregation, (*path, name), depth=depth, enclosing_groups=enclosing_groups
            )
    return checked_body


def _check_grouping(check: Check, value: Any, path: Path, *, depth: int, enclosing_groups: int) -> Json:
    if not check.count_clause(path, depth):
        return {}
    if not isinstance(value, dict):
        check.add_problem(path, "expected an object with the kind of an aggregation")
        return {}
    bodies_by_kind = {kind: member for kind, member in value.items() if kind not in ("aggs", "aggregations")}
    nested_aggregations = [member for kind, member in value.items() if kind in ("aggs", "aggregations")]
    kind_and_body = check.single_member(bodies_by_kind, path, expected="the kind of an aggregation")
    if kind_and_body is None:
        return {}
    kind, body = kind_and_body
    location = (*path, kind)
    if kind in _FIGURE_CHECKS:
        if nested_aggregations:
            check.add_problem(path, f"{kind} makes no groups, so it cannot have aggregations")
        figure = _FIGURE_CHECKS[kind](check, body, location, enclosing_groups)
        check.figures += enclosing_groups * (len(figure.get("percents", ())) or _VALUES_PER_FIGURE.get(kind, 1))
        return {kind: figure}
    if kind not in _GROUP_CHECKS:
        check.add_problem(location, f"unknown aggregation; allowed: {', '.join([*_GROUP_CHECKS, *_FIGURE_CHECKS])}")
        return {}
    checked_body, group_count = _GROUP_CHECKS[kind](check, body, location)
    check.buckets += enclosing_groups * group_count
    if not nested_aggregations:
        return {kind: checked_body}
    if len(nested_aggregations) > 1:
        check.add_problem(path, "aggs and aggregations are synonyms; use one of them")
    inner_groupings = _check_groupings(
        check, nested_aggregations[0], (*path, "aggs"), depth=depth + 1, enclosing_groups=enclosing_groups * group_count
    )
    return {kind: checked_body, "aggs": inner_groupings}


# Groups: each function returns the checked aggregation and its maximum number of groups.


def _check_terms(check: Check, value: Any, path: Path) -> tuple[Json, int]:
    keys = ("field", "size", "order", "min_doc_count", "missing", "include", "exclude")
    body = check.allowed_members(value, path, keys=keys)
    checked_body: Json = {"field": check.field_name(body.get("field"), (*path, "field")), "size": _DEFAULT_GROUPS}
    if "size" in body:
        checked_body["size"] = check.integer(body["size"], (*path, "size"), minimum=1, maximum=check.limits.buckets)
    if "missing" in body:
        checked_body["missing"] = check.scalar(body["missing"], (*path, "missing"))
    for name in ("include", "exclude"):
        if name in body:
            # A text would be a pattern.
            checked_body[name] = check.scalars(body[name], (*path, name))
    checked_body |= _check_order(check, body, path) | _check_explicit_min_doc_count(check, body, path)
    return present_members(checked_body), checked_body["size"] or 1


def _check_date_histogram(check: Check, value: Any, path: Path) -> tuple[Json, int]:
    keys = ("field", "calendar_interval", "fixed_interval", "format", "time_zone", "order", "min_doc_count")
    body = check.allowed_members(value, path, keys=keys)
    checked_body: Json = {"field": check.field_name(body.get("field"), (*path, "field"))}
    if ("calendar_interval" in body) == ("fixed_interval" in body):
        check.add_problem(path, "expected either calendar_interval or fixed_interval")
    elif "calendar_interval" in body:
        location = (*path, "calendar_interval")
        expected = "day, week, month, quarter or year"
        checked_body["calendar_interval"] = check.text(
            body["calendar_interval"], location, pattern=_CALENDAR_INTERVAL, expected=expected
        )
    else:
        location = (*path, "fixed_interval")
        checked_body["fixed_interval"] = check.text(
            body["fixed_interval"], location, pattern=_FIXED_INTERVAL, expected="days, such as 7d"
        )
    checked_body |= check_date_parameters(check, body, path) | _check_order(check, body, path)
    return present_members(checked_body | _check_min_doc_count(check, body, path)), _ASSUMED_GROUPS


def _check_histogram(check: Check, value: Any, path: Path) -> tuple[Json, int]:
    body = check.allowed_members(value, path, keys=("field", "interval", "order", "min_doc_count"))
    checked_body: Json = {"field": check.field_name(body.get("field"), (*path, "field"))}
    interval = check.scalar(body.get("interval"), (*path, "interval"))
    if isinstance(interval, bool | str) or (interval is not None and interval < 1):
        check.add_problem((*path, "interval"), "expected a number from 1")
    checked_body |= {"interval": interval, **_check_order(check, body, path)}
    return present_members(checked_body | _check_min_doc_count(check, body, path)), _ASSUMED_GROUPS


def _check_range(check: Check, value: Any, path: Path) -> tuple[Json, int]:
    body = check.allowed_members(value, path, keys=("field", "ranges"))
    return _check_ranges(check, body, path)


def _check_date_range(check: Check, value: Any, path: Path) -> tuple[Json, int]:
    body = check.allowed_members(value, path, keys=("field", "ranges", "format", "time_zone"))
    checked_body, count = _check_ranges(check, body, path)
    return checked_body | check_date_parameters(check, body, path), count


def _check_ranges(check: Check, body: Json, path: Path) -> tuple[Json, int]:
    checked_body: Json = {"field": check.field_name(body.get("field"), (*path, "field")), "ranges": []}
    ranges, location = body.get("ranges"), (*path, "ranges")
    if not isinstance(ranges, list) or not 0 < len(ranges) <= _MAX_RANGES:
        check.add_problem(location, f"expected a list of 1 to {_MAX_RANGES} ranges")
        return present_members(checked_body), 1
    for position, range_body in enumerate(ranges):
        range_members = check.allowed_members(range_body, (*location, position), keys=("from", "to", "key"))
        checked_body["ranges"].append(
            {name: check.scalar(range_members[name], (*location, position, name)) for name in range_members}
        )
    return present_members(checked_body), len(ranges)


def _check_filter(check: Check, value: Any, path: Path) -> tuple[Json, int]:
    return check_condition(check, value, path), 1


def _check_filters(check: Check, value: Any, path: Path) -> tuple[Json, int]:
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
        checked_body["other_bucket"] = check.boolean(body["other_bucket"], (*path, "other_bucket"))
    if "other_bucket_key" in body:
        checked_body["other_bucket_key"] = check.scalar(body["other_bucket_key"], (*path, "other_bucket_key"))
    return present_members(checked_body), len(filters) + 1


def _check_missing(check: Check, value: Any, path: Path) -> tuple[Json, int]:
    return _check_field_only(check, value, path, 1), 1


def _check_order(check: Check, body: Json, path: Path) -> Json:
    if "order" not in body:
        return {}
    orders, checked_orders = body["order"], []
    for order in (orders if isinstance(orders, list) else [orders])[:5]:
        key_and_direction = check.single_member(order, (*path, "order"), expected="the sort key of the groups")
        if key_and_direction is None:
            return {}
        expected = "_count, _key or the name of a figure"
        name = check.text(key_and_direction[0], (*path, "order"), pattern=_ORDER, expected=expected)
        direction = check.choice(key_and_direction[1], (*path, "order", str(name)), choices=_DIRECTIONS)
        if name is not None and direction is not None:
            checked_orders.append({name: direction})
    return {"order": checked_orders} if checked_orders else {}


def _check_explicit_min_doc_count(check: Check, body: Json, path: Path) -> Json:
    if "min_doc_count" not in body:
        return {}
    return {
        "min_doc_count": check.integer(body["min_doc_count"], (*path, "min_doc_count"), minimum=1, maximum=2**31 - 1)
    }


def _check_min_doc_count(check: Check, body: Json, path: Path) -> Json:
    """Return `min_doc_count` of a histogram, by default 1. With 0, the number of empty groups would be unlimited."""
    return {"min_doc_count": 1} | _check_explicit_min_doc_count(check, body, path)


# Figures: each function returns the checked aggregation.


def _check_field_only(check: Check, value: Any, path: Path, enclosing_groups: int) -> Json:  # noqa: ARG001 - type of a figure check
    body = check.allowed_members(value, path, keys=("field",))
    return present_members({"field": check.field_name(body.get("field"), (*path, "field"))})


def _check_sum(check: Check, value: Any, path: Path, enclosing_groups: int) -> Json:
    checked_body = _check_field_only(check, value, path, enclosing_groups)
    if check.field_types is not None and check.field_types.get(checked_body.get("field", "")) in _DATE_TYPES:
        check.add_problem((*path, "field"), "dates cannot be summed; use min, max or avg")
    return checked_body


def _check_cardinality(check: Check, value: Any, path: Path, enclosing_groups: int) -> Json:  # noqa: ARG001
    body = check.allowed_members(value, path, keys=("field", "precision_threshold"))
    checked_body: Json = {"field": check.field_name(body.get("field"), (*path, "field"))}
    if "precision_threshold" in body:
        location = (*path, "precision_threshold")
        checked_body["precision_threshold"] = check.integer(body["precision_threshold"], location, maximum=40_000)
    return present_members(checked_body)


def _check_percentiles(check: Check, value: Any, path: Path, enclosing_groups: int) -> Json:  # noqa: ARG001
    body = check.allowed_members(value, path, keys=("field", "percents"))
    checked_body: Json = {"field": check.field_name(body.get("field"), (*path, "field"))}
    if "percents" in body:
        percents = check.scalars(body["percents"], (*path, "percents"))
        if not 0 < len(percents) <= 20 or not all(
            type(percent) in (int, float) and 0 <= percent <= 100 for percent in percents
        ):
            check.add_problem((*path, "percents"), "expected a list of 1 to 20 numbers from 0 to 100")
        checked_body["percents"] = percents
    return present_members(checked_body)


def _check_top_hits(check: Check, value: Any, path: Path, enclosing_groups: int) -> Json:
    body = check.allowed_members(value, path, keys=("size", "sort", "_source"))
    checked_body: Json = {"size": 3}
    if "size" in body:
        checked_body["size"] = check.integer(body["size"], (*path, "size"), minimum=1, maximum=_MAX_TOP_HITS)
    if "sort" in body:
        checked_body["sort"] = check_sort(check, body["sort"], (*path, "sort"))
    if "_source" in body:
        checked_body["_source"] = check_source(check, body["_source"], (*path, "_source"))
    check.buckets += enclosing_groups * (checked_body["size"] or 1)
    return present_members(checked_body)


_GROUP_CHECKS: Mapping[str, Callable[[Check, Any, Path], tuple[Json, int]]] = {
    "terms": _check_terms,
    "date_histogram": _check_date_histogram,
    "histogram": _check_histogram,
    "range": _check_range,
    "date_range": _check_date_range,
    "filter": _check_filter,
    "filters": _check_filters,
    "missing": _check_missing,
}
_FIGURE_CHECKS: Mapping[str, Callable[[Check, Any, Path, int], Json]] = {
    "avg": _check_field_only,
    "sum": _check_sum,
    "min": _check_field_only,
    "max": _check_field_only,
    "stats": _check_field_only,
    "value_count": _check_field_only,
    "cardinality": _check_cardinality,
    "percentiles": _check_percentiles,
    "top_hits": _check_top_hits,
}
GROUP_KINDS, FIGURE_KINDS = tuple(_GROUP_CHECKS), tuple(_FIGURE_CHECKS)
