"""Who and where a name means, among the names of the data."""

import pytest

from dagwright_maritime.name_finding import rank_candidates
from dagwright_maritime.names import name_documents

DOCUMENTS = list(name_documents())


@pytest.mark.parametrize(
    ("text", "kind", "meant"),
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
def test_name_matches_the_parties_with_that_name(text: str, kind: str, meant: list[str]) -> None:
    assert [name.name for name in rank_candidates(text, DOCUMENTS, kind=kind).meant] == meant


@pytest.mark.parametrize("text", ["Acme Corp", "Acme", "acme inc"])
def test_a_name_that_three_companies_share_means_all_of_them(text: str) -> None:
    match = rank_candidates(text, DOCUMENTS, kind="shipper")
    assert {name.name for name in match.meant} == {"Acme Corp LLC", "Acme Corporation", "Acme Co"}
    problem = match.problem()
    assert problem is not None
    assert problem.startswith(f"{text!r} may be one of 3 shippers: ")


def test_most_similar_name_comes_first() -> None:
    assert rank_candidates("Acme Corp", DOCUMENTS).meant[0].name in ("Acme Corp LLC", "Acme Corporation")


def test_a_kind_counts_only_with_a_name_of_that_kind() -> None:
    assert [name.kind for name in rank_candidates("Maersk", DOCUMENTS, kind="port").meant] == ["carrier"]


def test_an_unknown_name_is_reported_with_suggestions() -> None:
    match = rank_candidates("Zanzibar", DOCUMENTS[:7])
    assert (match.meant, len(match.near), match.is_clear) == ([], 5, False)
    assert match.problem() == (
        "no shipper, carrier or port is called 'Zanzibar'; similar names: Golden Bridge Electronics Co, Sunrise "
        "Apparel Group, Pacific Rim Trading Co, Redwood Home Furnishings Inc, Canyon Outdoor Gear LLC"
    )
    assert rank_candidates("Zanzibar", []).problem() == "no shipper, carrier or port is called 'Zanzibar'"


def test_words_that_any_company_has_mean_none() -> None:
    assert rank_candidates("Co", DOCUMENTS).meant == []
    assert rank_candidates("Group LLC", DOCUMENTS).meant == []
