"""Migration of a database when it is opened. A database of a newer version is rejected."""

import ast
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, create_engine, inspect, make_url, text
from sqlalchemy.orm import Session

from dagwright.database import migrations
from dagwright.database.migrations import DatabaseUnusable, revision_of
from dagwright_onboarding import database as database_module
from dagwright_onboarding import search_index
from dagwright_onboarding.database import PARTIES, EntityDatabase
from dagwright_onboarding.gateway import EntityGateway
from dagwright_onboarding.models import Base, Effect
from dagwright_onboarding.names import name_key, words_of
from dagwright_onboarding.search_index import IndexProgress, index_next_batch
from dagwright_onboarding.verbs import OnboardingVerbs

pytestmark = pytest.mark.waits

REVISIONS = PARTIES.revisions
MIGRATIONS_FOLDER = PARTIES.folder
TABLES_BEFORE_MIGRATIONS = ("party", "party_name", "party_identifier", "role_assignment", "effect")
"""Some tables of a database from before the first migration."""
ADDED_EFFECT_COLUMNS = ("changes", "undone_at")
"""Columns that migrations have added to the table `effect`."""

INDEXES_WITHOUT_MODEL = ("party_search_by_words", "search_word_by_trigram")
"""Indexes of PostgreSQL that no model declares."""


def open_database(url: str) -> None:
    database = EntityDatabase(url)
    database.read(lambda session: session.connection())
    database.dispose()


def test_revisions_are_the_files_in_a_single_sequence() -> None:
    script = ScriptDirectory(str(MIGRATIONS_FOLDER))
    assert [revision.revision for revision in reversed(list(script.walk_revisions()))] == list(REVISIONS)
    assert [path.name[1:5] for path in sorted(MIGRATIONS_FOLDER.glob("versions/v*.py"))] == list(REVISIONS)


def test_migrations_make_the_tables_of_the_models(database: EntityDatabase) -> None:
    """A change of a model needs a revision, because only revisions change the tables of existing databases."""

    def differences(session: Session) -> list[object]:
        def is_compared(_object: object, name: str | None, object_type: str, _is_there: bool, _other: object) -> bool:
            return name in Base.metadata.tables if object_type == "table" else name not in INDEXES_WITHOUT_MODEL

        options = {"compare_type": True, "include_object": is_compared}
        context = MigrationContext.configure(session.connection(), opts=options)
        return list(compare_metadata(context, Base.metadata))

    assert database.read(differences) == []


TRIGRAM_STATEMENTS = {
    "sqlite": (
        "CREATE VIRTUAL TABLE party_trigram USING fts5(words, content='party_search', content_rowid='id',"
        " tokenize='trigram', detail=none)",
        "CREATE VIRTUAL TABLE party_trigram_count USING fts5vocab('party_trigram', 'row')",
        "CREATE TRIGGER party_search_added AFTER INSERT ON party_search BEGIN"
        " INSERT INTO party_trigram(rowid, words) VALUES (new.id, new.words); END",
    ),
    "postgresql": (
        "CREATE EXTENSION pg_trgm",
        "CREATE INDEX party_search_by_trigram ON party_search USING gin (words gin_trgm_ops)",
    ),
}
"""Statements that create the search tables and indexes of an older database, which searched names by trigrams."""


def make_trigram_database(url: str) -> None:
    make_database_before_migrations(url)
    engine = create_engine(make_url(url))
    with engine.begin() as connection:
        key = "INTEGER" if engine.dialect.name == "sqlite" else "SERIAL"
        connection.exec_driver_sql(
            f"CREATE TABLE party_search (id {key} PRIMARY KEY, party_id VARCHAR(64) NOT NULL REFERENCES party (id),"
            " name_id INTEGER NOT NULL, use VARCHAR(16) NOT NULL, core VARCHAR(1200) NOT NULL,"
            " words VARCHAR(2400) NOT NULL, word_count INTEGER NOT NULL,"
            " CONSTRAINT party_search_once UNIQUE (party_id, name_id))"
        )
        connection.exec_driver_sql("CREATE INDEX party_search_by_core ON party_search (core)")
        for statement in TRIGRAM_STATEMENTS[engine.dialect.name]:
            connection.exec_driver_sql(statement)
        connection.exec_driver_sql(
            "INSERT INTO party_search (party_id, name_id, use, core, words, word_count)"
            " VALUES ('kite', 0, 'name', 'kite', '  kite  ag ', 2)"
        )
    engine.dispose()


