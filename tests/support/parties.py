"""Searches for parties in a database, and the type of the fixture that loads parties from text."""

from collections.abc import Callable

from dagwright_onboarding.database import EntityDatabase
from dagwright_onboarding.lookup import Findings, find_parties
from dagwright_onboarding.party_loading import LoadReport

Load = Callable[[str | bytes], LoadReport]
"""Function that writes a file with a content and loads the file."""


def find(
    database: EntityDatabase, search_text: str, entity_type: str = "entity", jurisdiction: str | None = None
) -> Findings:
    return database.read(
        lambda session: find_parties(session, search_text, entity_type=entity_type, jurisdiction=jurisdiction)
    )


def find_names(database: EntityDatabase, search_text: str, entity_type: str = "entity") -> list[str]:
    return [hit.name for hit in find(database, search_text, entity_type).hits]
