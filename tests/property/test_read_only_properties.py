"""Search queries: for any input, an accepted query only reads, from permitted indices and within the limits.

The test oracle is independent of the checks: it walks an accepted query, and looks up each key in the lists of this
module.
"""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagwright_maritime.search.limits import Check, QueryLimits, QueryRejected
from dagwright_maritime.search.read_only import parse_query
from tests.support.example_counts import example_count
from tests.support.json_paths import paths_of, replace_at, value_at

PREFIX = "goods"
FIELDS = {"name": "keyword", "name.text": "text", "teu": "integer", "days": "float", "eta": "date"}
LIMITS = QueryLimits(rows=100, window=1_000, buckets=500, clauses=30, depth=4, values=20, timeout_s=5.0)

PARAMETERS = {
    *("value", "query", "operator", "fuzziness", "minimum_should_match", "case_insensitive", "slop", "fields", "type"),
    *("gt", "gte", "lt", "lte", "format", "time_zone", "field", "size", "order", "min_doc_count", "missing", "include"),
    *("exclude", "calendar_interval", "fixed_interval", "interval", "ranges", "from", "to", "key", "other_bucket"),
    *("other_bucket_key", "precision_threshold", "percents", "sort", "_source", "includes", "excludes"),
}
CONDITIONS = {
    *("match_all", "match_none", "term", "terms", "match", "match_phrase", "multi_match", "range", "exists", "prefix"),
    *("wildcard", "bool", "constant_score"),
}
GROUPINGS = {"terms", "date_histogram", "histogram", "range", "date_range", "filter", "filters", "missing"}
METRICS = {"avg", "sum", "min", "max", "stats", "value_count", "cardinality", "percentiles", "top_hits"}
BODY_KEYS = {"query", "aggs", "size", "from", "sort", "_source", "search_after", "track_total_hits", "timeout"}
DANGEROUS_KEYS = [
    *("script", "script_score", "script_fields", "runtime_mappings", "scripted_metric", "bucket_script", "_script"),
    *("query_string", "simple_query_string", "regexp", "fuzzy", "more_like_this", "percolate", "function_score"),
    *("nested", "global", "composite", "pit", "ext", "indices_boost", "collapse", "rescore", "suggest", "highlight"),
    *("post_filter", "docvalue_fields", "stored_fields", "explain", "profile", "has_child", "template", "source", "id"),
    *("index", "path", "doc", "lang", "params", "init_script", "wrapper", "geo_shape", "indexed_shape"),
    "significant_terms",
]
HARMLESS_KEYS = ["_name", "terminate_after", "routing", "aggregations", "must", "should", "filter", "must_not", "boost"]

NAMES_IN_QUERIES = st.sampled_from(
    [*sorted(PARAMETERS | CONDITIONS | GROUPINGS | METRICS | BODY_KEYS), *DANGEROUS_KEYS, *HARMLESS_KEYS, *FIELDS]
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-5, 10**7)
    | st.floats()
    | NAMES_IN_QUERIES
    | st.sampled_from(
        ["*", "a*", "*a", "{{#x}}", "1ms", "9999m", "now-1d/d", "doc['teu'].value", "asc", "desc", "\ud800", "day"]
    )
    | st.text(max_size=8)
)
ANY_JSON = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(NAMES_IN_QUERIES | st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=25,
)


FIELD_NAMES = st.sampled_from(list(FIELDS))
PLAIN_VALUES = st.booleans() | st.integers(0, 100) | st.sampled_from(["Maersk", "a*", "now-1d/d", "2026-01-31"])