def make_database_before_migrations(url: str) -> None:
    Path(make_url(url).database or "").parent.mkdir(exist_ok=True)
    engine = create_engine(make_url(url))
    with engine.begin() as connection:
        Base.metadata.create_all(connection, tables=[Base.metadata.tables[name] for name in TABLES_BEFORE_MIGRATIONS])
        connection.execute(text("DROP INDEX party_identifier_by_value"))
        for column in ADDED_EFFECT_COLUMNS:
            connection.execute(text(f"ALTER TABLE effect DROP COLUMN {column}"))
        insert_party(connection, "kite", "Kite AG")
        connection.execute(text("INSERT INTO party_name VALUES (7, 'kite', 'Old Mill Ltd', 'old mill ltd', 'former')"))
        connection.execute(text("INSERT INTO effect VALUES ('key', 'cbu.ensure', '{}', '2026-01-01 00:00:00')"))
    engine.dispose()


def insert_party(connection: Connection, party_id: str, name: str, status: str = "active") -> None:
    statement = "INSERT INTO party VALUES (:id, 'company', :name, :key, '', '', '', :status, '2026-01-01 00:00:00')"
    fields = {"id": party_id, "name": name, "key": name_key(name), "status": status}
    connection.execute(text(statement), fields)


@pytest.mark.parametrize("make_database", [make_database_before_migrations, make_trigram_database])
def test_database_of_an_older_version_is_migrated_without_loss(
    database_url: str, make_database: Callable[[str], None]
) -> None:
    make_database(database_url)
    for _ in range(2):
        database = EntityDatabase(database_url)
        for search_text in ("kite", "ag kite", "mill old"):
            hits = EntityGateway(database).find(search_text, "company").hits
            assert [(party.id, party.name) for party in hits] == [("kite", "Kite AG")], search_text
        assert database.read(lambda session: session.get_one(Effect, "key").verb) == "cbu.ensure"
        with pytest.raises(ValueError, match=r"this cbu\.ensure cannot be undone: its changes were not recorded"):
            OnboardingVerbs(database).undo("key")
        assert database.read(lambda session: inspect(session.connection()).has_table("party_relation"))
        database.dispose()
    engine = create_engine(make_url(database_url))
    assert revision_of(engine, PARTIES) == REVISIONS[-1]
    engine.dispose()


PARTIES_OF_REVISION_0004 = (
    ("kite", "Kite", "active", "kite"),
    ("kite-gone", "Kite SARL", "inactive", None),
    ("blue", "Blue Harbour S.à r.l.", "active", "blue harbour"),
    ("wren", "Wren Holding Ltd", "active", "wren holding"),
    ("wren-gone", "Wren Holding AG", "inactive", None),
    ("rook", "Rook Castle GmbH", "active", "rook castle"),
    ("rook-gone", "Rook Castle SA", "inactive", "rook castle"),
)
"""Id, name, status and core (the name without its legal form) of parties in a database of revision 0004.

Inactive parties have no row in the search index, except the last party, whose row has no search words.
"""


