"""Tables of the entity store: parties, what they are called, what links them, and the effects that were done.

The unique constraints are what makes the verbs safe when several run at once, so each natural key has one.
Texts that may be unknown are empty rather than NULL, because NULLs never collide. This module must not
import the verbs or Temporal.
"""

from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import JSON, CheckConstraint, DateTime, ForeignKey, Index, String, UniqueConstraint, text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

from dagwright_onboarding.text_formats import NAME_LIMIT

ID_LIMIT = 64
"""Characters of a party id."""
KEY_LIMIT = 128
"""Characters of an idempotency key."""


def _now() -> datetime:
    return datetime.now(UTC)


class PartyStatus(StrEnum):
    """Whether a party can be found and used."""

    ACTIVE = "active"
    INACTIVE = "inactive"


class NameUse(StrEnum):
    """Why a party answers to another name."""

    ALIAS = "alias"
    FORMER = "former"


class RelationKind(StrEnum):
    """How a fund is linked to another party."""

    PARENT = "parent"
    MANCO = "manco"
    RELATED = "related"


class Base(DeclarativeBase):
    """The metadata of the entity store."""


class Party(Base):
    """A person, a company or a fund. Natural key: kind, name key, jurisdiction, distinguisher."""

    __tablename__ = "party"
    __table_args__ = (
        UniqueConstraint("kind", "name_key", "jurisdiction", "distinguisher", name="party_natural_key"),
        CheckConstraint("kind IN ('person', 'company', 'fund')", name="party_kind"),
        CheckConstraint("status IN ('active', 'inactive')", name="party_status"),
        Index("party_by_name_key", "name_key"),
    )

    id: Mapped[str] = mapped_column(String(ID_LIMIT), primary_key=True)
    kind: Mapped[str] = mapped_column(String(16))
    name: Mapped[str] = mapped_column(String(NAME_LIMIT))
    name_key: Mapped[str] = mapped_column(String(4 * NAME_LIMIT))
    """`names.name_key` of the name; casefolding can lengthen a text."""
    jurisdiction: Mapped[str] = mapped_column(String(8), default="")
    """ISO 3166 code; empty if not known."""
    distinguisher: Mapped[str] = mapped_column(String(40), default="")
    """Tells apart persons of one name and jurisdiction: the date of birth; empty for organisations."""
    client_type: Mapped[str] = mapped_column(String(40), default="")
    """Of a fund; empty for other kinds."""
    status: Mapped[str] = mapped_column(String(16), default=PartyStatus.ACTIVE)
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True), default=_now)

    other_names: Mapped[list["PartyName"]] = relationship(back_populates="party", order_by="PartyName.id")
    identifiers: Mapped[list["PartyIdentifier"]] = relationship(back_populates="party", order_by="PartyIdentifier.id")


class PartyName(Base):
    """A further name that a party answers to."""

    __tablename__ = "party_name"
    __table_args__ = (
        UniqueConstraint("party_id", "name_key", name="party_name_once"),
        Index("party_name_by_key", "name_key"),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    party_id: Mapped[str] = mapped_column(ForeignKey("party.id"))
    name: Mapped[str] = mapped_column(String(NAME_LIMIT))
    name_key: Mapped[str] = mapped_column(String(4 * NAME_LIMIT))
    use: Mapped[str] = mapped_column(String(16), default=NameUse.ALIAS)

    party: Mapped[Party] = relationship(back_populates="other_names")


class PartyIdentifier(Base):
    """A number that a register gave to a party; a number belongs to one party only."""

    __tablename__ = "party_identifier"
    __table_args__ = (
        UniqueConstraint("scheme", "value", name="party_identifier_once"),
        Index("party_identifier_by_party", "party_id"),
        Index("party_identifier_by_value", "value"),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    party_id: Mapped[str] = mapped_column(ForeignKey("party.id"))
    scheme: Mapped[str] = mapped_column(String(16))
    """`LEI` for now."""
    value: Mapped[str] = mapped_column(String(64))

    party: Mapped[Party] = relationship(back_populates="identifiers")


class PartySearch(Base):
    """One name of one party as searches need it; `search_index` writes it whenever the name is written."""

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
    core: Mapped[str] = mapped_column(String(4 * NAME_LIMIT))
    """`names.core_words`, of a person all words, as `search_index.core_of` puts them together."""
    tokens: Mapped[str] = mapped_column(String(8 * NAME_LIMIT))
    """`names.words_of` and behind them `search_index.party_tags`, with a space between each two; empty if the party is
    inactive."""
    word_count: Mapped[int] = mapped_column()


class SearchWord(Base):
    """A word that a name has, or had: what is misspelt is compared with these."""

    __tablename__ = "search_word"
    __table_args__ = (UniqueConstraint("word", name="search_word_once"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    word: Mapped[str] = mapped_column(String(4 * NAME_LIMIT))


class RoleAssignment(Base):
    """`entity` has `role` at `cbu`, which is a fund or a company."""

    __tablename__ = "role_assignment"
    __table_args__ = (
        UniqueConstraint("cbu_id", "entity_id", "role", name="role_assignment_once"),
        Index("role_assignment_by_entity", "entity_id"),
    )

    id: Mapped[str] = mapped_column(String(ID_LIMIT), primary_key=True)
    cbu_id: Mapped[str] = mapped_column(ForeignKey("party.id"))
    entity_id: Mapped[str] = mapped_column(ForeignKey("party.id"))
    role: Mapped[str] = mapped_column(String(40))
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True), default=_now)


class ProductSubscription(Base):
    """A fund uses a product."""

    __tablename__ = "product_subscription"
    __table_args__ = (UniqueConstraint("cbu_id", "product", name="product_subscription_once"),)

    id: Mapped[str] = mapped_column(String(ID_LIMIT), primary_key=True)
    cbu_id: Mapped[str] = mapped_column(ForeignKey("party.id"))
    product: Mapped[str] = mapped_column(String(40))
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True), default=_now)


class Relation(Base):
    """`to` is the parent or the management company of `from`, or is related to it."""

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

    id: Mapped[str] = mapped_column(String(ID_LIMIT), primary_key=True)
    from_id: Mapped[str] = mapped_column(ForeignKey("party.id"))
    to_id: Mapped[str] = mapped_column(ForeignKey("party.id"))
    kind: Mapped[str] = mapped_column(String(16))
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True), default=_now)


class Effect(Base):
    """A change that was made under an idempotency key, written in the transaction of the change.

    One that was undone stays: under its key nothing is ever done again.
    """

    __tablename__ = "effect"

    key: Mapped[str] = mapped_column(String(KEY_LIMIT), primary_key=True)
    verb: Mapped[str] = mapped_column(String(64))
    result: Mapped[dict[str, Any]] = mapped_column(JSON)
    """What the call gave back; of one that was undone, what the undo gave back."""
    changes: Mapped[list[dict[str, Any]] | None] = mapped_column(JSON(none_as_null=True))
    """`effects.Change` of each row, in the order of the changes; null where nobody took them down."""
    at: Mapped[datetime] = mapped_column(DateTime(timezone=True), default=_now)
    undone_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))


class EffectRow(Base):
    """A row that an effect changed or found, and so relies on: others cannot take it back while the effect stands."""

    __tablename__ = "effect_row"
    __table_args__ = (Index("effect_row_by_row", "row_id"),)

    key: Mapped[str] = mapped_column(ForeignKey("effect.key"), primary_key=True)
    row_id: Mapped[str] = mapped_column(String(2 * ID_LIMIT), primary_key=True)
    """Of a party, a role, a product or a link; with a dot and a column's name, that column of the row."""
