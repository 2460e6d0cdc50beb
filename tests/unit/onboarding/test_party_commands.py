"""`entities load`, `find` and `migrate`: their output and exit codes."""

import io
import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dagwright.database import database as database_module
from dagwright.interfaces.cli.exit_codes import CommandError
from dagwright.interfaces.cli.output import Output
from dagwright_onboarding import party_loading
from dagwright_onboarding.database import EntityDatabase
from dagwright_onboarding.party_commands import find, load, migrate

pytestmark = pytest.mark.waits

PARTIES_CSV = """\
name,kind,jurisdiction,lei
Kite Harbour Ltd,company,GB,635400BLACKROCKMAN14
Kite Castle Ltd,company,IE,
Bad Row,company,Luxembourg,
Ann Lee,person,,
,person,,
"""


RunCommand = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DAGWRIGHT_DATABASE_URL", f"sqlite:///{tmp_path / 'parties.db'}")
    (tmp_path / "parties.csv").write_text(PARTIES_CSV, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run_command(capsys: pytest.CaptureFixture[str]) -> RunCommand:
    """A function that calls a command. Its result is the exit code, stdout and stderr."""

    def call_command(command: Callable[..., int], argument: Any, *, is_json: bool = False) -> tuple[int, str, str]:
        capsys.readouterr()
        code = command(argument, Output(is_json=is_json))
        return (code, *capsys.readouterr())

    return call_command


def _write(name: str, *lines: str) -> str:
    Path(name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return name


def test_load_counts_and_explains_rejected_rows(run_command: RunCommand) -> None:
    code, out, err = run_command(load, "parties.csv")
    assert (code, out) == (1, "parties.csv: 3 added, 0 updated, 0 unchanged, 2 rejected\n")
    assert err.splitlines() == [
        "parties.csv, line 4: rejected: jurisdiction 'Luxembourg' is not an ISO 3166 code; expected a code such "
        "as LU or US-DE",
        "parties.csv, line 6: rejected: the name is empty",
    ]
    code, out, _ = run_command(load, "parties.csv", is_json=True)
    document = json.loads(out)
    assert (code, document["unchanged"], [row["line"] for row in document["rejected"]]) == (1, 3, [4, 6])
    valid_file = _write("good.csv", "name,kind", "Bo Ray,person")
    assert run_command(load, valid_file)[:2] == (0, "good.csv: 1 added, 0 updated, 0 unchanged\n")


def test_load_reads_stdin(monkeypatch: pytest.MonkeyPatch, run_command: RunCommand) -> None:
    def set_stdin(content: bytes) -> None:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))

    set_stdin("\ufeffname,kind\nZoë Müller,person\n".encode())
    assert run_command(load, "-")[:2] == (0, "standard input: 1 added, 0 updated, 0 unchanged\n")
    set_stdin(b"name,kind\nAnn,bird\n")
    code, out, err = run_command(load, "-")
    assert (code, out) == (1, "standard input: 0 added, 0 updated, 0 unchanged, 1 rejected\n")
    assert "line 2: rejected" in err
    columns_message = "standard input: the first line must name the columns"
    for content, message in ((b"", columns_message), (b"name,\xff\n", "not UTF-8")):
        set_stdin(content)
        with pytest.raises(CommandError, match=message):
            load("-", Output())


@pytest.fixture
def one_row_per_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    """Load each row in a separate transaction."""
    monkeypatch.setattr(database_module, "COMMIT_INTERVAL_S", 0.0)
    monkeypatch.setattr(party_loading, "ROWS_PER_TRANSACTION", 1)


@pytest.mark.usefixtures("one_row_per_transaction")
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_load_can_be_continued(
    monkeypatch: pytest.MonkeyPatch, run_command: RunCommand, signum: signal.Signals
) -> None:
    handler_before = signal.getsignal(signum)
    with monkeypatch.context() as patch:
        patch.setattr(EntityDatabase, "pause_between_writes", lambda _: signal.raise_signal(signum))
        with pytest.raises(CommandError) as error:
            load("parties.csv", Output())
    message = "interrupted; 2 of 3 rows were loaded and stay; load the file again for the rest"
    assert (str(error.value), error.value.code, error.value.code.exit_code) == (message, "interrupted", 130)
    assert signal.getsignal(signum) is handler_before
    assert run_command(load, "parties.csv")[:2] == (1, "parties.csv: 1 added, 0 updated, 2 unchanged, 2 rejected\n")


def test_load_interrupted_while_reading_has_loaded_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stdin:
        class buffer:
            @staticmethod
            def read() -> bytes:
                signal.raise_signal(signal.SIGTERM)
                return b""

    monkeypatch.setattr("sys.stdin", Stdin)
    with pytest.raises(CommandError, match=r"^interrupted; nothing was loaded$"):
        load("-", Output())


@pytest.mark.usefixtures("one_row_per_transaction")
def test_load_shows_its_progress_on_a_terminal(monkeypatch: pytest.MonkeyPatch, run_command: RunCommand) -> None:
    monkeypatch.setattr("dagwright_onboarding.load_progress.UPDATE_INTERVAL_S", 0.0)
    assert "rows loaded" not in run_command(load, "parties.csv")[2]
    other_file = _write("other.csv", "name,kind", "Bo Ray,person", "Cy Poe,person")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    code, _, err = run_command(load, other_file)
    progress = [f"{number} of 2 rows loaded" for number in range(3)]
    assert (code, [line.partition(",")[0] for line in err.split("\r\x1b[K")]) == (0, ["", *progress, ""])
    code, _, err = run_command(load, other_file, is_json=True)
    assert (code, err) == (0, "")


