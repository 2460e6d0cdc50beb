"""What a search server answered, as far as somebody may have it: bounded, and with what is missing in it told."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dagwright_maritime.search.limits import Json, QueryLimits

ANSWER_LIMIT_BYTES = 4 * 1024 * 1024
"""Of the documents of one answer as JSON, and of its groups and figures."""
_KEYS_TOLD = 20
_FIGURES = ("avg", "min", "max", "stats", "percentiles")
"""Figures that are null where no document has a value; a sum is 0 then, and nobody can tell."""
_ONE_GROUP = ("filter", "missing")

_AS_TEXT = "_as_string"


class AnswerTooLarge(ValueError):
    """The server found more groups and figures than an answer may have."""


@dataclass(frozen=True, slots=True)
class Gap:
    """A figure that not all groups have, because none of their documents has a value.

    Args:
        group: name of the aggregation that makes the groups; empty if the figure is over all documents.
        metric: name of the figure.
        groups: how many groups there are.
        without: keys of the groups that have no value, in the order of the answer.
    """

    group: str
    metric: str
    groups: int
    without: Sequence[str]

    @property
    def with_value(self) -> int:
        return self.groups - len(self.without)

    def words(self) -> str:
        """Returns the gap as a sentence."""
        if not self.group:
            return f"{self.metric} is not available: no document has a value."
        named = ", ".join(self.without[:_KEYS_TOLD])
        more = f" and {len(self.without) - _KEYS_TOLD} more" if len(self.without) > _KEYS_TOLD else ""
        available = f"{self.metric} is available for {self.with_value} of {self.groups}"
        return f"{available} ({self.group}); not for {named}{more}."


@dataclass(frozen=True, slots=True)
class SearchAnswer:
    """What a query found.

    Args:
        hits: the documents, each as it was stored, in the order of the query.
        places: for each of them, the values that it was ordered by; empty without an order.
        groups: the aggregations, as the server tells them.
        total: documents that match.
        omitted: documents that were asked for and found, and are too much for one answer.
        problems: why the answer is not whole, a sentence each; empty if it is.
    """

    hits: list[Json]
    places: list[list[Any]]
    groups: Json
    total: int
    took_ms: int
    omitted: int = 0
    gaps: list[Gap] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def search_answer(told: Mapping[str, Any], asked: Mapping[str, Any], limits: QueryLimits) -> SearchAnswer:
    """Returns an answer of the server.

    Args:
        told: as it came.
        asked: the aggregations that were asked for.

    Raises:
        AnswerTooLarge: there are more groups than `limits` let an answer have, or they have too many bytes.
    """
    groups = _in_order(asked, told.get("aggregations", {}))
    count = sum(1 for _ in _buckets(groups))
    if count > limits.buckets:
        raise AnswerTooLarge(
            f"The query makes {count:,} groups, over the limit of {limits.buckets:,}; ask for a shorter range of "
            "dates, longer intervals or fewer groups"
        )
    if (size := _bytes_of(groups)) > ANSWER_LIMIT_BYTES:
        raise AnswerTooLarge(
            f"The groups and figures have {size:,} bytes, over the limit of {ANSWER_LIMIT_BYTES:,}; ask for fewer "
            "groups, for fewer figures in each, or for fewer fields of the documents in them"
        )
    found: list[Mapping[str, Any]] = told["hits"]["hits"]
    kept = _that_fit(found)
    problems = [*_problems(told)]
    if len(kept) < len(found):
        problems.append(
            f"Only the first {len(kept):,} of {len(found):,} documents are here: all together they have more than "
            f"{ANSWER_LIMIT_BYTES:,} bytes; ask for fewer fields."
        )
    return SearchAnswer(
        hits=[hit.get("_source", {}) for hit in kept],
        places=[hit.get("sort", []) for hit in kept],
        groups=groups,
        total=int(told["hits"]["total"]["value"]),
        took_ms=int(told.get("took", 0)),
        omitted=len(found) - len(kept),
        gaps=[*_gaps(asked, [("", groups)], group="")],
        problems=problems,
    )


def bucket_list(grouping: Any) -> list[tuple[str, Mapping[str, Any]]] | None:
    """Returns the groups of one aggregation of an answer with their keys; `None` if it makes no groups."""
    if not isinstance(grouping, Mapping):
        return None
    buckets = grouping.get("buckets")
    if isinstance(buckets, Mapping):
        return [(str(key), bucket) for key, bucket in buckets.items()]
    if isinstance(buckets, list):
        return [(key_of(bucket), bucket) for bucket in buckets]
    return [("", grouping)] if "doc_count" in grouping else None


def key_of(bucket: Mapping[str, Any]) -> str:
    """Returns the key of a group as people read it; of a day only the day."""
    return _day(str(bucket.get("key_as_string", bucket.get("key", ""))))


def others_of(grouping: Mapping[str, Any]) -> int:
    """Returns how many documents are in groups that the server left out, because no more were asked for."""
    return int(grouping.get("sum_other_doc_count") or 0)


def figures_of(group: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yields the figures that stand in a group itself: name, value; of one that is several, each.

    A value is a number, `None` if there is none, a list of documents, or a text: the server tells dates as numbers of
    milliseconds that say nothing to people, and as a text beside them. A sum of dates is left out where it is known as
    one.
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
            told = {part: _figure(figure, part) for part in parts}
            yield from (
                (f"{name} {part}", told[part]) for part in parts if part != "sum" or not isinstance(told["sum"], str)
            )


def _figure(told: Mapping[str, Any], part: str) -> Any:
    text = told.get(f"{part}{_AS_TEXT}")
    # Truth values have a text too, and their figures are numbers: how many are true, and which share.
    is_date = told[part] is not None and isinstance(text, str) and text not in ("true", "false")
    return _day(str(text)) if is_date else told[part]


def _percent(key: str) -> str:
    return f"{key.removesuffix('.0')} %"


def _day(text: str) -> str:
    return text.removesuffix("T00:00:00.000Z")


def _in_order(asked: Mapping[str, Any], told: Mapping[str, Any]) -> Json:
    """Returns aggregations in the order in which they were asked for; the server tells them in one of its own."""
    others = {name: value for name, value in told.items() if name not in asked}
    return others | {name: _inside_in_order(asked[name], told[name]) for name in asked if name in told}


def _inside_in_order(kinds: Mapping[str, Any], grouping: Json) -> Json:
    inner, buckets = kinds.get("aggs", {}), grouping.get("buckets")
    if not inner:
        return grouping
    if isinstance(buckets, list):
        return {**grouping, "buckets": [_in_order(inner, bucket) for bucket in buckets]}
    if isinstance(buckets, dict):
        return {**grouping, "buckets": {key: _in_order(inner, bucket) for key, bucket in buckets.items()}}
    return _in_order(inner, grouping)


def _buckets(groups: Any) -> Iterator[None]:
    """Yields once for each group, however deep."""
    for grouping in groups.values() if isinstance(groups, Mapping) else ():
        for _, bucket in bucket_list(grouping) or ():
            yield None
            yield from _buckets(bucket)


def _that_fit(found: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    kept, size = [], 0
    for hit in found:
        size += _bytes_of(hit.get("_source", {}))
        if size > ANSWER_LIMIT_BYTES:
            break
        kept.append(hit)
    return kept


def _bytes_of(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False).encode(errors="replace"))


def _problems(told: Mapping[str, Any]) -> Iterator[str]:
    if told.get("timed_out"):
        yield "The server ran out of time: what is here is of a part of the documents only."
    shards = told.get("_shards", {})
    if failed := shards.get("failed", 0):
        reasons = [each.get("reason", {}).get("reason", "") for each in shards.get("failures", [])]
        why = f" ({str(reasons[0])[:300]})" if reasons and reasons[0] else ""
        parts = f"{failed} of {shards.get('total')} parts of the index"
        yield f"{parts} could not be searched{why}; what is here is of the others."


def _gaps(asked: Any, among: Sequence[tuple[str, Any]], *, group: str) -> Iterator[Gap]:
    """Yields each figure that some group has no value of.

    Args:
        asked: aggregations by name.
        among: the groups that they were asked of, by their keys.
        group: name of the aggregation that made these.
    """
    for name, kinds in asked.items():
        kind = next(iter(kinds))
        told = [(key, bucket.get(name, {})) for key, bucket in among]
        if kind in _FIGURES:
            without = [key for key, figure in told if is_empty_figure(figure)]
            if without:
                yield Gap(group, name, len(told), without)
        elif "aggs" in kinds:
            inside = [
                (" / ".join(part for part in (key, below) if part), bucket)
                for key, grouping in told
                for below, bucket in bucket_list(grouping) or ()
            ]
            yield from _gaps(kinds["aggs"], inside, group=group if kind in _ONE_GROUP else name)


def is_empty_figure(figure: Any) -> bool:
    """Tells whether a figure has no value, because no document has one."""
    if not isinstance(figure, Mapping):
        return False
    if "value" in figure:
        return figure["value"] is None
    if "count" in figure:
        return bool(figure["count"] == 0)
    values = figure.get("values")
    return isinstance(values, Mapping) and bool(values) and all(value is None for value in values.values())
