"""Rows that have nothing to do with others go in together, and to the same effect as one after the other."""

import random
import re
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import event, select
from sqlalchemy.orm import Session

from dagwright.entities import loading
from dagwright.entities.database import EntityDatabase
from dagwright.entities.fresh_rows import TakenTogether
from dagwright.entities.loading import LoadReport, load_read_parties
from dagwright.entities.models import Party, PartyIdentifier, PartyName, PartySearch
from dagwright.entities.party_file import read_parties

pytestmark = pytest.mark.waits

HEADER = "id,name,kind,jurisdiction,aliases,former_names,lei,born,status"
LEIS = ("635400BLACKROCKMAN14", "771200BLACKROCKMAN14")


def text_of(rows: list[str]) -> bytes:
    return "\n".join([HEADER, *rows]).encode()


def test_rows_of_new_parties_take_few_statements(database: EntityDatabase) -> None:
    load_read_parties(database, read_parties(text_of([",Ann Lee,person,,,,,,"]), name="one"))
    statements: list[str] = []
    event.listen(database._ready_engine(), "before_cursor_execute", lambda *given: statements.append(given[2]))
    rows = [f"p{n},Person{n} Lee{n},person,GB,,Former{n},,1980-01-01," for n in range(200)]
    report = load_read_parties(database, read_parties(text_of(rows), name="many"))
    assert report.added == 200
    # Each other name takes one still; one after the other a row took more than ten.
    assert len(statements) < 300
    statements.clear()
    report = load_read_parties(database, read_parties(text_of(rows), name="again"))
    assert report.unchanged == 200
    assert len(statements) < 30


def random_rows(dice: random.Random, count: int) -> list[str]:
    """Returns rows that often have something to do with each other."""
    names = [f"{first} {last}" for first in ("Ann", "ANN", "Bo", "Cy") for last in ("Lee", "Ray", "Poe")]
    rows = []
    for number in range(count):
        kind = dice.choice(("person", "company", "fund"))
        party_id = dice.choice(("", "", f"i{dice.randrange(8)}"))
        name = dice.choice([*names, *(f"Only{number}{letter}" for letter in "abcdef")])
        where, born = dice.choice(("", "GB", "LU")), dice.choice(("", "1980-01-01")) if kind == "person" else ""
        aliases, former = ("|".join(dice.sample(names, dice.choice((0, 0, 1, 2)))) for _ in range(2))
        lei = dice.choice(("", "", *LEIS)) if kind != "person" else ""
        status = dice.choice(("", "", "active", "inactive"))
        rows.append(f"{party_id},{name},{kind},{where},{aliases},{former},{lei},{born},{status}")
    return rows


def content(session: Session) -> list[object]:
    """Returns what a store holds; ids that were given by chance are left out."""
    parties = {party.id: party for party in session.scalars(select(Party))}
    named = {key: (each.kind, each.name, each.jurisdiction, each.distinguisher) for key, each in parties.items()}
    return [
        sorted((*named[key], each.client_type, each.status, key[:1] == "i" and key) for key, each in parties.items()),
        sorted((*named[each.party_id], each.name, each.use) for each in session.scalars(select(PartyName))),
        sorted((*named[each.party_id], each.value) for each in session.scalars(select(PartyIdentifier))),
        sorted(
            (*named[each.party_id], each.use, each.core, each.tokens, each.word_count)
            for each in session.scalars(select(PartySearch))
        ),
    ]


def without_chance(report: LoadReport) -> LoadReport:
    """Returns a report without the ids that were given by chance, and without what is chosen by these."""
    refused = tuple(replace(row, reason=re.sub(r"_[a-z2-7]{16}", "_", row.reason)) for row in report.refused)
    return replace(report, refused=refused, twins=tuple(replace(twin, other="") for twin in report.twins))


@pytest.mark.parametrize("seed", range(6))
def test_it_is_the_same_as_one_row_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    dice = random.Random(seed)
    first, second = (read_parties(text_of(random_rows(dice, 30)), name="some") for _ in range(2))
    files = [first, first, second, first]

    def loaded(name: str) -> tuple[list[LoadReport], list[object]]:
        database = EntityDatabase(f"sqlite:///{tmp_path / name}.db")
        reports = [without_chance(load_read_parties(database, file)) for file in files]
        found = database.read(content)
        database.dispose()
        return reports, found

    together = loaded("together")
    monkeypatch.setattr(loading, "take_together", lambda *_: TakenTogether(frozenset(), {}))
    assert together == loaded("one_by_one")
    assert together[0][0].added > 3
