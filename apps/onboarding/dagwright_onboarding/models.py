"""Tables of the entity store: parties, their names, links between them, and the log of verb calls.

Each natural key has a unique constraint, which makes concurrent verbs safe. Unknown texts are empty rather than NULL,
because unique constraints ignore NULLs. This module must not import the verbs or Temporal.
"""

from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import JSON, CheckConstraint, DateTime, ForeignKey, Index, String, UniqueConstraint, text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

from dagwright_onboarding.text_formats import MAX_NAME_CHARACTERS

MAX_ID_CHARACTERS = 64
"""Maximum number of characters of a party id."""
MAX_KEY_CHARACTERS = 128
"""Maximum number of characters of an idempotency key."""


def _now() -> datetime:
    return datetime.now(UTC)


class PartyStatus(StrEnum):
    """Whether lookups find a party and verbs accept it."""

    ACTIVE = "active"
    INACTIVE = "inactive"


class NameUse(StrEnum):
    """Type of an additional name."""

    ALIAS = "alias"
    FORMER = "former"


class RelationKind(StrEnum):
    """How a fund is linked to another party."""

    PARENT = "parent"
    MANCO = "manco"
    """The other party is the management company of the fund."""
    RELATED = "related"


class Base(DeclarativeBase):
    """Base class of the tables of the entity store."""


class Party(Base):
    """A person, a company or a fund. Natural key: kind, name key, jurisdiction, distinguisher."""

    __tablename__ = "party"
    __table_args__ = (
        UniqueConstraint("kind", "name_key", "jurisdiction", "distinguisher", name="party_natural_key"),
        CheckConstraint("kind IN ('person', 'company', 'fund')", name="party_kind"),
        CheckConstraint("status IN ('active', 'inactive')", name="party_status"),
        Index("party_by_name_key", "name_key"),
    )

    id: Mapped[str] = mapped_column(String(MAX_ID_CHARACTERS), primary_key=True)
    kind: Mapped[str] = mapped_column(String(16))
    name: Mapped[str] = mapped_column(String(MAX_NAME_CHARACTERS))
    name_key: Mapped[str] = mapped_column(String(4 * MAX_NAME_CHARACTERS))
    """`names.name_key` of the name. The limit is higher, because casefolding can lengthen a text."""
    jurisdiction: Mapped[str] = mapped_column(String(8), default="")
    """ISO 3166 code; empty if unknown."""
    distinguisher: Mapped[str] = mapped_column(String(40), default="")
    """Date of birth, which distinguishes persons of the same name and jurisdiction; empty for organisations."""
    client_type: Mapped[str] = mapped_column(String(40), default="")
    """Client type of a fund; empty for other kinds."""
    status: Mapped[str] = mapped_column(String(16), default=PartyStatus.ACTIVE)
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True), default=_now)

    other_names: Mapped[list["PartyName"]] = relationship(back_populates="party", order_by="PartyName.id")
    identifiers: Mapped[list["PartyIdentifier"]] = relationship(back_populates="party", order_by="PartyIdentifier.id")


