"""The search index contains each stored name after additions, changes and removals, and no other names."""

import pytest
from sqlalchemy import create_engine, event, insert, make_url, text, update
from sqlalchemy.orm import Session

from dagwright.database.migrations import DatabaseUnusable
from dagwright_onboarding.catalogue import PartyKind
from dagwright_onboarding.database import EntityDatabase
from dagwright_onboarding.models import Party, PartyName, PartyStatus
from dagwright_onboarding.name_search import KnownName, NameIndex
from dagwright_onboarding.parties import NaturalKey, add_party
from dagwright_onboarding.spelling import name_similarity
from tests.support.parties import Load, find, find_names

pytestmark = pytest.mark.waits


def add_parties(database: EntityDatabase, *names: str, kind: PartyKind = PartyKind.COMPANY) -> list[str]:
    return database.write(lambda session: [add_party(session, NaturalKey(kind, name)).id for name in names])


def csv_of(*names: str, kind: str = "company") -> str:
    """Return the content of a file of parties. Loading this file is faster than separate additions."""
    return "name,kind\n" + "".join(f"{name},{kind}\n" for name in names)


def test_names_that_were_written_with_sql_can_be_indexed(database: EntityDatabase) -> None:
    add_parties(database, "First Harbour")

    def insert_rows(session: Session) -> None:
        party = {"kind": "company", "name": "Late Harbour", "name_key": "late harbour"}
        # The ORM notifies the index of changed objects, but not of these statements.
        session.execute(insert(Party).values(party | {"id": "late", "status": "active"}))
        session.execute(insert(Party).values(party | {"id": "gone", "status": "inactive", "jurisdiction": "LU"}))
        name = {"party_id": "late", "name": "Old Mill Ltd", "name_key": "old mill ltd", "use": "former"}
        session.execute(insert(PartyName).values(name))

    database.write(insert_rows)
    assert find_names(database, "harbour") == ["First Harbour"]
    assert [database.index_missing_names() for _ in range(2)] == [3, 0]
    assert find_names(database, "harbour") == ["First Harbour", "Late Harbour"]
    assert find_names(database, "mill old") == ["Late Harbour"]


def test_renamed_party_is_found_by_its_new_words_only(database: EntityDatabase) -> None:
    (party_id,) = add_parties(database, "Kite Harbour")

    def rename(session: Session) -> None:
        party = session.get_one(Party, party_id)
        party.name, party.name_key = "Rook Castle", "rook castle"

    database.write(rename)
    assert (find_names(database, "castle rook"), find_names(database, "harbour")) == (["Rook Castle"], [])
    assert find(database, "Kite Harbor").near_matches == ()


def test_removed_name_is_not_found(database: EntityDatabase, load: Load) -> None:
    load("name,kind,aliases\nKite AG,company,Blue Lagoon Partners\n")
    assert find_names(database, "lagoon") == ["Kite AG"]

    def delete_name(session: Session) -> None:
        session.delete(session.query(PartyName).one())

    database.write(delete_name)
    assert find_names(database, "lagoon") == []


def test_change_that_is_rolled_back_is_not_in_the_index(database: EntityDatabase) -> None:
    def add_and_fail(session: Session) -> None:
        add_party(session, NaturalKey(PartyKind.COMPANY, "Kite Harbour"))
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        database.write(add_and_fail)
    assert find_names(database, "harbour") == []


def test_party_that_became_inactive_is_not_found(database: EntityDatabase) -> None:
    add_parties(database, "Kite Harbour")
    database.write(lambda session: session.execute(update(Party).values(status=PartyStatus.INACTIVE)))
    findings = find(database, "Harbour Kite")
    assert (findings.hits, findings.near_matches) == ((), ())
    assert [(party.name, party.reason) for party in findings.inactive_matches] == [
        ("Kite Harbour", "same words in another order")
    ]


def test_party_that_is_active_again_is_found_by_all_its_names(database: EntityDatabase, load: Load) -> None:
    for status, names in (("inactive", []), ("active", ["Kite AG"])):
        load(f"name,kind,aliases,status\nKite AG,company,Blue Lagoon Partners,{status}\n")
        assert find_names(database, "lagoon blue") == names


def test_moved_party_is_found_in_its_new_jurisdiction(database: EntityDatabase, load: Load) -> None:
    load("name,kind,jurisdiction,aliases\nKite AG,company,CH,Blue Lagoon Partners\n")

    def move(session: Session) -> None:
        session.query(Party).one().jurisdiction = "US-DE"

    database.write(move)
    hits_by_code = {code: find(database, "lagoon", "company", code).hits for code in ("CH", "US", "US-DE", "US-CA")}
    names_by_code = {code: [hit.name for hit in hits] for code, hits in hits_by_code.items()}
    assert names_by_code == {"CH": [], "US": ["Kite AG"], "US-DE": ["Kite AG"], "US-CA": []}


@pytest.mark.parametrize(
    ("search_text", "names"),
    [
        ("J S", ["J Smith"]),
        ("j", ["J Smith"]),
        ("Smith J", ["J Smith"]),
        ("a_b", ["a_b Holdings"]),
        ("axb", ["axb Holdings"]),
        ("AT&T", ["AT&T Networks"]),
        ("%", None),
        ("東京", ["東京 海上"]),
        ("東", ["東京 海上"]),
        ("Ltd", ["Limited Ltd", "Plain Ltd"]),
        ('"Plain" OR', []),
    ],
)
def test_short_words_and_special_characters_are_found(
    database: EntityDatabase, search_text: str, names: list[str] | None
) -> None:
    add_parties(
        database, "J Smith", "a_b Holdings", "axb Holdings", "AT&T Networks", "東京 海上", "Plain Ltd", "Limited Ltd"
    )
    if names is None:
        with pytest.raises(ValueError, match="has no letter or digit"):
            find(database, search_text)
    else:
        assert sorted(find_names(database, search_text)) == names


