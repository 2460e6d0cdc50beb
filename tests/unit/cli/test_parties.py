"""`entities load`, `find` and `migrate`: what they say, and how they end."""

import json
from pathlib import Path

import pytest

from dagwright.cli.exits import CommandRefused
from dagwright.cli.output import Output
from dagwright.cli.parties import find, load, migrate

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
    assert find(("kite", "company", "IE"), Output(is_json=True)) == 0
    assert [hit["name"] for hit in json.loads(capsys.readouterr().out)["hits"]] == ["Kite Castle Ltd"]
    assert find(("Ann Leee", "person", None), Output()) == 1
    assert capsys.readouterr().out.splitlines()[0] == "nothing is found; near:"
    with pytest.raises(CommandRefused, match="Unknown entity type 'bird'"):
        find(("kite", "bird", None), Output())


def test_migrate_says_the_revision_and_what_can_be_searched_now(capsys: pytest.CaptureFixture[str]) -> None:
    assert migrate(None, Output(is_json=True)) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["status"], document["names_added"]) == ("migrated", 0)
    assert migrate(None, Output()) == 0
    assert capsys.readouterr().out == (
        f"the database is of revision {document['revision']}; 0 names were not in the search index and are now\n"
    )
