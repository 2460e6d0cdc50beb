"""Finding existing parties by what people call them.

A search goes from the sure to the likely and stops at the first step that finds something: identifier or
exact name; the name with its legal form aside; all words of the text in the name; beginnings of words.
One hit is bound, several are ambiguous. Another spelling is told as near but never bound: Cohen and Chen
differ by one letter, and what is bound is changed without asking.

The names that a step can mean come from `search_index`; the steps here decide and rank.

This module must not change the store and must not import Temporal.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from rapidfuzz import fuzz
from sqlalchemy import select, union_all
from sqlalchemy.orm import Session

from dagwright.entities.catalogue import PartyKind, kind_of_entity_type
from dagwright.entities.models import NameUse, Party, PartyIdentifier, PartyName, PartyStatus
from dagwright.entities.names import clean_name, core_words, name_key, words_of
from dagwright.entities.search_index import KnownName, NameIndex

CANDIDATE_LIMIT = 10
"""Candidates that are told for one lookup; more than a person reads."""
NEAR_LIKENESS = 65.0
"""rapidfuzz ratio (0 to 100) from which a name is told as near when nothing was found."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A party that a search text may mean.

    Args:
        score: 0 to 100; 100 is the identifier or the name itself.
        reason: why it was found, in words.
    """

    id: str
    name: str
    kind: str
    jurisdiction: str | None
    score: float
    reason: str


@dataclass(frozen=True, slots=True)
class Findings:
    """Result of one search: the parties the text can mean, and, if there are none, those that come near."""

    hits: tuple[Candidate, ...]
    near: tuple[Candidate, ...] = ()


@dataclass(frozen=True, slots=True)
class _Text:
    """What is searched for, taken apart once."""

    raw: str
    key: str
    words: tuple[str, ...]
    core: tuple[str, ...]


class PartyFinder:
    """Searches one view of the store."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def find(self, search_text: str, entity_type: str) -> Findings:
        """Returns the parties of a type that a text can mean, best first.

        Args:
            search_text: an identifier, a name, an alias or a part of one.
            entity_type: see `plan.entity_types.KIND_OF`; `entity` means any.

        Raises:
            ValueError: the text is empty or too long, or the type unknown.
        """
        kind = kind_of_entity_type(entity_type)
        text = _checked_text(search_text)
        exact = self._exact(text)
        hits = _of_kind(exact, kind)
        if not hits:
            names = NameIndex(self._session, kind=kind)
            hits = next((found for found in (step(text, names) for step in _STEPS) if found), [])
            if not hits:
                return Findings((), tuple(_ranked([*_wrong_kind(exact), *_near(text, names)])))
        return Findings(tuple(_ranked(hits)))

    def _exact(self, text: _Text) -> list[Candidate]:
        identified = self._session.scalars(
            select(Party)
            .join(PartyIdentifier)
            .where(PartyIdentifier.value == text.raw.upper(), Party.status == PartyStatus.ACTIVE)
        ).all()
        if identified:
            return [_candidate_of(party, "identifier") for party in identified]
        by_name = select(Party.id, Party.name_key.label("key")).where(Party.name_key == text.key)
        by_other_name = select(PartyName.party_id, PartyName.name_key).where(PartyName.name_key == text.key)
        ids = union_all(by_name, by_other_name).subquery()
        parties = self._session.scalars(
            select(Party).where(Party.id.in_(select(ids.c.id)), Party.status == PartyStatus.ACTIVE)
        ).all()
        return [_candidate_of(party, "exact name" if party.name_key == text.key else "other name") for party in parties]


def find_parties(session: Session, search_text: str, *, entity_type: str) -> Findings:
    """Returns the parties of a type that a text can mean; see `PartyFinder.find`."""
    return PartyFinder(session).find(search_text, entity_type)


Step = Callable[[_Text, NameIndex], list[Candidate]]


def _same_core(text: _Text, names: NameIndex) -> list[Candidate]:
    return [
        _candidate(known, 97, "the name, legal form aside")
        for known in names.same_core(text.core)
        if known.core == text.core
    ]


def _all_words(text: _Text, names: NameIndex) -> list[Candidate]:
    wanted = set(text.words)
    return [
        _candidate(known, 85 + 10 * len(wanted) / len(known.words), "has all these words")
        for known in names.all_words(text.words)
        if wanted <= set(known.words)
    ]


def _beginnings(text: _Text, names: NameIndex) -> list[Candidate]:
    return [
        _candidate(known, 80, "words begin like this")
        for known in names.beginnings(text.words)
        if _begin(text.words, known.words)
    ]


_STEPS: tuple[Step, ...] = (_same_core, _all_words, _beginnings)
"""From the sure to the likely; the first that finds something ends the search."""


def _near(text: _Text, names: NameIndex) -> list[Candidate]:
    rated = ((known, _likeness(text, known)) for known in names.near(text.core))
    return [_candidate(known, likeness, "another spelling") for known, likeness in rated if likeness >= NEAR_LIKENESS]


def _likeness(text: _Text, known: KnownName) -> float:
    """Returns 0 to 100: how alike two names are, whatever the order of their words and their legal form."""
    return fuzz.token_sort_ratio(" ".join(text.core), " ".join(known.core))


def _begin(beginnings: Sequence[str], words: Sequence[str]) -> bool:
    """Returns whether each beginning starts a word of its own, in the order of the words."""
    position = 0
    for beginning in beginnings:
        while position < len(words) and not words[position].startswith(beginning):
            position += 1
        if position == len(words):
            return False
        position += 1
    return bool(beginnings)


def _candidate(known: KnownName, score: float, reason: str) -> Candidate:
    jurisdiction = known.jurisdiction or None
    return Candidate(known.id, known.name, known.kind, jurisdiction, round(score, 1), _because(reason, known.use))


def _because(reason: str, use: str) -> str:
    if use == NameUse.FORMER:
        return f"{reason} (a former name)"
    return f"{reason} (an alias)" if use == NameUse.ALIAS else reason


def _candidate_of(party: Party, reason: str) -> Candidate:
    return Candidate(party.id, party.name, party.kind, party.jurisdiction or None, 100, reason)


def _of_kind(candidates: Iterable[Candidate], kind: PartyKind | None) -> list[Candidate]:
    return [candidate for candidate in candidates if kind is None or candidate.kind == kind]


def _wrong_kind(exact: Iterable[Candidate]) -> list[Candidate]:
    """Candidates of another type than asked for; only called when none has the right one."""
    return [
        Candidate(found.id, found.name, found.kind, found.jurisdiction, found.score, f"is a {found.kind}")
        for found in exact
    ]


def _ranked(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Returns the best candidate of each party, best first; equal ones by name, jurisdiction and id."""
    best: dict[str, Candidate] = {}
    for candidate in candidates:
        held = best.get(candidate.id)
        if held is None or candidate.score > held.score:
            best[candidate.id] = candidate
    order = sorted(best.values(), key=lambda found: (-found.score, found.name, found.jurisdiction or "", found.id))
    return order[:CANDIDATE_LIMIT]


def _checked_text(search_text: str) -> _Text:
    raw = clean_name(search_text, "search_text")
    key = name_key(raw)
    words = words_of(key)
    if not words:
        raise ValueError(f"search_text {raw!r} holds no letter or digit")
    return _Text(raw, key, words, core_words(key))