def test_similar_name_is_found_among_many_other_names(database: EntityDatabase, load: Load) -> None:
    load(csv_of(*(f"Harbour {number} Capital" for number in range(600)), "Rookwood Castle"))
    near_matches = find(database, "Rokwood Castel").near_matches
    assert [(hit.name, hit.reason) for hit in near_matches] == [("Rookwood Castle", "different spelling")]


def test_misspelled_name_is_found_among_many_with_a_common_word(database: EntityDatabase, load: Load) -> None:
    other_names = [name for number in range(550) for name in (f"John Harbour {number}", f"Kite {number} Smithfield")]
    load(csv_of(*other_names, "John Smithfield", kind="person"))
    texts_by_error = {
        "letters swapped": "Jhon Smithfield",
        "a missing letter": "Jon Smithfield",
        "one error in each word": "Johnn Smithfeild",
        "another order": "Smithfield Jon",
        "a word split in two": "John Smith Field",
        "two words joined": "JohnSmithfield",
        "an extra word": "Jon M Smithfield",
        "two errors in a long word": "Smythfeild, John",
    }
    findings_by_error = {error: find(database, text, "person") for error, text in texts_by_error.items()}
    actual = {error: (each.hits, each.near_matches[0].name) for error, each in findings_by_error.items()}
    assert actual == dict.fromkeys(texts_by_error, ((), "John Smithfield"))


def test_number_of_similar_names_is_limited_even_if_many_share_a_word(database: EntityDatabase) -> None:
    add_parties(database, *(f"Kite Smithfeld {number}" for number in range(300)), "Kate Smithfield Ltd")
    words = ("kate", "smithfeild")

    def find_similar_names(session: Session) -> list[list[KnownName]]:
        return list(NameIndex(session, kinds=["company"]).similar_names(words, min_similarity=80))

    name_lists = database.read(find_similar_names)
    assert [len(names) <= 50 for names in name_lists] == [True] * len(name_lists)
    assert {name_similarity(words, name.core) >= 80 for names in name_lists for name in names} == {True}
    assert "Kate Smithfield Ltd" in [name.party_name for name in name_lists[0]]


def test_name_is_similar_if_two_words_are_written_as_one(database: EntityDatabase) -> None:
    add_parties(database, "Smith Albert Ltd")
    near_matches = find(database, "SmithAlbert").near_matches
    assert [(hit.name, hit.score) for hit in near_matches] == [("Smith Albert Ltd", 100.0)]


def test_similar_name_of_a_rare_kind_is_found_after_many_of_another_kind(database: EntityDatabase, load: Load) -> None:
    load(csv_of(*(f"Harbour {number}" for number in range(520))))
    add_parties(database, "Harbour Fund", kind=PartyKind.FUND)
    assert [hit.name for hit in find(database, "Harbuor Fnd", "fund").near_matches] == ["Harbour Fund"]


def test_index_is_not_searched_for_a_prefix_that_no_word_has(database: EntityDatabase) -> None:
    add_parties(database, "Harbour Castle", "a_b Holdings")
    statements: list[str] = []

    def names_with_prefixes(*words: str) -> list[str]:
        def find_names_and_record_statements(session: Session) -> list[str]:
            statements.clear()
            bind = session.get_bind()
            event.listen(bind, "before_cursor_execute", lambda _c, _u, statement, *_: statements.append(statement))
            return [name.party_name for name in NameIndex(session, kinds=None).names_with_prefixes(words)]

        return database.read(find_names_and_record_statements)

    assert names_with_prefixes("harb", "cast") == ["Harbour Castle"]
    assert names_with_prefixes("a_b", "h") == ["a_b Holdings"]
    assert names_with_prefixes("harb", "castz") == []
    assert not [statement for statement in statements if "party_search" in statement]


def test_name_of_a_rare_kind_is_found_after_many_of_another_kind(database: EntityDatabase, load: Load) -> None:
    load(csv_of(*(f"Harbour {number}" for number in range(1_050))))
    add_parties(database, "Harbour Long Name Of A Fund", kind=PartyKind.FUND)
    assert find_names(database, "harbour", "fund") == ["Harbour Long Name Of A Fund"]


@pytest.mark.postgres
def test_missing_extension_of_postgres_is_reported_with_a_fix(request: pytest.FixtureRequest) -> None:
    url = make_url(request.getfixturevalue("postgres_cluster").new_database())
    owner = create_engine(url)
    with owner.begin() as connection:
        connection.execute(text("CREATE ROLE guest LOGIN PASSWORD 'guest'"))
        connection.execute(text("GRANT ALL ON SCHEMA public TO guest"))
    guest = EntityDatabase(url.set(username="guest", password="guest").render_as_string(hide_password=False))
    with pytest.raises(DatabaseUnusable, match="have an administrator run CREATE EXTENSION pg_trgm"):
        find(guest, "Harbour")
    with owner.begin() as connection:
        connection.execute(text("CREATE EXTENSION pg_trgm"))
    owner.dispose()
    assert find_names(guest, "Harbour") == []
    guest.dispose()
