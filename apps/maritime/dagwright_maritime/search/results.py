"""Results of search queries: limited in size, with a report of missing values and incomplete searches."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dagwright_maritime.search.limits import Json, QueryLimits

RESULT_LIMIT_BYTES = 4 * 1024 * 1024
"""Size limit of the documents of one result as JSON; also size limit of its groups and figures."""
_KEYS_SHOWN = 20
_NULLABLE_FIGURES = ("avg", "min", "max", "stats", "percentiles")
"""Figures that are null if no document has a value; a sum is 0 in that case, so the gap cannot be detected."""
_SINGLE_GROUP_KINDS = ("filter", "missing")

_AS_TEXT = "_as_string"


class SearchResultTooLarge(ValueError):
    """The groups and figures of a result exceed the limits."""


@dataclass(frozen=True, slots=True)
class Gap:
    """A figure that some groups lack, because no document of these groups has a value.

    Args:
        group: name of the grouping; empty if the figure is over all documents.
        metric: name of the figure.
        group_count: number of groups.
        keys_without_value: keys of the groups without a value, in the order of the result.
    """

    group: str
    metric: str
    group_count: int
    keys_without_value: Sequence[str]

    @property
    def count_with_value(self) -> int:
        """Number of groups that have a value."""
        return self.group_count - len(self.keys_without_value)

    def describe(self) -> str:
        """Return the gap as a sentence."""
        if not self.group:
            return f"{self.metric} is not available: no document has a value."
        key_list = ", ".join(self.keys_without_value[:_KEYS_SHOWN])
        omitted_note = (
            f" and {len(self.keys_without_value) - _KEYS_SHOWN} more"
            if len(self.keys_without_value) > _KEYS_SHOWN
            else ""
        )
        available = f"{self.metric} is available for {self.count_with_value} of {self.group_count} groups of"
        return f"{available} {self.group}; missing for {key_list}{omitted_note}."


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Result of a query.

    Args:
        hits: the documents as they were stored, in the order of the query.
        sort_values: the sort values of each document; empty without a sort order.
        groups: the aggregations of the response, in the order of the query.
        total: number of matching documents.
        omitted: number of found documents that do not fit into the size limit.
        problems: reasons why the result is incomplete, one sentence per reason.
    """

    hits: list[Json]
    sort_values: list[list[Any]]
    groups: Json
    total: int
    took_ms: int
    omitted: int = 0
    gaps: list[Gap] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def parse_result(response: Mapping[str, Any], aggregations: Mapping[str, Any], limits: QueryLimits) -> SearchResult:
    """Return the result from a response of the server.

    Args:
        aggregations: the aggregations of the query.

    Raises:
        SearchResultTooLarge: the groups exceed `limits` or the size limit.
    """
    groups = _in_order(aggregations, response.get("aggregations", {}))
    count = sum(1 for _ in _buckets(groups))
    if count > limits.buckets:
        raise SearchResultTooLarge(
            f"The query makes {count:,} groups, over the limit of {limits.buckets:,}; use a shorter range of "
            "dates, longer intervals or fewer groups"
        )
    if (size := _bytes_of(groups)) > RESULT_LIMIT_BYTES:
        raise SearchResultTooLarge(
            f"The groups and figures have {size:,} bytes, over the limit of {RESULT_LIMIT_BYTES:,}; request fewer "
            "groups, fewer figures in each, or fewer fields of their documents"
        )
    hits: list[Mapping[str, Any]] = response["hits"]["hits"]
    hits_within_limit = _within_limit(hits)
    problems = [*_problems(response)]
    if len(hits_within_limit) < len(hits):
        problems.append(
            f"The result has only the first {len(hits_within_limit):,} of {len(hits):,} documents: "
            f"together they exceed {RESULT_LIMIT_BYTES:,} bytes; request fewer fields."
        )
    return SearchResult(
        hits=[hit.get("_source", {}) for hit in hits_within_limit],
        sort_values=[hit.get("sort", []) for hit in hits_within_limit],
        groups=groups,
        total=int(response["hits"]["total"]["value"]),
        took_ms=int(response.get("took", 0)),
        omitted=len(hits) - len(hits_within_limit),
        gaps=[*_gaps(aggregations, [("", groups)], group="")],
        problems=problems,
    )


def bucket_list(grouping: Any) -> list[tuple[str, Mapping[str, Any]]] | None:
    """Return the groups of an aggregation with their keys; `None` if the aggregation makes no groups."""
    if not isinstance(grouping, Mapping):
        return None
    buckets = grouping.get("buckets")
    if isinstance(buckets, Mapping):
        return [(str(key), bucket) for key, bucket in buckets.items()]
    if isinstance(buckets, list):
        return [(key_of(bucket), bucket) for bucket in buckets]
    return [("", grouping)] if "doc_count" in grouping else None


def key_of(bucket: Mapping[str, Any]) -> str:
    """Return the key of a group as text; for a time at midnight, return only the day."""
    return _day(str(bucket.get("key_as_string", bucket.get("key", ""))))


def omitted_documents(grouping: Mapping[str, Any]) -> int:
    """Return the number of documents in groups beyond the requested size."""
    return int(grouping.get("sum_other_doc_count") or 0)


