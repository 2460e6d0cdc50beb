"""Queries: whatever is written, what passes only reads, of the right indices, and no more than it may.

The oracle knows nothing of the checks: it walks what would be sent and holds each key against its own list.
"""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagwright_maritime.search.limits import Check, QueryLimits, QueryRefused
from dagwright_maritime.search.read_only import parse_query
from tests.support.example_counts import examples

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
FIGURES = {"avg", "sum", "min", "max", "stats", "value_count", "cardinality", "percentiles", "top_hits"}
BODY = {"query", "aggs", "size", "from", "sort", "_source", "search_after", "track_total_hits", "timeout"}
DANGEROUS = [
    *("script", "script_score", "script_fields", "runtime_mappings", "scripted_metric", "bucket_script", "_script"),
    *("query_string", "simple_query_string", "regexp", "fuzzy", "more_like_this", "percolate", "function_score"),
    *("nested", "global", "composite", "pit", "ext", "indices_boost", "collapse", "rescore", "suggest", "highlight"),
    *("post_filter", "docvalue_fields", "stored_fields", "explain", "profile", "has_child", "template", "source", "id"),
    *("index", "path", "doc", "lang", "params", "init_script", "wrapper", "geo_shape", "indexed_shape"),
    *("significant_terms", "_name", "terminate_after", "routing", "aggregations", "must", "should", "filter"),
    *("must_not", "boost"),
]

WORDS = st.sampled_from([*sorted(PARAMETERS | CONDITIONS | GROUPINGS | FIGURES | BODY), *DANGEROUS, *FIELDS])
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-5, 10**7)
    | st.floats()
    | WORDS
    | st.sampled_from(
        ["*", "a*", "*a", "{{#x}}", "1ms", "9999m", "now-1d/d", "doc['teu'].value", "asc", "desc", "\ud800", "day"]
    )
    | st.text(max_size=8)
)
JUNK = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS | st.text(max_size=4), inner, max_size=4),
    max_leaves=25,
)


NAMES = st.sampled_from(list(FIELDS))
SANE = st.booleans() | st.integers(0, 100) | st.sampled_from(["Maersk", "a*", "now-1d/d", "2026-01-31"])


