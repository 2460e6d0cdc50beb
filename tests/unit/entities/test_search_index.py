"""The search index: it holds every name that is written, by whom and when ever, and only those."""

from pathlib import Path

import pytest
from sqlalchemy import create_engine, insert, make_url, text, update
from sqlalchemy.orm import Session

from dagwright.entities.catalogue import PartyKind
from dagwright.entities.database import EntityDatabase
from dagwright.entities.loading import load_parties
from dagwright.entities.lookup import Findings, find_parties
from dagwright.entities.models import Base, Party, PartyName, PartySearch, PartyStatus
from dagwright.entities.names import name_key
from dagwright.entities.parties import NaturalKey, add_party
from dagwright.entities.search_index import SearchIndexUnavailable


def search(database: EntityDatabase, search_text: str, *, entity_type: str = "entity") -> Findings:
    return database.read(lambda session: find_parties(session, search_text, entity_type=entity_type))


def found(database: EntityDatabase, search_text: str, *, entity_type: str = "entity") -> list[str]:
    return [hit.name for hit in search(database, search_text, entity_type=entity_type).hits]


def add(database: EntityDatabase, *names: str, kind: PartyKind = PartyKind.COMPANY) -> list[str]:
    return database.write(lambda session: [add_party(session, NaturalKey(kind, name)).id for name in names])


def make_earlier_store(url: str) -> None:
    """Makes a store of two names as a version without the index did."""
    engine = create_engine(make_url(url))
    tables = [table for table in Base.metadata.sorted_tables if table.name != PartySearch.__tablename__]
    with engine.begin() as connection:
        Base.metadata.create_all(connection, tables=tables)
        connection.execute(text("DROP INDEX party_identifier_by_value"))
        row = {"id": "kite", "kind": "company", "name": "Kite Harbour AG", "name_key": "kite harbour ag"}
        connection.execute(insert(Party), [row])
        name = {"party_id": "kite", "name": "Old Mill Ltd", "name_key": "old mill ltd", "use": "former"}
        connection.execute(insert(PartyName), [name])
    engine.dispose()


def test_store_of_an_earlier_version_is_indexed_when_it_is_opened(database_url: str, tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    make_earlier_store(database_url)
    for _ in range(2):
        database = EntityDatabase(database_url)
        assert (found(database, "harbour"), found(database, "mill old")) == (["Kite Harbour AG"], ["Kite Harbour AG"])
        database.dispose()


def test_names_that_were_written_without_the_index_are_brought_in(database: EntityDatabase, database_url: str) -> None:
    add(database, "First Harbour")
    engine = create_engine(make_url(database_url))
    with engine.begin() as connection:
        row = {"id": "late", "kind": "company", "name": "Late Harbour", "name_key": "late harbour"}
        connection.execute(insert(Party), [row])
    engine.dispose()
    database.dispose()
    assert found(database, "harbour") == ["First Harbour", "Late Harbour"]


def test_renamed_party_is_found_by_its_new_words_only(database: EntityDatabase) -> None:
    (party_id,) = add(database, "Kite Harbour")

    def rename(name: str) -> None:
        def work(session: Session) -> None:
            party = session.get_one(Party, party_id)
            party.name, party.name_key = name, name_key(name)

        database.write(work)

    rename("Rook Castle")
    assert (found(database, "castle"), found(database, "harbour")) == (["Rook Castle"], [])
    assert search(database, "Kite Harbor").near == ()


def test_name_that_was_taken_away_is_not_found(database: EntityDatabase, tmp_path: Path) -> None:
    (tmp_path / "parties.csv").write_text("name,kind,aliases\nKite AG,company,Blue Lagoon Partners\n")
    load_parties(database, tmp_path / "parties.csv")
    assert found(database, "lagoon") == ["Kite AG"]

    def work(session: Session) -> None:
        session.delete(session.query(PartyName).one())

    database.write(work)
    assert found(database, "lagoon") == []


def test_change_that_is_rolled_back_is_not_in_the_index(database: EntityDatabase) -> None:
    def work(session: Session) -> None:
        add_party(session, NaturalKey(PartyKind.COMPANY, "Kite Harbour"))
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        database.write(work)
    assert found(database, "harbour") == []


def test_party_that_became_inactive_is_not_found(database: EntityDatabase) -> None:
    add(database, "Kite Harbour")
    database.write(lambda session: session.execute(update(Party).values(status=PartyStatus.INACTIVE)))
    assert search(database, "Harbour Kite") == Findings(())


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
def test_short_and_odd_words_are_found(database: EntityDatabase, search_text: str, names: list[str] | None) -> None:
    add(database, "J Smith", "a_b Holdings", "axb Holdings", "AT&T Networks", "東京 海上", "Plain Ltd", "Limited Ltd")
    if names is None:
        with pytest.raises(ValueError, match="holds no letter or digit"):
            search(database, search_text)
    else:
        assert sorted(found(database, search_text)) == names


def test_name_is_near_among_many_that_share_its_beginning(database: EntityDatabase, tmp_path: Path) -> None:
    rows = "".join(f"Harbour {number} Capital,company\n" for number in range(600))
    (tmp_path / "many.csv").write_text(f"name,kind\n{rows}Rookwood Castle,company\n")
    load_parties(database, tmp_path / "many.csv")
    near = search(database, "Rokwood Castel").near
    assert [(hit.name, hit.reason) for hit in near] == [("Rookwood Castle", "another spelling")]


def test_rare_kind_is_found_behind_many_of_another(database: EntityDatabase) -> None:
    add(database, *(f"Harbour {number}" for number in range(300)))
    add(database, "Harbour Long Name Of A Fund", kind=PartyKind.FUND)
    assert found(database, "harbour", entity_type="fund") == ["Harbour Long Name Of A Fund"]


@pytest.mark.postgres
def test_postgres_without_the_right_to_have_trigrams_says_what_to_do(request: pytest.FixtureRequest) -> None:
    url = make_url(request.getfixturevalue("postgres_cluster").new_database())
    owner = create_engine(url)
    with owner.begin() as connection:
        connection.execute(text("CREATE ROLE guest LOGIN PASSWORD 'guest'"))
        connection.execute(text("GRANT ALL ON SCHEMA public TO guest"))
    guest = EntityDatabase(url.set(username="guest", password="guest").render_as_string(hide_password=False))
    with pytest.raises(SearchIndexUnavailable, match="have an administrator run CREATE EXTENSION pg_trgm"):
        search(guest, "Harbour")
    with owner.begin() as connection:
        connection.execute(text("CREATE EXTENSION pg_trgm"))
    owner.dispose()
    assert found(guest, "Harbour") == []
    guest.dispose()
