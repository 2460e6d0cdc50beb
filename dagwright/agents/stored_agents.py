"""Agents that were added at run time: immutable, versioned cards in the database.

Removed cards are kept, because plans may have been checked against them. This module imports SQLAlchemy, so
`agent_database` imports it only if the database may have agents.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import JSON, DateTime, String, UniqueConstraint, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from dagwright.core.model.agents import NAME_BYTES, AgentCard, card_from_json
from dagwright.database.database import Database
from dagwright.database.migrations import Schema

TABLE = "agent_card"
AGENTS = Schema(
    folder=Path(__file__).parent / "migrations", revisions=("0001",), version_table="dagwright_agents_schema"
)


class Base(DeclarativeBase):
    """Metadata of the table of agents."""


class StoredCard(Base):
    """One version of the card of an agent. Natural key: name and number."""

    __tablename__ = TABLE
    __table_args__ = (UniqueConstraint("name", "number", name="agent_card_version"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(NAME_BYTES))
    number: Mapped[int]
    """1 for the first version. New plans use the newest version."""
    version: Mapped[str] = mapped_column(String(12))
    """`AgentCard.version` of the card."""
    card: Mapped[dict[str, Any]] = mapped_column(JSON)
    added_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    removed_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))


@dataclass(frozen=True, slots=True)
class AgentVersion:
    """A stored version of an agent.

    Args:
        number: 1 for the first version.
        is_current: whether new plans use this version.
    """

    card: AgentCard
    number: int
    added_at: datetime
    is_current: bool


@dataclass(frozen=True, slots=True)
class AddResult:
    """Outcome of adding a card.

    Args:
        is_new: false if the newest version has the same content.
    """

    name: str
    number: int
    is_new: bool


class StoredAgents:
    """Agents in a database with the schema `AGENTS`; the database is opened on first use."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, cards: Sequence[AgentCard]) -> list[AddResult]:
        """Add cards, all or none. A card becomes a new version unless the newest version has the same content."""
        return self._database.write(lambda session: [_add_card(session, card) for card in cards])

    def current_versions(self) -> list[AgentVersion]:
        """Return the agents that new plans use, sorted by name."""
        return self._database.read(lambda session: [version for version in _versions(session) if version.is_current])

    def versions(self, name: str) -> list[AgentVersion]:
        """Return all versions of an agent, newest first; empty if the agent was never added."""
        known_versions = self._database.read(_versions)
        return [version for version in reversed(known_versions) if version.card.name == name]

    def card(self, name: str, version: str | None) -> AgentCard | None:
        """Return a card by name and version, even if the card was removed; `None` if there is no such card.

        Args:
            version: `None` for the newest version.
        """
        cards = (agent_version.card for agent_version in self.versions(name))
        return next((card for card in cards if version in (None, card.version)), None)

    def remove(self, name: str) -> bool:
        """Remove an agent for new plans; return whether it existed."""
        return self._database.write(lambda session: _remove_card(session, name))


def _add_card(session: Session, card: AgentCard) -> AddResult:
    newest_card = _newest_card(session, card.name)
    if newest_card is not None and newest_card.removed_at is None and newest_card.version == card.version:
        return AddResult(card.name, newest_card.number, is_new=False)
    number = newest_card.number + 1 if newest_card is not None else 1
    row = StoredCard(
        name=card.name, number=number, version=card.version, card=card.to_json(), added_at=datetime.now(UTC)
    )
    session.add(row)
    session.flush()
    return AddResult(card.name, number, is_new=True)


def _remove_card(session: Session, name: str) -> bool:
    newest_card = _newest_card(session, name)
    if newest_card is None or newest_card.removed_at is not None:
        return False
    newest_card.removed_at = datetime.now(UTC)
    return True


def _newest_card(session: Session, name: str) -> StoredCard | None:
    query = select(StoredCard).where(StoredCard.name == name).order_by(StoredCard.number.desc()).limit(1)
    return session.scalars(query).first()


def _versions(session: Session) -> list[AgentVersion]:
    rows = list(session.scalars(select(StoredCard).order_by(StoredCard.name, StoredCard.number)))
    newest_numbers = {row.name: row.number for row in rows}
    return [
        AgentVersion(
            card_from_json(row.card),
            row.number,
            row.added_at.replace(tzinfo=row.added_at.tzinfo or UTC),
            is_current=row.removed_at is None and row.number == newest_numbers[row.name],
        )
        for row in rows
    ]
