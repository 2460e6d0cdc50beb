"""How much a query may ask for, and what is refused: the words that the checks of queries share.

It exists so that what a model wrote reads but never writes, and costs what we say. It must not import a client.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dagwright.plugins.entities import suggestion
from dagwright.tools.results import pointer_of

Path = tuple[str | int, ...]
Json = dict[str, Any]

_FIELD = re.compile(r"(?:[^\W_]|@)[\w@ -]*(?:\.[\w@ -]+)*")
"""Neither a pattern nor a word of the server, such as `_script`."""
_FIELD_CHARACTERS = 100
TEXT_CHARACTERS = 500
"""Of a value of a condition."""
_INTEGER_LIMIT = 2**63
_PROBLEMS_TOLD = 12


@dataclass(frozen=True, slots=True)
class QueryLimits:
    """How much one query may ask for.

    Args:
        rows: documents of one answer.
        window: documents that may come before them, and they.
        buckets: groups of one answer, those inside of others counted once for each of these.
        figures: numbers of one answer, those of a group counted once for each group.
        sorts: fields that order documents.
        clauses: conditions, wherever they stand.
        depth: conditions in conditions, and groups in groups.
        values: of one list.
        timeout_s: seconds that the server may search.
        body_bytes: of the query as JSON.
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


class QueryRefused(ValueError):
    """A query is not one that may be run; the message tells every reason with its place.

    Args:
        problems: each a JSON pointer into the query, and what is wrong there.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        told = "; ".join(problems[:_PROBLEMS_TOLD])
        more = f"; and {len(problems) - _PROBLEMS_TOLD} more" if len(problems) > _PROBLEMS_TOLD else ""
        super().__init__(f"The query may not be run: {told}{more}")
        self.problems = tuple(problems)


@dataclass(slots=True)
class Check:
    """One look at a query: what it may ask for, what it has asked for so far, and what was wrong.

    Args:
        fields: name -> type of the fields that there are; `None` if that is not known, so any name will do.
    """

    limits: QueryLimits
    fields: Mapping[str, str] | None = None
    problems: list[str] = field(default_factory=list)
    clauses: int = 0
    buckets: int = 0
    figures: int = 0

    def refuse(self, path: Path, why: str) -> None:
        """Notes that what stands at a place may not stand there."""
        self.problems.append(f"{_cut(pointer_of(path)) or '/'}: {why}")

    def known(self, value: Any, path: Path, *, keys: Iterable[str]) -> Json:
        """Returns the members of an object that are among `keys`; every other is a problem."""
        if not isinstance(value, dict):
            self.refuse(path, f"expected an object, got {_shown(value)}")
            return {}
        allowed = list(keys)
        for name in value:
            if name not in allowed:
                told = ", ".join(allowed) or "nothing"
                self.refuse((*path, name), f"this is not allowed here; allowed: {told}")
        return {name: value[name] for name in allowed if name in value}

    def one(self, value: Any, path: Path, *, what: str) -> tuple[str, Any] | None:
        """Returns the name and value of an object's only member."""
        if not isinstance(value, dict) or len(value) != 1:
            self.refuse(path, f"expected an object with one key, {what}, got {_shown(value)}")
            return None
        [(name, inner)] = value.items()
        return str(name), inner

    def field_name(self, value: Any, path: Path) -> str | None:
        """Returns the name of a field; a pattern is none."""
        if not isinstance(value, str) or len(value) > _FIELD_CHARACTERS or _FIELD.fullmatch(value) is None:
            self.refuse(path, f"{_shown(value)} is no name of a field")
            return None
        if self.fields is not None and value not in self.fields:
            hint = suggestion(value, list(self.fields))
            self.refuse(path, f"there is no field {value!r}{f'; {hint}' if hint else ''}")
            return None
        return value

    def scalar(self, value: Any, path: Path) -> Any:
        """Returns a text, a number or a truth value."""
        if isinstance(value, bool):
            return value
        is_number = isinstance(value, int | float)
        if is_number and math.isfinite(value) and -_INTEGER_LIMIT <= value < _INTEGER_LIMIT:
            return value
        if isinstance(value, str) and len(value) <= TEXT_CHARACTERS and _is_whole(value):
            return value
        what = f"a text of at most {TEXT_CHARACTERS} characters, a number, true or false"
        self.refuse(path, f"expected {what}, got {_shown(value)}")
        return None

    def scalars(self, value: Any, path: Path) -> list[Any]:
        """Returns a list of scalars."""
        if not isinstance(value, list) or len(value) > self.limits.values:
            self.refuse(path, f"expected a list of at most {self.limits.values:,} values, got {_shown(value)}")
            return []
        return [self.scalar(each, (*path, place)) for place, each in enumerate(value)]

    def text(self, value: Any, path: Path, *, form: re.Pattern[str], what: str) -> str | None:
        """Returns a text of a form; `what` says which."""
        if isinstance(value, str) and form.fullmatch(value):
            return value
        self.refuse(path, f"expected {what}, got {_shown(value)}")
        return None

    def choice(self, value: Any, path: Path, *, among: Sequence[str]) -> str | None:
        """Returns one of some words, written in small letters or in capitals."""
        if isinstance(value, str) and value.lower() in among:
            return value.lower()
        self.refuse(path, f"expected {' or '.join(among)}, got {_shown(value)}")
        return None

    def flag(self, value: Any, path: Path) -> bool | None:
        """Returns a truth value."""
        if isinstance(value, bool):
            return value
        self.refuse(path, f"expected true or false, got {_shown(value)}")
        return None

    def count(self, value: Any, path: Path, *, least: int = 0, most: int) -> int | None:
        """Returns a whole number between two bounds, both included."""
        if type(value) is int and least <= value <= most:
            return value
        self.refuse(path, f"expected a whole number from {least:,} to {most:,}, got {_shown(value)}")
        return None

    def clause(self, path: Path, depth: int) -> bool:
        """Counts a condition at a depth, 1 for the outermost; tells whether it may be looked at."""
        self.clauses += 1
        if depth > self.limits.depth:
            self.refuse(path, f"this is nested more than {self.limits.depth} deep")
            return False
        if self.clauses == self.limits.clauses + 1:
            self.refuse(path, f"the query has more than {self.limits.clauses} conditions and aggregations")
        return self.clauses <= self.limits.clauses


def members(given: Mapping[str, Any]) -> Json:
    """Returns the members of an object that have a value."""
    return {name: value for name, value in given.items() if value is not None}


def _is_whole(text: str) -> bool:
    """Tells whether a text has no half characters."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _cut(name: Any) -> str:
    text = str(name).encode(errors="replace").decode()
    return text if len(text) <= 200 else text[:200] + "…"


def _shown(value: Any) -> str:
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
