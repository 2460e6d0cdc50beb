"""Finding existing parties by what people call them.

A search goes from the sure to the likely and stops at the first step that finds something: identifier or
exact name; all of the name, in any order and with its legal form aside; all words of the text in the name; beginnings
of words.
One hit is bound if the text is the whole of an identifier or a name, and not if it is a part or a beginning of one:
John Smith is not John Smithson, and what is bound is changed without asking. Nor is Kite SARL Kite GmbH: a legal form
is aside where one of two names has none. Several hits are ambiguous. Another spelling is told as near: Cohen and Chen
differ by one letter.

The names that a step can mean come from `name_search`; the steps here decide and rank.

This module must not change the store and must not import Temporal.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from sqlalchemy import ColumnElement, CompoundSelect, Select, func, select, union_all
from sqlalchemy.orm import Session

from dagwright_onboarding.catalogue import PartyKind
from dagwright_onboarding.entity_types import RESOLVER
from dagwright_onboarding.jurisdictions import jurisdiction_of
from dagwright_onboarding.models import NameUse, Party, PartyIdentifier, PartyName, PartySearch, PartyStatus
from dagwright_onboarding.name_search import NAMES_TOLD, KnownName, NameIndex, is_within
from dagwright_onboarding.names import (
    clean_name,
    core_words,
    identifier_key,
    is_legal_form,
    legal_form,
    name_key,
    words_of,
)
from dagwright_onboarding.search_index import OWN_NAME, core_of
from dagwright_onboarding.spelling import likeness_of
from dagwright_onboarding.terms import TermNames

CANDIDATE_LIMIT = 10
"""Candidates that are told for one lookup; more than a person reads."""
ROLES_TOLD = 3
"""Roles that are told of one candidate; enough to know a person by."""
_EXACT_READ = 1_000
"""Parties of one name that are put in order; of a name that more have, the best of so many are told."""
ENOUGH_NEAR = 5
"""Names with all words, spelt otherwise, from which those that lack one are not looked for."""
NEAR_LIKENESS = 65.0
"""rapidfuzz ratio (0 to 100) from which a name is told as near when nothing was found."""


@dataclass(frozen=True, slots=True)
class Identifier:
    """A number that a register gave to a party, such as its `LEI`."""

    scheme: str
    value: str


@dataclass(frozen=True, slots=True)
class Candidate:
    """A party that a search text may mean, with what tells it apart from others of its name.

    Args:
        jurisdiction: ISO 3166 code, None if not known.
        score: 0 to 100; 100 is the identifier or the name itself.
        reason: why it was found, in words.
        binds: whether it is bound without asking if it is the only hit.
        identifiers: by scheme and value.
        roles: at most `ROLES_TOLD` of those it holds, such as `DIRECTOR at Apex Fund`, the latest first.
        born: date of birth of a person, if it is known.
    """

    id: str
    name: str
    kind: str
    jurisdiction: str | None
    score: float
    reason: str
    binds: bool = False
    identifiers: tuple[Identifier, ...] = ()
    roles: tuple[str, ...] = ()
    born: str | None = None


@dataclass(frozen=True, slots=True)
class Findings:
    """Result of one search.

    Args:
        hits: the parties the text can mean, best first.
        near: those that come near, if there are no hits.
        inactive: those that cannot be used any more of just this identifier or name, its words in any order and its
            legal form in any spelling.
    """

    hits: tuple[Candidate, ...]
    near: tuple[Candidate, ...] = ()
    inactive: tuple[Candidate, ...] = ()

    @property
    def bound(self) -> Candidate | None:
        """The party that the text means for sure, None if a person has to say which."""
        return self.hits[0] if len(self.hits) == 1 and self.hits[0].binds else None


@dataclass(frozen=True, slots=True)
class _Text:
    """What is searched for, taken apart once."""

    raw: str
    key: str
    words: tuple[str, ...]
    core: tuple[str, ...]
    form: tuple[str, ...]

    def is_whole(self, known: KnownName) -> bool:
        """Returns whether this is all of a name, in any order; of organisations the legal form may differ."""
        if known.kind not in _WITH_LEGAL_FORM:
            return sorted(known.words) == sorted(self.words)
        return sorted(known.core) == sorted(self.core) and not is_legal_form(self.key)

    def is_of_form(self, known: KnownName) -> bool:
        """Returns whether a name has the legal form that is written here, or none as here; of persons there is none."""
        return known.kind not in _WITH_LEGAL_FORM or _form_of(known) == self.form


@dataclass(frozen=True, slots=True)
class _Asked:
    """What the parties must be besides their names; None is any."""

    kinds: tuple[str, ...] | None
    jurisdiction: str | None

    def why_not(self, found: Candidate) -> str | None:
        """Returns in words what a candidate is instead, None if it is what was asked for."""
        if self.kinds is not None and found.kind not in self.kinds:
            return f"is a {found.kind}"
        if self.jurisdiction is None or is_within(found.jurisdiction or "", self.jurisdiction):
            return None
        return f"is of {found.jurisdiction}" if found.jurisdiction else "has no known jurisdiction"

    def takes(self, party: Party) -> bool:
        """Returns whether a party is what was asked for."""
        within = self.jurisdiction is None or is_within(party.jurisdiction, self.jurisdiction)
        return within and (self.kinds is None or party.kind in self.kinds)

    def conditions(self) -> list[ColumnElement[bool]]:
        """Returns the same for the database."""
        conditions: list[ColumnElement[bool]] = []
        if self.kinds is not None:
            conditions.append(Party.kind.in_(self.kinds))
        if self.jurisdiction is not None:
            within = Party.jurisdiction.startswith(f"{self.jurisdiction}-")
            conditions.append((Party.jurisdiction == self.jurisdiction) | within)
        return conditions


_ANY = _Asked(None, None)
_WITH_LEGAL_FORM = (PartyKind.COMPANY, PartyKind.FUND)
_FORM_ASIDE, _ANY_ORDER = "the name, legal form aside", "has just these words"
_IDENTIFIER, _ITS_ID, _EXACT_NAME, _OTHER_NAME = "identifier", "its id", "exact name", "other name"
_BEYOND_DOUBT = (_IDENTIFIER, _ITS_ID, _EXACT_NAME)
"""Reasons that hold even where an inactive party has the name too."""


@dataclass(frozen=True, slots=True)
class _Exact:
    """Parties of an identifier, an id or a name."""

    active: list[Candidate]
    inactive: list[Candidate]

    @classmethod
    def of(cls, found: Sequence[tuple[Party, str]]) -> "_Exact":
        parted: dict[bool, list[Candidate]] = {True: [], False: []}
        for party, reason in found:
            told = Candidate(party.id, party.name, party.kind, party.jurisdiction or None, 100, reason, binds=True)
            parted[party.status == PartyStatus.ACTIVE].append(told)
        return cls(parted[True], parted[False])


class PartyFinder:
    """Searches one view of the store."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def find(self, search_text: str, entity_type: str, *, jurisdiction: str | None = None) -> Findings:
        """Returns the parties of a type that a text can mean, best first; without their identifiers and roles.

        Args:
            search_text: an identifier, a name, an alias, a part of one, or the id of a party.
            entity_type: see `Resolver.kinds_of`; `entity` means any.
            jurisdiction: ISO 3166 code; only parties there are meant. `US` means those of `US-DE` too.

        Raises:
            ValueError: the text is empty or too long, the type unknown, or the jurisdiction no code.
        """
        kinds = RESOLVER.kinds_of(entity_type)
        if kinds is not None and kinds[0] in RESOLVER.terms:
            return _term(_checked_text(search_text), TermNames(kinds[0]))
        asked = _Asked(kinds, jurisdiction_of(jurisdiction) if jurisdiction is not None else None)
        text = _checked_text(search_text)
        found = self._exact(text, asked)
        hits = found.active
        gone = found.inactive
        if not any(hit.reason in _BEYOND_DOUBT for hit in hits):
            gone = [*gone, *self._inactive_of_name(text, asked)]
        inactive = tuple(_ranked(replace(each, binds=False) for each in gone))
        if not hits:
            names = NameIndex(self._session, kinds=asked.kinds, jurisdiction=asked.jurisdiction)
            hits = next((some for some in (step(text, names) for step in _STEPS) if some), [])
            if not hits:
                others = [
                    replace(each, reason=asked.why_not(each) or each.reason, binds=False)
                    for each in self._exact(text, _ANY).active
                ]
                return Findings((), tuple(_ranked([*others, *_near(text, names)])), inactive)
        if inactive:
            # Whoever is called just so is meant, unless another one has the very name.
            hits = [replace(hit, binds=hit.binds and hit.reason in _BEYOND_DOUBT) for hit in hits]
        return Findings(tuple(_ranked(hits)), (), inactive)

    def _exact(self, text: _Text, asked: _Asked) -> _Exact:
        """Returns the parties with this identifier, or else of this name or id."""
        values = {text.raw.upper(), identifier_key(text.raw)}
        of_value = select(PartyIdentifier.party_id).where(PartyIdentifier.value.in_(values))
        identified = [(party, _IDENTIFIER) for party in self._parties(of_value, asked)]
        if any(party.status == PartyStatus.ACTIVE for party, _ in identified):
            return _Exact.of(identified)
        ids = union_all(
            select(Party.id).where(Party.id == text.raw),
            select(Party.id).where(Party.name_key == text.key, *asked.conditions()),
            select(PartyName.party_id).where(PartyName.name_key == text.key),
        )
        return _Exact.of([*identified, *((party, _why_exact(party, text)) for party in self._parties(ids, asked))])

    def _inactive_of_name(self, text: _Text, asked: _Asked) -> list[Candidate]:
        """Returns the inactive parties that have all of a name, its words in any order and its form in any spelling."""
        written = func.coalesce(PartyName.name_key, Party.name_key)
        query = (
            select(Party, PartySearch.use, written)
            .join(PartySearch, PartySearch.party_id == Party.id)
            .outerjoin(PartyName, PartyName.id == PartySearch.name_id)
            .where(
                PartySearch.core.in_([core_of(text.words), core_of(text.core)]), Party.status == PartyStatus.INACTIVE
            )
            .limit(_EXACT_READ)
        )
        found = [_known(party, use, key) for party, use, key in self._session.execute(query) if asked.takes(party)]
        return [_whole(text, known, binds=False) for known in found if text.is_whole(known) and text.is_of_form(known)]

    def _parties(self, ids: Select[str] | CompoundSelect[str], asked: _Asked) -> list[Party]:
        """Returns the parties of these ids that are what was asked for."""
        # In one step, or told the kind, a database may begin with all parties of that kind.
        found = set(self._session.scalars(ids.limit(_EXACT_READ)))
        if not found:
            return []
        parties = self._session.scalars(select(Party).where(Party.id.in_(sorted(found))))
        return [party for party in parties if asked.takes(party)]


