"""Markdown for search results: documents in a table, groups and figures in separate tables."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dagwright_maritime.search.cells import markdown_cell, markdown_table
from dagwright_maritime.search.results import bucket_list, figures_of, omitted_documents

MAX_COLUMNS = 12
MAX_TABLES = 8
_COUNT = "count"
_SINGLE_GROUP = "group"
"""Column title for aggregations with a single group, such as `filter`."""

KeyedGroup = tuple[tuple[str, ...], Mapping[str, Any]]
"""A group with its keys, from the outermost group."""


def document_table(
    hits: Sequence[Mapping[str, Any]], *, total: int | None, rows: int, first_fields: Sequence[str] = ()
) -> str:
    """Return documents as Markdown, and how many more there are.

    Args:
        total: number of matches; `None` if unknown.
        rows: maximum number of documents shown.
        first_fields: fields that come first, in this order.
    """
    if not hits:
        return "Nothing matches." if not total else f"{total:,} match; no documents were requested."
    visible_hits = list(hits[:rows])
    field_names = dict.fromkeys(name for hit in visible_hits for name in hit)
    columns = [name for name in first_fields if name in field_names]
    columns += [name for name in field_names if name not in first_fields]
    if not columns:
        return f"{max(total or 0, len(hits)):,} match; no fields were requested."
    omitted_columns = columns[MAX_COLUMNS:]
    columns = columns[:MAX_COLUMNS]
    parts = [markdown_table(columns, [[hit.get(name) for name in columns] for hit in visible_hits])]
    hidden_count = max(total or 0, len(hits)) - len(visible_hits)
    if hidden_count > 0:
        parts.append(
            f"{len(visible_hits):,} of {len(visible_hits) + hidden_count:,} are shown; there are {hidden_count:,} more."
        )
    if omitted_columns:
        parts.append(f"Not shown: {', '.join(map(markdown_cell, omitted_columns))}.")
    return "\n\n".join(parts)


@dataclass(frozen=True, slots=True)
class GroupTable:
    """The groups of one aggregation.

    Args:
        names: names of the enclosing aggregations and of the aggregation itself.
        groups: groups in the order of the result.
        omitted_count: number of documents in groups that the server omitted.
    """

    names: tuple[str, ...]
    groups: list[KeyedGroup]
    omitted_count: int = 0

    def markdown(self, rows: int) -> str:
        """Return the first `rows` groups, and how many more there are."""
        visible_groups = self.groups[:rows]
        figures = list(dict.fromkeys(name for _, group in visible_groups for name, _ in figures_of(group)))
        lines = [[*keys, group.get("doc_count"), *_values(group, figures)] for keys, group in visible_groups]
        parts = [markdown_table([*self.names, _COUNT, *figures], lines)] if visible_groups else ["There are no groups."]
        if len(self.groups) > len(visible_groups):
            parts.append(f"{len(visible_groups):,} of {len(self.groups):,} groups are shown.")
        if self.omitted_count:
            parts.append(f"{self.omitted_count:,} more documents are in groups that were not requested.")
        return "\n\n".join(parts)


def group_tables(groups: Mapping[str, Any], *, rows: int) -> str:
    """Return aggregations as Markdown: figures over all documents, then a table for each grouping.

    Args:
        rows: maximum number of groups of each table.
    """
    figures = [*figures_of(groups)]
    tables = [*_tables([((), groups)], ())]
    has_several_tables = len(tables) + bool(figures) > 1
    parts = [markdown_table(["figure", "value"], figures)] if figures else []
    for group_table in tables[:MAX_TABLES]:
        title = f"**{markdown_cell(' / '.join(group_table.names))}**\n\n" if has_several_tables else ""
        parts.append(title + group_table.markdown(rows))
    if len(tables) > MAX_TABLES:
        parts.append(f"{len(tables) - MAX_TABLES} more tables are not shown.")
    return "\n\n".join(parts)


def _tables(enclosing_groups: Sequence[KeyedGroup], names: tuple[str, ...]) -> Iterator[GroupTable]:
    """Yield a table for each grouping within some groups, followed by the tables of the groupings nested in it."""
    for name in dict.fromkeys(name for _, group in enclosing_groups for name in group):
        groupings = [
            (keys, group[name]) for keys, group in enclosing_groups if bucket_list(group.get(name)) is not None
        ]
        inner_groups: list[KeyedGroup] = [
            ((*keys, key), bucket) for keys, grouping in groupings for key, bucket in bucket_list(grouping) or ()
        ]
        if not groupings or _is_single_group(groupings[0][1]):
            continue
        omitted_count = sum(omitted_documents(grouping) for _, grouping in groupings)
        yield GroupTable((*names, name), inner_groups, omitted_count)
        yield from _tables(inner_groups, (*names, name))
    single_groups = [
        ((*keys, name), aggregation)
        for keys, group in enclosing_groups
        for name, aggregation in group.items()
        if _is_single_group(aggregation)
    ]
    if single_groups:
        yield GroupTable((*names, _SINGLE_GROUP), single_groups)
        yield from _tables(single_groups, (*names, _SINGLE_GROUP))


def _is_single_group(grouping: Any) -> bool:
    return isinstance(grouping, Mapping) and "doc_count" in grouping and "buckets" not in grouping


def _values(group: Mapping[str, Any], figures: Sequence[str]) -> list[Any]:
    values = dict(figures_of(group))
    return [values.get(name) for name in figures]
