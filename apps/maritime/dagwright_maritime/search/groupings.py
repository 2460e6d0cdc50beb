"""Which aggregations a query may have, and how many groups they may make; as for conditions, all else is refused.

A group is a bucket. How many a list of words makes is what it asks for; how many dates or numbers make is not known
before the query runs, so they count as a hundred here and whoever runs it counts again. Left out on purpose:
`scripted_metric` and whatever else takes a script, `global` (leaves the query), and patterns in `include`.

Source: the aggregations of OpenSearch 2.19.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from dagwright_maritime.search.conditions import checked_condition, date_words
from dagwright_maritime.search.limits import Check, Json, Path, members
from dagwright_maritime.search.rows import checked_sort, checked_source

_NAME = re.compile(r"\w[\w .-]{0,79}", re.ASCII)
_ORDER = re.compile(r"_count|_key|[A-Za-z_][\w-]{0,79}(>[A-Za-z_][\w-]{0,79}){0,3}(\.[a-z_0-9.]{1,20})?", re.ASCII)
_DAYS = re.compile(r"[1-9][0-9]{0,3}d")
_CALENDAR = re.compile(r"day|week|month|quarter|year|1d|1w|1M|1q|1y")
"""`1m` would be a minute."""
_NUMBERS = {"stats": 5, "percentiles": 7}
"""In a figure that is several, of percentiles where it is not said which."""
_DATES = ("date", "date_nanos")
_DIRECTIONS = ("asc", "desc")
MOST_GROUPINGS = 30
"""Beside each other."""
_UNKNOWN_GROUPS = 100
"""What dates and numbers count as: eight years of months, or three months of days."""
_DEFAULT_GROUPS = 10
"""As the server has it for `terms`."""
_TOP_DOCUMENTS = 10
_RANGES = 50


def checked_groupings(check: Check, value: Any, path: Path) -> Json:
    """Returns the aggregations of a query as the server gets them; what is wrong with them is noted in `check`."""
    told = _groupings(check, value, path, depth=1, around=1)
    if check.buckets > check.limits.buckets:
        check.refuse(
            path, f"{check.buckets:,} groups or more are asked for, over the limit of {check.limits.buckets:,}"
        )
    if check.figures > check.limits.figures:
        figures = f"{check.figures:,} figures or more are asked for, each group's counted"
        check.refuse(path, f"{figures}, over the limit of {check.limits.figures:,}; ask for fewer groups or figures")
    return told


def _groupings(check: Check, value: Any, path: Path, *, depth: int, around: int) -> Json:
    if not isinstance(value, dict) or not 0 < len(value) <= MOST_GROUPINGS:
        check.refuse(path, f"expected an object of 1 to {MOST_GROUPINGS} aggregations by name")
        return {}
    told: Json = {}
    for name, inner in value.items():
        if _NAME.fullmatch(name) is None:
            check.refuse((*path, name), "the name of an aggregation has at most 80 letters, digits, _, -, . and blanks")
        else:
            told[name] = _grouping(check, inner, (*path, name), depth=depth, around=around)
    return told


def _grouping(check: Check, value: Any, path: Path, *, depth: int, around: int) -> Json:
    if not check.clause(path, depth):
        return {}
    if not isinstance(value, dict):
        check.refuse(path, "expected an object with the kind of an aggregation")
        return {}
    kinds = {kind: inner for kind, inner in value.items() if kind not in ("aggs", "aggregations")}
    below = [inner for kind, inner in value.items() if kind in ("aggs", "aggregations")]
    found = check.one(kinds, path, what="the kind of an aggregation")
    if found is None:
        return {}
    kind, given = found
    here = (*path, kind)
    if kind in _FIGURES:
        if below:
            check.refuse(path, f"{kind} makes no groups, so nothing can be inside of it")
        figure = _FIGURES[kind](check, given, here, around)
        check.figures += around * (len(figure.get("percents", ())) or _NUMBERS.get(kind, 1))
        return {kind: figure}
    if kind not in _GROUPS:
        check.refuse(here, f"there is no such aggregation here; allowed: {', '.join([*_GROUPS, *_FIGURES])}")
        return {}
    told, groups = _GROUPS[kind](check, given, here)
    check.buckets += around * groups
    if not below:
        return {kind: told}
    if len(below) > 1:
        check.refuse(path, "aggs and aggregations are the same; give one of them")
    inside = _groupings(check, below[0], (*path, "aggs"), depth=depth + 1, around=around * groups)
    return {kind: told, "aggs": inside}


# Groups: each returns what the server gets, and how many groups it makes at most.


def _terms(check: Check, value: Any, path: Path) -> tuple[Json, int]:
    keys = ("field", "size", "order", "min_doc_count", "missing", "include", "exclude")
    given = check.known(value, path, keys=keys)
    told: Json = {"field": check.field_name(given.get("field"), (*path, "field")), "size": _DEFAULT_GROUPS}
    if "size" in given:
        told["size"] = check.count(given["size"], (*path, "size"), least=1, most=check.limits.buckets)
    if "missing" in given:
        told["missing"] = check.scalar(given["missing"], (*path, "missing"))
    for name in ("include", "exclude"):
        if name in given:
            # A text would be a pattern.
            told[name] = check.scalars(given[name], (*path, name))
    told |= _order(check, given, path) | _least_documents(check, given, path)
    return members(told), told["size"] or 1


def _date_histogram(check: Check, value: Any, path: Path) -> tuple[Json, int]:
    keys = ("field", "calendar_interval", "fixed_interval", "format", "time_zone", "order", "min_doc_count")
    given = check.known(value, path, keys=keys)
    told: Json = {"field": check.field_name(given.get("field"), (*path, "field"))}
    if ("calendar_interval" in given) == ("fixed_interval" in given):
        check.refuse(path, "give either a calendar_interval or a fixed_interval")
    elif "calendar_interval" in given:
        here = (*path, "calendar_interval")
        what = "day, week, month, quarter or year"
        told["calendar_interval"] = check.text(given["calendar_interval"], here, form=_CALENDAR, what=what)
    else:
        here = (*path, "fixed_interval")
        told["fixed_interval"] = check.text(given["fixed_interval"], here, form=_DAYS, what="days, such as 7d")
    told |= date_words(check, given, path) | _order(check, given, path)
    return members(told | _filled(check, given, path)), _UNKNOWN_GROUPS


def _histogram(check: Check, value: Any, path: Path) -> tuple[Json, int]:
    given = check.known(value, path, keys=("field", "interval", "order", "min_doc_count"))
    told: Json = {"field": check.field_name(given.get("field"), (*path, "field"))}
    interval = check.scalar(given.get("interval"), (*path, "interval"))
    if isinstance(interval, bool | str) or (interval is not None and interval < 1):
        check.refuse((*path, "interval"), "expected a number from 1")
    told |= {"interval": interval, **_order(check, given, path)}
    return members(told | _filled(check, given, path)), _UNKNOWN_GROUPS


def _range(check: Check, value: Any, path: Path) -> tuple[Json, int]:
    given = check.known(value, path, keys=("field", "ranges"))
    return _ranges(check, given, path)


def _date_range(check: Check, value: Any, path: Path) -> tuple[Json, int]:
    given = check.known(value, path, keys=("field", "ranges", "format", "time_zone"))
    told, count = _ranges(check, given, path)
    return told | date_words(check, given, path), count


def _ranges(check: Check, given: Json, path: Path) -> tuple[Json, int]:
    told: Json = {"field": check.field_name(given.get("field"), (*path, "field")), "ranges": []}
    ranges, here = given.get("ranges"), (*path, "ranges")
    if not isinstance(ranges, list) or not 0 < len(ranges) <= _RANGES:
        check.refuse(here, f"expected a list of 1 to {_RANGES} ranges")
        return members(told), 1
    for place, each in enumerate(ranges):
        known = check.known(each, (*here, place), keys=("from", "to", "key"))
        told["ranges"].append({name: check.scalar(known[name], (*here, place, name)) for name in known})
    return members(told), len(ranges)


def _filter(check: Check, value: Any, path: Path) -> tuple[Json, int]:
    return checked_condition(check, value, path), 1


def _filters(check: Check, value: Any, path: Path) -> tuple[Json, int]:
    given = check.known(value, path, keys=("filters", "other_bucket", "other_bucket_key"))
    filters, here = given.get("filters"), (*path, "filters")
    if not isinstance(filters, dict) or not 0 < len(filters) <= _RANGES:
        check.refuse(here, f"expected an object of 1 to {_RANGES} conditions by name")
        return {}, 1
    told: Json = {"filters": {}}
    for name, each in filters.items():
        if check.scalar(name, here) is not None:
            told["filters"][name] = checked_condition(check, each, (*here, name))
    if "other_bucket" in given:
        told["other_bucket"] = check.flag(given["other_bucket"], (*path, "other_bucket"))
    if "other_bucket_key" in given:
        told["other_bucket_key"] = check.scalar(given["other_bucket_key"], (*path, "other_bucket_key"))
    return members(told), len(filters) + 1


def _missing(check: Check, value: Any, path: Path) -> tuple[Json, int]:
    return _of_field(check, value, path, 1), 1


def _order(check: Check, given: Json, path: Path) -> Json:
    if "order" not in given:
        return {}
    orders, told = given["order"], []
    for each in (orders if isinstance(orders, list) else [orders])[:5]:
        found = check.one(each, (*path, "order"), what="what groups are ordered by")
        if found is None:
            return {}
        what = "_count, _key or the name of a figure"
        name = check.text(found[0], (*path, "order"), form=_ORDER, what=what)
        direction = check.choice(found[1], (*path, "order", str(name)), among=_DIRECTIONS)
        if name is not None and direction is not None:
            told.append({name: direction})
    return {"order": told} if told else {}


def _least_documents(check: Check, given: Json, path: Path) -> Json:
    if "min_doc_count" not in given:
        return {}
    return {"min_doc_count": check.count(given["min_doc_count"], (*path, "min_doc_count"), least=1, most=2**31 - 1)}


def _filled(check: Check, given: Json, path: Path) -> Json:
    """Returns the least count of a histogram; 1 without one, for empty groups have no end."""
    return {"min_doc_count": 1} | _least_documents(check, given, path)


# Figures: each returns what the server gets.


def _of_field(check: Check, value: Any, path: Path, around: int) -> Json:  # noqa: ARG001 - as every figure
    given = check.known(value, path, keys=("field",))
    return members({"field": check.field_name(given.get("field"), (*path, "field"))})


def _sum(check: Check, value: Any, path: Path, around: int) -> Json:
    told = _of_field(check, value, path, around)
    if check.fields is not None and check.fields.get(told.get("field", "")) in _DATES:
        check.refuse((*path, "field"), "dates cannot be added up; ask for min, max or avg")
    return told


def _cardinality(check: Check, value: Any, path: Path, around: int) -> Json:  # noqa: ARG001
    given = check.known(value, path, keys=("field", "precision_threshold"))
    told: Json = {"field": check.field_name(given.get("field"), (*path, "field"))}
    if "precision_threshold" in given:
        here = (*path, "precision_threshold")
        told["precision_threshold"] = check.count(given["precision_threshold"], here, most=40_000)
    return members(told)


def _percentiles(check: Check, value: Any, path: Path, around: int) -> Json:  # noqa: ARG001
    given = check.known(value, path, keys=("field", "percents"))
    told: Json = {"field": check.field_name(given.get("field"), (*path, "field"))}
    if "percents" in given:
        percents = check.scalars(given["percents"], (*path, "percents"))
        if not 0 < len(percents) <= 20 or not all(type(each) in (int, float) and 0 <= each <= 100 for each in percents):
            check.refuse((*path, "percents"), "expected a list of 1 to 20 numbers from 0 to 100")
        told["percents"] = percents
    return members(told)


def _top_hits(check: Check, value: Any, path: Path, around: int) -> Json:
    given = check.known(value, path, keys=("size", "sort", "_source"))
    told: Json = {"size": 3}
    if "size" in given:
        told["size"] = check.count(given["size"], (*path, "size"), least=1, most=_TOP_DOCUMENTS)
    if "sort" in given:
        told["sort"] = checked_sort(check, given["sort"], (*path, "sort"))
    if "_source" in given:
        told["_source"] = checked_source(check, given["_source"], (*path, "_source"))
    check.buckets += around * (told["size"] or 1)
    return members(told)


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
    "avg": _of_field,
    "sum": _sum,
    "min": _of_field,
    "max": _of_field,
    "stats": _of_field,
    "value_count": _of_field,
    "cardinality": _cardinality,
    "percentiles": _percentiles,
    "top_hits": _top_hits,
}
GROUP_KINDS, FIGURE_KINDS = tuple(_GROUPS), tuple(_FIGURES)