def conditions(values: st.SearchStrategy[Any], odd: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return conditions.

    Args:
        values: what fields are compared with.
        odd: values that may or may not be conditions.
    """
    leaf = st.one_of(
        st.just({"match_all": {}}),
        st.builds(lambda name, value: {"term": {name: value}}, NAMES, values),
        st.builds(lambda name, several: {"terms": {name: several}}, NAMES, st.lists(values, max_size=3)),
        st.builds(lambda name, value: {"match": {name: {"query": value}}}, NAMES, values),
        st.builds(lambda name, value: {"range": {name: {"gte": value}}}, NAMES, values),
        st.builds(lambda name, value: {"wildcard": {name: value}}, NAMES, st.sampled_from(["a*", "b?c"]) | values),
        odd,
    )
    occurs = st.sampled_from(["must", "filter", "should", "must_not"])
    return st.recursive(
        leaf,
        lambda inner: st.builds(
            lambda given: {"bool": given}, st.dictionaries(occurs, st.lists(inner, max_size=3), max_size=3)
        ),
        max_leaves=8,
    )


NOT_ALL_OR_TWICE: list[dict[str, Any]] = [
    {"missing": {"field": "days"}},
    {"range": {"field": "teu", "ranges": [{"from": 1}, {"from": 10}]}},
    {"filters": {"filters": {"all": {"match_all": {}}, "named": {"exists": {"field": "name"}}}}},
    {"terms": {"field": "name", "include": ["Maersk"]}},
    {"terms": {"field": "name", "min_doc_count": 2}},
]
"""Groupings that omit documents, or have some twice."""


def groupings(within: st.SearchStrategy[Any], odd: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return aggregations, likewise."""
    figure = st.builds(
        lambda kind, name: {kind: {"field": name}}, st.sampled_from(sorted(FIGURES - {"top_hits"})), NAMES
    )
    groups = st.one_of(
        st.builds(lambda name, size: {"terms": {"field": name, "size": size}}, NAMES, st.integers(1, 25)),
        st.builds(lambda query: {"filter": query}, within),
        st.builds(lambda query: {"filters": {"filters": {"one": query}}}, within),
        st.just({"date_histogram": {"field": "eta", "calendar_interval": "month"}}),
        st.sampled_from(NOT_ALL_OR_TWICE),
    )
    own = st.sampled_from(["a", "by name", "script"])
    leaf = st.dictionaries(
        own,
        figure | st.builds(lambda size: {"top_hits": {"size": size}}, st.integers(1, 3)) | odd,
        min_size=1,
        max_size=2,
    )
    return st.recursive(
        leaf,
        lambda inner: st.dictionaries(
            own, groups | st.builds(lambda one, below: {**one, "aggs": below}, groups, inner), min_size=1, max_size=2
        ),
        max_leaves=4,
    )


RIGHT_CONDITIONS = conditions(SANE, st.just({"exists": {"field": "eta"}}))
RIGHT = st.fixed_dictionaries(
    {"query": RIGHT_CONDITIONS},
    optional={
        "aggs": groupings(RIGHT_CONDITIONS, st.just({"stats": {"field": "teu"}})),
        "size": st.integers(0, 100),
        "sort": st.lists(st.sampled_from([*FIELDS, "_score"]), max_size=3, unique=True),
        "_source": st.lists(NAMES, max_size=3) | st.booleans(),
        "timeout": st.sampled_from(["1s", "500ms", "10m"]),
    },
)
ODD = st.builds(lambda kind, inner: {kind: inner}, WORDS, JUNK)
ODD_CONDITIONS = conditions(SCALARS, ODD)
BODIES = JUNK | st.fixed_dictionaries(
    {},
    optional={
        "query": ODD_CONDITIONS,
        "aggs": groupings(ODD_CONDITIONS, ODD),
        "size": st.integers(-1, 200) | SCALARS,
        "from": st.integers(-1, 2_000),
        "sort": JUNK | st.lists(st.sampled_from([*FIELDS, "_score", "_script", "_doc"]), max_size=3),
        "_source": JUNK | st.lists(st.sampled_from(list(FIELDS)), max_size=3),
        "search_after": JUNK,
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
    except QueryRefused as refused:
        result = refused
    assert result.problems
    assert str(result).encode()
    return None


# The oracle.


def depth_of_condition(query: Mapping[str, Any]) -> int:
    """Walk a condition that passed; returns how deep it is."""
    [(kind, inner)] = query.items()
    assert kind in CONDITIONS
    if kind == "bool":
        assert inner.keys() <= {"must", "filter", "should", "must_not", "minimum_should_match"}
        below = [one for occurs in ("must", "filter", "should", "must_not") for one in inner.get(occurs, [])]
        return 1 + max(map(depth_of_condition, below), default=0)
    if kind == "constant_score":
        assert inner.keys() == {"filter"}
        return 1 + depth_of_condition(inner["filter"])
    if kind in ("match_all", "match_none"):
        assert inner == {}
    elif kind in ("exists", "multi_match"):
        assert inner.keys() <= PARAMETERS
        named = [inner["field"]] if kind == "exists" else [field.split("^")[0] for field in inner["fields"]]
        assert set(named) <= FIELDS.keys()
    else:
        [(name, asked)] = inner.items()
        assert name in FIELDS
        if kind == "terms":
            assert isinstance(asked, list)
            assert len(asked) <= LIMITS.values
            assert not any(isinstance(each, dict | list) for each in asked)
        else:
            assert asked.keys() <= PARAMETERS
            assert not any(isinstance(each, dict | list) for each in asked.values())
            assert kind != "wildcard" or asked["value"][0] not in "*?"
    return 1


def walk_groupings(groups: Mapping[str, Any], around: int) -> int:
    """Walk aggregations that passed; returns how many groups they make at least."""
    count = 0
    for grouping in groups.values():
        inner = {kind: asked for kind, asked in grouping.items() if kind != "aggs"}
        [(kind, asked)] = inner.items()
        assert kind in GROUPINGS | FIGURES
        own = 1
        if kind == "filter":
            depth_of_condition(asked)
        elif kind == "filters":
            assert asked.keys() <= {"filters", "other_bucket", "other_bucket_key"}
            own = len(asked["filters"])
            for one in asked["filters"].values():
                depth_of_condition(one)
        else:
            assert asked.keys() <= PARAMETERS
            assert "field" not in asked or asked["field"] in FIELDS
            own = asked["size"] if kind == "terms" else len(asked["ranges"]) if "ranges" in asked else 1
        if kind in FIGURES:
            assert "aggs" not in grouping
            continue
        count += around * own + walk_groupings(grouping.get("aggs", {}), around * own)
    return count


def hold(query: Any) -> None:
    body = query.body
    assert query.index.startswith("goods-")
    assert set(query.index) <= set("abcdefghijklmnopqrstuvwxyz0123456789-_")
    assert body.keys() <= BODY
    assert 0 <= body["size"] <= LIMITS.rows
    assert body["size"] + body.get("from", 0) <= LIMITS.window
    assert body["track_total_hits"] is True
    assert 1 <= int(body["timeout"].removesuffix("ms")) <= LIMITS.timeout_s * 1000
    assert depth_of_condition(body["query"]) <= LIMITS.depth
    assert walk_groupings(body.get("aggs", {}), 1) <= LIMITS.buckets
    for each in body.get("sort", []):
        [(name, how)] = each.items()
        assert name in {*FIELDS, "_score"}
        assert how.keys() <= {"order", "missing"}


@settings(max_examples=examples(80), deadline=None)
@given(index=INDICES, body=BODIES)
def test_nothing_outside_of_the_lists_passes(index: Any, body: Any) -> None:
    query = parse_or_none(index, body)
    if query is not None:
        hold(query)


@settings(max_examples=examples(100), deadline=None)
@given(body=RIGHT)
def test_passed_query_only_reads_and_passes_again_unchanged(body: Any) -> None:
    query = parse_or_none("goods-a", body)
    if query is not None:
        hold(query)
        assert parse_or_none(query.index, query.body) == query


GOOD: dict[str, Any] = {
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


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, part in inner for place in places(part, (*path, key)))]


def change_at(value: Any, path: tuple[Any, ...], change: Any) -> Any:
    if not path:
        return change(value)
    if isinstance(value, dict):
        return {key: change_at(part, path[1:], change) if key == path[0] else part for key, part in value.items()}
    return [change_at(part, path[1:], change) if place == path[0] else part for place, part in enumerate(value)]


def test_query_with_nothing_wrong_passes() -> None:
    query = parse_or_none("goods-a", GOOD)
    assert query is not None
    hold(query)


@pytest.mark.parametrize("word", DANGEROUS[:-9])
def test_dangerous_word_passes_nowhere_but_as_a_name_of_ours(word: str) -> None:
    named_by_us = {("aggs",), ("aggs", "by_name", "aggs"), ("aggs", "two", "filters", "filters")}
    for path in places(GOOD):
        at_path: Any = GOOD
        for step in path:
            at_path = at_path[step]
        if not isinstance(at_path, dict) or path in named_by_us:
            continue
        body = change_at(GOOD, path, lambda part: {**part, word: {"source": "doc['teu'].value"}})
        assert parse_or_none("goods-a", body) is None, path


@settings(max_examples=examples(100), deadline=None)
@given(right=RIGHT | st.just(GOOD), data=st.data())
def test_query_that_is_changed_in_one_place_is_refused_or_still_reads_only(right: Any, data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(places(right)))
    odd = data.draw(JUNK)
    query = parse_or_none(
        "goods-a",
        change_at(
            right, path, lambda part: {**part, **odd} if isinstance(odd, dict) and isinstance(part, dict) else odd
        ),
    )
    if query is not None:
        hold(query)