def make_database_of_revision_0004(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(database_module, "PARTIES", replace(PARTIES, revisions=REVISIONS[:4]))
        open_database(url)
    engine = create_engine(make_url(url))
    active_words: set[str] = set()
    with engine.begin() as connection:
        for party_id, name, status, core in PARTIES_OF_REVISION_0004:
            insert_party(connection, party_id, name, status)
            words = words_of(name_key(name))
            tokens = ""
            if status == "active":
                tokens = " ".join([*words, "#company"])
                active_words.update(words)
            if core is not None:
                fields = {"id": party_id, "core": core, "tokens": tokens, "count": len(words)}
                connection.execute(
                    text(
                        "INSERT INTO party_search (party_id, name_id, use, core, tokens, word_count)"
                        " VALUES (:id, 0, 'name', :core, :tokens, :count)"
                    ),
                    fields,
                )
        for word in sorted(active_words):
            connection.execute(text("INSERT INTO search_word (word) VALUES (:word)"), {"word": word})
    assert revision_of(engine, PARTIES) == "0004"
    engine.dispose()


def test_names_are_found_in_a_migrated_database_of_revision_0004(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_database_of_revision_0004(database_url, monkeypatch)
    monkeypatch.setattr(search_index, "NAMES_PER_TRANSACTION", 2)
    database = EntityDatabase(database_url)

    def lookup(search_text: str) -> tuple[str | None, list[str]]:
        findings = EntityGateway(database).find(search_text, "company")
        match_id = findings.unambiguous_match.id if findings.unambiguous_match is not None else None
        return match_id, [party.id for party in findings.inactive_matches]

    assert lookup("Kite S.à r.l.") == (None, ["kite-gone"])
    assert lookup("Kite") == ("kite", [])
    assert lookup("Harbour Blue SARL") == ("blue", [])
    assert lookup("Holding Wren Limited") == ("wren", [])
    assert lookup("Holding Wren Aktiengesellschaft") == (None, ["wren-gone"])
    assert lookup("Castle Rook S.A.") == (None, ["rook-gone"])
    near_matches = EntityGateway(database).find("Harbor Blue", "company").near_matches
    assert [party.name for party in near_matches] == ["Blue Harbour S.à r.l."]
    assert database.index_missing_names() == 0
    database.dispose()


def test_database_of_a_newer_version_is_rejected_and_unchanged(database_url: str) -> None:
    open_database(database_url)
    engine = create_engine(make_url(database_url))
    with engine.begin() as connection:
        connection.execute(text(f"UPDATE {PARTIES.version_table} SET version_num = '9999'"))
    with pytest.raises(DatabaseUnusable) as error:
        open_database(database_url)
    assert str(error.value) == (
        "the database belongs to a newer version of Dagwright: its tables have revision 9999, and this version "
        f"supports revisions up to {REVISIONS[-1]}; use the newer version, or another database"
    )
    assert revision_of(engine, PARTIES) == "9999"
    engine.dispose()


def test_names_are_migrated_in_batches_and_an_interruption_loses_one_batch(
    database_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    make_database_before_migrations(database_url)
    engine = create_engine(make_url(database_url))
    with engine.begin() as connection:
        for number in range(20):
            insert_party(connection, f"rook{number:02}", f"Rook {number}")
    monkeypatch.setattr(search_index, "NAMES_PER_TRANSACTION", 5)
    monkeypatch.setattr(migrations, "_LOG_INTERVAL_S", 0)
    # Other tests in this process may have changed the log level.
    caplog.set_level("WARNING", logger=migrations.__name__)
    batch_progress: list[IndexProgress | None] = []

    def index_or_stop(connection: Connection, progress: IndexProgress | None) -> IndexProgress | None:
        batch_progress.append(progress)
        if len(batch_progress) == 3:
            raise KeyboardInterrupt
        return index_next_batch(connection, progress)

    pauses_s: list[float] = []
    with monkeypatch.context() as patch:
        patch.setattr(migrations, "time", SimpleNamespace(monotonic=time.monotonic, sleep=pauses_s.append))
        patch.setattr(search_index, "index_next_batch", index_or_stop)
        with pytest.raises(KeyboardInterrupt):
            open_database(database_url)
    message = "migrating the database to this version: {} of 22 names indexed"
    assert caplog.messages == [message.format(count) for count in (5, 10)]
    # Other writers get the lock of SQLite between two batches.
    assert pauses_s == ([migrations.LOCK_PAUSE_S] * 2 if database_url.startswith("sqlite") else [])
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT count(*) FROM party_search")) == 10
        assert connection.scalar(text(f"SELECT version_num FROM {PARTIES.version_table}")) == "0004"
    engine.dispose()
    database = EntityDatabase(database_url)
    gateway = EntityGateway(database)
    assert [len(gateway.find(f"{number} rook", "company").hits) for number in range(20)] == [1] * 20
    assert [hit.name for hit in gateway.find("mill old", "company").hits] == ["Kite AG"]
    database.dispose()


def test_failed_migration_leaves_the_database_unchanged(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail_migration(connection: Connection, script: object, schema: object) -> None:
        connection.execute(text("CREATE TABLE half (id INTEGER)"))
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(migrations, "_run_revision", fail_migration)
        with pytest.raises(OSError, match="no space left"):
            open_database(database_url)
    open_database(database_url)
    engine = create_engine(make_url(database_url))
    assert not inspect(engine).has_table("half")
    engine.dispose()


def test_revisions_do_not_import_the_models() -> None:
    """A revision defines the tables of its version. The models define the current tables."""
    for path in MIGRATIONS_FOLDER.glob("versions/v*.py"):
        tree = ast.parse(path.read_text())
        names = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        assert [name for name in names if (name or "").startswith("dagwright_onboarding.models")] == []


def test_database_that_is_up_to_date_is_opened_without_alembic(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'parties.db'}"
    open_database(url)
    program = (
        "import sys\nfrom dagwright_onboarding.database import EntityDatabase\n"
        "EntityDatabase(sys.argv[1]).read(lambda session: session.connection())\n"
        "print('alembic' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", program, url], capture_output=True, text=True, check=True)
    assert result.stdout == "False\n"
