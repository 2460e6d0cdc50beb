"""Results as Markdown: every cell is escaped and short, and omitted parts are mentioned."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagwright_maritime.search.cells import CELL_WIDTH, markdown_cell, markdown_table
from dagwright_maritime.search.tables import MAX_COLUMNS, MAX_TABLES, document_table, group_tables
from tests.support.example_counts import example_count


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, ""),
        (True, "yes"),
        (False, "no"),
        (12, "12"),
        (1234567, "1234567"),
        (18.2754, "18.28"),
        (3.0, "3"),
        (1e300, "1e+300"),
        (["a", 1, 2.5], "a, 1, 2.5"),
        ({"a": 1}, '{"a": 1}'),
        ("in_transit", "in_transit"),
        ("_all_ or __init__", "\\_all\\_ or \\_\\_init\\_\\_"),
        ("a|b", "a\\|b"),
        ("a\\|b", "a\\\\\\|b"),
        ("<script>alert(1)</script>", "\\<script\\>alert(1)\\</script\\>"),
        ("[x](http://y) `z` *b* ~s~", "\\[x\\](http://y) \\`z\\` \\*b\\* \\~s\\~"),
        ("Smith & Co &lt; x", "Smith & Co \\&lt; x"),
        ("one\n\n two\ttabs\u2028three\x00four", "one two tabs three four"),
        ("left\u202eright\u200bzero", "leftrightzero"),
        ("half \ud800", "half ?"),
        ("e\u0301", "é"),
        ("Ünïcödé ☃ 船", "Ünïcödé ☃ 船"),
    ],
)
def test_cell_is_one_line_with_escaped_markdown(value: Any, expected: str) -> None:
    assert markdown_cell(value) == expected


def test_long_cells_are_shortened_to_a_display_width() -> None:
    assert markdown_cell("x" * 41) == "x" * 39 + "…"
    assert markdown_cell("x" * 40) == "x" * 40
    assert markdown_cell("船" * 30) == "船" * 19 + "…"
    assert markdown_cell("q\u0323" * 50) == "q\u0323" * 39 + "…"
    assert markdown_cell("x" * 10_000_000).endswith("…")


@settings(max_examples=example_count(150), deadline=None)
@given(st.recursive(st.none() | st.floats() | st.text(), lambda inner: st.lists(inner, max_size=3), max_leaves=5))
def test_no_value_breaks_out_of_its_cell(value: Any) -> None:
    text = markdown_cell(value)
    assert "|" not in text.replace("\\\\", "").replace("\\|", "")
    assert text.isprintable() or not text.splitlines()[1:]
    # At most `CELL_WIDTH` characters have a width, and each of them may be escaped. The other characters have no width;
    # a text has at most `CELL_WIDTH * 20` of them, because longer texts are cut first.
    assert len(text) <= 2 * CELL_WIDTH + CELL_WIDTH * 20
    assert len(markdown_table(["a"], [[value]]).splitlines()) == 3


def test_document_table_starts_with_the_first_fields_and_counts_omitted_documents() -> None:
    hits: list[dict[str, Any]] = [{"teu": 3, "id": "a"}, {"id": "b", "note": "x|y"}, {"id": "c"}]
    assert document_table(hits, total=1_234, rows=2, first_fields=["id", "gone"]) == (
        "| id | teu | note |\n| --- | ---: | --- |\n| a | 3 |  |\n| b |  | x\\|y |\n\n"
        "2 of 1,234 are shown; there are 1,232 more."
    )


def test_nothing_found_and_nothing_requested_are_distinguished() -> None:
    assert document_table([], total=0, rows=20) == "Nothing matches."
    assert document_table([], total=None, rows=20) == "Nothing matches."
    assert document_table([], total=5, rows=20) == "5 match; no documents were requested."
    assert document_table([{}, {}], total=9, rows=20) == "9 match; no fields were requested."


def test_omitted_fields_are_named() -> None:
    text = document_table([{f"f{number}": number for number in range(MAX_COLUMNS + 2)}], total=1, rows=20)
    assert text.endswith(f"Not shown: f{MAX_COLUMNS}, f{MAX_COLUMNS + 1}.")
    assert text.splitlines()[0].count("|") == MAX_COLUMNS + 1


def test_groups_and_their_figures_are_a_table() -> None:
    buckets = [
        {"key": "A", "doc_count": 7, "volume": {"value": 12.0}, "days": {"value": 3.25}},
        {"key": "B|C", "doc_count": 5, "volume": {"value": 9.0}, "days": {"value": None}},
        {"key": "D", "doc_count": 1, "volume": {"value": 1.0}, "days": {"value": 1.0}},
    ]
    groups = {"by_shipper": {"sum_other_doc_count": 1_000, "buckets": buckets}}
    assert group_tables(groups, rows=2) == (
        "| by_shipper | count | volume | days |\n| --- | ---: | ---: | ---: |\n"
        "| A | 7 | 12 | 3.25 |\n| B\\|C | 5 | 9 |  |\n\n"
        "2 of 3 groups are shown.\n\n1,000 more documents are in groups that were not requested."
    )


def test_nested_groups_and_overall_figures_have_separate_tables() -> None:
    inner_groups = {"buckets": [{"key": "arrived", "doc_count": 2}]}
    months = [{"key": 1, "key_as_string": "2026-01-01", "doc_count": 2, "by_status": inner_groups}]
    first_date = {"value": 1.0, "value_as_string": "2026-01-01"}
    aggregations = {"total": {"value": 4.0}, "first": first_date, "months": {"buckets": months}}
    assert group_tables(aggregations, rows=20) == (
        "| figure | value |\n| --- | ---: |\n| total | 4 |\n| first | 2026-01-01 |\n\n"
        "**months**\n\n| months | count |\n| --- | ---: |\n| 2026-01-01 | 2 |\n\n"
        "**months / by_status**\n\n| months | by_status | count |\n| --- | --- | ---: |\n| 2026-01-01 | arrived | 2 |"
    )


def test_aggregations_with_a_single_group_share_a_table() -> None:
    maersk, evergreen = ({"doc_count": n, "volume": {"value": n + 2.0}} for n in (3, 2))
    aggregations = {"maersk": maersk, "evergreen": evergreen}
    assert group_tables(aggregations, rows=20) == (
        "| group | count | volume |\n| --- | ---: | ---: |\n| maersk | 3 | 5 |\n| evergreen | 2 | 4 |"
    )


def test_each_value_of_a_figure_with_several_values_has_a_row() -> None:
    stats = {"count": 2, "min": 1.0, "max": 3.0, "avg": 2.0, "sum": 4.0}
    aggregations = {"s": stats, "p": {"values": {"50.0": 2.0}}}
    expected = ["s count", "s min", "s avg", "s max", "s sum", "p 50 %"]
    assert [line.split("|")[1].strip() for line in group_tables(aggregations, rows=20).splitlines()[2:]] == expected


def test_figures_of_dates_are_shown_as_dates() -> None:
    stats = {
        "count": 2,
        "min": 1.7e12,
        "min_as_string": "2026-01-01",
        "max": 1.8e12,
        "max_as_string": "2026-01-31",
        "avg": 1.75e12,
        "avg_as_string": "2026-01-16T00:00:00.000Z",
        "sum": 3.5e12,
        "sum_as_string": "+511603-11-09",
    }
    aggregations = {"s": stats, "p": {"values": {"99.5": 1.8e12, "99.5_as_string": "2026-01-31"}}}
    assert group_tables(aggregations, rows=20).splitlines()[2:] == [
        "| s count | 2 |",
        "| s min | 2026-01-01 |",
        "| s avg | 2026-01-16 |",
        "| s max | 2026-01-31 |",
        "| p 99.5 % | 2026-01-31 |",
    ]


def test_average_of_booleans_is_a_number() -> None:
    aggregations = {"share": {"value": 0.7, "value_as_string": "true"}}
    assert group_tables(aggregations, rows=20).splitlines()[2:] == ["| share | 0.7 |"]


def test_empty_list_of_groups_is_reported_and_excess_tables_are_counted() -> None:
    assert group_tables({"by": {"buckets": []}}, rows=20) == "There are no groups."
    many_groups: dict[str, Any] = {f"g{number}": {"buckets": []} for number in range(MAX_TABLES + 2)}
    assert group_tables(many_groups, rows=20).endswith("2 more tables are not shown.")
