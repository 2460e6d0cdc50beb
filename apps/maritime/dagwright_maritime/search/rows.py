"""Checks of the sort order and the fields of the documents of a result."""

from typing import Any

from dagwright_maritime.search.limits import Check, Json, Path, present_members

_MAX_FIELDS = 100


def check_sort(check: Check, value: Any, path: Path) -> list[Json]:
    """Return the sort order of documents as it is sent to the server; problems are added to `check`."""
    sorts = value if isinstance(value, list) else [value]
    max_sorts = check.limits.sorts
    if len(sorts) > max_sorts:
        check.add_problem(path, f"at most {max_sorts} sort fields are allowed")
    return [_check_sort_field(check, sort, (*path, position)) for position, sort in enumerate(sorts[:max_sorts])]


def _check_sort_field(check: Check, value: Any, path: Path) -> Json:
    field_and_order = (value, {}) if isinstance(value, str) else check.single_member(value, path, expected="a field")
    if field_and_order is None:
        return {}
    field_name, order = field_and_order
    name = "_score" if field_name == "_score" else check.field_name(field_name, path)
    if name is None:
        return {}
    field_path = (*path, name)
    options = check.allowed_members(
        {"order": order} if isinstance(order, str) else order, field_path, keys=("order", "missing")
    )
    checked_body: Json = {"order": "desc" if name == "_score" else "asc"}
    if "order" in options:
        checked_body["order"] = check.choice(options["order"], (*field_path, "order"), choices=("asc", "desc"))
    if "missing" in options:
        checked_body["missing"] = check.choice(
            options["missing"], (*field_path, "missing"), choices=("_last", "_first")
        )
    return {name: present_members(checked_body)}


def check_source(check: Check, value: Any, path: Path) -> Any:
    """Return the requested fields of documents: a boolean, field names, or an object with `includes` and `excludes`."""
    if isinstance(value, bool):
        return value
    if isinstance(value, dict):
        source = check.allowed_members(value, path, keys=("includes", "excludes"))
        return {name: _check_names(check, source[name], (*path, name)) for name in source}
    return _check_names(check, value, path)


def _check_names(check: Check, value: Any, path: Path) -> list[str | None]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or len(names) > _MAX_FIELDS:
        check.add_problem(path, f"expected a list of at most {_MAX_FIELDS} fields")
        return []
    return [check.field_name(name, (*path, position)) for position, name in enumerate(names)]
