"""`show_results` takes what es_query_exec and page_query put out, one or several."""

from dagwright.maritime.showing import show_results
from dagwright.maritime.slots import EsResults, MissingValues
from dagwright.tools.spec import spec_of

HITS = [{"teu": 3, "shipper_name": "Acme | Co", "shipment_id": "SH-1"}]


def test_shipments_are_shown_as_people_look_for_them() -> None:
    shown = show_results(EsResults(hits=HITS, total=3))["formatted_results"]
    assert shown == (
        "| shipment_id | shipper_name | teu |\n| --- | --- | ---: |\n| SH-1 | Acme \\| Co | 3 |\n\n"
        "1 of 3 are shown; there are 2 more."
    )


def test_several_results_are_shown_one_after_the_other() -> None:
    spec = spec_of(show_results)
    assert spec is not None
    bound = spec.bind({"es_results": [{"hits": HITS, "index": "x"}, {"total": 0}]})
    assert show_results(**bound)["formatted_results"].splitlines()[-1] == "Nothing matches."
    assert show_results([])["formatted_results"] == "Nothing matches."


def test_nothing_that_matches_is_no_empty_table() -> None:
    nothing = EsResults(total=0, aggregations={"volume": {"value": 0.0}})
    assert show_results(nothing) == {"formatted_results": "Nothing matches."}


def test_figures_that_are_not_there_are_said_under_the_table() -> None:
    gap = MissingValues(group="by_shipper", metric="days", groups=5, with_value=3, without=["A", "B"])
    none = MissingValues(group="", metric="late", groups=1, with_value=0)
    results = EsResults(total=9, aggregations={"volume": {"value": 4.0}}, missing_values=[gap, none])
    assert show_results(results)["formatted_results"] == (
        "| figure | value |\n| --- | ---: |\n| volume | 4 |\n\ndays is available for 3 of 5.\n\nlate is not available."
    )
