"""Responses of a search server: missing parts are reported, and the size of a result is limited."""

from typing import Any

import pytest

from dagwright_maritime.search.limits import QueryLimits
from dagwright_maritime.search.results import Gap, SearchResult, SearchResultTooLarge, bucket_list, parse_result


def parsed_response(
    *documents: dict[str, Any],
    aggregations: Any = None,
    aggs: Any = None,
    limits: QueryLimits | None = None,
    **fields: Any,
) -> SearchResult:
    """Parse a response with these documents, aggregations and other fields. `aggs` belongs to the request."""
    hits = [{"_source": document, "sort": [number]} for number, document in enumerate(documents)]
    body = {"took": 3, "timed_out": False, "hits": {"total": {"value": 7}, "hits": hits}, **fields}
    if aggregations is not None:
        body["aggregations"] = aggregations
    return parse_result(body, aggs or {}, limits or QueryLimits())


AVERAGE = {"avg": {"field": "transit_days"}}
BY_SHIPPER = {"terms": {"field": "shipper"}, "aggs": {"volume": {"sum": {"field": "teu"}}, "transit_days": AVERAGE}}


def bucket(key: str, transit_days: float | None) -> dict[str, Any]:
    return {"key": key, "doc_count": 4, "transit_days": {"value": transit_days}, "volume": {"value": 0.0}}


def test_result_has_the_documents_and_sort_values_in_their_order() -> None:
    result = parsed_response({"id": "a"}, {"id": "b"})
    assert (result.hits, result.sort_values) == ([{"id": "a"}, {"id": "b"}], [[0], [1]])
    assert (result.total, result.took_ms) == (7, 3)
    assert (result.gaps, result.problems) == ([], [])


def test_missing_figure_is_reported_with_the_keys_of_its_groups() -> None:
    aggregations = {
        "by_shipper": {"buckets": [bucket("A", 3.0), bucket("B", None), bucket("C", 1.5), bucket("D", None)]}
    }
    [gap] = parsed_response(aggregations=aggregations, aggs={"by_shipper": BY_SHIPPER}).gaps
    assert gap == Gap("by_shipper", "transit_days", 4, ["B", "D"])
    assert gap.describe() == "transit_days is available for 2 of 4 groups of by_shipper; missing for B, D."


def test_gap_in_nested_groups_has_the_keys_of_all_levels() -> None:
    month = {"key": 1, "key_as_string": "2026-01-01", "doc_count": 9, "by_shipper": {"buckets": [bucket("A", None)]}}
    months = {"buckets": [month]}
    aggs = {"months": {"date_histogram": {"field": "eta"}, "aggs": {"by_shipper": BY_SHIPPER}}}
    assert parsed_response(aggregations={"months": months}, aggs=aggs).gaps == [
        Gap("by_shipper", "transit_days", 1, ["2026-01-01 / A"])
    ]


def test_figure_is_reported_as_missing_if_no_document_has_a_value() -> None:
    aggs = {
        "transit_days": AVERAGE,
        "p": {"percentiles": {"field": "transit_days"}},
        "s": {"stats": {"field": "transit_days"}},
    }
    aggregations = {
        "transit_days": {"value": None},
        "p": {"values": {"50.0": None}},
        "s": {"count": 0, "sum": 0.0, "avg": None},
    }
    result = parsed_response(aggregations=aggregations, aggs=aggs)
    texts = [f"{name} is not available: no document has a value." for name in aggs]
    assert [gap.describe() for gap in result.gaps] == texts


def test_gap_in_a_filter_has_no_group_name() -> None:
    aggs = {"late": {"filter": {"match_all": {}}, "aggs": {"transit_days": AVERAGE}}}
    result = parsed_response(aggregations={"late": {"doc_count": 0, "transit_days": {"value": None}}}, aggs=aggs)
    assert result.gaps == [Gap("", "transit_days", 1, [""])]


def test_many_groups_without_a_value_are_counted() -> None:
    gap = Gap("by_shipper", "transit_days", 30, [f"S{number}" for number in range(25)])
    assert gap.describe().endswith("S18, S19 and 5 more.")
    assert gap.count_with_value == 5


def test_server_problems_are_reported() -> None:
    shards = {"total": 3, "failed": 1, "failures": [{"reason": {"reason": "disk is gone"}}]}
    assert parsed_response(timed_out=True, _shards=shards).problems == [
        "The search timed out: the result covers only a part of the documents.",
        "1 of 3 parts of the index could not be searched (disk is gone); the result covers the other parts.",
    ]


def test_excess_documents_are_omitted_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dagwright_maritime.search.results.RESULT_LIMIT_BYTES", 30)
    result = parsed_response({"id": "a" * 10}, {"id": "b" * 5}, {"id": "c"})
    assert (result.hits, result.omitted) == ([{"id": "a" * 10}], 2)
    assert result.problems == [
        "The result has only the first 1 of 3 documents: together they exceed 30 bytes; request fewer fields."
    ]


def test_result_with_too_many_groups_is_rejected() -> None:
    inner_group = {"buckets": [{"key": 1, "doc_count": 1}]}
    aggregations = {"a": {"buckets": [{"key": number, "doc_count": 1, "b": inner_group} for number in range(3)]}}
    aggs: dict[str, Any] = {"a": {"histogram": {}, "aggs": {"b": {"histogram": {}}}}}
    message = r"^The query makes 6 groups, over the limit of 5; use a shorter range"
    with pytest.raises(SearchResultTooLarge, match=message):
        parsed_response(aggregations=aggregations, aggs=aggs, limits=QueryLimits(buckets=5))


def test_result_with_too_many_bytes_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dagwright_maritime.search.results.RESULT_LIMIT_BYTES", 300)
    aggregations = {"by_shipper": {"buckets": [bucket("A", 3.0), bucket("B", 2.0)]}}
    assert parsed_response(aggregations=aggregations, aggs={"by_shipper": BY_SHIPPER}).groups
    aggregations["by_shipper"]["buckets"] *= 5
    with pytest.raises(
        SearchResultTooLarge, match=r"^The groups and figures have 909 bytes, over the limit of 300; request"
    ):
        parsed_response(aggregations=aggregations, aggs={"by_shipper": BY_SHIPPER})


def test_aggregations_are_in_the_requested_order() -> None:
    inner_group = {"doc_count": 1, "y": {"value": 1}, "x": {"value": 2}}
    aggregations = {"z": {"value": 1}, "by_shipper": {"buckets": [bucket("A", 1.0)]}, "f": inner_group}
    aggs = {
        "by_shipper": BY_SHIPPER,
        "f": {"filter": {}, "aggs": {"x": {"max": {}}, "y": {"max": {}}}},
        "z": {"sum": {}},
    }
    result = parsed_response(aggregations=aggregations, aggs=aggs)
    assert list(result.groups) == ["by_shipper", "f", "z"]
    assert list(result.groups["by_shipper"]["buckets"][0]) == ["key", "doc_count", "volume", "transit_days"]
    assert list(result.groups["f"]) == ["doc_count", "x", "y"]


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
def test_keys_are_read_from_each_form_of_groups_and_figures_have_no_keys(grouping: Any, expected: Any) -> None:
    actual = bucket_list(grouping)
    assert (None if actual is None else [key for key, _ in actual]) == expected
