"""Figures that are computed from query results, and numbers without a source in a text."""

from typing import Any

import pytest

from dagwright_maritime.figures import MAX_ROWS, Table, tables_of
from dagwright_maritime.result_analysis import labels_of
from dagwright_maritime.slots import EsResults
from dagwright_maritime.unsupported_numbers import find_unsupported_numbers


def prompt_rows(tables: list[Table], title: str) -> list[dict[str, Any]]:
    (matching_table,) = (table for table in tables if table.title == title)
    return [{name: text for name, text in row.items() if name != "table"} for row in matching_table.prompt_entries()]


def table_lines(tables: list[Table], title: str) -> list[str]:
    """Return a line with the column names, then a line with the cells or the note of each row."""
    rows = prompt_rows(tables, title)
    names = list(dict.fromkeys(name for row in rows for name in row if name != "note"))
    cells = [[row.get(name, "") for name in names] for row in rows]
    return [
        " | ".join(names),
        *(row.get("note", " | ".join(row_cells)) for row, row_cells in zip(rows, cells, strict=True)),
    ]


def volume_result(total: int, teu: float, carrier: str) -> EsResults:
    query = {
        "query": {"bool": {"filter": [{"term": {"carrier_name": carrier}}, {"term": {"destination_port": "LA"}}]}},
        "aggs": {"volume": {"sum": {"field": "teu"}}, "transit": {"avg": {"field": "transit_days"}}},
    }
    figures = {"volume": {"value": teu}, "transit": {"value": None if carrier == "ZIM" else 15.125}}
    return EsResults(total=total, aggregations=figures, query=query)


def test_several_results_are_compared_figure_by_figure() -> None:
    results = [volume_result(200, 1500.0, "MAERSK"), volume_result(150, 1000.0, "EVERGREEN")]
    assert labels_of(results) == ["MAERSK", "EVERGREEN"]
    assert table_lines(tables_of(results, labels_of(results)), "All matching documents") == [
        "figure | MAERSK | EVERGREEN | MAERSK minus EVERGREEN | MAERSK relative to EVERGREEN",
        "documents | 200 | 150 | 50 | 133.33 %",
        "volume | 1,500 | 1,000 | 500 | 150 %",
        "transit | 15.12 | 15.12 | 0 | 100 %",
    ]


def test_figure_without_a_value_is_not_compared() -> None:
    results = [volume_result(200, 1500.0, "MAERSK"), volume_result(9, 90.0, "ZIM")]
    header, *_, transit, note = table_lines(tables_of(results, ["MAERSK", "ZIM"]), "All matching documents")
    assert header == "figure | MAERSK | ZIM | MAERSK minus ZIM | MAERSK relative to ZIM"
    assert (transit, note) == ("transit | 15.12 | no value | no value | no value", "transit has no value for ZIM.")


def grouped_result(*groups: tuple[str, int, float, float | None], total: int | None = None) -> EsResults:
    """Return a result with groups by shipper.

    `total` is the number of documents, by default the sum over the groups.
    """
    buckets = [
        {"key": key, "doc_count": count, "volume": {"value": teu}, "transit": {"value": days}}
        for key, count, teu, days in groups
    ]
    inner_aggs = {"volume": {"sum": {"field": "teu"}}, "transit": {"avg": {"field": "transit_days"}}}
    query = {"aggs": {"by_shipper": {"terms": {"field": "shipper_name"}, "aggs": inner_aggs}}}
    total = total or sum(count for _, count, _, _ in groups)
    return EsResults(total=total, aggregations={"by_shipper": {"buckets": buckets}}, query=query)


def test_groups_have_shares_differences_and_totals() -> None:
    actual = tables_of([grouped_result(("A", 20, 300.0, 15.5), ("B", 10, 100.0, None))], [""])
    assert table_lines(actual, "by_shipper") == [
        "by_shipper | documents | share of documents | documents: first minus this | volume | share of volume | "
        "volume: first minus this | transit | transit: first minus this",
        "A | 20 | 66.67 % | 0 | 300 | 75 % | 0 | 15.5 | 0",
        "B | 10 | 33.33 % | 10 | 100 | 25 % | 200 | no value | no value",
        # Averages cannot be added up, and differences have no total.
        "all together | 30 | 100 % |  | 400 | 100 % |  |  | ",
        "transit is available for 1 of 2 groups; missing for B.",
    ]


