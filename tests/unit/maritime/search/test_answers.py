"""Responses of a search server: missing parts are reported, and their size is limited."""

from typing import Any

import pytest

from dagwright_maritime.search.limits import QueryLimits
from dagwright_maritime.search.results import Gap, SearchResult, SearchResultTooLarge, bucket_list, parse_result


def parsed_response(
    *documents: dict[str, Any],
    groups: Any = None,
    aggs: Any = None,
    limits: QueryLimits | None = None,
    **fields: Any,
) -> SearchResult:
    """Return the parsed response of the server."""
    actual = [{"_source": each, "sort": [number]} for number, each in enumerate(documents)]
    body = {"took": 3, "timed_out": False, "hits": {"total": {"value": 7}, "hits": actual}, **fields}
    if groups is not None:
        body["aggregations"] = groups
    return parse_result(body, aggs or {}, limits or QueryLimits())


AVERAGE = {"avg": {"field": "days"}}
BY_SHIPPER = {"terms": {"field": "shipper"}, "aggs": {"volume": {"sum": {"field": "teu"}}, "days": AVERAGE}}


def bucket(key: str, days: float | None) -> dict[str, Any]:
    return {"key": key, "doc_count": 4, "days": {"value": days}, "volume": {"value": 0.0}}


def test_documents_have_their_position_in_the_result() -> None:
    answer = parsed_response({"id": "a"}, {"id": "b"})
    assert (answer.hits, answer.sort_values) == ([{"id": "a"}, {"id": "b"}], [[0], [1]])
    assert (answer.total, answer.took_ms) == (7, 3)
    assert (answer.gaps, answer.problems) == ([], [])


def test_missing_figure_is_reported_with_the_keys_of_its_groups() -> None:
    groups = {"by": {"buckets": [bucket("A", 3.0), bucket("B", None), bucket("C", 1.5), bucket("D", None)]}}
    [gap] = parsed_response(groups=groups, aggs={"by": BY_SHIPPER}).gaps
    assert gap == Gap("by", "days", 4, ["B", "D"])
    assert gap.describe() == "days is available for 2 of 4 (by); missing for B, D."


def test_gap_in_groups_of_groups_has_the_keys_of_both() -> None:
    month = {"key": 1, "key_as_string": "2026-01-01", "doc_count": 9, "by": {"buckets": [bucket("A", None)]}}
    months = {"buckets": [month]}
    query = {"months": {"date_histogram": {"field": "eta"}, "aggs": {"by": BY_SHIPPER}}}
    assert parsed_response(groups={"months": months}, aggs=query).gaps == [Gap("by", "days", 1, ["2026-01-01 / A"])]


def test_figure_over_all_documents_that_no_document_has_is_reported() -> None:
    aggs = {"days": AVERAGE, "p": {"percentiles": {"field": "days"}}, "s": {"stats": {"field": "days"}}}
    groups = {"days": {"value": None}, "p": {"values": {"50.0": None}}, "s": {"count": 0, "sum": 0.0, "avg": None}}
    answer = parsed_response(groups=groups, aggs=aggs)
    texts = [f"{name} is not available: no document has a value." for name in aggs]
    assert [gap.describe() for gap in answer.gaps] == texts


def test_filter_is_not_reported_as_a_group_with_a_gap() -> None:
    query = {"late": {"filter": {"match_all": {}}, "aggs": {"days": AVERAGE}}}
    answer = parsed_response(groups={"late": {"doc_count": 0, "days": {"value": None}}}, aggs=query)
    assert answer.gaps == [Gap("", "days", 1, [""])]


def test_many_groups_without_a_value_are_counted() -> None:
    gap = Gap("by", "days", 30, [f"S{number}" for number in range(25)])
    assert gap.describe().endswith("S18, S19 and 5 more.")
    assert gap.with_value == 5


def test_server_problems_are_reported() -> None:
    shards = {"total": 3, "failed": 1, "failures": [{"reason": {"reason": "disk is gone"}}]}
    assert parsed_response(timed_out=True, _shards=shards).problems == [
        "The search timed out: the result covers only a part of the documents.",
        "1 of 3 parts of the index could not be searched (disk is gone); the result covers the other parts.",
    ]


def test_excess_documents_are_omitted_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dagwright_maritime.search.results.RESULT_LIMIT_BYTES", 30)
    answer = parsed_response({"id": "a" * 10}, {"id": "b" * 5}, {"id": "c"})
    assert (answer.hits, answer.omitted) == ([{"id": "a" * 10}], 2)
    assert answer.problems == [
        "The result has only the first 1 of 3 documents: together they exceed 30 bytes; request fewer fields."
    ]


def test_more_groups_than_an_answer_may_have_are_rejected() -> None:
    inner_group = {"buckets": [{"key": 1, "doc_count": 1}]}
    groups = {"a": {"buckets": [{"key": number, "doc_count": 1, "b": inner_group} for number in range(3)]}}
    aggs: dict[str, Any] = {"a": {"histogram": {}, "aggs": {"b": {"histogram": {}}}}}
    with pytest.raises(
        SearchResultTooLarge, match=r"^The query makes 6 groups, over the limit of 5; use a shorter range"
    ):
        parsed_response(groups=groups, aggs=aggs, limits=QueryLimits(buckets=5))


def test_figures_of_more_bytes_than_an_answer_may_have_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dagwright_maritime.search.results.RESULT_LIMIT_BYTES", 300)
    groups = {"by": {"buckets": [bucket("A", 3.0), bucket("B", 2.0)]}}
    assert parsed_response(groups=groups, aggs={"by": BY_SHIPPER}).groups
    groups["by"]["buckets"] *= 5
    with pytest.raises(
        SearchResultTooLarge, match=r"^The groups and figures have 821 bytes, over the limit of 300; request"
    ):
        parsed_response(groups=groups, aggs={"by": BY_SHIPPER})


def test_aggregations_are_in_the_requested_order() -> None:
    inner_group = {"doc_count": 1, "y": {"value": 1}, "x": {"value": 2}}
    groups = {"z": {"value": 1}, "by": {"buckets": [bucket("A", 1.0)]}, "f": inner_group}
    query = {"by": BY_SHIPPER, "f": {"filter": {}, "aggs": {"x": {"max": {}}, "y": {"max": {}}}}, "z": {"sum": {}}}
    answer = parsed_response(groups=groups, aggs=query)
    assert list(answer.groups) == ["by", "f", "z"]
    assert list(answer.groups["by"]["buckets"][0]) == ["key", "doc_count", "volume", "days"]
    assert list(answer.groups["f"]) == ["doc_count", "x", "y"]


@pytest.mark.parametrize(
    ("grouping", "expected"),
    [
        ({"buckets": [{"key": 1}, {"key": 2, "key_as_string": "2026-01-01T00:00:00.000Z"}]}, ["1", "2026-01-01"]),
        ({"buckets": {"one": {}, "two": {}}}, ["one", "two"]),
        ({"doc_count": 3}, [""]),
        ({"value": 3}, None),
        (None, None),
    ],
)
def test_groups_of_each_form_have_keys(grouping: Any, expected: Any) -> None:
    actual = bucket_list(grouping)
    assert (None if actual is None else [key for key, _ in actual]) == expected
