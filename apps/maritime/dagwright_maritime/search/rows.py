"""Which documents a query brings, in which order, and which of their fields."""

from typing import Any

from dagwright_maritime.search.limits import Check, Json, Path, members

_FIELDS = 100


def checked_sort(check: Check, value: Any, path: Path) -> list[Json]:
    """Returns the order of documents as the server gets it; what is wrong with it is noted in `check`."""
    sorts = value if isinstance(value, list) else [value]
    most = check.limits.sorts
    if len(sorts) > most:
        check.refuse(path, f"at most {most} fields order documents")
    return [_sort(check, each, (*path, place)) for place, each in enumerate(sorts[:most])]


def _sort(check: Check, value: Any, path: Path) -> Json:
    found = (value, {}) if isinstance(value, str) else check.one(value, path, what="a field")
    if found is None:
        return {}
    written, how = found
    name = "_score" if written == "_score" else check.field_name(written, path)
    if name is None:
        return {}
    here = (*path, name)
    given = check.known({"order": how} if isinstance(how, str) else how, here, keys=("order", "missing"))
    told: Json = {"order": "desc" if name == "_score" else "asc"}
    if "order" in given:
        told["order"] = check.choice(given["order"], (*here, "order"), among=("asc", "desc"))
    if "missing" in given:
        told["missing"] = check.choice(given["missing"], (*here, "missing"), among=("_last", "_first"))
    return {name: members(told)}


def checked_source(check: Check, value: Any, path: Path) -> Any:
    """Returns which fields of documents are told: a truth value, or names of fields."""
    if isinstance(value, bool):
        return value
    if isinstance(value, dict):
        given = check.known(value, path, keys=("includes", "excludes"))
        return {name: _names(check, given[name], (*path, name)) for name in given}
    return _names(check, value, path)


def _names(check: Check, value: Any, path: Path) -> list[str | None]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or len(names) > _FIELDS:
        check.refuse(path, f"expected a list of at most {_FIELDS} fields")
        return []
    return [check.field_name(each, (*path, place)) for place, each in enumerate(names)]