class PartyName(Base):
    """An additional name of a party."""

    __tablename__ = "party_name"
    __table_args__ = (
        UniqueConstraint("party_id", "name_key", name="party_name_once"),
        Index("party_name_by_key", "name_key"),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    party_id: Mapped[str] = mapped_column(ForeignKey("party.id"))
    name: Mapped[str] = mapped_column(String(MAX_NAME_CHARACTERS))
    name_key: Mapped[str] = mapped_column(String(4 * MAX_NAME_CHARACTERS))
    use: Mapped[str] = mapped_column(String(16), default=NameUse.ALIAS)

    party: Mapped[Party] = relationship(back_populates="other_names")


class PartyIdentifier(Base):
    """A number that a register assigned to a party; each number belongs to one party."""

    __tablename__ = "party_identifier"
    __table_args__ = (
        UniqueConstraint("scheme", "value", name="party_identifier_once"),
        Index("party_identifier_by_party", "party_id"),
        Index("party_identifier_by_value", "value"),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    party_id: Mapped[str] = mapped_column(ForeignKey("party.id"))
    scheme: Mapped[str] = mapped_column(String(16))
    """Currently always `LEI`."""
    value: Mapped[str] = mapped_column(String(64))

    party: Mapped[Party] = relationship(back_populates="identifiers")


class PartySearch(Base):
    """A searchable name of a party; `search_index` updates the row when the name changes."""

    __tablename__ = "party_search"
    __table_args__ = (
        UniqueConstraint("party_id", "name_id", name="party_search_once"),
        Index("party_search_by_core", "core"),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    party_id: Mapped[str] = mapped_column(ForeignKey("party.id"))
    name_id: Mapped[int] = mapped_column()
    """`PartyName.id`; 0 for the party's own name."""
    use: Mapped[str] = mapped_column(String(16))
    """`name` for the party's own name, else a `NameUse`."""
    core: Mapped[str] = mapped_column(String(4 * MAX_NAME_CHARACTERS))
    """Sorted words of the name without its legal form; for a person, all words."""
    tokens: Mapped[str] = mapped_column(String(8 * MAX_NAME_CHARACTERS))
    """`names.words_of`, then `search_index.party_tags`, separated by spaces; empty if the party is inactive."""
    word_count: Mapped[int] = mapped_column()


class SearchWord(Base):
    """A word of a current or former name; misspelt words are compared with the words of this table."""

    __tablename__ = "search_word"
    __table_args__ = (UniqueConstraint("word", name="search_word_once"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    word: Mapped[str] = mapped_column(String(4 * MAX_NAME_CHARACTERS))


class RoleAssignment(Base):
    """`entity` has `role` at `cbu`, a client business unit: a fund or a company."""

    __tablename__ = "role_assignment"
    __table_args__ = (
        UniqueConstraint("cbu_id", "entity_id", "role", name="role_assignment_once"),
        Index("role_assignment_by_entity", "entity_id"),
    )

    id: Mapped[str] = mapped_column(String(MAX_ID_CHARACTERS), primary_key=True)
    cbu_id: Mapped[str] = mapped_column(ForeignKey("party.id"))
    entity_id: Mapped[str] = mapped_column(ForeignKey("party.id"))
    role: Mapped[str] = mapped_column(String(40))
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True), default=_now)


class ProductSubscription(Base):
    """A fund uses a product."""

    __tablename__ = "product_subscription"
    __table_args__ = (UniqueConstraint("cbu_id", "product", name="product_subscription_once"),)

    id: Mapped[str] = mapped_column(String(MAX_ID_CHARACTERS), primary_key=True)
    cbu_id: Mapped[str] = mapped_column(ForeignKey("party.id"))
    product: Mapped[str] = mapped_column(String(40))
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True), default=_now)


class Relation(Base):
    """`to` is the parent or the management company of `from`, or is related to `from`."""

    __tablename__ = "party_relation"
    __table_args__ = (
        UniqueConstraint("from_id", "to_id", "kind", name="party_relation_once"),
        Index(
            "party_relation_one_manco",
            "from_id",
            unique=True,
            sqlite_where=text("kind = 'manco'"),
            postgresql_where=text("kind = 'manco'"),
        ),
        Index("party_relation_by_target", "to_id"),
    )

    id: Mapped[str] = mapped_column(String(MAX_ID_CHARACTERS), primary_key=True)
    from_id: Mapped[str] = mapped_column(ForeignKey("party.id"))
    to_id: Mapped[str] = mapped_column(ForeignKey("party.id"))
    kind: Mapped[str] = mapped_column(String(16))
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True), default=_now)


class Effect(Base):
    """The record of a verb call under its idempotency key, written in the transaction of the change.

    The record of an undone call stays, so a call with the same key never takes effect.
    """

    __tablename__ = "effect"

    key: Mapped[str] = mapped_column(String(MAX_KEY_CHARACTERS), primary_key=True)
    verb: Mapped[str] = mapped_column(String(64))
    result: Mapped[dict[str, Any]] = mapped_column(JSON)
    """Result of the call; for an undone call, result of the undo."""
    changes: Mapped[list[dict[str, Any]] | None] = mapped_column(JSON(none_as_null=True))
    """One record (`effects.RecordedChange`) per changed row, in order; null if the changes were not recorded."""
    at: Mapped[datetime] = mapped_column(DateTime(timezone=True), default=_now)
    undone_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))


class EffectRow(Base):
    """A row, or a column of a row, that a call changed or relies on.

    Until this call is undone, the undo of another call cannot remove the row or reset the column.
    """

    __tablename__ = "effect_row"
    __table_args__ = (Index("effect_row_by_row", "row_id"),)

    key: Mapped[str] = mapped_column(ForeignKey("effect.key"), primary_key=True)
    row_id: Mapped[str] = mapped_column(String(2 * MAX_ID_CHARACTERS), primary_key=True)
    """`ID` of the row (party, role, product or link), or `ID.COLUMN` for one of its columns."""