def test_shares_are_of_all_documents_if_the_result_omits_groups() -> None:
    result = grouped_result(("A", 20, 300.0, 15.5), ("B", 10, 100.0, 1.0), total=100)
    result.aggregations["by_shipper"]["sum_other_doc_count"] = 70
    [table] = [table for table in tables_of([result], [""]) if table.title == "by_shipper"]
    # The volume of the omitted groups is unknown, so there is no total volume and no share of it.
    assert table_lines([table], "by_shipper") == [
        "by_shipper | documents | share of documents | documents: first minus this | volume | volume: first minus this"
        " | transit | transit: first minus this",
        "A | 20 | 20 % | 0 | 300 | 0 | 15.5 | 0",
        "B | 10 | 10 % | 10 | 100 | 200 | 1 | 14.5",
        "all other groups | 70 | 70 % |  |  |  |  | ",
        "all together | 100 | 100 % |  |  |  |  | ",
        "70 more documents are in groups of by_shipper that were not requested: only their number is known.",
    ]
    assert "| all other groups | 70 | 70 % |" in table.markdown()


def test_shares_are_of_all_documents_if_some_documents_are_in_no_group() -> None:
    result = grouped_result(("A", 20, 300.0, 15.5), ("B", 10, 100.0, 1.0), total=40)
    row_a, row_b, totals = prompt_rows(tables_of([result], [""]), "by_shipper")
    assert [(row["documents"], row["share of documents"]) for row in (row_a, row_b)] == [("20", "50 %"), ("10", "25 %")]
    # The volume of the other ten documents is unknown, so 400 is not the total volume.
    assert totals == {"by_shipper": "all together", "documents": "30", "share of documents": "75 %"}
    assert "share of volume" not in row_a


LATE_FILTER = {"range": {"delay_days": {"gt": 0}}}
VOLUME_AGGS = {"aggs": {"volume": {"sum": {"field": "teu"}}}}


def group(documents: int, teu: float, **fields: Any) -> dict[str, Any]:
    return {"doc_count": documents, "volume": {"value": teu}, **fields}


@pytest.mark.parametrize(
    ("aggregation", "response", "shares"),
    [
        ({"filter": LATE_FILTER}, group(200, 5.0), ["20 %"]),
        ({"missing": {"field": "transit_days"}}, group(125, 5.0), ["12.5 %"]),
        (
            {"range": {"field": "teu", "ranges": [{"from": 10}, {"from": 20}]}},
            {"buckets": [group(100, 9.0, key="10.0-*"), group(50, 8.0, key="20.0-*")]},
            ["10 %", "5 %"],
        ),
        (
            {"date_range": {"field": "eta_date", "ranges": [{"from": "2026-01-01"}, {"to": "2026-02-01"}]}},
            {"buckets": [group(600, 9.0, key="2026-01-01-*"), group(400, 8.0, key="*-2026-02-01")]},
            ["60 %", "40 %"],
        ),
        (
            {"filters": {"filters": {"Maersk": {"match_all": {}}, "to LA": {"match_all": {}}}}},
            {"buckets": {"Maersk": group(600, 40.0), "to LA": group(700, 60.0)}},
            ["60 %", "70 %"],
        ),
        *(
            (
                {"terms": {"field": "status", **options}},
                {"buckets": [group(300, 1.0, key="a"), group(200, 2.0, key="b")]},
                ["30 %", "20 %"],
            )
            for options in ({"include": ["a", "b"]}, {"exclude": ["c"]}, {"min_doc_count": 100})
        ),
        # A field with several values: a document is in several groups.
        (
            {"terms": {"field": "status"}},
            {"buckets": [group(800, 1.0, key="a"), group(700, 2.0, key="b")]},
            ["80 %", "70 %"],
        ),
    ],
)
def test_groups_that_may_overlap_or_omit_documents_have_no_total(
    aggregation: dict[str, Any], response: dict[str, Any], shares: list[str]
) -> None:
    query = {"aggs": {"group": {**aggregation, **VOLUME_AGGS}}}
    result = EsResults(total=1_000, aggregations={"group": response}, query=query)
    rows = prompt_rows(tables_of([result], [""]), "group")
    assert [row["share of documents"] for row in rows] == shares
    assert [name for row in rows for name in row if name == "share of volume"] == []


def test_histogram_without_its_empty_groups_has_totals() -> None:
    months = {"date_histogram": {"field": "eta_date", "calendar_interval": "month", "min_doc_count": 1}, **VOLUME_AGGS}
    buckets = [group(750, 30.0, key_as_string="2025-11"), group(250, 10.0, key_as_string="2026-01")]
    result = EsResults(total=1_000, aggregations={"months": {"buckets": buckets}}, query={"aggs": {"months": months}})
    *_, totals = prompt_rows(tables_of([result], [""]), "months")
    document_totals = {"documents": "1,000", "share of documents": "100 %"}
    assert totals == {"months": "all together", **document_totals, "volume": "40", "share of volume": "100 %"}


