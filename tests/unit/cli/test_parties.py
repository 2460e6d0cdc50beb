"""`entities load`, `find` and `migrate`: what they say, and how they end."""

import io
import json
import signal
import sys
from pathlib import Path

import pytest

from dagwright.entities import database as entity_database
from dagwright.entities import loading
from dagwright.entities.database import EntityDatabase
from dagwright.entities.party_file import PartiesUnreadable
from dagwright.interfaces.cli.exits import CommandRefused
from dagwright.interfaces.cli.output import Output
from dagwright.interfaces.cli.parties import find, load, migrate

pytestmark = pytest.mark.waits

PARTIES = """\
name,kind,jurisdiction,lei
Kite Harbour Ltd,company,GB,635400BLACKROCKMAN14
Kite Castle Ltd,company,IE,
Bad Row,company,Luxembourg,
Ann Lee,person,,
,person,,
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store of its own, and a file of parties."""
    monkeypatch.setenv("DAGWRIGHT_DATABASE_URL", f"sqlite:///{tmp_path / 'parties.db'}")
    (tmp_path / "parties.csv").write_text(PARTIES, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_load_counts_what_it_refused_and_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    assert load("parties.csv", Output()) == 1
    told = capsys.readouterr()
    assert told.out == "parties.csv: 3 added, 0 updated, 0 unchanged, 2 refused\n"
    assert told.err.splitlines() == [
        "parties.csv, line 4: refused: jurisdiction 'Luxembourg' is no ISO 3166 code; expected two letters such as LU, "
        "or US-DE",
        "parties.csv, line 6: refused: the name is empty",
    ]
    assert load("parties.csv", Output(is_json=True)) == 1
    document = json.loads(capsys.readouterr().out)
    assert (document["unchanged"], [row["line"] for row in document["refused"]]) == (3, [4, 6])


def test_load_of_good_rows_ends_well(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "good.csv").write_text("name,kind\nAnn Lee,person\n", encoding="utf-8")
    assert load("good.csv", Output()) == 0
    assert capsys.readouterr().out == "good.csv: 1 added, 0 updated, 0 unchanged\n"


@pytest.mark.parametrize(
    ("given", "code", "out", "err"),
    [
        ("\ufeffname,kind\nZoë Müller,person\n".encode(), 0, "standard input: 1 added, 0 updated, 0 unchanged\n", ""),
        (
            b"name,kind\nAnn,bird\n",
            1,
            "standard input: 0 added, 0 updated, 0 unchanged, 1 refused\n",
            "line 2: refused",
        ),
    ],
)
def test_load_reads_standard_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], given: bytes, code: int, out: str, err: str
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(given)))
    assert load("-", Output()) == code
    told = capsys.readouterr()
    assert (told.out, err in told.err) == (out, True)


def test_standard_input_that_is_no_file_of_parties_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for given, told in ((b"", "standard input: the first line must name the columns"), (b"name,\xff\n", "not UTF-8")):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(given)))
        with pytest.raises(PartiesUnreadable, match=told):
            load("-", Output())