def test_find_shows_what_a_lookup_finds(run_command: RunCommand) -> None:
    load("parties.csv", Output())
    code, out, _ = run_command(find, ("kite harbour", "company", None))
    [line] = out.splitlines()
    expected_start = (
        "Kite Harbour Ltd (company, GB, LEI 635400BLACKROCKMAN14): same name without the legal form; id company_"
    )
    assert (code, line[: len(expected_start)]) == (0, expected_start)
    code, out, _ = run_command(find, ("kite", "company", None))
    assert (code, len(out.splitlines())) == (1, 2)
    code, out, _ = run_command(find, ("kite castle", "company", "IE"), is_json=True)
    assert (code, [hit["name"] for hit in json.loads(out)["hits"]]) == (0, ["Kite Castle Ltd"])
    # A lookup by a part of a name asks for confirmation, even if only one party has the part.
    code, out, _ = run_command(find, ("kite", "company", "IE"))
    assert (code, out.splitlines()[1:]) == (1, ["a lookup would ask for confirmation"])
    code, out, _ = run_command(find, ("Ann Leee", "person", None))
    assert (code, out.splitlines()[0]) == (1, "no match; near matches:")
    with pytest.raises(CommandError, match="Unknown entity type 'bird'"):
        find(("kite", "bird", None), Output())


HEADER = "name,kind,jurisdiction,date_of_birth,status"


def test_find_distinguishes_persons_and_marks_inactive_ones(run_command: RunCommand) -> None:
    rows = ["Ann Lee,person,GB,1970-01-01,", "Ann Lee,person,GB,1980-01-01,", "Ann Lee,person,IE,1990-01-01,inactive"]
    load(_write("persons.csv", HEADER, *rows), Output())
    code, out, _ = run_command(find, ("Ann Lee", "person", None))
    entries = [line.partition("; id ")[0] for line in out.splitlines()]
    active_lines = [f"Ann Lee (person, GB, born {year}-01-01): exact name" for year in (1970, 1980)]
    inactive_lines = ["inactive, not found by lookups:", "Ann Lee (person, IE, born 1990-01-01): exact name"]
    assert (code, sorted(entries[:2]), entries[2:]) == (1, active_lines, inactive_lines)
    code, out, _ = run_command(find, ("Ann Lee", "person", "IE"))
    entries = [line.partition("; id ")[0] for line in out.splitlines()]
    assert (code, entries[0], entries[-2:]) == (1, "no match; near matches:", inactive_lines)


def test_load_reports_possible_duplicates_and_inactive_parties(run_command: RunCommand) -> None:
    rows = ["Ann Lee,person,GB,1970-01-01,", "Ann Lee,person,GB,,", "Ben Ray,person,GB,,inactive"]
    code, _, err = run_command(load, _write("persons.csv", HEADER, *rows))
    duplicate_note = "added next to person 'Ann Lee' (GB), born 1970-01-01; possible duplicate, lookups will ask"
    assert (code, err) == (0, f"persons.csv, line 3: {duplicate_note}\n")
    code, out, _ = run_command(load, _write("persons.csv", HEADER, "Ben Ray,person,GB,,"))
    inactive_note = "inactive parties that stay inactive, because their rows have no status: 1"
    assert (code, out) == (0, f"persons.csv: 0 added, 0 updated, 1 unchanged\n{inactive_note}\n")


def test_load_reports_renamed_parties(run_command: RunCommand) -> None:
    def write_row(file: str, id: str, name: str) -> str:
        return _write(file, "id,name,kind,jurisdiction", f"{id},{name},person,ES")

    def load_maria(name: str) -> tuple[int, str]:
        return run_command(load, write_row("persons.csv", "maria", name))[:2]

    assert load_maria("Maria García") == (0, "persons.csv: 1 added, 0 updated, 0 unchanged\n")
    rename_note = "persons.csv, line 2: person 'Maria López' (ES) was renamed from 'Maria García'"
    assert load_maria("Maria López") == (0, f"persons.csv: 0 added, 1 updated, 0 unchanged\n{rename_note}\n")
    code, out, _ = run_command(load, "persons.csv", is_json=True)
    assert (code, json.loads(out)["renamed"]) == (0, [])
    # Lookups still find María by her former name, so a party that gets this name is a possible duplicate.
    assert run_command(load, write_row("other.csv", "ann", "Ann Lee"))[0] == 0
    code, _, err = run_command(load, write_row("other.csv", "ann", "Maria García"))
    duplicate_note = "renamed to the name of person 'Maria López' (ES); possible duplicate, lookups will ask"
    assert (code, err) == (0, f"other.csv, line 2: {duplicate_note}\n")


def test_find_does_not_create_a_missing_database(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAGWRIGHT_DATABASE_URL", f"sqlite:///{folder / 'mistyped' / 'parties.db'}")
    with pytest.raises(CommandError, match=r"no database at .*mistyped/parties\.db \(DAGWRIGHT_DATABASE_URL\)"):
        find(("kite", "company", None), Output())
    assert not (folder / "mistyped").exists()


def test_migrate_reports_the_revision_and_the_added_names(run_command: RunCommand) -> None:
    code, out, _ = run_command(migrate, None, is_json=True)
    document = json.loads(out)
    assert (code, document["status"], document["names_added"]) == (0, "migrated", 0)
    revision = f"the database is at revision {document['revision']}"
    assert run_command(migrate, None)[:2] == (0, f"{revision}; 0 missing names were added to the search index\n")