def test_nested_groups_have_shares_of_the_documents_of_their_parent_group() -> None:
    # Two aggregations have the same name, `group`, and must not be mixed up.
    aggs = {"group": {"filter": LATE_FILTER, "aggs": {"group": {"terms": {"field": "carrier_name"}, **VOLUME_AGGS}}}}
    carriers = {"buckets": [group(150, 30.0, key="MAERSK"), group(50, 10.0, key="ZIM")]}
    late_group = {"doc_count": 200, "group": carriers}
    tables = tables_of([EsResults(total=1_000, aggregations={"group": late_group}, query={"aggs": aggs})], [""])
    assert prompt_rows(tables, "group") == [{"group": "group", "documents": "200", "share of documents": "20 %"}]
    maersk, zim, totals = prompt_rows(tables, "group / group")
    assert (maersk["share of documents"], maersk["share of volume"]) == ("75 %", "75 %")
    assert (zim["share of documents"], zim["share of volume"]) == ("25 %", "25 %")
    assert (totals["documents"], totals["volume"]) == ("200", "40")


def test_text_may_state_the_share_of_a_group_but_not_100_percent() -> None:
    query = {"aggs": {"late": {"filter": LATE_FILTER}}}
    tables = tables_of([EsResults(total=1_000, aggregations={"late": {"doc_count": 200}}, query=query)], [""])
    numbers = [number for table in tables for number in table.numbers()]
    assert find_unsupported_numbers("20 % are late.", numbers, []) == []
    assert find_unsupported_numbers("100 % are late.", numbers, []) == ["100"]


def test_sum_of_many_groups_is_reported_although_some_are_omitted() -> None:
    result = grouped_result(*((f"S{number}", 1, 2.0, 1.0) for number in range(MAX_ROWS + 5)))
    rows = prompt_rows(tables_of([result], [""]), "by_shipper")
    assert [row["by_shipper"] for row in rows[-2:]] == [f"S{MAX_ROWS - 1}", "all together"]
    assert rows[-1]["volume"] == "110"


def date_figure(text: str) -> dict[str, Any]:
    """Return a date figure in the format of the server."""
    return {"value": 1795305600000.0, "value_as_string": text}


def test_date_figures_are_dates_without_shares_or_differences() -> None:
    aggs = {"latest": {"max": {"field": "arrival_date"}}, "all": {"sum": {"field": "arrival_date"}}}
    figures = {"A": date_figure("2026-11-22"), "B": date_figure("2026-10-01"), "C": {"value": None}}
    buckets = [{"key": key, "doc_count": 1, "latest": figure} for key, figure in figures.items()]
    percents = {"values": {"50.0": 1773198217997.2, "50.0_as_string": "2026-03-11"}}
    result = EsResults(
        total=3,
        query={"aggs": {**aggs, "middle": {"percentiles": {}}, "by": {"terms": {}, "aggs": aggs}}},
        aggregations={
            "latest": date_figure("2026-11-22T00:00:00.000Z"),
            "all": date_figure("+511603-11-09"),
            "middle": percents,
            "by": {"buckets": buckets},
        },
    )
    actual = tables_of([result], [""])
    assert prompt_rows(actual, "All matching documents: dates") == [
        {"figure": "latest", "value": "2026-11-22"},
        {"figure": "middle 50 %", "value": "2026-03-11"},
    ]
    assert prompt_rows(actual, "All matching documents") == [{"figure": "documents", "value": "3"}]
    expected = [("A", "2026-11-22"), ("B", "2026-10-01"), ("C", "no value")]
    assert [(row["by"], row["latest"]) for row in prompt_rows(actual, "by")[:3]] == expected
    assert [name for name in prompt_rows(actual, "by")[0] if "latest" in name] == ["latest"]
    assert "| latest | 2026-11-22 |" in actual[0].markdown()


def test_dates_of_several_results_are_side_by_side_and_may_be_in_a_text() -> None:
    query = {"aggs": {"latest": {"max": {"field": "arrival_date"}}}}
    results = [
        EsResults(total=2, query=query, aggregations={"latest": date_figure("2026-11-05")}),
        EsResults(total=0, query=query, aggregations={"latest": {"value": None}}),
    ]
    tables = tables_of(results, ["MAERSK", "ZIM"])
    assert prompt_rows(tables, "All matching documents: dates") == [
        {"figure": "latest", "MAERSK": "2026-11-05", "ZIM": "no value"},
        {"note": "latest has no value for ZIM."},
    ]
    numbers = [number for table in tables for number in table.numbers()]
    texts = [text for table in tables for text in table.texts()]
    assert find_unsupported_numbers("The last one arrived on November 5, 2026 (2026-11-05).", numbers, texts) == []


