"""Figures about what queries found: totals, shares, differences, averages, what has no value. All reckoned here.

A table has a row for each thing and a column for each figure. Whoever puts them into words uses these figures and no
others, so each figure that could be said of them stands in a table.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from dagwright_maritime.search.answers import bucket_list, figures_of, others_of
from dagwright_maritime.search.cells import cell, table
from dagwright_maritime.slots import EsResults

MOST_TABLES = 12
MOST_ROWS = 50
_COMPARED = 5
"""Rows that are few enough for each to be compared with the first."""
_KINDS = 8
"""Different texts in a field of documents that make a table of their own."""
_ADDED_UP = ("sum", "value_count")
"""Figures of groups that may be added up, so each has a share."""
_EACH_ONCE = ("terms", "histogram", "date_histogram")
"""Groupings by the value of a field. The groups of all others may share documents, as those of `filters` do."""
_LEAVES_OUT = ("include", "exclude")
"""What makes such a grouping leave documents out that nobody counts."""
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
        matching = _Around(aggregations_of(result.query), result.total)
        found += _groupings(result.aggregations, matching, title=label)
        found += _of_documents(result, label)
    return [each for each in found if each.rows][:MOST_TABLES]


def aggregations_of(asked: Any) -> Mapping[str, Any]:
    """Returns the aggregations that stand directly in a query or in one of its aggregations: name -> what is asked.

    There are none in what is no query or aggregation: whoever hands on a result may have written its query.
    """
    for name in ("aggs", "aggregations") if isinstance(asked, Mapping) else ():
        if isinstance(found := asked.get(name), Mapping):
            return found
    return {}


def _kind_of(asked: Any) -> str:
    """Returns the kind of an aggregation, `sum`, `terms` and so on; nothing if it is none."""
    kinds = asked if isinstance(asked, Mapping) else ()
    return next((kind for kind in kinds if kind not in ("aggs", "aggregations", "meta")), "")


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
    # Pages are of one query: what matches it would be added up page by page.
    is_counted = result.total is not None and not result.is_page
    figures: dict[str, Value] = {DOCUMENTS: result.total} if is_counted else {}
    return figures | dict(_figures(result.aggregations, aggregations_of(result.query)))


def _figures(group: Mapping[str, Any], asked: Mapping[str, Any]) -> Iterator[tuple[str, Value]]:
    """Yields the figures that stand in a group itself, those of several parts one by one."""
    for name, told in figures_of(group):
        # A sum of dates is no date.
        is_sense = not isinstance(told, list) and not (isinstance(told, str) and _kind_of(asked.get(name)) == "sum")
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


@dataclass(frozen=True, slots=True)
class _Around:
    """What groups are made of: all documents that match, or those of a group.

    Args:
        asked: the aggregations that are asked of it, by name.
        documents: how many it has; `None` if nobody knows.
        names: of the groups in which it is.
    """

    asked: Mapping[str, Any]
    documents: Number | None
    names: tuple[str, ...] = ()

    def inside(self, grouping: str, key: str, bucket: Mapping[str, Any]) -> "_Around":
        """Returns one of the groups that a grouping makes of it."""
        asked = aggregations_of(self.asked.get(grouping))
        return _Around(asked, _number(bucket.get("doc_count")), (*self.names, key or grouping))


def _groupings(groups: Mapping[str, Any], around: _Around, *, title: str) -> Iterator[Table]:
    """Yields a table for each grouping, then those inside of its groups, each under the key of its group."""
    for name, grouping in groups.items():
        buckets = bucket_list(grouping)
        if buckets is None:
            continue
        of = " / ".join([*around.names, name])
        counts = [_number(bucket.get("doc_count")) or 0 for _, bucket in buckets]
        about = _Grouping(
            title=f"{title}: {of}" if title else of,
            of=name,
            asked=around.asked.get(name),
            documents=around.documents,
            counted=sum(counts),
            others=others_of(grouping),
        )
        yield _of_groups(buckets, about)
        for key, bucket in buckets[:MOST_TABLES]:
            yield from _groupings(bucket, around.inside(name, key, bucket), title=title)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Grouping:
    """What makes groups.

    Args:
        title: of its table.
        of: its name.
        asked: as it stands in the query.
        documents: of which it makes groups; `None` if nobody knows how many.
        counted: documents of its groups, those that are in several more than once.
        others: documents in groups that the server left out; nothing but their number is known.
    """

    title: str
    of: str
    asked: Any
    documents: Number | None
    counted: Number
    others: int

    @property
    def adds_up(self) -> bool:
        """Tells whether its documents may be added up: each is in one group, or was left out and is counted."""
        kind = _kind_of(self.asked)
        told = self.asked[kind] if kind in _EACH_ONCE else None
        if not isinstance(told, Mapping) or self.documents is None:
            return False
        # A least count of 1, which every histogram here has, leaves out groups without documents and nothing else.
        leaves_out = any(name in told for name in _LEAVES_OUT) or told.get("min_doc_count", 1) not in (0, 1)
        # More than there are: the field has several values.
        return not leaves_out and self.counted + self.others <= self.documents

    @property
    def has_all(self) -> bool:
        """Tells whether each document is in one of the groups, so that their sums are those of all documents."""
        return self.adds_up and self.counted == self.documents

    def notes(self) -> tuple[str, ...]:
        if not self.others:
            return ()
        return (
            f"{self.others:,} more documents are in groups of {self.of} that were not asked for: "
            "their number is known, and no other figure of theirs.",
        )


def _of_groups(buckets: Sequence[tuple[str, Mapping[str, Any]]], about: _Grouping) -> Table:
    asked = aggregations_of(about.asked)
    figures = [{DOCUMENTS: _number(bucket.get("doc_count")), **dict(_figures(bucket, asked))} for _, bucket in buckets]
    names = list(dict.fromkeys(name for each in figures for name in each))
    parts = [part for name in names for part in _columns_of(name, [each.get(name) for each in figures], about)]
    rows: list[Row] = [
        (key or about.of, [part.values[place] for part in parts]) for place, (key, _) in enumerate(buckets)
    ]
    sums: list[Row] = [("all other groups", [part.others for part in parts])] if about.others else []
    if about.adds_up and (len(rows) > 1 or about.others):
        sums.append(("all together", [part.together for part in parts]))
    columns = [part.column for part in parts]
    return Table(about.title, about.of, columns, rows, sums, (*about.notes(), *_gaps(buckets, figures, names)))


@dataclass(frozen=True, slots=True)
class _Part:
    """A column with its values, that of the groups that were left out, and that of all."""

    column: Column
    values: Sequence[Value]
    others: Number | None = None
    together: Number | None = None


def _columns_of(name: str, told: Sequence[Value], about: _Grouping) -> Iterator[_Part]:
    """Yields a figure of the groups, its shares if the whole is known, and its differences."""
    numbers = [each for each in told if isinstance(each, int | float)]
    if name == DOCUMENTS:
        yield from _of_whole(name, told, about.documents, others=about.others, together=about.counted + about.others)
    elif _kind_of(aggregations_of(about.asked).get(name)) in _ADDED_UP and numbers and about.has_all:
        total = _rounded(sum(numbers))
        yield from _of_whole(name, told, total, others=0, together=total)
    else:
        yield _Part(Column(name), told)
    if 1 < len(told) <= _COMPARED and len(numbers) + told.count(None) == len(told):
        yield _Part(Column(f"{name}: first minus this"), [_compared(told[0], each)[0] for each in told])


def _of_whole(
    name: str, told: Sequence[Value], whole: Number | None, *, others: int, together: Number
) -> Iterator[_Part]:
    """Yields a figure of the groups, and its shares of what it is in what they are made of."""
    yield _Part(Column(name), told, others or None, together)
    if whole:
        shares = [_share(each, whole) for each in told]
        yield _Part(Column(f"share of {name}", "%"), shares, _share(others or None, whole), _share(together, whole))


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
        title = f"{title}, {'a page of' if result.is_page else 'the first'} {len(hits):,} of {result.total:,}"
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
