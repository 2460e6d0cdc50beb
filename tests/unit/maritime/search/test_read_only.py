"""Checks of queries: the message of each problem, and the body that is sent for a valid query."""

from typing import Any

import pytest

from dagwright_maritime.search.limits import Check, QueryLimits, QueryRejected
from dagwright_maritime.search.read_only import parse_query

LIMITS = QueryLimits(
    rows=100, window=1_000, buckets=500, figures=599, clauses=10, depth=3, values=5, timeout_s=5.0, body_bytes=5_000
)
FIELDS = {"shipper_name": "keyword", "teu": "integer", "eta_date": "date"}


def parsed_body(body: Any) -> dict[str, Any]:
    return parse_query("maritime-shipments", body, prefix="maritime", check=Check(LIMITS, FIELDS)).body


def problems_of(body: Any, index: Any = "maritime-shipments") -> tuple[str, ...]:
    with pytest.raises(QueryRejected) as error:
        parse_query(index, body, prefix="maritime", check=Check(LIMITS, FIELDS))
    return error.value.problems


def test_empty_query_gets_limits() -> None:
    assert parsed_body({}) == {"query": {"match_all": {}}, "size": 50, "track_total_hits": True, "timeout": "5000ms"}


@pytest.mark.parametrize(
    ("requested_timeout", "expected"), [("2s", "2000ms"), ("1m", "5000ms"), ("20ms", "20ms"), ("0s", "1ms")]
)
def test_requested_timeout_is_limited(requested_timeout: str, expected: str) -> None:
    assert parsed_body({"timeout": requested_timeout})["timeout"] == expected


def test_short_forms_are_expanded() -> None:
    body = parsed_body(
        {
            "query": {"bool": {"must": {"term": {"shipper_name": "Acme"}}, "minimum_should_match": 1}},
            "sort": ["_score", {"teu": "DESC"}, "eta_date"],
            "_source": "teu",
        }
    )
    term = {"term": {"shipper_name": {"value": "Acme"}}}
    assert body["query"] == {"bool": {"must": [term], "minimum_should_match": "1"}}
    assert body["sort"] == [{"_score": {"order": "desc"}}, {"teu": {"order": "desc"}}, {"eta_date": {"order": "asc"}}]
    assert body["_source"] == ["teu"]


def test_histograms_have_no_empty_groups() -> None:
    body = parsed_body({"aggs": {"m": {"date_histogram": {"field": "eta_date", "calendar_interval": "1M"}}}})
    assert body["aggs"]["m"]["date_histogram"]["min_doc_count"] == 1


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({"script_fields": {}}, "/script_fields: not allowed here; allowed: query, aggs, aggregations, size, "),
        ({"query": {"query_string": {"query": "*"}}}, "/query/query_string: unknown condition; allowed"),
        ({"query": {}}, "/query: expected an object with one key, the kind of a condition, got an object of 0 keys"),
        ({"query": {"term": {"shiper_name": "x"}}}, "/query/term/shiper_name: there is no field 'shiper_name'; did"),
        ({"query": {"term": {"ship*": "x"}}}, "/query/term/ship*: 'ship*' is not a field name"),
        ({"query": {"term": {"teu": {"value": 1, "boost": 2}}}}, "/query/term/teu/boost: not allowed here; "),
        (
            {"query": {"terms": {"shipper_name": {"index": "secret", "id": "1", "path": "names"}}}},
            "/query/terms/shipper_name: expected a list of at most 5 values, got an object of 3 keys",
        ),
        ({"query": {"wildcard": {"shipper_name": "*corp"}}}, "/query/wildcard/shipper_name: a leading wildcard"),
        ({"query": {"wildcard": {"shipper_name": "a*b*c*d*"}}}, "/query/wildcard/shipper_name: a pattern has at most"),
        ({"query": {"range": {"teu": {}}}}, "/query/range/teu: a range needs one of gt, gte, lt, lte"),
        ({"query": {"term": {"teu": float("inf")}}}, "/: the body of the query is not valid JSON: ValueError"),
        ({"query": {"term": {"teu": 2**70}}}, "/query/term/teu: expected a text of at most 500 characters, a number, "),
        ({"size": 101}, "/size: expected an integer from 0 to 100, got 101"),
        ({"from": 990, "size": 20}, "/from: from and size together are limited to 1,000 documents; use search_after"),
        ({"search_after": [1]}, "/search_after: expected one value for each sort field, and no from"),
        ({"track_total_hits": False}, "/track_total_hits: all hits are always counted; remove track_total_hits"),
        ({"timeout": "forever"}, "/timeout: expected a time such as 5s, got 'forever'"),
        ({"sort": [{"_script": {"script": "1"}}]}, "/sort/0: '_script' is not a field name"),
        ({"_source": ["t*"]}, "/_source/0: 't*' is not a field name"),
        (
            {"query": {"bool": {"must": [{"bool": {"must": [{"bool": {"must": [{"match_all": {}}]}}]}}]}}},
            "/query/bool/must/0/bool/must/0/bool/must/0: nested more than 3 levels deep",
        ),
        (
            {"query": {"bool": {"should": [{"match_all": {}}] * 12}}},
            "/query/bool/should/9: the query has more than 10 conditions and aggregations",
        ),
        ({"query": {"term": {"shipper_name": "x" * 5_000}}}, "/: the query has 5,041 bytes, over the limit of 5,000"),
        ([], "/: the body of a query must be an object"),
    ],
)
def test_each_problem_is_reported_with_its_pointer(body: Any, problem: str) -> None:
    problems = problems_of(body)
    assert len(problems) == 1, problems
    assert problems[0].startswith(problem)


