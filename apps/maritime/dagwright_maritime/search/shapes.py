"""Validation of the form of aggregations that another tool passes on."""

from collections.abc import Iterator, Mapping
from typing import Any

from dagwright.tools.result_json import pointer_of
from dagwright_maritime.search.limits import Path


def shape_problems(groups: Mapping[str, Any], path: Path = ()) -> Iterator[str]:
    """Yield the problems in the form of aggregations, each with its location.

    Args:
        groups: aggregations by name; other values, such as the key of a group, are ignored.
        path: location of the aggregations.
    """
    for name, aggregation in groups.items():
        if isinstance(aggregation, Mapping):
            yield from _problems(aggregation, (*path, name))


def _problems(aggregation: Mapping[str, Any], path: Path) -> Iterator[str]:
    others = aggregation.get("sum_other_doc_count", 0)
    if type(others) is not int:
        yield f"{pointer_of((*path, 'sum_other_doc_count'))}: expected an integer"
    if "hits" in aggregation:
        hits = aggregation["hits"].get("hits") if isinstance(aggregation["hits"], Mapping) else None
        if not isinstance(hits, list) or not all(isinstance(hit, Mapping) for hit in hits):
            yield f"{pointer_of((*path, 'hits'))}: expected an object with a list of documents, `hits`"
    if "buckets" in aggregation:
        yield from _bucket_problems(aggregation["buckets"], (*path, "buckets"))
    elif "doc_count" in aggregation:
        yield from shape_problems(aggregation, path)


def _bucket_problems(buckets: Any, path: Path) -> Iterator[str]:
    if not isinstance(buckets, list | Mapping):
        yield f"{pointer_of(path)}: expected a list of groups, or groups by name"
        return
    for position, bucket in enumerate(buckets) if isinstance(buckets, list) else buckets.items():
        if isinstance(bucket, Mapping):
            yield from shape_problems(bucket, (*path, position))
        else:
            yield f"{pointer_of((*path, position))}: expected a group, an object"