def conditions(values: st.SearchStrategy[Any], extra_conditions: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return search conditions, also nested in `bool` conditions.

    Args:
        values: values that fields are compared with.
        extra_conditions: more conditions, which may be invalid.
    """
    leaf = st.one_of(
        st.just({"match_all": {}}),
        st.builds(lambda name, value: {"term": {name: value}}, FIELD_NAMES, values),
        st.builds(lambda name, terms: {"terms": {name: terms}}, FIELD_NAMES, st.lists(values, max_size=3)),
        st.builds(lambda name, value: {"match": {name: {"query": value}}}, FIELD_NAMES, values),
        st.builds(lambda name, value: {"range": {name: {"gte": value}}}, FIELD_NAMES, values),
        st.builds(
            lambda name, value: {"wildcard": {name: value}}, FIELD_NAMES, st.sampled_from(["a*", "b?c"]) | values
        ),
        extra_conditions,
    )
    occurrence = st.sampled_from(["must", "filter", "should", "must_not"])
    return st.recursive(
        leaf,
        lambda inner: st.builds(
            lambda clauses: {"bool": clauses}, st.dictionaries(occurrence, st.lists(inner, max_size=3), max_size=3)
        ),
        max_leaves=8,
    )


OMITTING_OR_REPEATING_GROUPINGS: list[dict[str, Any]] = [
    {"missing": {"field": "days"}},
    {"range": {"field": "teu", "ranges": [{"from": 1}, {"from": 10}]}},
    {"filters": {"filters": {"all": {"match_all": {}}, "named": {"exists": {"field": "name"}}}}},
    {"terms": {"field": "name", "include": ["Maersk"]}},
    {"terms": {"field": "name", "min_doc_count": 2}},
]
"""Groupings that omit documents, or count some documents twice."""


def groupings(filters: st.SearchStrategy[Any], extra_metrics: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return nested aggregations.

    Args:
        filters: conditions of the groups.
        extra_metrics: more metrics, which may be invalid.
    """
    metric = st.builds(
        lambda kind, name: {kind: {"field": name}}, st.sampled_from(sorted(METRICS - {"top_hits"})), FIELD_NAMES
    )
    groups = st.one_of(
        st.builds(lambda name, size: {"terms": {"field": name, "size": size}}, FIELD_NAMES, st.integers(1, 25)),
        st.builds(lambda query: {"filter": query}, filters),
        st.builds(lambda query: {"filters": {"filters": {"one": query}}}, filters),
        st.just({"date_histogram": {"field": "eta", "calendar_interval": "month"}}),
        st.sampled_from(OMITTING_OR_REPEATING_GROUPINGS),
    )
    group_names = st.sampled_from(["a", "by name", "script"])
    leaf = st.dictionaries(
        group_names,
        metric | st.builds(lambda size: {"top_hits": {"size": size}}, st.integers(1, 3)) | extra_metrics,
        min_size=1,
        max_size=2,
    )
    return st.recursive(
        leaf,
        lambda inner: st.dictionaries(
            group_names,
            groups | st.builds(lambda grouping, aggs: {**grouping, "aggs": aggs}, groups, inner),
            min_size=1,
            max_size=2,
        ),
        max_leaves=4,
    )


VALID_CONDITIONS = conditions(PLAIN_VALUES, st.just({"exists": {"field": "eta"}}))
VALID_BODIES = st.fixed_dictionaries(
    {"query": VALID_CONDITIONS},
    optional={
        "aggs": groupings(VALID_CONDITIONS, st.just({"stats": {"field": "teu"}})),
        "size": st.integers(0, 100),
        "sort": st.lists(st.sampled_from([*FIELDS, "_score"]), max_size=3, unique=True),
        "_source": st.lists(FIELD_NAMES, max_size=3) | st.booleans(),
        "timeout": st.sampled_from(["1s", "500ms", "10m"]),
    },
)
ODD_OBJECTS = st.builds(lambda kind, inner: {kind: inner}, NAMES_IN_QUERIES, ANY_JSON)
ODD_CONDITIONS = conditions(SCALARS, ODD_OBJECTS)
BODIES = ANY_JSON | st.fixed_dictionaries(
    {},
    optional={
        "query": ODD_CONDITIONS,
        "aggs": groupings(ODD_CONDITIONS, ODD_OBJECTS),
        "size": st.integers(-1, 200) | SCALARS,
        "from": st.integers(-1, 2_000),
        "sort": ANY_JSON | st.lists(st.sampled_from([*FIELDS, "_score", "_script", "_doc"]), max_size=3),
        "_source": ANY_JSON | st.lists(st.sampled_from(list(FIELDS)), max_size=3),
        "search_after": ANY_JSON,
        "timeout": SCALARS,
        "track_total_hits": SCALARS,
    },
)
INDICES = st.sampled_from(
    [
        *("goods-a", "goods-a,goods-b", "goods-*", "goods-", "goods", "other", "far:goods-a", "<goods-{now/d}>"),
        *("_all", "", "goods-a,other", "goods-A", ".goods-a", "goods-a/_delete_by_query", "-goods-a", "*"),
    ]
) | st.text(max_size=10)


def parse_or_none(index: Any, body: Any) -> Any:
    try:
        return parse_query(index, body, prefix=PREFIX, check=Check(LIMITS, FIELDS))
    except QueryRejected as error:
        rejection = error
    assert rejection.problems
    assert str(rejection).encode()
    return None


# The test oracle.


def checked_depth_of_condition(query: Mapping[str, Any]) -> int:
    """Check a condition of an accepted query, and return its depth."""
    [(kind, inner)] = query.items()
    assert kind in CONDITIONS
    if kind == "bool":
        assert inner.keys() <= {"must", "filter", "should", "must_not", "minimum_should_match"}
        clauses = [
            clause for occurrence in ("must", "filter", "should", "must_not") for clause in inner.get(occurrence, [])
        ]
        return 1 + max(map(checked_depth_of_condition, clauses), default=0)
    if kind == "constant_score":
        assert inner.keys() == {"filter"}
        return 1 + checked_depth_of_condition(inner["filter"])
    if kind in ("match_all", "match_none"):
        assert inner == {}
    elif kind in ("exists", "multi_match"):
        assert inner.keys() <= PARAMETERS
        names = [inner["field"]] if kind == "exists" else [field.split("^")[0] for field in inner["fields"]]
        assert set(names) <= FIELDS.keys()
    else:
        [(name, parameters)] = inner.items()
        assert name in FIELDS
        if kind == "terms":
            assert isinstance(parameters, list)
            assert len(parameters) <= LIMITS.values
            assert not any(isinstance(each, dict | list) for each in parameters)
        else:
            assert parameters.keys() <= PARAMETERS
            assert not any(isinstance(each, dict | list) for each in parameters.values())
            assert kind != "wildcard" or parameters["value"][0] not in "*?"
    return 1


def checked_min_bucket_count(groupings: Mapping[str, Any], parent_bucket_count: int) -> int:
    """Check the aggregations of an accepted query, and return the minimum number of their buckets."""
    count = 0
    for grouping in groupings.values():
        [(kind, parameters)] = ((kind, value) for kind, value in grouping.items() if kind != "aggs")
        assert kind in GROUPINGS | METRICS
        bucket_count = 1
        if kind == "filter":
            checked_depth_of_condition(parameters)
        elif kind == "filters":
            assert parameters.keys() <= {"filters", "other_bucket", "other_bucket_key"}
            bucket_count = len(parameters["filters"])
            for query in parameters["filters"].values():
                checked_depth_of_condition(query)
        else:
            assert parameters.keys() <= PARAMETERS
            assert "field" not in parameters or parameters["field"] in FIELDS
            bucket_count = (
                parameters["size"] if kind == "terms" else len(parameters["ranges"]) if "ranges" in parameters else 1
            )
        if kind in METRICS:
            assert "aggs" not in grouping
            continue
        bucket_count *= parent_bucket_count
        count += bucket_count + checked_min_bucket_count(grouping.get("aggs", {}), bucket_count)
    return count


def assert_only_reads_within_limits(query: Any) -> None:
    body = query.body
    assert query.index.startswith("goods-")
    assert set(query.index) <= set("abcdefghijklmnopqrstuvwxyz0123456789-_")
    assert body.keys() <= BODY_KEYS
    assert 0 <= body["size"] <= LIMITS.rows
    assert body["size"] + body.get("from", 0) <= LIMITS.window
    assert body["track_total_hits"] is True
    assert 1 <= int(body["timeout"].removesuffix("ms")) <= LIMITS.timeout_s * 1000
    assert checked_depth_of_condition(body["query"]) <= LIMITS.depth
    assert checked_min_bucket_count(body.get("aggs", {}), 1) <= LIMITS.buckets
    for each in body.get("sort", []):
        [(name, sort_options)] = each.items()
        assert name in {*FIELDS, "_score"}
        assert sort_options.keys() <= {"order", "missing"}


@settings(max_examples=example_count(80), deadline=None)
@given(index=INDICES, body=BODIES)
def test_any_accepted_query_only_reads_within_the_limits(index: Any, body: Any) -> None:
    query = parse_or_none(index, body)
    if query is not None:
        assert_only_reads_within_limits(query)


@settings(max_examples=example_count(100), deadline=None)
@given(body=VALID_BODIES)
def test_accepted_query_is_accepted_again_unchanged(body: Any) -> None:
    query = parse_or_none("goods-a", body)
    if query is not None:
        assert_only_reads_within_limits(query)
        assert parse_or_none(query.index, query.body) == query


VALID_BODY: dict[str, Any] = {
    "query": {
        "bool": {
            "filter": [
                {"term": {"name": "Maersk"}},
                {"range": {"eta": {"gte": "now-1d/d", "lt": "now/d"}}},
                {"bool": {"should": [{"terms": {"teu": [1, 2]}}, {"match": {"name.text": {"query": "corp"}}}]}},
            ]
        }
    },
    "aggs": {
        "by_name": {
            "terms": {"field": "name", "size": 5, "order": {"volume": "desc"}},
            "aggs": {"volume": {"sum": {"field": "teu"}}, "days": {"avg": {"field": "days"}}},
        },
        "months": {"date_histogram": {"field": "eta", "calendar_interval": "month"}},
        "two": {"filters": {"filters": {"one": {"exists": {"field": "days"}}}}},
    },
    "size": 0,
    "sort": [{"eta": {"order": "desc"}}],
}


def test_valid_query_is_accepted() -> None:
    query = parse_or_none("goods-a", VALID_BODY)
    assert query is not None
    assert_only_reads_within_limits(query)


@pytest.mark.parametrize("key", DANGEROUS_KEYS)
def test_dangerous_key_is_rejected_unless_it_names_a_group(key: str) -> None:
    paths_with_group_names = {("aggs",), ("aggs", "by_name", "aggs"), ("aggs", "two", "filters", "filters")}
    for path in paths_of(VALID_BODY):
        part = value_at(VALID_BODY, path)
        if isinstance(part, dict) and path not in paths_with_group_names:
            body = replace_at(VALID_BODY, path, {**part, key: {"source": "doc['teu'].value"}})
            assert parse_or_none("goods-a", body) is None, path


@settings(max_examples=example_count(100), deadline=None)
@given(valid_body=VALID_BODIES | st.just(VALID_BODY), data=st.data())
def test_query_changed_at_one_path_is_rejected_or_only_reads(valid_body: Any, data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(paths_of(valid_body)))
    part, new_part = value_at(valid_body, path), data.draw(ANY_JSON)
    new_part = {**part, **new_part} if isinstance(new_part, dict) and isinstance(part, dict) else new_part
    query = parse_or_none("goods-a", replace_at(valid_body, path, new_part))
    if query is not None:
        assert_only_reads_within_limits(query)
