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
from dagwright.search.answers import bucket_list
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


@dataclass(frozen=True, slots=True)
class Column:
    """One figure of each row.

    Args:
        unit: what stands behind each number, such as `%`.
    """

    name: str
    unit: str = ""

    def shown(self, number: Number | None) -> str:
        """Returns a number as people read it, to two decimals; nothing for what has no value."""
        if number is None:
            return ""
        text = f"{number:,.2f}".rstrip("0").rstrip(".") if number != int(number) else f"{int(number):,}"
        return f"{text} {self.unit}" if self.unit else text


@dataclass(frozen=True, slots=True)
class Table:
    """Figures of several things.

    Args:
        title: what it is about.
        of: what stands in the first column.
        rows: name of the thing -> a number for each column, `None` where there is no value.
        notes: sentences about what is missing.
    """

    title: str
    of: str
    columns: Sequence[Column]
    rows: Sequence[tuple[str, Sequence[Number | None]]]
    notes: Sequence[str] = field(default_factory=tuple)

    def markdown(self) -> str:
        """Returns it for people."""
        shown = [[name, *self._shown(numbers)] for name, numbers in self.rows[:MOST_ROWS]]
        said = [f"**{cell(self.title, 200)}**", table([self.of, *(each.name for each in self.columns)], shown)]
        if (left := len(self.rows) - MOST_ROWS) > 0:
            said.append(f"There are {left:,} more rows.")
        return "\n\n".join([*said, *self.notes])

    def told(self) -> Iterator[dict[str, Any]]:
        """Yields what a model is told: each row with its figures as they are to be written, then the notes."""
        for name, numbers in self.rows[:MOST_ROWS]:
            pairs = zip(self.columns, self._shown(numbers), strict=True)
            figures = {column.name: text or "no value" for column, text in pairs}
            yield {"table": self.title, self.of: name, **figures}
        for note in self.notes:
            yield {"table": self.title, "note": note}

    def numbers(self) -> Iterator[Number]:
        """Yields every number in it, and how many rows there are."""
        yield len(self.rows)
        for _, numbers in self.rows:
            yield from (number for number in numbers if number is not None)

    def texts(self) -> Iterator[str]:
        """Yields every text in it, which may hold digits too."""
        yield from (self.title, self.of, *self.notes)
        yield from (column.name for column in self.columns)
        yield from (name for name, _ in self.rows)

    def _shown(self, numbers: Sequence[Number | None]) -> list[str]:
        return [column.shown(number) for column, number in zip(self.columns, numbers, strict=True)]


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
    """Returns what kind of figure each name in the aggregations of a query is: name -> `sum`, `avg` and so on."""
    kinds: dict[str, str] = {}
    for word in ("aggs", "aggregations"):
        for name, told in query.get(word, {}).items():
            kinds[name] = next((kind for kind in told if kind not in ("aggs", "aggregations", "meta")), "")
            kinds |= figure_kinds(told)
    return kinds


# Figures over all documents.


def _overall(results: Sequence[EsResults], labels: Sequence[str]) -> Iterator[Table]:
    each = [_overall_figures(result) for result in results]
    names = list(dict.fromkeys(name for figures in each for name in figures))
    columns = [Column(label or "value") for label in labels]
    rows: list[tuple[str, list[Number | None]]] = [(name, [figures.get(name) for figures in each]) for name in names]
    if len(results) > 1:
        for place, label in enumerate(labels[1:], 1):
            columns += [Column(f"{labels[0]} minus {label}"), Column(f"{labels[0]} of {label}", "%")]
            for _, numbers in rows:
                numbers.extend(_compared(numbers[0], numbers[place]))
    notes = tuple(
        f"{name} has no value{f' for {label}' if label else ''}."
        for label, figures in zip(labels, each, strict=True)
        for name, number in figures.items()
        if number is None
    )
    yield Table("All that matches", "figure", columns, rows, notes)


def _overall_figures(result: EsResults) -> dict[str, Number | None]:
    figures: dict[str, Number | None] = {DOCUMENTS: result.total} if result.total is not None else {}
    return figures | dict(_figures(result.aggregations))


