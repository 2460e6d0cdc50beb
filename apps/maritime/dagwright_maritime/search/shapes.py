"""Tells whether aggregations that somebody hands on have the form in which a search server tells them."""

from collections.abc import Iterator, Mapping
from typing import Any

from dagwright.tools.results import pointer_of
from dagwright_maritime.search.limits import Path


def shape_problems(groups: Mapping[str, Any], path: Path = ()) -> Iterator[str]:
    """Yields what is wrong with the form of aggregations, each with its place.

    Args:
        groups: aggregations by name; what is no object stands beside them, such as the key of a group.
        path: where they stand.
    """
    for name, told in groups.items():
        if isinstance(told, Mapping):
            yield from _problems(told, (*path, name))


def _problems(told: Mapping[str, Any], path: Path) -> Iterator[str]:
    others = told.get("sum_other_doc_count", 0)
    if type(others) is not int:
        yield f"{pointer_of((*path, 'sum_other_doc_count'))}: expected a whole number"
    if "hits" in told:
        hits = told["hits"].get("hits") if isinstance(told["hits"], Mapping) else None
        if not isinstance(hits, list) or not all(isinstance(each, Mapping) for each in hits):
            yield f"{pointer_of((*path, 'hits'))}: expected an object with a list of documents, `hits`"
    if "buckets" in told:
        yield from _bucket_problems(told["buckets"], (*path, "buckets"))
    elif "doc_count" in told:
        yield from shape_problems(told, path)


def _bucket_problems(buckets: Any, path: Path) -> Iterator[str]:
    if not isinstance(buckets, list | Mapping):
        yield f"{pointer_of(path)}: expected a list of groups, or groups by name"
        return
    for place, bucket in enumerate(buckets) if isinstance(buckets, list) else buckets.items():
        if isinstance(bucket, Mapping):
            yield from shape_problems(bucket, (*path, place))
        else:
            yield f"{pointer_of((*path, place))}: expected a group, an object"
