"""Lookups: exact hits before partial hits, a single hit, several hits, and similar names without a hit."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from dagwright_onboarding import lookup, name_search
from dagwright_onboarding.database import EntityDatabase
from dagwright_onboarding.lookup import Candidate, Findings
from dagwright_onboarding.name_search import MAX_NAMES
from dagwright_onboarding.names import clean_name, core_words, is_legal_form, legal_form, name_key, words_of
from dagwright_onboarding.party_loading import load_parties
from tests.support.parties import Load, find

PARTIES = Path(__file__).parents[3] / "examples" / "onboarding" / "parties.csv"


LoadRows = Callable[..., Callable[..., Findings]]


@pytest.fixture
def load_rows(database: EntityDatabase, load: Load) -> LoadRows:
    """A function that loads rows. Its result is a function that searches the database."""

    def load_and_return_search(*rows: str, header: str = "name,kind,aliases,status") -> Callable[..., Findings]:
        assert not load("\n".join([header, *rows])).rejected
        return partial(find, database)

    return load_and_return_search


def details(party: Candidate) -> tuple[str, str | None, str]:
    return party.name, party.jurisdiction, party.reason


def match_name(findings: Findings) -> str | None:
    return findings.unambiguous_match.name if findings.unambiguous_match is not None else None


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def example_database(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EntityDatabase]:
    """A database with the parties of the example, for tests that do not change the parties."""
    url = f"sqlite:///{tmp_path_factory.mktemp('parties') / 'parties.db'}"
    if request.param == "postgresql":
        url = request.getfixturevalue("postgres_cluster").new_database()
    database = EntityDatabase(url)
    load_parties(database, PARTIES)
    yield database
    database.dispose()


MERIDIAN = "Meridian Fund Services S.à r.l."
ALL_WORDS = "contains all these words"
ANY_ORDER = "same words in another order"
OTHER_FORM = "the name with another legal form"
WITHOUT_FORM = "same name without the legal form"
WORD_STARTS = "contains words with these beginnings"


@pytest.mark.parametrize(
    ("search_text", "entity_type", "expected"),
    [
        ("John Smith", "person", ("John Smith", "GB", "exact name")),
        ("  john   SMITH ", "entity", ("John Smith", "GB", "exact name")),
        ("J. Smith", "person", ("John Smith", "GB", "other name")),
        ("BlackRock ManCo", "entity", ("BlackRock ManCo", "IE", "exact name")),
        ("BRM Ireland", "limited-company", ("BlackRock ManCo", "IE", "other name")),
        ("771200BLACKROCKMAN14", "entity", ("BlackRock ManCo (Luxembourg) S.A.", "LU", "identifier")),
        ("771200BLACKROCKMAN14", "company", ("BlackRock ManCo (Luxembourg) S.A.", "LU", "identifier")),
        ("Apex Fund", "cbu", ("Apex Fund", "KY", "exact name")),
        ("zoe muller", "person", ("Zoë Müller", "DE", "exact name")),
        ("Zoe Muller", "entity", ("Zoë Müller", "DE", "exact name")),
        ("Soren Angstrom", "person", ("Søren Ångström", "DK", "exact name")),
        ("Meridian Fund Services SARL", "company", (MERIDIAN, "LU", WITHOUT_FORM)),
        ("Services Fund Meridian", "company", (MERIDIAN, "LU", ANY_ORDER)),
        ("MFS Luxembourg", "company", (MERIDIAN, "LU", f"{WITHOUT_FORM} (a former name)")),
        ("Weber, Jean-Luc", "person", ("Jean-Luc Weber", "LU", ANY_ORDER)),
        ("Fund Accounting", "product", ("Fund accounting", None, "exact name")),
        ("Officer, Compliance", "role", ("Compliance officer", None, ANY_ORDER)),
    ],
)
def test_full_name_or_identifier_is_an_unambiguous_match(
    example_database: EntityDatabase, search_text: str, entity_type: str, expected: tuple[str, str | None, str]
) -> None:
    findings = find(example_database, search_text, entity_type)
    assert ([*map(details, findings.hits)], match_name(findings)) == ([expected], expected[0])


@pytest.mark.parametrize(
    ("search_text", "entity_type", "expected"),
    [
        ("Tanaka", "person", [("Aiko Tanaka", "JP", ALL_WORDS)]),
        ("Tanaka", "entity", [("Aiko Tanaka", "JP", ALL_WORDS)]),
        ("Aiko", "person", [("Aiko Tanaka", "JP", ALL_WORDS)]),
        ("Aiko Tan", "person", [("Aiko Tanaka", "JP", WORD_STARTS)]),
        ("John Smiths", "person", [("John Smithson", "GB", WORD_STARTS)]),
        ("North Light Infra", "fund", [("Northern Lights Infrastructure I", "IE", WORD_STARTS)]),
        ("Castellan", "company", [("Castellan Audit SAS", "FR", ALL_WORDS)]),
        ("SAS", "company", [("Castellan Audit SAS", "FR", ALL_WORDS)]),
        ("S.à r.l.", "company", [(MERIDIAN, "LU", f"{ALL_WORDS} (a former name)")]),
        ("Accounting", "product", [("Fund accounting", None, ALL_WORDS)]),
        ("Maria Garcia", "person", [("Maria García", "ES", "exact name"), ("María Garcia", "LU", "exact name")]),
        (
            "John",
            "person",
            [("John Smith", "GB", ALL_WORDS), ("John Smithson", "GB", ALL_WORDS), ("John Smythe", "IE", ALL_WORDS)],
        ),
        (
            "Meridian",
            "fund",
            [("Meridian Global Bond", "LU", ALL_WORDS), ("Meridian Global Equity", "LU", ALL_WORDS)],
        ),
        ("Sarah Chenn", "person", []),
        ("Thomas Reuter", "person", []),
        ("Nobody Known", "entity", []),
    ],
)
def test_part_of_a_name_or_a_name_of_several_parties_is_not_an_unambiguous_match(
    example_database: EntityDatabase, search_text: str, entity_type: str, expected: list[tuple[str, str | None, str]]
) -> None:
    findings = find(example_database, search_text, entity_type)
    assert (sorted(map(details, findings.hits)), findings.unambiguous_match) == (sorted(expected), None)


@pytest.mark.parametrize(
    ("search_text", "jurisdiction", "expected"),
    [
        ("Same Name", None, ["company", "fund"]),
        ("Same", None, ["company", "fund"]),
        ("Sam", None, ["company", "fund"]),
        ("Same", "LU", ["fund"]),
    ],
)
def test_only_the_requested_kinds_are_searched(
    load_rows: LoadRows, search_text: str, jurisdiction: str | None, expected: list[str]
) -> None:
    rows = [f"Same Name,{kind}" for kind in ("person,LU", "company,GB", "fund,LU")]
    search = load_rows(*rows, header="name,kind,jurisdiction")
    assert sorted(hit.kind for hit in search(search_text, "company or fund", jurisdiction).hits) == expected


Summary = tuple[list[tuple[str, str]], str | None, list[tuple[str, str]]]


def summary_of(findings: Findings) -> Summary:
    """Return the names and reasons of the hits, the name of the unambiguous match, and the inactive parties."""
    hits, inactive = (
        [(party.name, party.reason) for party in parties] for parties in (findings.hits, findings.inactive_matches)
    )
    return hits, match_name(findings), inactive


Names = tuple[list[str], str | None, list[str]]


def names_of(findings: Findings) -> Names:
    """Return the names of the hits, of the unambiguous match, and of the inactive parties."""
    hits, match, inactive = summary_of(findings)
    return [name for name, _ in hits], match, [name for name, _ in inactive]


def test_inactive_party_with_the_name_prevents_an_unambiguous_match(load_rows: LoadRows) -> None:
    search = load_rows(
        "John Smith,person,,inactive",
        "John Smithson,person,,",
        "Kite Ltd,company,,inactive",
        "Kite GmbH,company,,",
        "Old Mill,fund,,inactive",
        "New Mill,fund,Old Mill,",
    )
    for text, kind, inactive_name, active_name in (
        ("John Smith", "person", "John Smith", "John Smithson"),
        ("kite ltd", "company", "Kite Ltd", "Kite GmbH"),
        ("Old Mill", "entity", "Old Mill", "New Mill"),
    ):
        assert names_of(search(text, kind)) == ([active_name], None, [inactive_name])
    assert search("John Smith", "company").inactive_matches == ()
    assert match_name(search("Kite", "company")) == "Kite GmbH"


def test_party_with_another_legal_form_is_not_an_unambiguous_match(load_rows: LoadRows) -> None:
    search_all = load_rows(
        "Kite GmbH,company,,",
        "Kite S.à r.l.,company,,inactive",
        "Rook Ltd,company,Old Rook Limited,",
        "Rook GmbH & Co. KG,company,,",
        "Plain Harbour,company,,",
        "Wren Sàrl,company,,",
        "Gone Mill AG,company,,inactive",
    )
    search = partial(search_all, entity_type="company")

    assert names_of(search("Kite SARL")) == (["Kite GmbH"], None, ["Kite S.à r.l."])
    assert names_of(search("Kite Société à responsabilité limitée")) == (["Kite GmbH"], None, ["Kite S.à r.l."])
    assert names_of(search("Kite AG")) == (["Kite GmbH"], None, [])
    assert names_of(search("Kite")) == (["Kite GmbH"], "Kite GmbH", [])
    assert names_of(search("Kite mbH")) == (["Kite GmbH"], "Kite GmbH", [])
    # The exact legal form makes a match unambiguous, even if other parties have the same name.
    assert names_of(search("Rook Limited")) == (["Rook Ltd"], "Rook Ltd", [])
    assert names_of(search("Limited Rook Old"))[1] is None
    assert names_of(search("Old Rook Ltd.")) == (["Rook Ltd"], "Rook Ltd", [])
    assert names_of(search("Rook GmbH")) == (["Rook GmbH & Co. KG", "Rook Ltd"], None, [])
    assert names_of(search("Plain Harbour SA")) == (["Plain Harbour"], "Plain Harbour", [])
    assert names_of(search("Harbour Plain SA")) == (["Plain Harbour"], "Plain Harbour", [])
    assert names_of(search("Wren S.à r.l.")) == (["Wren Sàrl"], "Wren Sàrl", [])
    assert names_of(search("Gone Mill Aktiengesellschaft")) == ([], None, ["Gone Mill AG"])
    assert names_of(search("Gone Mill GmbH")) == ([], None, [])


def test_word_order_and_spelling_of_the_legal_form_may_both_differ(load_rows: LoadRows) -> None:
    search = load_rows(
        "Blue Harbour S.à r.l.,company,,",
        "Blue Harbour Shipping S.à r.l.,company,,",
        "Apex Holding Limited,company,Old Mill Ltd,",
        "Crow Nest GmbH,company,,",
        "Crow Nest Sàrl,company,,inactive",
        "Reed Lake,company,,",
        "Reed Lake Ltd,company,Moor Lake plc,inactive",
        "Smith John,person,,inactive",
        'J. Smith,person,"Smith, John",',
        "Fen Marsh Ltd,company,,",
        "Marsh Fen Ltd,company,,",
        "Fen Marsh GmbH,company,,",
    )

    def lookup_summary(text: str, kind: str = "company") -> Summary:
        return summary_of(search(text, kind))

    blue_harbour = "Blue Harbour S.à r.l."
    assert lookup_summary("Harbour Blue SARL") == ([(blue_harbour, ANY_ORDER)], blue_harbour, [])
    assert lookup_summary("Harbour Blue") == ([(blue_harbour, ANY_ORDER)], blue_harbour, [])
    assert lookup_summary("Blue Harbour SARL") == ([(blue_harbour, WITHOUT_FORM)], blue_harbour, [])
    assert lookup_summary("Harbour Blue GmbH") == ([(blue_harbour, OTHER_FORM)], None, [])
    apex = "Apex Holding Limited"
    assert lookup_summary("Holding Apex Ltd") == ([(apex, ANY_ORDER)], apex, [])
    assert lookup_summary("Mill Old Limited") == ([(apex, f"{ANY_ORDER} (an alias)")], apex, [])
    # An inactive party with the name is reported, and no other party is an unambiguous match.
    assert lookup_summary("Nest Crow SARL") == ([("Crow Nest GmbH", OTHER_FORM)], None, [("Crow Nest Sàrl", ANY_ORDER)])
    assert lookup_summary("Lake Reed Limited") == ([("Reed Lake", ANY_ORDER)], None, [("Reed Lake Ltd", ANY_ORDER)])
    assert lookup_summary("Lake Moor P.L.C.") == ([], None, [("Reed Lake Ltd", f"{ANY_ORDER} (an alias)")])
    assert lookup_summary("Reed Lake") == ([("Reed Lake", "exact name")], "Reed Lake", [])
    assert lookup_summary("Smith, John", "person") == (
        [("J. Smith", "other name")],
        None,
        [("Smith John", WITHOUT_FORM)],
    )
    # Among several parties, the exact legal form takes precedence, then the exact word order.
    assert lookup_summary("Fen, Marsh Limited") == ([("Fen Marsh Ltd", WITHOUT_FORM)], "Fen Marsh Ltd", [])
    assert lookup_summary("Marsh, Fen GmbH") == ([("Fen Marsh GmbH", ANY_ORDER)], "Fen Marsh GmbH", [])


def test_active_party_is_an_unambiguous_match_despite_an_inactive_namesake(load_rows: LoadRows) -> None:
    rows = ("John Smith,person,GB,inactive", "John Smith,person,IE,")
    findings = load_rows(*rows, header="name,kind,jurisdiction,status")("John Smith", "person")
    assert findings.unambiguous_match is not None
    assert findings.unambiguous_match.jurisdiction == "IE"
    assert [party.jurisdiction for party in findings.inactive_matches] == ["GB"]


def test_legal_form_makes_a_match_unambiguous_only_if_all_similar_names_were_read(
    load_rows: LoadRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    max_names = 20
    assert max_names < MAX_NAMES
    for module in (lookup, name_search):
        monkeypatch.setattr(module, "MAX_NAMES", max_names)
    rows_within_limit = ["Kite SARL,company,LU", *_kite_companies(max_names - 2)]
    for rows, is_unambiguous in ((rows_within_limit, True), (_kite_companies(max_names - 1), False)):
        search = load_rows(*rows, header="name,kind,jurisdiction")
        assert (search("Kite S.à r.l.", "company").unambiguous_match is not None) == is_unambiguous


def _kite_companies(count: int) -> list[str]:
    """Return rows of companies that are called Kite, each with a different legal form or jurisdiction."""
    forms = ("GmbH", "AG", "Ltd", "plc", "SA", "Inc", "BV", "NV", "Oy", "AB")
    countries = ("LU", "IE", "GB", "DE", "FR", "US", "CH", "NL", "ES", "IT")
    return [f"Kite {form},company,{country}" for form in forms for country in countries][:count]


def test_party_of_another_type_is_a_near_match_only(example_database: EntityDatabase) -> None:
    findings = find(example_database, "John Smith", "company")
    assert findings.hits == ()
    near_matches = [(party.name, party.kind, party.reason) for party in findings.near_matches]
    assert near_matches == [("John Smith", "person", "is a person")]


@pytest.mark.parametrize(
    ("text", "key", "words", "words_without_form"),
    [
        ("Apex ManCo S.à r.l.", "apex manco s.a r.l.", ("apex", "manco", "sa", "rl"), ("apex", "manco")),
        ("APEX MANCO SARL", "apex manco sarl", ("apex", "manco", "sarl"), ("apex", "manco")),
        ("Quayside, Inc.", "quayside, inc.", ("quayside", "inc"), ("quayside",)),
        ("Strauß Söhne AG", "strauss sohne ag", ("strauss", "sohne", "ag"), ("strauss", "sohne")),
        ("O’Brien Ltd", "o'brien ltd", ("obrien", "ltd"), ("obrien",)),
        ("Limited", "limited", ("limited",), ("limited",)),
        ("Apex S. A. R. L.", "apex s. a. r. l.", ("apex", "s", "a", "r", "l"), ("apex",)),
        ("Kite GmbH & Co. KG", "kite gmbh & co. kg", ("kite", "gmbh", "&", "co", "kg"), ("kite",)),
        ("Rook & Sons", "rook & sons", ("rook", "&", "sons"), ("rook", "&", "sons")),
        ("Zero\u200bWidth\u00a0Gap", "zerowidth gap", ("zerowidth", "gap"), ("zerowidth", "gap")),
    ],
)
def test_name_is_split_into_parts(
    text: str, key: str, words: tuple[str, ...], words_without_form: tuple[str, ...]
) -> None:
    assert (name_key(text), words_of(key), core_words(key)) == (key, words, words_without_form)


@pytest.mark.parametrize(
    ("form", "normalized_form"),
    [
        *((form, ("sarl",)) for form in ("S.à r.l.", "SARL", "S.A.R.L.", "Sàrl", "Société à responsabilité limitée")),
        *((form, ("ltd",)) for form in ("Ltd", "Ltd.", "Limited", "LIMITED", "Private Limited Company")),
        *((form, ("pte", "ltd")) for form in ("Pte. Ltd.", "Pte Limited")),
        *((form, ("gmbh", "co", "kg")) for form in ("GmbH & Co. KG", "GmbH und Co KG", "GmbH & Company KG")),
        ("Gesellschaft mit beschränkter Haftung", ("gmbh",)),
        ("S.A.", ("sa",)),
        ("SAS", ("sas",)),
        ("", ()),
    ],
)
def test_legal_form_is_the_same_in_each_spelling(form: str, normalized_form: tuple[str, ...]) -> None:
    assert legal_form(words_of(name_key(f"Zoë Rock {form}"))) == normalized_form
    assert legal_form(words_of(name_key(form))) == ()


FORMS = [
    *("S.à r.l.", "SARL", "S.A.R.L.", "S. à r. l.", "Société à responsabilité limitée", "Ltd", "Ltd.", "Limited"),
    *("GmbH", "Gesellschaft mit beschränkter Haftung", "GmbH & Co. KG", "S.A.", "Société Anonyme", "plc", "P.L.C."),
    *("Public Limited Company", "B.V.", "LLP", "S.p.A.", "Inc.", "Incorporated", "Pte. Ltd.", "Sp. z o.o.", "Oy"),
    "SCSp",
]


@pytest.mark.parametrize("form", FORMS)
def test_legal_form_is_separated_in_any_spelling(form: str) -> None:
    assert core_words(name_key(f"Zoë Rock {form}")) == ("zoe", "rock")
    assert [is_legal_form(name_key(text)) for text in (form, f"Zoë Rock {form}")] == [True, False]


def test_legal_forms_are_removed_and_reported(load_rows: LoadRows) -> None:
    rows = ("Zoë Rock S.à r.l.,company", "Rock Zoe Partners,company", "Kim Se,person", "Kim Lee,person")
    search = load_rows(*rows, header="name,kind")
    for text, reason in (("Zoe Rock Sarl", WITHOUT_FORM), ("ZOË ROCK LIMITED", OTHER_FORM), ("zoe rock", WITHOUT_FORM)):
        assert [*map(details, search(text, "company").hits)] == [("Zoë Rock S.à r.l.", None, reason)]
    assert [hit.name for hit in search("Kim", "person").hits] == ["Kim Lee", "Kim Se"]


@pytest.mark.parametrize("text", ["Ann\nLee", " Ann \t Lee ", "Ann \u202eLee\u202c", "\u2066Ann Lee\u2069"])
def test_name_has_no_line_breaks_or_direction_marks(text: str) -> None:
    assert clean_name(text) == "Ann Lee"
    assert name_key(text) == name_key("Ann Lee")