FIFTEEN_FIGURES = {
    "b": {"stats": {"field": "teu"}},
    "c": {"percentiles": {"field": "teu"}},
    "d": {"percentiles": {"field": "teu", "percents": [1, 2]}},
    "e": {"max": {"field": "teu"}},
}


@pytest.mark.parametrize(
    ("aggs", "problem"),
    [
        ({"a": {"scripted_metric": {}}}, "/aggs/a/scripted_metric: unknown aggregation; allowed: te"),
        ({"a": {"terms": {"field": "teu", "size": 501}}}, "/aggs/a/terms/size: expected an integer from 1 to 500"),
        ({"a": {"terms": {"field": "teu", "include": ".*"}}}, "/aggs/a/terms/include: expected a list of at most 5 "),
        ({"a": {"terms": {"script": {"source": "1"}}}}, "/aggs/a/terms/script: not allowed here; allowed: f"),
        ({"a": {"avg": {"field": "teu"}, "aggs": {}}}, "/aggs/a: avg makes no groups, so it cannot have aggregations"),
        ({"a": {"histogram": {"field": "teu", "interval": 0.001}}}, "/aggs/a/histogram/interval: expected a number"),
        (
            {"a": {"date_histogram": {"field": "eta_date", "calendar_interval": "1m"}}},
            "/aggs/a/date_histogram/calendar_interval: expected day, week, month, quarter or year, got '1m'",
        ),
        ({"a>b": {"avg": {"field": "teu"}}}, "/aggs/a>b: an aggregation name must have 1 to 80 letters, digits, _"),
        (
            {"a": {"terms": {"field": "teu", "size": 50}, "aggs": {"b": {"terms": {"field": "teu", "size": 50}}}}},
            "/aggs: the query requests at least 2,550 groups, over the limit of 500",
        ),
        (
            {"a": {"terms": {"field": "teu", "size": 60}, "aggs": {"b": {"top_hits": {"size": 10}}}}},
            "/aggs: the query requests at least 660 groups, over the limit of 500",
        ),
        (
            {"a": {"terms": {"field": "teu", "size": 40}, "aggs": FIFTEEN_FIGURES}},
            "/aggs: the query requests at least 600 figures over all groups, over the limit of 599; request fewer ",
        ),
        ({"a": {"sum": {"field": "eta_date"}}}, "/aggs/a/sum/field: dates cannot be summed; use min, max or avg"),
        (
            {"a": {"date_histogram": {"field": "eta_date", "fixed_interval": "1\u0663d"}}},
            "/aggs/a/date_histogram/fixed_interval: expected days, such as 7d",
        ),
    ],
)
def test_each_problem_of_an_aggregation_is_reported_with_its_pointer(aggs: Any, problem: str) -> None:
    problems = problems_of({"aggs": aggs})
    assert any(text.startswith(problem) for text in problems), problems


@pytest.mark.parametrize(
    "index",
    ["maritime-*", "maritime-a,other", "other", "maritime", "far:maritime-a", "_all", "maritime-A", None, "a/_bulk"],
)
def test_index_must_be_a_single_name_with_the_prefix(index: Any) -> None:
    [problem] = problems_of({}, index)
    assert problem.startswith("/index: ")


def test_all_problems_are_reported_at_once_and_a_long_list_is_shortened() -> None:
    terms = [{"term": {f"f{number}": 1}} for number in range(8)]
    assert len(problems_of({"explain": True, "size": -1, "query": {"bool": {"must": terms}}})) == 10
    invalid_body: dict[str, Any] = {"query": {"bool": {name: [] for name in "abcdefghijklmn"}}}
    with pytest.raises(QueryRejected, match=r"; and 2 more$"):
        parsed_body(invalid_body)