def test_figures_are_not_added_up_if_the_query_is_unknown() -> None:
    result = grouped_result(("A", 20, 300.0, 15.5), ("B", 10, 100.0, 1.0), total=50).model_copy(update={"query": {}})
    rows = prompt_rows(tables_of([result], [""]), "by_shipper")
    assert [(row["by_shipper"], row["share of documents"]) for row in rows] == [("A", "40 %"), ("B", "20 %")]
    assert [name for name in rows[0] if name.startswith("share")] == ["share of documents"]


def test_documents_have_sums_averages_and_counts_of_missing_values() -> None:
    hits: list[dict[str, Any]] = [
        {"id": "1", "status": "arrived", "teu": 4, "days": 10.5},
        {"id": "2", "status": "booked", "teu": 2},
        {"id": "3", "status": "arrived", "teu": 6, "days": 11.5},
    ]
    actual = tables_of([EsResults(hits=hits, total=8)], [""])
    title = "Documents, the first 3 of 8"
    assert table_lines(actual, title) == [
        "field | with a value | without a value | total | average | minimum | maximum",
        "teu | 3 | 0 | 12 | 4 | 2 | 6",
        "days | 2 | 1 | 22 | 11 | 10.5 | 11.5",
    ]
    statuses = ["status | documents | share", "arrived | 2 | 66.67 %", "booked | 1 | 33.33 %"]
    assert table_lines(actual, f"{title}: status") == statuses


def test_title_has_the_page_size_and_the_number_of_matches() -> None:
    pages = [EsResults(hits=[{"teu": 4}, {"teu": teu}], total=8, has_more=True) for teu in (1, 2)]
    titles = [table.title for table in tables_of(pages, ["one", "two"])]
    assert titles == ["one: documents, a page of 2 of 8", "two: documents, a page of 2 of 8"]


def test_results_with_equal_queries_are_distinguished_by_their_numbers() -> None:
    result = volume_result(1, 1.0, "MAERSK")
    assert labels_of([result, result]) == ["result 1", "result 2"]
    assert labels_of([result]) == [""]
    ranges = [
        EsResults(query={"query": {"range": {"eta_date": {"gte": "2025-10-01", "lte": "2025-12-31"}}}}),
        EsResults(query={"query": {"range": {"eta_date": {"gte": "2026-01-01"}}}}),
    ]
    assert labels_of(ranges) == ["2025-10-01 to 2025-12-31", "2026-01-01"]


def test_values_of_documents_may_only_be_repeated_unchanged() -> None:
    document_values = ["SHP-0001", "SHP-234", "SHP-0042", "2026-01-31", "SHP-0001-7"]
    assert find_unsupported_numbers("SHP-0001, SHP-0001-7 (SHP-234) of 2026-01-31.", [], [], document_values) == []
    text = "The total is 1,234 TEU, 42 % more, in 31 of SHP-00012"
    assert find_unsupported_numbers(text, [10], ["the 3 ids"], document_values) == ["1,234", "42", "31", "00012"]


def test_numbers_in_source_texts_may_only_be_repeated_whole() -> None:
    texts = ["more than 1,234 TEU", "2025-10"]
    assert find_unsupported_numbers("over 1234 TEU since 10/2025", [], texts) == []
    assert find_unsupported_numbers("2,025 and 1,010", [], ["1 of 10", "2 and 25"]) == ["2,025", "1,010"]


NUMBERS = [1500, 133.333333, 15.125, -50, 75.0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1,500 TEU, 1.500 TEU and 1'500 TEU", []),
        ("133 %, 133.3 % and 133,33 %", []),
        ("50 fewer, 15.1 days, 75 %", []),
        ("Q4 of 2025 and SH-00000042", []),
        ("1. MAERSK\n2. EVERGREEN", []),
        ("no figures at all", []),
        ("about 1,501 TEU", ["1,501"]),
        ("1.5 thousand", ["1.5"]),
        ("134 % and 133.4 %", ["134", "133.4"]),
        ("a third: 33 %", ["33"]),
        ("in 2024, 2024 again", ["2024"]),
        ("15.2 days", ["15.2"]),
        ("8" * 60, ["8" * 60]),
    ],
)
def test_only_numbers_with_a_source_are_accepted_in_any_format(text: str, expected: list[str]) -> None:
    assert find_unsupported_numbers(text, NUMBERS, ["volumes in 2025", "SH-00000042"]) == expected
