"""Figures of query results, computed here: totals, shares, differences, averages, missing values.

A table has a row for each item and a column for each figure. The text for the user may use only figures of the tables,
so the tables have every figure that a text could need.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from dagwright_maritime.search.cells import markdown_cell, markdown_table
from dagwright_maritime.search.results import bucket_list, figures_of, omitted_documents
from dagwright_maritime.slots import EsResults

MAX_TABLES = 12
MAX_ROWS = 50
_MAX_COMPARED_ROWS = 5
"""Maximum number of rows of a table in which each row is compared with the first row."""
_MAX_DISTINCT_TEXTS = 8
"""Maximum number of distinct texts of a document field that get their own table."""
_SUMMABLE_KINDS = ("sum", "value_count")
"""Kinds of figures whose values can be added up over groups, so that each group has a share of the total."""
_PARTITIONING_KINDS = ("terms", "histogram", "date_histogram")
"""Groupings by the value of a field. Groups of other kinds, such as `filters`, may overlap."""
_LIMITING_PARAMETERS = ("include", "exclude")
"""Parameters that exclude documents from a partitioning grouping; the server does not count the excluded documents."""
_DOCUMENT_COUNT = "documents"
"""Name of the figure that is the number of documents."""

Number = int | float
Value = Number | str | None
"""A date is a text, as the server formats it, and is not used in computations."""


Row = tuple[str, Sequence[Value]]


@dataclass(frozen=True, slots=True)
class Column:
    """One figure of each row.

    Args:
        unit: suffix of each number, such as `%`.
    """

    name: str
    unit: str = ""

    def display_text(self, value: Value) -> str:
        """Return a number with at most two decimals, a text unchanged, and an empty text for a missing value."""
        if value is None or isinstance(value, str):
            return value or ""
        text = f"{value:,.2f}".rstrip("0").rstrip(".") if value != int(value) else f"{int(value):,}"
        return f"{text} {self.unit}" if self.unit else text


@dataclass(frozen=True, slots=True)
class Table:
    """Figures of several items.

    Args:
        title: title of the table.
        key_title: title of the first column.
        rows: for each item, the name and a value for each column; a value is `None` if missing.
        summary_rows: rows for all items together and for omitted items; a value is `None` if unknown.
        notes: sentences about missing values.
    """

    title: str
    key_title: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    summary_rows: Sequence[Row] = field(default_factory=tuple)
    notes: Sequence[str] = field(default_factory=tuple)

    def markdown(self) -> str:
        """Return the table as Markdown."""
        texts = [[name, *self._texts(values)] for name, values in (*self.rows[:MAX_ROWS], *self.summary_rows)]
        parts = [
            f"**{markdown_cell(self.title, 200)}**",
            markdown_table([self.key_title, *(column.name for column in self.columns)], texts),
        ]
        if (omitted_count := len(self.rows) - MAX_ROWS) > 0:
            parts.append(f"There are {omitted_count:,} more rows.")
        return "\n\n".join([*parts, *self.notes])

    def prompt_entries(self) -> Iterator[dict[str, Any]]:
        """Yield the table for a model: each row with its formatted figures, then the notes."""
        for name, values in self.rows[:MAX_ROWS]:
            yield self._prompt_entry(name, [text or "no value" for text in self._texts(values)])
        for name, values in self.summary_rows:
            yield self._prompt_entry(name, self._texts(values))
        for note in self.notes:
            yield {"table": self.title, "note": note}

    def numbers(self) -> Iterator[Number]:
        """Yield every number of the table, and the number of rows."""
        yield len(self.rows)
        yield from (value for value in self._values() if isinstance(value, int | float))

    def texts(self) -> Iterator[str]:
        """Yield every text of the table, which may also contain digits."""
        yield from (self.title, self.key_title, *self.notes)
        yield from (column.name for column in self.columns)
        yield from (name for name, _ in self.rows)
        yield from (value for value in self._values() if isinstance(value, str))

    def _values(self) -> Iterator[Value]:
        for _, values in (*self.rows, *self.summary_rows):
            yield from values

    def _prompt_entry(self, name: str, texts: Sequence[str]) -> dict[str, Any]:
        figures = {column.name: text for column, text in zip(self.columns, texts, strict=True) if text}
        return {"table": self.title, self.key_title: name, **figures}

    def _texts(self, values: Sequence[Value]) -> list[str]:
        return [column.display_text(value) for column, value in zip(self.columns, values, strict=True)]


def tables_of(results: Sequence[EsResults], labels: Sequence[str]) -> list[Table]:
    """Return the figures of query results, at most `MAX_TABLES` tables.

    Args:
        labels: label of each result, in order; the label of a single result may be empty.
    """
    tables: list[Table] = [*_overall_tables(results, labels)]
    for label, result in zip(labels, results, strict=True):
        result_scope = _Scope(aggregations_of(result.query), result.total)
        tables += _grouping_tables(result.aggregations, result_scope, title=label)
        tables += _document_tables(result, label)
    return [table for table in tables if table.rows][:MAX_TABLES]


def aggregations_of(definition: Any) -> Mapping[str, Any]:
    """Return the top-level aggregations of a query or aggregation: name -> definition.

    A planner may have written a malformed definition; such a definition has no aggregations.
    """
    for name in ("aggs", "aggregations") if isinstance(definition, Mapping) else ():
        if isinstance(aggregations := definition.get(name), Mapping):
            return aggregations
    return {}


def _kind_of(definition: Any) -> str:
    """Return the kind of an aggregation, such as `sum` or `terms`; empty if the definition is not an aggregation."""
    kinds = definition if isinstance(definition, Mapping) else ()
    return next((kind for kind in kinds if kind not in ("aggs", "aggregations", "meta")), "")


# Figures over all documents.


def _overall_tables(results: Sequence[EsResults], labels: Sequence[str]) -> Iterator[Table]:
    """Yield a table of the dates, and a table of the numbers with comparisons."""
    figures_of_results = [_overall_figures(result) for result in results]
    names = list(dict.fromkeys(name for figures in figures_of_results for name in figures))
    date_names = [name for name in names if any(isinstance(figures.get(name), str) for figures in figures_of_results)]
    columns = [Column(label or "value") for label in labels]
    yield Table(
        "All matching documents: dates",
        "figure",
        columns,
        _rows(date_names, figures_of_results),
        notes=_missing_value_notes(date_names, figures_of_results, labels),
    )
    number_names = [name for name in names if name not in date_names]
    rows = _rows(number_names, figures_of_results)
    if len(results) > 1:
        for position, label in enumerate(labels[1:], 1):
            columns = [*columns, Column(f"{labels[0]} minus {label}"), Column(f"{labels[0]} relative to {label}", "%")]
            rows = [(name, [*values, *_comparison(values[0], values[position])]) for name, values in rows]
    yield Table(
        "All matching documents",
        "figure",
        columns,
        rows,
        notes=_missing_value_notes(number_names, figures_of_results, labels),
    )


def _rows(names: Sequence[str], figures_of_results: Sequence[Mapping[str, Value]]) -> list[Row]:
    return [(name, [figures.get(name) for figures in figures_of_results]) for name in names]


def _missing_value_notes(
    names: Sequence[str], figures_of_results: Sequence[Mapping[str, Value]], labels: Sequence[str]
) -> tuple[str, ...]:
    return tuple(
        f"{name} has no value{f' for {label}' if label else ''}."
        for label, figures in zip(labels, figures_of_results, strict=True)
        for name in names
        if name in figures and figures[name] is None
    )


def _overall_figures(result: EsResults) -> dict[str, Value]:
    # Each page has the total of the whole query, so adding up pages would count the documents several times.
    is_counted = result.total is not None and not result.is_page
    figures: dict[str, Value] = {_DOCUMENT_COUNT: result.total} if is_counted else {}
    return figures | dict(_figures(result.aggregations, aggregations_of(result.query)))


def _figures(group: Mapping[str, Any], aggregations: Mapping[str, Any]) -> Iterator[tuple[str, Value]]:
    """Yield the name and the value of each figure of a group; a figure with several parts yields each part."""
    for name, value in figures_of(group):
        # The sum of dates is not a date.
        is_meaningful = not isinstance(value, list) and not (
            isinstance(value, str) and _kind_of(aggregations.get(name)) == "sum"
        )
        if is_meaningful:
            yield name, value if isinstance(value, str) else _number(value)


def _number(value: Any) -> Number | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _comparison(first_value: Value, other_value: Value) -> list[Number | None]:
    """Return the difference, and the first value as a percentage of the other value."""
    if not isinstance(first_value, int | float) or not isinstance(other_value, int | float):
        return [None, None]
    return [_round(first_value - other_value), _round(100 * first_value / other_value) if other_value else None]


def _round(number: Number) -> Number:
    """Return a number without floating-point noise."""
    return number if isinstance(number, int) else round(number, 6)


# Figures of groups.


@dataclass(frozen=True, slots=True)
class _Scope:
    """The documents that are grouped: all matching documents, or the documents of a group.

    Args:
        aggregations: aggregations of the scope, by name.
        document_count: number of documents; `None` if unknown.
        group_names: names of the enclosing groups.
    """

    aggregations: Mapping[str, Any]
    document_count: Number | None
    group_names: tuple[str, ...] = ()

    def group_scope(self, grouping: str, key: str, bucket: Mapping[str, Any]) -> "_Scope":
        """Return the scope of a group in this scope."""
        aggregations = aggregations_of(self.aggregations.get(grouping))
        return _Scope(aggregations, _number(bucket.get("doc_count")), (*self.group_names, key or grouping))


def _grouping_tables(aggregation_results: Mapping[str, Any], scope: _Scope, *, title: str) -> Iterator[Table]:
    """Yield a table for each grouping, followed by the tables of the groupings nested in its groups."""
    for name, result in aggregation_results.items():
        buckets = bucket_list(result)
        if buckets is None:
            continue
        path = " / ".join([*scope.group_names, name])
        counts = [_number(bucket.get("doc_count")) or 0 for _, bucket in buckets]
        grouping = _Grouping(
            title=f"{title}: {path}" if title else path,
            name=name,
            definition=scope.aggregations.get(name),
            document_count=scope.document_count,
            grouped_count=sum(counts),
            omitted_count=omitted_documents(result),
        )
        yield _group_table(buckets, grouping)
        for key, bucket in buckets[:MAX_TABLES]:
            yield from _grouping_tables(bucket, scope.group_scope(name, key, bucket), title=title)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Grouping:
    """A grouping of documents.

    Args:
        title: title of the table.
        name: name of the grouping.
        definition: definition of the grouping in the query.
        document_count: number of documents to group; `None` if unknown.
        grouped_count: number of documents in the groups; overlapping groups count documents more than once.
        omitted_count: number of documents in groups that the server omitted.
    """

    title: str
    name: str
    definition: Any
    document_count: Number | None
    grouped_count: Number
    omitted_count: int

    @property
    def is_additive(self) -> bool:
        """Whether the group sizes can be added up: each document is in one group, or in one omitted group."""
        kind = _kind_of(self.definition)
        parameters = self.definition[kind] if kind in _PARTITIONING_KINDS else None
        if not isinstance(parameters, Mapping) or self.document_count is None:
            return False
        # `min_doc_count: 1`, which every histogram here has, only omits empty groups.
        is_limited = any(name in parameters for name in _LIMITING_PARAMETERS) or parameters.get(
            "min_doc_count", 1
        ) not in (0, 1)
        # A larger sum means that the field has several values per document.
        return not is_limited and self.grouped_count + self.omitted_count <= self.document_count

    @property
    def covers_all_documents(self) -> bool:
        """Whether each document is in one of the groups, so that sums of groups are sums of all documents."""
        return self.is_additive and self.grouped_count == self.document_count

    def notes(self) -> tuple[str, ...]:
        if not self.omitted_count:
            return ()
        return (
            f"{self.omitted_count:,} more documents are in groups of {self.name} that were not requested: "
            "only their number is known.",
        )


def _group_table(buckets: Sequence[tuple[str, Mapping[str, Any]]], grouping: _Grouping) -> Table:
    aggregations = aggregations_of(grouping.definition)
    figures_of_buckets = [
        {_DOCUMENT_COUNT: _number(bucket.get("doc_count")), **dict(_figures(bucket, aggregations))}
        for _, bucket in buckets
    ]
    names = list(dict.fromkeys(name for bucket_figures in figures_of_buckets for name in bucket_figures))
    columns_with_values = [
        column_values
        for name in names
        for column_values in _columns_of(
            name, [bucket_figures.get(name) for bucket_figures in figures_of_buckets], grouping
        )
    ]
    rows: list[Row] = [
        (key or grouping.name, [column_values.values[position] for column_values in columns_with_values])
        for position, (key, _) in enumerate(buckets)
    ]
    summary_rows: list[Row] = (
        [("all other groups", [column_values.omitted_value for column_values in columns_with_values])]
        if grouping.omitted_count
        else []
    )
    if grouping.is_additive and (len(rows) > 1 or grouping.omitted_count):
        summary_rows.append(("all together", [column_values.total_value for column_values in columns_with_values]))
    columns = [column_values.column for column_values in columns_with_values]
    return Table(
        grouping.title,
        grouping.name,
        columns,
        rows,
        summary_rows,
        (*grouping.notes(), *_missing_figure_notes(buckets, figures_of_buckets, names)),
    )


@dataclass(frozen=True, slots=True)
class _ColumnValues:
    """A column with its values, the value of the omitted groups, and the value of all groups."""

    column: Column
    values: Sequence[Value]
    omitted_value: Number | None = None
    total_value: Number | None = None


def _columns_of(name: str, values: Sequence[Value], grouping: _Grouping) -> Iterator[_ColumnValues]:
    """Yield the columns of a figure: its values, its shares if the total is known, and its differences."""
    numbers = [value for value in values if isinstance(value, int | float)]
    if name == _DOCUMENT_COUNT:
        yield from _columns_with_shares(
            name,
            values,
            grouping.document_count,
            omitted_count=grouping.omitted_count,
            total_value=grouping.grouped_count + grouping.omitted_count,
        )
    elif (
        _kind_of(aggregations_of(grouping.definition).get(name)) in _SUMMABLE_KINDS
        and numbers
        and grouping.covers_all_documents
    ):
        total = _round(sum(numbers))
        yield from _columns_with_shares(name, values, total, omitted_count=0, total_value=total)
    else:
        yield _ColumnValues(Column(name), values)
    if 1 < len(values) <= _MAX_COMPARED_ROWS and len(numbers) + values.count(None) == len(values):
        yield _ColumnValues(Column(f"{name}: first minus this"), [_comparison(values[0], value)[0] for value in values])


def _columns_with_shares(
    name: str, values: Sequence[Value], share_base: Number | None, *, omitted_count: int, total_value: Number
) -> Iterator[_ColumnValues]:
    """Yield a column with the values of a figure, and a column with their shares of `share_base`."""
    yield _ColumnValues(Column(name), values, omitted_count or None, total_value)
    if share_base:
        shares = [_share(value, share_base) for value in values]
        yield _ColumnValues(
            Column(f"share of {name}", "%"),
            shares,
            _share(omitted_count or None, share_base),
            _share(total_value, share_base),
        )


def _share(number: Value, total: Number) -> Number | None:
    return _round(100 * number / total) if isinstance(number, int | float) and total else None


def _missing_figure_notes(
    buckets: Sequence[tuple[str, Mapping[str, Any]]],
    figures_of_buckets: Sequence[Mapping[str, Value]],
    names: Sequence[str],
) -> tuple[str, ...]:
    """Return notes about figures that some groups lack."""
    notes = []
    for name in names:
        keys_without_value = [
            key
            for (key, _), bucket_figures in zip(buckets, figures_of_buckets, strict=True)
            if bucket_figures.get(name) is None
        ]
        if keys_without_value:
            available_count = len(buckets) - len(keys_without_value)
            missing_keys = ", ".join(markdown_cell(key) for key in keys_without_value[:MAX_ROWS])
            notes.append(
                f"{name} is available for {available_count} of {len(buckets)} groups; missing for {missing_keys}."
            )
    return tuple(notes)


# Figures of documents.


def _document_tables(result: EsResults, label: str) -> Iterator[Table]:
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
        [Column(name) for name in ("with a value", "without a value", "total", "average", "minimum", "maximum")],
        [(name, _summary_of(values)) for name, values in numbers.items() if any(value is not None for value in values)],
    )
    for name in names:
        texts = Counter(hit[name] for hit in hits if isinstance(hit.get(name), str))
        if 1 < len(texts) <= _MAX_DISTINCT_TEXTS:
            rows: list[Row] = [(text, [count, _round(100 * count / len(hits))]) for text, count in texts.most_common()]
            missing_count = len(hits) - texts.total()
            notes = (f"{missing_count:,} documents have no {name}.",) if missing_count else ()
            yield Table(f"{title}: {name}", name, [Column(_DOCUMENT_COUNT), Column("share", "%")], rows, notes=notes)


def _summary_of(values: Sequence[Number | None]) -> list[Number | None]:
    present_values = [number for number in values if number is not None]
    total, average = _round(sum(present_values)), _round(fmean(present_values))
    return [
        len(present_values),
        len(values) - len(present_values),
        total,
        average,
        min(present_values),
        max(present_values),
    ]