def figures_of(group: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the name and value of each figure of a group, without its nested groups; a figure may have several parts.

    A value is a number, `None` if missing, a list of documents, or a text. The server returns a date as milliseconds
    and as a text; the text is used. In `stats`, a sum of dates is omitted.
    """
    for name, figure in group.items():
        if not isinstance(figure, Mapping) or bucket_list(figure) is not None:
            continue
        if "value" in figure:
            yield name, _figure(figure, "value")
        elif isinstance(values := figure.get("values"), Mapping):
            yield from (
                (f"{name} {_percent(key)}", _figure(values, key)) for key in values if not key.endswith(_AS_TEXT)
            )
        elif "hits" in figure:
            yield name, [hit.get("_source", {}) for hit in figure["hits"]["hits"]]
        elif "count" in figure:
            parts = [part for part in ("count", "min", "avg", "max", "sum") if part in figure]
            values = {part: _figure(figure, part) for part in parts}
            yield from (
                (f"{name} {part}", values[part])
                for part in parts
                if part != "sum" or not isinstance(values["sum"], str)
            )


def _figure(figure: Mapping[str, Any], part: str) -> Any:
    text = figure.get(f"{part}{_AS_TEXT}")
    # Booleans also have a text, but their figures are numbers: the count and the share of true values.
    is_date = figure[part] is not None and isinstance(text, str) and text not in ("true", "false")
    return _day(str(text)) if is_date else figure[part]


def _percent(key: str) -> str:
    return f"{key.removesuffix('.0')} %"


def _day(text: str) -> str:
    return text.removesuffix("T00:00:00.000Z")


def _in_order(aggregations_of_query: Mapping[str, Any], aggregations: Mapping[str, Any]) -> Json:
    """Return aggregations in the order of the query; the server returns them in another order."""
    other_aggregations = {name: value for name, value in aggregations.items() if name not in aggregations_of_query}
    return other_aggregations | {
        name: _order_nested(aggregations_of_query[name], aggregations[name])
        for name in aggregations_of_query
        if name in aggregations
    }


def _order_nested(definition: Mapping[str, Any], grouping: Json) -> Json:
    inner_aggregations, buckets = definition.get("aggs", {}), grouping.get("buckets")
    if not inner_aggregations:
        return grouping
    if isinstance(buckets, list):
        return {**grouping, "buckets": [_in_order(inner_aggregations, bucket) for bucket in buckets]}
    if isinstance(buckets, dict):
        return {**grouping, "buckets": {key: _in_order(inner_aggregations, bucket) for key, bucket in buckets.items()}}
    return _in_order(inner_aggregations, grouping)


def _buckets(groups: Any) -> Iterator[None]:
    """Yield once for each group, at any depth."""
    for grouping in groups.values() if isinstance(groups, Mapping) else ():
        for _, bucket in bucket_list(grouping) or ():
            yield None
            yield from _buckets(bucket)


def _within_limit(hits: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    hits_within_limit, size = [], 0
    for hit in hits:
        size += _bytes_of(hit.get("_source", {}))
        if size > RESULT_LIMIT_BYTES:
            break
        hits_within_limit.append(hit)
    return hits_within_limit


def _bytes_of(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False).encode(errors="replace"))


def _problems(response: Mapping[str, Any]) -> Iterator[str]:
    if response.get("timed_out"):
        yield "The search timed out: the result covers only a part of the documents."
    shards = response.get("_shards", {})
    if failed_count := shards.get("failed", 0):
        reasons = [failure.get("reason", {}).get("reason", "") for failure in shards.get("failures", [])]
        reason = f" ({str(reasons[0])[:300]})" if reasons and reasons[0] else ""
        parts = f"{failed_count} of {shards.get('total')} parts of the index"
        yield f"{parts} could not be searched{reason}; the result covers the other parts."


def _gaps(aggregations: Any, groups: Sequence[tuple[str, Any]], *, group: str) -> Iterator[Gap]:
    """Yield each figure that some group lacks.

    Args:
        aggregations: aggregations by name.
        groups: the groups with these aggregations, by key.
        group: name of the aggregation that made the groups.
    """
    for name, definition in aggregations.items():
        kind = next(iter(definition))
        keyed_results = [(key, bucket.get(name, {})) for key, bucket in groups]
        if kind in _NULLABLE_FIGURES:
            keys_without_value = [key for key, figure in keyed_results if is_empty_figure(figure)]
            if keys_without_value:
                yield Gap(group, name, len(keyed_results), keys_without_value)
        elif "aggs" in definition:
            nested_groups = [
                (" / ".join(part for part in (key, nested_key) if part), bucket)
                for key, grouping in keyed_results
                for nested_key, bucket in bucket_list(grouping) or ()
            ]
            yield from _gaps(definition["aggs"], nested_groups, group=group if kind in _SINGLE_GROUP_KINDS else name)


def is_empty_figure(figure: Any) -> bool:
    """Return whether a figure has no value, because no document has a value."""
    if not isinstance(figure, Mapping):
        return False
    if "value" in figure:
        return figure["value"] is None
    if "count" in figure:
        return bool(figure["count"] == 0)
    values = figure.get("values")
    return isinstance(values, Mapping) and bool(values) and all(value is None for value in values.values())
