"""Agents that were added at run time, in the database: cards that never change, one version after the other.

What is removed stays for the runs that were checked with it. Imports SQLAlchemy: `finding` says whether that is needed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import JSON, DateTime, String, UniqueConstraint, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from dagwright.core.model.agent_cards import NAME_BYTES, AgentCard, card_from_json
from dagwright.database.database import Database
from dagwright.database.migrations import Schema

TABLE = "agent_card"
AGENTS = Schema(
    folder=Path(__file__).parent / "migrations", revisions=("0001",), version_table="dagwright_agents_schema"
)


class Base(DeclarativeBase):
    """The metadata of the table of agents."""


class StoredCard(Base):
    """One version of the card of an agent. Natural key: its name and number."""

    __tablename__ = TABLE
    __table_args__ = (UniqueConstraint("name", "number", name="agent_card_version"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(NAME_BYTES))
    number: Mapped[int]
    """1 for the first; the newest counts."""
    version: Mapped[str] = mapped_column(String(12))
    """Of the card, as `AgentCard.version`."""
    card: Mapped[dict[str, Any]] = mapped_column(JSON)
    added_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    removed_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))


@dataclass(frozen=True, slots=True)
class AgentVersion:
    """One version of an agent, as it is told.

    Args:
        number: 1 for the first.
        is_current: whether new plans get it.
    """

    card: AgentCard
    number: int
    added_at: datetime
    is_current: bool


@dataclass(frozen=True, slots=True)
class Added:
    """What became of a card that was added.

    Args:
        is_new: false if its newest version said the same already.
    """

    name: str
    number: int
    is_new: bool


class StoredAgents:
    """The agents in a database with the schema `AGENTS`; nothing is opened before the first use."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, cards: Sequence[AgentCard]) -> list[Added]:
        """Adds cards, all or none of them, each as a new version unless the newest one says the same."""
        return self._database.write(lambda session: [_added(session, card) for card in cards])

    def current(self) -> list[AgentVersion]:
        """Returns the agents that new plans get, by name."""
        return self._database.read(lambda session: [each for each in _versions(session) if each.is_current])

    def versions(self, name: str) -> list[AgentVersion]:
        """Returns all versions of an agent, the newest first; none if it was never added."""
        known = self._database.read(_versions)
        return [each for each in reversed(known) if each.card.name == name]

    def card(self, name: str, version: str | None) -> AgentCard | None:
        """Returns a card by its name and version, also one that was removed; `None` if there is none.

        Args:
            version: `None` for the newest.
        """
        found = self.versions(name)
        return next((each.card for each in found if version in (None, each.card.version)), None)

    def remove(self, name: str) -> bool:
        """Removes an agent for new plans; returns whether it was there."""
        return self._database.write(lambda session: _removed(session, name))


def _added(session: Session, card: AgentCard) -> Added:
    newest = _newest(session, card.name)
    if newest is not None and newest.removed_at is None and newest.version == card.version:
        return Added(card.name, newest.number, is_new=False)
    number = newest.number + 1 if newest is not None else 1
    row = StoredCard(
        name=card.name, number=number, version=card.version, card=card.to_json(), added_at=datetime.now(UTC)
    )
    session.add(row)
    session.flush()
    return Added(card.name, number, is_new=True)


def _removed(session: Session, name: str) -> bool:
    newest = _newest(session, name)
    if newest is None or newest.removed_at is not None:
        return False
    newest.removed_at = datetime.now(UTC)
    return True


def _newest(session: Session, name: str) -> StoredCard | None:
    asked = select(StoredCard).where(StoredCard.name == name).order_by(StoredCard.number.desc()).limit(1)
    return session.scalars(asked).first()


def _versions(session: Session) -> list[AgentVersion]:
    rows = list(session.scalars(select(StoredCard).order_by(StoredCard.name, StoredCard.number)))
    newest = {row.name: row.number for row in rows}
    return [
        AgentVersion(
            card_from_json(row.card),
            row.number,
            row.added_at.replace(tzinfo=row.added_at.tzinfo or UTC),
            is_current=row.removed_at is None and row.number == newest[row.name],
        )
        for row in rows
    ]