def _figures(group: Mapping[str, Any]) -> Iterator[tuple[str, Number | None]]:
    """Yields the figures that stand in a group itself, those of several numbers one by one."""
    for name, told in group.items():
        if not isinstance(told, Mapping) or bucket_list(told) is not None:
            continue
        if "value" in told:
            yield name, _number(told["value"])
        elif isinstance(told.get("values"), Mapping):
            yield from ((f"{name} {float(key):g} %", _number(number)) for key, number in told["values"].items())
        else:
            yield from (
                (f"{name} {key}", _number(told[key])) for key in ("count", "sum", "avg", "min", "max") if key in told
            )


def _number(value: Any) -> Number | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _compared(first: Number | None, other: Number | None) -> list[Number | None]:
    if first is None or other is None:
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
        yield _of_groups(buckets, kinds, title=f"{title}: {of}" if title else of, of=name)
        for key, bucket in buckets[:MOST_TABLES]:
            yield from _groupings(bucket, kinds, title=title, around=(*around, key or name))


def _of_groups(
    buckets: Sequence[tuple[str, Mapping[str, Any]]], kinds: Mapping[str, str], *, title: str, of: str
) -> Table:
    figures = [{DOCUMENTS: _number(bucket.get("doc_count")), **dict(_figures(bucket))} for _, bucket in buckets]
    names = list(dict.fromkeys(name for each in figures for name in each))
    columns: list[Column] = []
    numbers: list[list[Number | None]] = [[] for _ in buckets]
    for name in names:
        told = [each.get(name) for each in figures]
        more = [Column(name)]
        added: list[list[Number | None]] = [told]
        if name == DOCUMENTS or kinds.get(name) in _ADDED_UP:
            more.append(Column(f"share of {name}", "%"))
            added.append(_shares(told))
        if 1 < len(told) <= _COMPARED:
            more.append(Column(f"{name}: first minus this"))
            added.append([_compared(told[0], each)[0] for each in told])
        columns += more
        for row, of_row in zip(numbers, zip(*added, strict=True), strict=True):
            row.extend(of_row)
    rows: list[tuple[str, Sequence[Number | None]]] = [
        (key or of, row) for (key, _), row in zip(buckets, numbers, strict=True)
    ]
    if len(rows) > 1:
        rows.append(("all together", [_sum_of(column, rows, place) for place, column in enumerate(columns)]))
    return Table(title, of, columns, _without_sums(rows, columns, kinds), _gaps(buckets, figures, names))


def _shares(numbers: Sequence[Number | None]) -> list[Number | None]:
    total = sum(number for number in numbers if number is not None)
    return [None if number is None or not total else _rounded(100 * number / total) for number in numbers]


def _sum_of(column: Column, rows: Sequence[tuple[str, Sequence[Number | None]]], place: int) -> Number | None:
    if ": first minus this" in column.name:
        return None
    known = [row[place] for _, row in rows if row[place] is not None]
    return _rounded(sum(number for number in known if number is not None)) if known else None


def _without_sums(
    rows: Sequence[tuple[str, Sequence[Number | None]]], columns: Sequence[Column], kinds: Mapping[str, str]
) -> list[tuple[str, Sequence[Number | None]]]:
    """Returns the rows, of which the last adds up only what may be added up."""
    if len(rows) < 2:
        return list(rows)
    name, last = rows[-1]
    kept = [
        number if column.unit or column.name == DOCUMENTS or kinds.get(column.name) in _ADDED_UP else None
        for column, number in zip(columns, last, strict=True)
    ]
    return [*rows[:-1], (name, kept)]


def _gaps(
    buckets: Sequence[tuple[str, Mapping[str, Any]]],
    figures: Sequence[Mapping[str, Number | None]],
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
            yield Table(f"{title}: {name}", name, [Column(DOCUMENTS), Column("share", "%")], counts, notes)


def _summed(found: Sequence[Number | None]) -> list[Number | None]:
    known = [number for number in found if number is not None]
    total, average = _rounded(sum(known)), _rounded(fmean(known))
    return [len(known), len(found) - len(known), total, average, min(known), max(known)]
