"""Parties in a database: loading from text, and searches."""

from collections.abc import Callable
from pathlib import Path

from dagwright_onboarding.database import EntityDatabase
from dagwright_onboarding.lookup import Findings, find_parties
from dagwright_onboarding.party_loading import LoadReport, load_parties

Load = Callable[[str | bytes], LoadReport]
"""Function that writes a file with a content and loads the file."""


def loader(database: EntityDatabase, folder: Path) -> Load:
    def load(content: str | bytes) -> LoadReport:
        return load_parties(database, write_parties(folder, content))

    return load


def write_parties(folder: Path, content: str | bytes) -> Path:
    path = folder / "parties.csv"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def find(
    database: EntityDatabase, search_text: str, entity_type: str = "entity", jurisdiction: str | None = None
) -> Findings:
    return database.read(
        lambda session: find_parties(session, search_text, entity_type=entity_type, jurisdiction=jurisdiction)
    )


def find_names(database: EntityDatabase, search_text: str, entity_type: str = "entity") -> list[str]:
    return [hit.name for hit in find(database, search_text, entity_type).hits]