def find_parties(session: Session, search_text: str, *, entity_type: str, jurisdiction: str | None = None) -> Findings:
    """Returns the parties of a type that a text can mean; see `PartyFinder.find`."""
    return PartyFinder(session).find(search_text, entity_type, jurisdiction=jurisdiction)


def _term(text: _Text, names: TermNames) -> Findings:
    """Returns the products or roles that a text can mean; their jurisdiction is everywhere."""
    exact = [
        replace(_candidate(known, 100, ""), reason=_EXACT_NAME if known.use == OWN_NAME else _OTHER_NAME, binds=True)
        for known in names.exact(text.key, text.raw.upper())
    ]
    hits = exact or next((found for found in (step(text, names) for step in _STEPS) if found), [])
    return Findings(tuple(_ranked(hits)), () if hits else tuple(_ranked(_near(text, names))))


class Names(Protocol):
    """Names that a rule can mean: of the parties in a store, or of terms."""

    def whole(self, words: Sequence[str], core: Sequence[str]) -> list[KnownName]: ...

    def all_words(self, words: Sequence[str]) -> list[KnownName]: ...

    def beginnings(self, beginnings: Sequence[str]) -> list[KnownName]: ...

    def near(self, words: Sequence[str], *, likeness: float) -> Iterator[list[KnownName]]: ...


