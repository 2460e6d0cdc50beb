"""The allowed conditions of a query: each kind by name, with its allowed parameters; everything else is rejected.

The query that is sent is built from the checked parts, so no unchecked part reaches the server. Deliberately excluded:
scripts in all forms, `regexp`, `fuzzy`, `query_string` and `simple_query_string` (patterns in a text),
`more_like_this`, `percolate` and `terms` lookups (they read other indices), and joins.

Source: the query DSL of OpenSearch 2.19.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dagwright_maritime.search.limits import Check, Json, Path, present_members

ConditionCheck = Callable[[Check, Any, Path, int], Json]

_COUNT_OR_PERCENTAGE = re.compile(r"-?[0-9]{1,3}%?")
_DATE_FORMAT = re.compile(r"[A-Za-z0-9_:./ |'-]{1,80}")
_TIME_ZONE = re.compile(r"[A-Za-z0-9_+:/-]{1,40}")
_WEIGHTED_FIELD = re.compile(r"(?P<field>[^^]*)(?P<weight>\^[0-9]{1,3}(\.[0-9]{1,3})?)?")
_WILDCARDS = re.compile(r"[*?]")
_FUZZINESS = ("auto", "0", "1", "2")
_PATTERN_CHARACTERS = 100
_PATTERN_WILDCARDS = 3
_BOOL_KEYS = ("must", "filter", "should", "must_not")
_BOUNDS = ("gt", "gte", "lt", "lte")


def check_condition(check: Check, value: Any, path: Path, depth: int = 1) -> Json:
    """Return a condition as it is sent to the server; problems are added to `check`.

    Args:
        path: location of the condition in the query.
        depth: nesting depth, 1 for the outermost condition.
    """
    if not check.count_clause(path, depth):
        return {}
    kind_and_body = check.single_member(value, path, expected="the kind of a condition")
    if kind_and_body is None:
        return {}
    kind, body = kind_and_body
    condition_check = _CONDITION_CHECKS.get(kind)
    if condition_check is None:
        check.add_problem((*path, kind), f"unknown condition; allowed: {', '.join(_CONDITION_CHECKS)}")
        return {}
    return {kind: condition_check(check, body, (*path, kind), depth)}


def check_date_parameters(check: Check, body: Mapping[str, Any], path: Path) -> Json:
    """Return the checked parameters `format` and `time_zone` of dates."""
    checked_body: Json = {}
    if "format" in body:
        checked_body["format"] = check.text(
            body["format"], (*path, "format"), pattern=_DATE_FORMAT, expected="a format of dates"
        )
    if "time_zone" in body:
        checked_body["time_zone"] = check.text(
            body["time_zone"], (*path, "time_zone"), pattern=_TIME_ZONE, expected="a time zone"
        )
    return present_members(checked_body)


def _check_no_parameters(check: Check, value: Any, path: Path, depth: int) -> Json:  # noqa: ARG001 - type `ConditionCheck`
    check.allowed_members(value, path, keys=())
    return {}


def _field_condition(
    check: Check, value: Any, path: Path, *, main_key: str, other_keys: Sequence[str] = ()
) -> tuple[str, Json, Path] | None:
    """Return a field, its parameters and its path; a plain value is the value of the parameter `main_key`."""
    field_and_body = check.single_member(value, path, expected="a field")
    if field_and_body is None:
        return None
    name = check.field_name(field_and_body[0], (*path, field_and_body[0]))
    if name is None:
        return None
    location = (*path, name)
    if isinstance(field_and_body[1], dict):
        body = check.allowed_members(field_and_body[1], location, keys=(main_key, *other_keys))
        if main_key not in body:
            check.add_problem(location, f"{main_key!r} is missing")
            return None
        return name, body, location
    return name, {main_key: field_and_body[1]}, location


def _check_term(check: Check, value: Any, path: Path, depth: int) -> Json:  # noqa: ARG001
    field_and_body = _field_condition(check, value, path, main_key="value", other_keys=("case_insensitive",))
    if field_and_body is None:
        return {}
    name, body, location = field_and_body
    checked_body: Json = {"value": check.scalar(body["value"], location)}
    if "case_insensitive" in body:
        checked_body["case_insensitive"] = check.boolean(body["case_insensitive"], (*location, "case_insensitive"))
    return {name: present_members(checked_body)}


def _check_terms(check: Check, value: Any, path: Path, depth: int) -> Json:  # noqa: ARG001
    field_and_values = check.single_member(value, path, expected="a field")
    name = None if field_and_values is None else check.field_name(field_and_values[0], (*path, field_and_values[0]))
    if field_and_values is None or name is None:
        return {}
    # An object would be a terms lookup, which reads a document of any index.
    return {name: check.scalars(field_and_values[1], (*path, name))}


def _check_pattern(check: Check, value: Any, path: Path, depth: int) -> Json:  # noqa: ARG001
    field_and_body = _field_condition(check, value, path, main_key="value", other_keys=("case_insensitive",))
    if field_and_body is None:
        return {}
    name, body, location = field_and_body
    pattern = body["value"]
    if not isinstance(pattern, str) or not 0 < len(pattern) <= _PATTERN_CHARACTERS:
        check.add_problem(location, f"expected a pattern of 1 to {_PATTERN_CHARACTERS} characters")
        return {}
    if path[-1] == "wildcard" and _WILDCARDS.match(pattern):
        check.add_problem(location, "a leading wildcard would scan all values; use match on the text field")
    if path[-1] == "wildcard" and len(_WILDCARDS.findall(pattern)) > _PATTERN_WILDCARDS:
        check.add_problem(location, f"a pattern has at most {_PATTERN_WILDCARDS} wildcards")
    checked_body: Json = {"value": check.scalar(pattern, location)}
    if "case_insensitive" in body:
        checked_body["case_insensitive"] = check.boolean(body["case_insensitive"], (*location, "case_insensitive"))
    return {name: present_members(checked_body)}


def _check_match(check: Check, value: Any, path: Path, depth: int) -> Json:  # noqa: ARG001
    field_and_body = _field_condition(
        check, value, path, main_key="query", other_keys=("operator", "fuzziness", "minimum_should_match")
    )
    if field_and_body is None:
        return {}
    name, body, location = field_and_body
    return {name: _check_full_text(check, body, location)}


def _check_match_phrase(check: Check, value: Any, path: Path, depth: int) -> Json:  # noqa: ARG001
    field_and_body = _field_condition(check, value, path, main_key="query", other_keys=("slop",))
    if field_and_body is None:
        return {}
    name, body, location = field_and_body
    checked_body: Json = {"query": check.scalar(body["query"], location)}
    if "slop" in body:
        checked_body["slop"] = check.integer(body["slop"], (*location, "slop"), maximum=10)
    return {name: present_members(checked_body)}


def _check_multi_match(check: Check, value: Any, path: Path, depth: int) -> Json:  # noqa: ARG001
    keys = ("query", "fields", "type", "operator", "fuzziness", "minimum_should_match")
    body = check.allowed_members(value, path, keys=keys)
    checked_body = _check_full_text(check, body, path)
    fields = body.get("fields")
    if not isinstance(fields, list) or not 0 < len(fields) <= 20:
        check.add_problem((*path, "fields"), "expected a list of 1 to 20 fields")
        return {}
    checked_body["fields"] = [
        _check_weighted_field(check, field, (*path, "fields", position)) for position, field in enumerate(fields)
    ]
    if "type" in body:
        match_types = ("best_fields", "most_fields", "cross_fields", "phrase", "bool_prefix")
        checked_body["type"] = check.choice(body["type"], (*path, "type"), choices=match_types)
    return present_members(checked_body)


def _check_weighted_field(check: Check, value: Any, path: Path) -> str | None:
    parts = _WEIGHTED_FIELD.fullmatch(value) if isinstance(value, str) else None
    name = check.field_name(parts["field"] if parts else value, path)
    return None if name is None or parts is None else f"{name}{parts['weight'] or ''}"


def _check_full_text(check: Check, body: Json, path: Path) -> Json:
    checked_body: Json = {"query": check.scalar(body.get("query"), (*path, "query"))}
    if "operator" in body:
        checked_body["operator"] = check.choice(body["operator"], (*path, "operator"), choices=("and", "or"))
    if "fuzziness" in body:
        fuzziness = body["fuzziness"]
        fuzziness_text = str(fuzziness) if type(fuzziness) is int else fuzziness
        checked_body["fuzziness"] = check.choice(fuzziness_text, (*path, "fuzziness"), choices=_FUZZINESS)
    checked_body |= _check_minimum_should_match(check, body, path)
    return present_members(checked_body)


def _check_minimum_should_match(check: Check, body: Json, path: Path) -> Json:
    """Return an object with the checked `minimum_should_match`; without that parameter, return an empty object."""
    if "minimum_should_match" not in body:
        return {}
    minimum = body["minimum_should_match"]
    minimum_text = str(minimum) if type(minimum) is int and abs(minimum) < 1000 else minimum
    location = (*path, "minimum_should_match")
    return {
        "minimum_should_match": check.text(
            minimum_text, location, pattern=_COUNT_OR_PERCENTAGE, expected="a number or a percentage"
        )
    }


def _check_range(check: Check, value: Any, path: Path, depth: int) -> Json:  # noqa: ARG001
    field_and_bounds = check.single_member(value, path, expected="a field")
    name = None if field_and_bounds is None else check.field_name(field_and_bounds[0], (*path, field_and_bounds[0]))
    if field_and_bounds is None or name is None:
        return {}
    location = (*path, name)
    body = check.allowed_members(field_and_bounds[1], location, keys=(*_BOUNDS, "format", "time_zone"))
    bounds = {bound: check.scalar(body[bound], (*location, bound)) for bound in _BOUNDS if bound in body}
    if not bounds:
        check.add_problem(location, f"a range needs one of {', '.join(_BOUNDS)}")
    return {name: present_members({**bounds, **check_date_parameters(check, body, location)})}


def _check_exists(check: Check, value: Any, path: Path, depth: int) -> Json:  # noqa: ARG001
    body = check.allowed_members(value, path, keys=("field",))
    return present_members({"field": check.field_name(body.get("field"), (*path, "field"))})


def _check_bool(check: Check, value: Any, path: Path, depth: int) -> Json:
    body = check.allowed_members(value, path, keys=(*_BOOL_KEYS, "minimum_should_match"))
    checked_body: Json = {}
    for key in _BOOL_KEYS:
        if key not in body:
            continue
        location = (*path, key)
        if isinstance(body[key], list):
            checked_body[key] = [
                check_condition(check, clause, (*location, position), depth + 1)
                for position, clause in enumerate(body[key][: check.limits.clauses + 1])
            ]
        else:
            checked_body[key] = [check_condition(check, body[key], location, depth + 1)]
    return {**checked_body, **_check_minimum_should_match(check, body, path)}


def _check_constant_score(check: Check, value: Any, path: Path, depth: int) -> Json:
    body = check.allowed_members(value, path, keys=("filter",))
    return {"filter": check_condition(check, body.get("filter"), (*path, "filter"), depth + 1)}


_CONDITION_CHECKS: Mapping[str, ConditionCheck] = {
    "match_all": _check_no_parameters,
    "match_none": _check_no_parameters,
    "term": _check_term,
    "terms": _check_terms,
    "match": _check_match,
    "match_phrase": _check_match_phrase,
    "multi_match": _check_multi_match,
    "range": _check_range,
    "exists": _check_exists,
    "prefix": _check_pattern,
    "wildcard": _check_pattern,
    "bool": _check_bool,
    "constant_score": _check_constant_score,
}
CONDITION_KINDS = tuple(_CONDITION_CHECKS)
