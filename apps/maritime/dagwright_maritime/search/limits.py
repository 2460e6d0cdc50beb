"""Limits of queries, and the checker that collects problems.

Queries written by a model must be read-only and bounded in cost. This module must not import a client.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dagwright.plugins.entities import suggestion
from dagwright.tools.result_json import pointer_of

Path = tuple[str | int, ...]
Json = dict[str, Any]

_FIELD = re.compile(r"(?:[^\W_]|@)[\w@ -]*(?:\.[\w@ -]+)*")
"""A field name, neither a pattern nor a reserved name of the server, such as `_script`."""
_FIELD_CHARACTERS = 100
TEXT_CHARACTERS = 500
"""Maximum number of characters of a text in a condition."""
_INTEGER_LIMIT = 2**63
_MAX_LISTED_PROBLEMS = 12


@dataclass(frozen=True, slots=True)
class QueryLimits:
    """Limits of one query.

    Args:
        rows: documents of a result.
        window: documents of a result, plus the documents skipped before them.
        buckets: groups of a result, nested groups counted once per enclosing group.
        figures: figures of a result, counted once per group.
        sorts: sort fields.
        clauses: conditions at any depth.
        depth: nesting depth of conditions, and of groups.
        values: values of a list.
        timeout_s: seconds of the search on the server.
        body_bytes: size of the query as JSON.
    """

    rows: int = 1_000
    window: int = 10_000
    buckets: int = 10_000
    figures: int = 100_000
    sorts: int = 5
    clauses: int = 200
    depth: int = 6
    values: int = 1_000
    timeout_s: float = 20.0
    body_bytes: int = 64 * 1024


class QueryRejected(ValueError):
    """A query is not allowed; the message lists each problem with its location.

    Args:
        problems: each a JSON pointer into the query and a description.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        problem_list = "; ".join(problems[:_MAX_LISTED_PROBLEMS])
        omitted_note = (
            f"; and {len(problems) - _MAX_LISTED_PROBLEMS} more" if len(problems) > _MAX_LISTED_PROBLEMS else ""
        )
        super().__init__(f"The query is not allowed: {problem_list}{omitted_note}")
        self.problems = tuple(problems)


