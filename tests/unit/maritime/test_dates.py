"""Conversion of text to periods and to names of companies and ports."""

from datetime import date

import pytest

from dagwright_maritime.dates import FORMS, InvalidPeriod, parse_period
from dagwright_maritime.name_finding import rank_candidates
from dagwright_maritime.names import name_documents

TODAY = date(2026, 2, 10)
"""A Tuesday."""


@pytest.mark.parametrize(
    ("period_text", "first", "last"),
    [
        ("today", "2026-02-10", "2026-02-10"),
        ("Yesterday", "2026-02-09", "2026-02-09"),
        ("tomorrow", "2026-02-11", "2026-02-11"),
        ("this week", "2026-02-09", "2026-02-15"),
        ("last week", "2026-02-02", "2026-02-08"),
        ("next month", "2026-03-01", "2026-03-31"),
        ("last month", "2026-01-01", "2026-01-31"),
        ("the last quarter", "2025-10-01", "2025-12-31"),
        ("this quarter", "2026-01-01", "2026-03-31"),
        ("previous year", "2025-01-01", "2025-12-31"),
        ("last 30 days", "2026-01-12", "2026-02-10"),
        ("past 2 weeks", "2026-01-28", "2026-02-10"),
        ("last 3 months", "2025-11-11", "2026-02-10"),
        ("next 7 days", "2026-02-10", "2026-02-16"),
        ("3 days ago", "2026-02-07", "2026-02-07"),
        ("2 quarters ago", "2025-07-01", "2025-09-30"),
        ("Q4", "2025-10-01", "2025-12-31"),
        ("Q1", "2026-01-01", "2026-03-31"),
        ("Q2 2025", "2025-04-01", "2025-06-30"),
        ("2025-Q3", "2025-07-01", "2025-09-30"),
        ("December", "2025-12-01", "2025-12-31"),
        ("February", "2026-02-01", "2026-02-28"),
        ("in Feb. 2024", "2024-02-01", "2024-02-29"),
        ("Sept 2025", "2025-09-01", "2025-09-30"),
        ("2025", "2025-01-01", "2025-12-31"),
        ("2025-12", "2025-12-01", "2025-12-31"),
        ("2025-12-31", "2025-12-31", "2025-12-31"),
        ("2025-10-01 to 2025-12-31", "2025-10-01", "2025-12-31"),
        ("from October 2025 until yesterday", "2025-10-01", "2026-02-09"),
        ("between Q3 and Q4", "2025-07-01", "2025-12-31"),
        ("since last month", "2026-01-01", None),
        ("after 2025", "2026-01-01", None),
        ("before Q4 2025", None, "2025-09-30"),
        ("until yesterday", None, "2026-02-09"),
    ],
)
def test_text_is_converted_to_a_period(period_text: str, first: str | None, last: str | None) -> None:
    actual = [day.isoformat() if day is not None else None for day in parse_period(period_text, TODAY)]
    assert actual == [first, last]


@pytest.mark.parametrize(
    "period_text",
    ["", "soon", "last", "Q5", "2025-13", "2025-02-30", "0 days ago", "last 99999999 years", "9999-12 to never", "ma"],
)
def test_text_without_a_period_is_rejected_with_the_accepted_forms(period_text: str) -> None:
    with pytest.raises(InvalidPeriod) as error:
        parse_period(period_text, TODAY)
    assert FORMS in str(error.value)


def test_a_period_that_ends_before_it_starts_is_rejected() -> None:
    with pytest.raises(InvalidPeriod, match="ends before it starts"):
        parse_period("2026 to 2025", TODAY)


def test_each_documented_form_can_be_parsed() -> None:
    for form in FORMS.split(", "):
        assert parse_period(form, TODAY)


def test_last_month_on_march_31_starts_on_march_1() -> None:
    assert parse_period("last 1 month", date(2026, 3, 31)) == (date(2026, 3, 1), date(2026, 3, 31))


NAME_DOCUMENTS = list(name_documents())


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        ("Maersk", "carrier", ["MAERSK"]),
        ("maersk line", "shipper", ["MAERSK"]),
        ("Evergreen", "carrier", ["EVERGREEN"]),
        ("Evergreen", "shipper", ["EVERGREEN"]),
        ("LA", "port", ["Los Angeles"]),
        ("l.a.", "port", ["Los Angeles"]),
        ("uslax", "", ["Los Angeles"]),
        ("Port of LA", "port", ["Los Angeles"]),
        ("Houston", "port", ["Houston"]),
        ("ACME CORP LLC", "shipper", ["Acme Corp LLC"]),
        ("Acme Corp. LLC", "shipper", ["Acme Corp LLC"]),
        ("Muller Maschinenbau GmbH", "shipper", ["Müller Maschinenbau GmbH"]),
        ("Maersc", "carrier", ["MAERSK"]),
        ("Los Angelse", "port", ["Los Angeles"]),
        ("Great Lakes", "shipper", ["Great Lakes Auto Parts Inc"]),
        ("Nordlicht Textil", "shipper", ["Nordlicht Textil GmbH", "Nordlicht Textilien AG"]),
    ],
)
def test_name_matches_the_parties_with_that_name(text: str, kind: str, expected: list[str]) -> None:
    assert [candidate.name for candidate in rank_candidates(text, NAME_DOCUMENTS, kind=kind).meanings] == expected


@pytest.mark.parametrize("text", ["Acme Corp", "Acme", "acme inc"])
def test_a_name_that_three_companies_share_matches_all_of_them(text: str) -> None:
    match = rank_candidates(text, NAME_DOCUMENTS, kind="shipper")
    assert {candidate.name for candidate in match.meanings} == {"Acme Corp LLC", "Acme Corporation", "Acme Co"}
    problem = match.problem()
    assert problem is not None
    assert problem.startswith(f"{text!r} may be one of 3 shippers: ")


def test_kind_is_ignored_if_no_name_of_that_kind_matches() -> None:
    [candidate] = rank_candidates("Maersk", NAME_DOCUMENTS, kind="port").meanings
    assert candidate.kind == "carrier"


def test_an_unknown_name_is_reported_with_suggestions() -> None:
    match = rank_candidates("Zanzibar", NAME_DOCUMENTS[:7])
    assert (match.meanings, len(match.similar_names), match.is_clear) == ([], 5, False)
    assert match.problem() == (
        "no shipper, carrier or port is called 'Zanzibar'; similar names: Golden Bridge Electronics Co, Sunrise "
        "Apparel Group, Pacific Rim Trading Co, Redwood Home Furnishings Inc, Canyon Outdoor Gear LLC"
    )
    assert rank_candidates("Zanzibar", []).problem() == "no shipper, carrier or port is called 'Zanzibar'"


def test_generic_company_words_match_no_company() -> None:
    assert rank_candidates("Co", NAME_DOCUMENTS).meanings == []
    assert rank_candidates("Group LLC", NAME_DOCUMENTS).meanings == []