Step = Callable[[_Text, Names], list[Candidate]]


def _whole_name(text: _Text, names: Names) -> list[Candidate]:
    """Returns those whom a text names in full: first of the very legal form that it has, then in the very order."""
    read = names.whole(text.words, text.core)
    found = [known for known in read if text.is_whole(known)]
    if text.form and (same := [known for known in found if _form_of(known) == text.form]):
        found = same
    if in_order := [known for known in found if known.core == text.core]:
        found = in_order
    # Of so many, others that were not read may be meant too.
    return [_whole(text, known, binds=len(read) < NAMES_TOLD) for known in found]


def _whole(text: _Text, known: KnownName, *, binds: bool) -> Candidate:
    """Returns one whom a text names in full; another legal form than the written one makes another company."""
    # A name without a form may be of any.
    if text.form and _form_of(known) not in ((), text.form):
        return _candidate(known, 90, "the name with another legal form")
    in_order = known.core == text.core
    return _candidate(known, 97 if in_order else 95, _FORM_ASIDE if in_order else _ANY_ORDER, binds=binds)


def _all_words(text: _Text, names: Names) -> list[Candidate]:
    wanted = set(text.words)
    found = [known for known in names.all_words(text.words) if wanted <= set(known.words)]
    return [_candidate(known, 85 + 10 * len(wanted) / len(known.words), "has all these words") for known in found]