@pytest.fixture
def row_by_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row in a transaction of its own."""
    monkeypatch.setattr(entity_database, "PART_S", 0.0)
    monkeypatch.setattr(loading, "ROWS_AT_ONCE", 1)


@pytest.mark.usefixtures("row_by_row")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_load_that_is_interrupted_says_what_is_in_and_that_it_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], number: signal.Signals
) -> None:
    before = signal.getsignal(number)
    with monkeypatch.context() as first:
        first.setattr(EntityDatabase, "_let_others_write", lambda _: signal.raise_signal(number))
        with pytest.raises(CommandRefused) as refused:
            load("parties.csv", Output())
    told = "interrupted; 2 of 3 rows are loaded and stay; load the file again for the others"
    assert (str(refused.value), refused.value.status, refused.value.code) == (told, "interrupted", 130)
    assert signal.getsignal(number) is before
    assert load("parties.csv", Output()) == 1
    assert capsys.readouterr().out == "parties.csv: 1 added, 0 updated, 2 unchanged, 2 refused\n"


def test_load_that_is_interrupted_while_it_reads_says_that_nothing_is_in(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stdin:
        class buffer:
            @staticmethod
            def read() -> bytes:
                signal.raise_signal(signal.SIGTERM)
                return b""

    monkeypatch.setattr("sys.stdin", Stdin)
    with pytest.raises(CommandRefused, match=r"^interrupted; nothing was loaded$"):
        load("-", Output())


@pytest.mark.usefixtures("row_by_row")
def test_load_shows_on_a_terminal_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("dagwright.interfaces.cli.load_watching.SHOWN_EVERY_S", 0.0)
    assert load("parties.csv", Output()) == 1
    assert "rows are in" not in capsys.readouterr().err
    (Path.cwd() / "other.csv").write_text("name,kind\nBo Ray,person\nCy Poe,person\n", encoding="utf-8")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert load("other.csv", Output()) == 0
    lines = capsys.readouterr().err.split("\r\x1b[K")
    assert [line.partition(",")[0] for line in lines] == [
        "",
        "0 of 2 rows are in",
        "1 of 2 rows are in",
        "2 of 2 rows are in",
        "",
    ]
    assert load("other.csv", Output(is_json=True)) == 0
    assert capsys.readouterr().err == ""


def test_find_shows_what_a_lookup_finds(capsys: pytest.CaptureFixture[str]) -> None:
    load("parties.csv", Output())
    capsys.readouterr()
    assert find(("kite harbour", "company", None), Output()) == 0
    [line] = capsys.readouterr().out.splitlines()
    assert line.startswith(
        "Kite Harbour Ltd (company, GB, LEI 635400BLACKROCKMAN14): the name, legal form aside; id company_"
    )
    assert find(("kite", "company", None), Output()) == 1
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert find(("kite castle", "company", "IE"), Output(is_json=True)) == 0
    assert [hit["name"] for hit in json.loads(capsys.readouterr().out)["hits"]] == ["Kite Castle Ltd"]
    # A part of a name is asked about, though only one has it.
    assert find(("kite", "company", "IE"), Output()) == 1
    assert capsys.readouterr().out.splitlines()[1:] == ["a lookup asks whether this one is meant"]
    assert find(("Ann Leee", "person", None), Output()) == 1
    assert capsys.readouterr().out.splitlines()[0] == "nothing is found; near:"
    with pytest.raises(CommandRefused, match="Unknown entity type 'bird'"):
        find(("kite", "bird", None), Output())


def test_find_tells_persons_apart_and_who_is_inactive(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = ["Ann Lee,person,GB,1970-01-01,", "Ann Lee,person,GB,1980-01-01,", "Ann Lee,person,IE,1990-01-01,inactive"]
    (folder / "persons.csv").write_text("\n".join(["name,kind,jurisdiction,born,status", *rows]), encoding="utf-8")
    load("persons.csv", Output())
    capsys.readouterr()
    assert find(("Ann Lee", "person", None), Output()) == 1
    told = [line.partition("; id ")[0] for line in capsys.readouterr().out.splitlines()]
    assert sorted(told[:2]) == [
        "Ann Lee (person, GB, born 1970-01-01): exact name",
        "Ann Lee (person, GB, born 1980-01-01): exact name",
    ]
    gone = ["inactive, so that no lookup finds it:", "Ann Lee (person, IE, born 1990-01-01): exact name"]
    assert told[2:] == gone
    assert find(("Ann Lee", "person", "IE"), Output()) == 1
    told = [line.partition("; id ")[0] for line in capsys.readouterr().out.splitlines()]
    assert (told[0], told[-2:]) == ("nothing is found; near:", gone)


def test_load_tells_of_twins_and_of_who_stays_inactive(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    header = "name,kind,jurisdiction,born,status"
    rows = ["Ann Lee,person,GB,1970-01-01,", "Ann Lee,person,GB,,", "Ben Ray,person,GB,,inactive"]
    (folder / "persons.csv").write_text("\n".join([header, *rows]), encoding="utf-8")
    assert load("persons.csv", Output()) == 0
    assert capsys.readouterr().err == (
        "persons.csv, line 3: added beside person 'Ann Lee' (GB), born 1970-01-01, which may be the same: lookups ask\n"
    )
    (folder / "persons.csv").write_text(f"{header}\nBen Ray,person,GB,,", encoding="utf-8")
    assert load("persons.csv", Output()) == 0
    assert capsys.readouterr().out.splitlines() == [
        "persons.csv: 0 added, 0 updated, 1 unchanged",
        "1 of them are inactive and stay so: their rows have no status",
    ]


def test_load_tells_who_was_renamed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("Maria García", "Maria López"):
        (folder / "persons.csv").write_text(f"id,name,kind,jurisdiction\nmaria,{name},person,ES\n", encoding="utf-8")
        assert load("persons.csv", Output()) == 0
    assert capsys.readouterr().out.splitlines() == [
        "persons.csv: 1 added, 0 updated, 0 unchanged",
        "persons.csv: 0 added, 1 updated, 0 unchanged",
        "persons.csv, line 2: person 'Maria López' (ES) was called 'Maria García' before",
    ]
    assert load("persons.csv", Output(is_json=True)) == 0
    assert json.loads(capsys.readouterr().out)["renamed"] == []
    # A name that lookups still find for that party.
    other = "id,name,kind,jurisdiction\nann,Ann Lee,person,ES\n"
    (folder / "other.csv").write_text(other, encoding="utf-8")
    assert load("other.csv", Output()) == 0
    (folder / "other.csv").write_text(other.replace("Ann Lee", "Maria García"), encoding="utf-8")
    capsys.readouterr()
    assert load("other.csv", Output()) == 0
    assert capsys.readouterr().err == (
        "other.csv, line 2: named like person 'Maria López' (ES), which may be the same: lookups ask\n"
    )


def test_find_in_a_database_that_is_not_there_says_so_and_makes_none(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAGWRIGHT_DATABASE_URL", f"sqlite:///{folder / 'mistyped' / 'parties.db'}")
    with pytest.raises(CommandRefused, match=r"there is no database .*mistyped/parties\.db \(DAGWRIGHT_DATABASE_URL\)"):
        find(("kite", "company", None), Output())
    assert not (folder / "mistyped").exists()


def test_migrate_says_the_revision_and_what_can_be_searched_now(capsys: pytest.CaptureFixture[str]) -> None:
    assert migrate(None, Output(is_json=True)) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["status"], document["names_added"]) == ("migrated", 0)
    assert migrate(None, Output()) == 0
    assert capsys.readouterr().out == (
        f"the database is of revision {document['revision']}; 0 names were not in the search index and are now\n"
    )
