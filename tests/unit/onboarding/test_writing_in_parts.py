"""Long jobs release the database regularly, and report their progress if they cannot continue."""

import sqlite3
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session

from dagwright.database import database as database_module
from dagwright.database.error_messages import DatabaseUnavailable
from dagwright.database.migrations import LOCK_PAUSE_S
from dagwright_onboarding import party_loading
from dagwright_onboarding.catalogue import PartyKind
from dagwright_onboarding.database import EntityDatabase
from dagwright_onboarding.parties import NaturalKey, add_party
from dagwright_onboarding.party_loading import load_parties


def test_long_write_commits_at_intervals_with_pauses(database: EntityDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    database.read(lambda session: session.execute(text("SELECT 1")))
    now, pauses_s = [0.0], list[float]()
    monkeypatch.setattr(database_module, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=pauses_s.append))

    def double_number(_: Session, number: int) -> int:
        now[0] += database_module.COMMIT_INTERVAL_S / 2.5
        return 2 * number

    parts = list(database.write_in_parts(range(7), double_number))
    assert parts == [[0, 2, 4], [6, 8, 10], [12]]
    # PostgreSQL has no lock that all writers wait for.
    is_sqlite = "sqlite" in str(database._url)
    assert pauses_s == ([LOCK_PAUSE_S, LOCK_PAUSE_S] if is_sqlite else [])


@pytest.fixture
def database_path(tmp_path: Path) -> Path:
    return tmp_path / "parties.db"


def test_other_writers_continue_during_a_long_load(database_path: Path) -> None:
    loader, other_database = EntityDatabase(f"sqlite:///{database_path}"), EntityDatabase(f"sqlite:///{database_path}")
    key = NaturalKey(PartyKind.FUND, "Apex", "LU")
    writer = threading.Thread(target=lambda: other_database.write(lambda session: add_party(session, key).id))

    def wait_and_return(session: Session, number: int) -> int:
        session.execute(text("SELECT 1"))
        time.sleep(0.005)
        return number

    done_count = 0
    for part in loader.write_in_parts(range(4_000), wait_and_return):
        done_count += len(part)
        if writer.ident is None:
            writer.start()
        if not writer.is_alive():
            break
    assert (writer.is_alive(), done_count < 4_000) == (False, True)
    loader.dispose()
    other_database.dispose()


@pytest.mark.parametrize(
    ("loaded_count", "progress_message"),
    [(0, "nothing was loaded"), (2, "2 of 3 rows were loaded and stay; load the file again for the rest")],
)
def test_load_of_a_locked_database_can_be_repeated(
    database_path: Path, monkeypatch: pytest.MonkeyPatch, loaded_count: int, progress_message: str
) -> None:
    monkeypatch.setattr(database_module, "SQLITE_BUSY_TIMEOUT_S", 0.05)
    monkeypatch.setattr(database_module, "COMMIT_INTERVAL_S", 0.0)
    monkeypatch.setattr(party_loading, "ROWS_PER_TRANSACTION", 1)
    database = EntityDatabase(f"sqlite:///{database_path}")
    database.read(lambda session: session.execute(text("SELECT 1")))
    lock_holder = sqlite3.connect(database_path, isolation_level=None)
    pause_numbers = iter(range(1, 3))

    def lock_before_row(number: int) -> None:
        if number == loaded_count:
            lock_holder.execute("BEGIN IMMEDIATE")

    monkeypatch.setattr(EntityDatabase, "pause_between_writes", lambda _: lock_before_row(next(pause_numbers)))
    lock_before_row(0)
    parties_file = database_path.with_suffix(".csv")
    parties_file.write_text("name,kind\nAnn Lee,person\nBen Ray,person\nCy Poe,person\n", encoding="utf-8")
    with pytest.raises(DatabaseUnavailable) as error:
        load_parties(database, parties_file)
    message = "the database reports an error: database is locked: another process has held the write lock for 30 s"
    assert str(error.value) == f"{message}; {progress_message}"
    lock_holder.execute("ROLLBACK")
    # With the number -1, a pause does not lock the database.
    pause_numbers = iter((-1, -1))
    report = load_parties(database, parties_file)
    assert (report.added, report.unchanged) == (3 - loaded_count, loaded_count)
    lock_holder.close()
    database.dispose()
