"""Figures about what queries found: totals, shares, differences, averages, what has no value. All reckoned here.

A table has a row for each thing and a column for each figure. Whoever puts them into words uses these figures and no
others, so each figure that could be said of them stands in a table.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from dagwright.maritime.slots import EsResults
from dagwright.search.answers import bucket_list, figures_of, others_of
from dagwright.search.cells import cell, table

MOST_TABLES = 12
MOST_ROWS = 50
_COMPARED = 5
"""Rows that are few enough for each to be compared with the first."""
_KINDS = 8
"""Different texts in a field of documents that make a table of their own."""
_ADDED_UP = ("sum", "value_count")
"""Figures of groups that may be added up, so each has a share."""
DOCUMENTS = "documents"

Number = int | float
Value = Number | str | None
"""A figure of dates is a text, as the server writes it: what is reckoned with numbers means nothing there."""


Row = tuple[str, Sequence[Value]]


@dataclass(frozen=True, slots=True)
class Column:
    """One figure of each row.

    Args:
        unit: what stands behind each number, such as `%`.
    """

    name: str
    unit: str = ""

    def shown(self, number: Value) -> str:
        """Returns a number as people read it, to two decimals, a text as it is; nothing for what has no value."""
        if number is None or isinstance(number, str):
            return number or ""
        text = f"{number:,.2f}".rstrip("0").rstrip(".") if number != int(number) else f"{int(number):,}"
        return f"{text} {self.unit}" if self.unit else text


@dataclass(frozen=True, slots=True)
class Table:
    """Figures of several things.

    Args:
        title: what it is about.
        of: what stands in the first column.
        rows: name of the thing -> a value for each column, `None` where there is none.
        sums: rows about all of these together, and what is not among them; `None` where nothing can be said.
        notes: sentences about what is missing.
    """

    title: str
    of: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    sums: Sequence[Row] = field(default_factory=tuple)
    notes: Sequence[str] = field(default_factory=tuple)

    def markdown(self) -> str:
        """Returns it for people."""
        shown = [[name, *self._shown(values)] for name, values in (*self.rows[:MOST_ROWS], *self.sums)]
        said = [f"**{cell(self.title, 200)}**", table([self.of, *(each.name for each in self.columns)], shown)]
        if (left := len(self.rows) - MOST_ROWS) > 0:
            said.append(f"There are {left:,} more rows.")
        return "\n\n".join([*said, *self.notes])

    def told(self) -> Iterator[dict[str, Any]]:
        """Yields what a model is told: each row with its figures as they are to be written, then the notes."""
        for name, values in self.rows[:MOST_ROWS]:
            yield self._told(name, [text or "no value" for text in self._shown(values)])
        for name, values in self.sums:
            yield self._told(name, self._shown(values))
        for note in self.notes:
            yield {"table": self.title, "note": note}

    def numbers(self) -> Iterator[Number]:
        """Yields every number in it, and how many rows there are."""
        yield len(self.rows)
        yield from (value for value in self._values() if isinstance(value, int | float))

    def texts(self) -> Iterator[str]:
        """Yields every text in it, which may hold digits too."""
        yield from (self.title, self.of, *self.notes)
        yield from (column.name for column in self.columns)
        yield from (name for name, _ in self.rows)
        yield from (value for value in self._values() if isinstance(value, str))

    def _values(self) -> Iterator[Value]:
        for _, values in (*self.rows, *self.sums):
            yield from values

    def _told(self, name: str, texts: Sequence[str]) -> dict[str, Any]:
        figures = {column.name: text for column, text in zip(self.columns, texts, strict=True) if text}
        return {"table": self.title, self.of: name, **figures}

    def _shown(self, values: Sequence[Value]) -> list[str]:
        return [column.shown(value) for column, value in zip(self.columns, values, strict=True)]


def tables_of(results: Sequence[EsResults], labels: Sequence[str]) -> list[Table]:
    """Returns the figures of what queries found, at most `MOST_TABLES` tables.

    Args:
        labels: what each result is about, in order; one result needs none.
    """
    found: list[Table] = [*_overall(results, labels)]
    for label, result in zip(labels, results, strict=True):
        kinds = figure_kinds(result.query)
        found += _groupings(result.aggregations, kinds, title=label, around=())
        found += _of_documents(result, label)
    return [each for each in found if each.rows][:MOST_TABLES]


def figure_kinds(query: Mapping[str, Any]) -> dict[str, str]:
    """Returns what kind of figure each name in the aggregations of a query is: name -> `sum`, `avg` and so on.

    What is no aggregation has no kind: whoever hands on a result may have written its query.
    """
    kinds: dict[str, str] = {}
    for groups in (query.get("aggs"), query.get("aggregations")):
        for name, told in groups.items() if isinstance(groups, Mapping) else ():
            if isinstance(told, Mapping):
                kinds[name] = next((kind for kind in told if kind not in ("aggs", "aggregations", "meta")), "")
                kinds |= figure_kinds(told)
    return kinds


# Figures over all documents.


def _overall(results: Sequence[EsResults], labels: Sequence[str]) -> Iterator[Table]:
    """Yields a table of the numbers, which are compared, and one of the dates."""
    each = [_overall_figures(result) for result in results]
    names = list(dict.fromkeys(name for figures in each for name in figures))
    days = [name for name in names if any(isinstance(figures.get(name), str) for figures in each)]
    columns = [Column(label or "value") for label in labels]
    yield Table(
        "All that matches: dates", "figure", columns, _rows(days, each), notes=_without_value(days, each, labels)
    )
    numbers = [name for name in names if name not in days]
    rows = _rows(numbers, each)
    if len(results) > 1:
        for place, label in enumerate(labels[1:], 1):
            columns = [*columns, Column(f"{labels[0]} minus {label}"), Column(f"{labels[0]} of {label}", "%")]
            rows = [(name, [*values, *_compared(values[0], values[place])]) for name, values in rows]
    yield Table("All that matches", "figure", columns, rows, notes=_without_value(numbers, each, labels))


def _rows(names: Sequence[str], each: Sequence[Mapping[str, Value]]) -> list[Row]:
    return [(name, [figures.get(name) for figures in each]) for name in names]


def _without_value(names: Sequence[str], each: Sequence[Mapping[str, Value]], labels: Sequence[str]) -> tuple[str, ...]:
    return tuple(
        f"{name} has no value{f' for {label}' if label else ''}."
        for label, figures in zip(labels, each, strict=True)
        for name in names
        if name in figures and figures[name] is None
    )


def _overall_figures(result: EsResults) -> dict[str, Value]:
    figures: dict[str, Value] = {DOCUMENTS: result.total} if result.total is not None else {}
    return figures | dict(_figures(result.aggregations, figure_kinds(result.query)))


def _figures(group: Mapping[str, Any], kinds: Mapping[str, str]) -> Iterator[tuple[str, Value]]:
    """Yields the figures that stand in a group itself, those of several parts one by one."""
    for name, told in figures_of(group):
        # A sum of dates is no date.
        is_sense = not isinstance(told, list) and not (isinstance(told, str) and kinds.get(name) == "sum")
        if is_sense:
            yield name, told if isinstance(told, str) else _number(told)


def _number(value: Any) -> Number | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _compared(first: Value, other: Value) -> list[Number | None]:
    if not isinstance(first, int | float) or not isinstance(other, int | float):
        return [None, None]
    return [_rounded(first - other), _rounded(100 * first / other) if other else None]


def _rounded(number: Number) -> Number:
    """Returns a number without what reckoning with fractions leaves behind."""
    return number if isinstance(number, int) else round(number, 6)


# Figures of groups.


def _groupings(
    groups: Mapping[str, Any], kinds: Mapping[str, str], *, title: str, around: tuple[str, ...]
) -> Iterator[Table]:
    """Yields a table for each grouping, then those inside of its groups, each under the key of its group."""
    for name, grouping in groups.items():
        buckets = bucket_list(grouping)
        if buckets is None:
            continue
        of = " / ".join([*around, name])
        about = _Grouping(f"{title}: {of}" if title else of, name, others_of(grouping))
        yield _of_groups(buckets, kinds, about)
        for key, bucket in buckets[:MOST_TABLES]:
            yield from _groupings(bucket, kinds, title=title, around=(*around, key or name))


@dataclass(frozen=True, slots=True)
class _Grouping:
    """What makes groups.

    Args:
        title: of its table.
        of: its name.
        others: documents in groups that the server left out; nothing but their number is known.
    """

    title: str
    of: str
    others: int

    def notes(self) -> tuple[str, ...]:
        if not self.others:
            return ()
        return (
            f"{self.others:,} more documents are in groups of {self.of} that were not asked for: "
            "their number is known, and no other figure of theirs.",
        )


def _of_groups(buckets: Sequence[tuple[str, Mapping[str, Any]]], kinds: Mapping[str, str], about: _Grouping) -> Table:
    figures = [{DOCUMENTS: _number(bucket.get("doc_count")), **dict(_figures(bucket, kinds))} for _, bucket in buckets]
    names = list(dict.fromkeys(name for each in figures for name in each))
    parts = [_columns_of(name, [each.get(name) for each in figures], kinds, about) for name in names]
    rows: list[Row] = [
        (key or about.of, [part.values[place] for columns in parts for part in columns])
        for place, (key, _) in enumerate(buckets)
    ]
    all_parts = [part for columns in parts for part in columns]
    sums: list[Row] = [("all other groups", [part.others for part in all_parts])] if about.others else []
    if len(rows) > 1 or about.others:
        sums.append(("all together", [part.together for part in all_parts]))
    return Table(
        about.title,
        about.of,
        [part.column for part in all_parts],
        rows,
        sums,
        (*about.notes(), *_gaps(buckets, figures, names)),
    )


@dataclass(frozen=True, slots=True)
class _Part:
    """A column with its values, that of the groups that were left out, and that of all."""

    column: Column
    values: Sequence[Value]
    others: Number | None = None
    together: Number | None = None


def _columns_of(name: str, told: Sequence[Value], kinds: Mapping[str, str], about: _Grouping) -> list[_Part]:
    """Returns a figure of the groups, its shares if they add up to a whole that is known, and its differences."""
    others = about.others if name == DOCUMENTS else 0
    numbers = [each for each in told if isinstance(each, int | float)]
    is_whole = name == DOCUMENTS or (kinds.get(name) in _ADDED_UP and not about.others)
    found = [_Part(Column(name), told)]
    if is_whole and numbers:
        total = _rounded(sum(numbers) + others)
        shares = [_share(each, total) for each in told]
        known = _share(others, total) if others else None
        found = [
            _Part(Column(name), told, others or None, total),
            _Part(Column(f"share of {name}", "%"), shares, known, _share(total, total)),
        ]
    if 1 < len(told) <= _COMPARED and len(numbers) + told.count(None) == len(told):
        found.append(_Part(Column(f"{name}: first minus this"), [_compared(told[0], each)[0] for each in told]))
    return found


def _share(number: Value, total: Number) -> Number | None:
    return _rounded(100 * number / total) if isinstance(number, int | float) and total else None


def _gaps(
    buckets: Sequence[tuple[str, Mapping[str, Any]]],
    figures: Sequence[Mapping[str, Value]],
    names: Sequence[str],
) -> tuple[str, ...]:
    """Returns which figures some groups have no value of."""
    found = []
    for name in names:
        without = [key for (key, _), each in zip(buckets, figures, strict=True) if each.get(name) is None]
        if without:
            there = len(buckets) - len(without)
            named = ", ".join(cell(key) for key in without[:MOST_ROWS])
            found.append(f"{name} is there for {there} of {len(buckets)}; not for {named}.")
    return tuple(found)


# Figures of documents.


def _of_documents(result: EsResults, label: str) -> Iterator[Table]:
    hits = result.hits
    if not hits:
        return
    title = f"{label}: documents" if label else "Documents"
    if result.total is not None and result.total > len(hits):
        title = f"{title}, the first {len(hits):,} of {result.total:,}"
    names = list(dict.fromkeys(name for hit in hits for name in hit))
    numbers = {name: [_number(hit.get(name)) for hit in hits] for name in names}
    yield Table(
        title,
        "field",
        [Column(name) for name in ("with a value", "without one", "total", "average", "least", "most")],
        [(name, _summed(found)) for name, found in numbers.items() if any(each is not None for each in found)],
    )
    for name in names:
        texts = Counter(hit[name] for hit in hits if isinstance(hit.get(name), str))
        if 1 < len(texts) <= _KINDS:
            counts = [(text, [count, _rounded(100 * count / len(hits))]) for text, count in texts.most_common()]
            missing = len(hits) - texts.total()
            notes = (f"{missing:,} have no {name}.",) if missing else ()
            yield Table(f"{title}: {name}", name, [Column(DOCUMENTS), Column("share", "%")], counts, notes=notes)


def _summed(found: Sequence[Number | None]) -> list[Number | None]:
    known = [number for number in found if number is not None]
    total, average = _rounded(sum(known)), _rounded(fmean(known))
    return [len(known), len(found) - len(known), total, average, min(known), max(known)]
