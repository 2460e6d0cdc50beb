"""`show_results`, for one or several results of `es_query_exec` and `page_query`."""

from typing import Any

import pytest
from pydantic import ValidationError

from dagwright.tools.spec import spec_of
from dagwright_maritime.result_display import show_results
from dagwright_maritime.slots import EsResults, MissingValues

HITS = [{"teu": 3, "shipper_name": "Acme | Co", "shipment_id": "SH-1"}]


def test_table_has_the_identifying_fields_first() -> None:
    text = show_results(EsResults(hits=HITS, total=3))["formatted_results"]
    assert text == (
        "| shipment_id | shipper_name | teu |\n| --- | --- | ---: |\n| SH-1 | Acme \\| Co | 3 |\n\n"
        "1 of 3 are shown; there are 2 more."
    )


def test_several_results_are_shown_one_after_the_other() -> None:
    spec = spec_of(show_results)
    assert spec is not None
    arguments = spec.bind({"es_results": [{"hits": HITS, "index": "x"}, {"total": 0}]})
    assert show_results(**arguments)["formatted_results"].splitlines()[-1] == "Nothing matches."
    assert show_results([])["formatted_results"] == "Nothing matches."


@pytest.mark.parametrize(
    ("aggregations", "problem"),
    [
        ({"by": {"buckets": [1, 2]}}, "/by/buckets/0: expected a group as an object; /by/buckets/1: expected a group"),
        ({"by": {"buckets": "a"}}, "/by/buckets: expected a list of groups, or groups by name"),
        ({"by": {"buckets": {"a": None}}}, "/by/buckets/a: expected a group as an object"),
        ({"f": {"doc_count": 1, "by": {"buckets": 3}}}, "/f/by/buckets: expected a list of groups, or groups by name"),
        ({"top": {"hits": None}}, "/top/hits: expected an object with a list of documents, `hits`"),
        ({"by": {"buckets": [{"key": 1, "top": {"hits": {"hits": [3]}}}]}}, "/by/buckets/0/top/hits: expected an"),
        ({"by": {"buckets": [], "sum_other_doc_count": "x"}}, "/by/sum_other_doc_count: expected an integer"),
    ],
)
def test_malformed_aggregations_are_rejected_with_their_pointers(aggregations: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError) as error:
        EsResults(aggregations=aggregations)
    assert f"not aggregations of a search server: {problem}" in str(error.value)


def test_no_match_is_stated_instead_of_an_empty_table() -> None:
    empty_result = EsResults(total=0, aggregations={"volume": {"value": 0.0}})
    assert show_results(empty_result) == {"formatted_results": "Nothing matches."}


def test_missing_figures_are_reported_under_the_table() -> None:
    missing_days = MissingValues(group="by_shipper", metric="days", groups=5, with_value=3, without=["A", "B"])
    missing_late = MissingValues(group="", metric="late", groups=1, with_value=0)
    results = EsResults(total=9, aggregations={"volume": {"value": 4.0}}, missing_values=[missing_days, missing_late])
    assert show_results(results)["formatted_results"] == (
        "| figure | value |\n| --- | ---: |\n| volume | 4 |\n\n"
        "days is available for 3 of 5 groups.\n\nlate is not available."
    )


def test_page_shows_how_many_documents_it_has_and_whether_more_follow() -> None:
    page = EsResults(hits=[{"teu": number} for number in range(5)], total=1_793, has_more=True)
    text = show_results(page, rows=3)["formatted_results"]
    assert text.endswith(
        "| 2 |\n\n3 of the 5 documents of this page are shown. 1,793 match in all. More follow on the next page."
    )
    last_page = page.model_copy(update={"has_more": False})
    assert show_results(last_page)["formatted_results"].endswith(
        "| 4 |\n\n5 of the 5 documents of this page are shown. 1,793 match in all. No more follow."
    )
    assert show_results(EsResults(total=7, has_more=False)) == {
        "formatted_results": "This page is empty. 7 match in all. No more follow."
    }
    documents_without_fields = EsResults(hits=[{}, {}], total=9, has_more=False)
    assert show_results(documents_without_fields) == {
        "formatted_results": "0 of the 2 documents of this page are shown. 9 match in all. No more follow."
    }