def _form_of(known: KnownName) -> tuple[str, ...]:
    return legal_form(known.words) if known.kind in _WITH_LEGAL_FORM else ()


def _beginnings(text: _Text, names: Names) -> list[Candidate]:
    return [
        _candidate(known, 80, "words begin like this")
        for known in names.beginnings(text.words)
        if _begin(text.words, known.words)
    ]


_STEPS: tuple[Step, ...] = (_whole_name, _all_words, _beginnings)
"""From the sure to the likely; the first that finds something ends the search."""


def _near(text: _Text, names: Names) -> list[Candidate]:
    found: list[Candidate] = []
    for step, some in enumerate(names.near(text.core, likeness=NEAR_LIKENESS)):
        rated = ((known, likeness_of(text.core, known.core)) for known in some)
        found += [_candidate(known, rating, "another spelling") for known, rating in rated if rating >= NEAR_LIKENESS]
        if len({candidate.id for candidate in found}) >= (ENOUGH_NEAR if step == 0 else 1):
            break
    return found


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


def _candidate(known: KnownName, score: float, reason: str, *, binds: bool = False) -> Candidate:
    jurisdiction, because = known.jurisdiction or None, _because(reason, known.use)
    return Candidate(known.id, known.name, known.kind, jurisdiction, round(score, 1), because, binds)


def _known(party: Party, use: str, key: str) -> KnownName:
    """Returns a name of a party by its key."""
    words = words_of(key)
    core = core_words(key) if party.kind in _WITH_LEGAL_FORM else words
    return KnownName(party.id, party.name, party.kind, party.jurisdiction, use, words=words, core=core)


def _because(reason: str, use: str) -> str:
    if use == NameUse.FORMER:
        return f"{reason} (a former name)"
    return f"{reason} (an alias)" if use == NameUse.ALIAS else reason


def _why_exact(party: Party, text: _Text) -> str:
    if party.name_key == text.key:
        return _EXACT_NAME
    return _ITS_ID if party.id == text.raw else _OTHER_NAME


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
    return _Text(raw, key, words, core_words(key), legal_form(words))