@dataclass(slots=True)
class Check:
    """The check of one query: limits, counters and problems.

    The methods for parts of the query return the checked part. For an invalid part, they add a problem and return
    `None` or an empty value.

    Args:
        field_types: type of each field; `None` if unknown, in which case any field name is accepted.
    """

    limits: QueryLimits
    field_types: Mapping[str, str] | None = None
    problems: list[str] = field(default_factory=list)
    clauses: int = 0
    buckets: int = 0
    figures: int = 0

    def add_problem(self, path: Path, message: str) -> None:
        """Add a problem at a path."""
        self.problems.append(f"{_cut(pointer_of(path)) or '/'}: {message}")

    def allowed_members(self, value: Any, path: Path, *, keys: Iterable[str]) -> Json:
        """Return the members of an object that have an allowed key; any other member is a problem."""
        if not isinstance(value, dict):
            self.add_problem(path, f"expected an object, got {_short_json(value)}")
            return {}
        allowed_keys = list(keys)
        for name in value:
            if name not in allowed_keys:
                keys_text = ", ".join(allowed_keys) or "nothing"
                self.add_problem((*path, name), f"not allowed here; allowed: {keys_text}")
        return {name: value[name] for name in allowed_keys if name in value}

    def single_member(self, value: Any, path: Path, *, expected: str) -> tuple[str, Any] | None:
        """Return the name and value of the only member of an object."""
        if not isinstance(value, dict) or len(value) != 1:
            self.add_problem(path, f"expected an object with one key, {expected}, got {_short_json(value)}")
            return None
        [(name, member)] = value.items()
        return str(name), member

    def field_name(self, value: Any, path: Path) -> str | None:
        """Return a field name; a pattern or an unknown field is a problem."""
        if not isinstance(value, str) or len(value) > _FIELD_CHARACTERS or _FIELD.fullmatch(value) is None:
            self.add_problem(path, f"{_short_json(value)} is not a field name")
            return None
        if self.field_types is not None and value not in self.field_types:
            hint = suggestion(value, list(self.field_types))
            self.add_problem(path, f"there is no field {value!r}{f'; {hint}' if hint else ''}")
            return None
        return value

    def scalar(self, value: Any, path: Path) -> Any:
        """Return a text, a number or a boolean."""
        if isinstance(value, bool):
            return value
        is_number = isinstance(value, int | float)
        if is_number and math.isfinite(value) and -_INTEGER_LIMIT <= value < _INTEGER_LIMIT:
            return value
        if isinstance(value, str) and len(value) <= TEXT_CHARACTERS and _is_encodable(value):
            return value
        expected = f"a text of at most {TEXT_CHARACTERS} characters, a number, true or false"
        self.add_problem(path, f"expected {expected}, got {_short_json(value)}")
        return None

    def scalars(self, value: Any, path: Path) -> list[Any]:
        """Return a list of scalars."""
        if not isinstance(value, list) or len(value) > self.limits.values:
            self.add_problem(
                path, f"expected a list of at most {self.limits.values:,} values, got {_short_json(value)}"
            )
            return []
        return [self.scalar(scalar, (*path, position)) for position, scalar in enumerate(value)]

    def text(self, value: Any, path: Path, *, pattern: re.Pattern[str], expected: str) -> str | None:
        """Return a text that matches a pattern; `expected` describes the text."""
        if isinstance(value, str) and pattern.fullmatch(value):
            return value
        self.add_problem(path, f"expected {expected}, got {_short_json(value)}")
        return None

    def choice(self, value: Any, path: Path, *, choices: Sequence[str]) -> str | None:
        """Return a text that is one of the choices, in lower case."""
        if isinstance(value, str) and value.lower() in choices:
            return value.lower()
        self.add_problem(path, f"expected {' or '.join(choices)}, got {_short_json(value)}")
        return None

    def boolean(self, value: Any, path: Path) -> bool | None:
        """Return a boolean."""
        if isinstance(value, bool):
            return value
        self.add_problem(path, f"expected true or false, got {_short_json(value)}")
        return None

    def integer(self, value: Any, path: Path, *, minimum: int = 0, maximum: int) -> int | None:
        """Return an integer within two inclusive bounds."""
        if type(value) is int and minimum <= value <= maximum:
            return value
        self.add_problem(path, f"expected an integer from {minimum:,} to {maximum:,}, got {_short_json(value)}")
        return None

    def count_clause(self, path: Path, depth: int) -> bool:
        """Count a condition or aggregation; return whether it may be processed.

        Args:
            depth: nesting depth, 1 for the outermost condition or aggregation.
        """
        self.clauses += 1
        if depth > self.limits.depth:
            self.add_problem(path, f"nested more than {self.limits.depth} levels deep")
            return False
        if self.clauses == self.limits.clauses + 1:
            self.add_problem(path, f"the query has more than {self.limits.clauses} conditions and aggregations")
        return self.clauses <= self.limits.clauses


def present_members(mapping: Mapping[str, Any]) -> Json:
    """Return the members of an object that are not `None`."""
    return {name: value for name, value in mapping.items() if value is not None}


def _is_encodable(text: str) -> bool:
    """Return whether a text has no lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _cut(name: Any) -> str:
    text = str(name).encode(errors="replace").decode()
    return text if len(text) <= 200 else text[:200] + "…"


def _short_json(value: Any) -> str:
    match value:
        case dict():
            return f"an object of {len(value)} keys"
        case list():
            return f"a list of {len(value)}"
        case str() if len(value) > 80:
            return f"a text of {len(value):,} characters"
        case int() if abs(value) >= _INTEGER_LIMIT:
            return "a number of many digits"
    return repr(value)
