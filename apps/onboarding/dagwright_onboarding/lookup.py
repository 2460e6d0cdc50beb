"""Search for existing parties by name, identifier or id.

A search tries these steps, from the most to the least certain, and stops at the first step with a result:

1. an identifier, an id or an exact name
2. the whole name in any order, without its legal form
3. all words of the text
4. word prefixes

If the text is a whole identifier or a whole name, a lookup uses a single hit without asking. A part or a prefix of a
name is not enough, because the plan would change the party without confirmation, and John Smith is not John Smithson. A
different legal form is not enough either: Kite SARL is not Kite GmbH. The legal form is ignored only if the text or the
stored name has no legal form. Several hits are ambiguous. Names with a different spelling are only near matches: Cohen
and Chen differ by one letter.

`name_search` fetches the names for each step; the steps in this module decide and rank.

This module must not change the store and must not import Temporal.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from sqlalchemy import ColumnElement, CompoundSelect, Select, func, select, union_all
from sqlalchemy.orm import Session

from dagwright_onboarding.catalogue import PartyKind
from dagwright_onboarding.entity_types import RESOLVER
from dagwright_onboarding.models import NameUse, Party, PartyIdentifier, PartyName, PartySearch, PartyStatus
from dagwright_onboarding.name_search import MAX_NAMES, KnownName, NameIndex, is_within
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
from dagwright_onboarding.spelling import name_similarity
from dagwright_onboarding.terms import TermNames
from dagwright_onboarding.text_formats import parse_jurisdiction

CANDIDATE_LIMIT = 10
"""Maximum number of candidates of one lookup."""
MAX_ROLES = 3
"""Maximum number of roles of one candidate; enough to recognize a person."""
_EXACT_LIMIT = 1_000
"""Maximum number of parties with the same name that are ranked."""
ENOUGH_NEAR_MATCHES = 5
"""If this many near matches have all words, names that lack a word are not searched."""
MIN_NEAR_SIMILARITY = 65.0
"""Minimum rapidfuzz ratio (0 to 100) of a near match."""


@dataclass(frozen=True, slots=True)
class Identifier:
    """A number that a register assigned to a party, such as its `LEI`."""

    scheme: str
    value: str


@dataclass(frozen=True, slots=True)
class Candidate:
    """A party that a search text may mean, with details that distinguish it from other parties of the same name.

    Args:
        jurisdiction: ISO 3166 code, `None` if unknown.
        score: 0 to 100; 100 for an identifier or an exact name.
        reason: why the party was found, in words.
        is_certain: whether a lookup uses the party without a question when it is the only hit.
        identifiers: ordered by scheme and value.
        roles: at most `MAX_ROLES` roles of the party, such as `DIRECTOR at Apex Fund`, the latest first.
        date_of_birth: date of birth of a person, if known.
    """

    id: str
    name: str
    kind: str
    jurisdiction: str | None
    score: float
    reason: str
    is_certain: bool = False
    identifiers: tuple[Identifier, ...] = ()
    roles: tuple[str, ...] = ()
    date_of_birth: str | None = None


@dataclass(frozen=True, slots=True)
class Findings:
    """Result of one search.

    Args:
        hits: the parties that the text can mean, best first.
        near_matches: if there are no hits, parties with a similar name, and parties with this name but another type or
            jurisdiction.
        inactive_matches: inactive parties with exactly this identifier or name, in any word order and with any
            spelling of the legal form.
    """

    hits: tuple[Candidate, ...]
    near_matches: tuple[Candidate, ...] = ()
    inactive_matches: tuple[Candidate, ...] = ()

    @property
    def unambiguous_match(self) -> Candidate | None:
        """The match that a lookup uses without asking; `None` if a person must choose."""
        return self.hits[0] if len(self.hits) == 1 and self.hits[0].is_certain else None


@dataclass(frozen=True, slots=True)
class _SearchText:
    """A parsed search text.

    Args:
        key: name key of the text.
        core: words before the legal form.
        form: the legal form.
    """

    raw: str
    key: str
    words: tuple[str, ...]
    core: tuple[str, ...]
    form: tuple[str, ...]

    def is_whole_name(self, stored_name: KnownName) -> bool:
        """Return whether the text is a whole name, in any order; the legal form of an organisation may differ."""
        if stored_name.kind not in _ORGANISATION_KINDS:
            return sorted(stored_name.words) == sorted(self.words)
        return sorted(stored_name.core) == sorted(self.core) and not is_legal_form(self.key)

    def has_legal_form_of_text(self, stored_name: KnownName) -> bool:
        """Return whether the name and the text have the same legal form, or no legal form; true for persons."""
        return stored_name.kind not in _ORGANISATION_KINDS or _form_of(stored_name) == self.form


@dataclass(frozen=True, slots=True)
class _Criteria:
    """Conditions on the parties apart from the name; `None` means any."""

    kinds: tuple[str, ...] | None
    jurisdiction: str | None

    def mismatch(self, candidate: Candidate) -> str | None:
        """Return in words which condition a candidate fails, `None` if it meets all conditions."""
        if self.kinds is not None and candidate.kind not in self.kinds:
            return f"is a {candidate.kind}"
        if self.jurisdiction is None or is_within(candidate.jurisdiction or "", self.jurisdiction):
            return None
        return (
            f"has the jurisdiction {candidate.jurisdiction}" if candidate.jurisdiction else "has no known jurisdiction"
        )

    def accepts(self, party: Party) -> bool:
        """Return whether a party meets the conditions."""
        is_in_jurisdiction = self.jurisdiction is None or is_within(party.jurisdiction, self.jurisdiction)
        return is_in_jurisdiction and (self.kinds is None or party.kind in self.kinds)

    def conditions(self) -> list[ColumnElement[bool]]:
        """Return the conditions as SQL."""
        conditions: list[ColumnElement[bool]] = []
        if self.kinds is not None:
            conditions.append(Party.kind.in_(self.kinds))
        if self.jurisdiction is not None:
            is_subdivision = Party.jurisdiction.startswith(f"{self.jurisdiction}-")
            conditions.append((Party.jurisdiction == self.jurisdiction) | is_subdivision)
        return conditions


_NO_CRITERIA = _Criteria(None, None)
_ORGANISATION_KINDS = (PartyKind.COMPANY, PartyKind.FUND)
_NAME_WITHOUT_FORM, _REORDERED_NAME = "same name without the legal form", "same words in another order"
_IDENTIFIER, _PARTY_ID, _EXACT_NAME, _OTHER_NAME = "identifier", "its id", "exact name", "other name"
_CERTAIN_REASONS = (_IDENTIFIER, _PARTY_ID, _EXACT_NAME)
"""Reasons for which a party is used without asking even if an inactive party has the same name."""


@dataclass(frozen=True, slots=True)
class _ExactMatches:
    """Parties whose identifier, id or name equals the text."""

    active: list[Candidate]
    inactive: list[Candidate]

    @classmethod
    def from_parties(cls, matches: Sequence[tuple[Party, str]]) -> "_ExactMatches":
        by_activity: dict[bool, list[Candidate]] = {True: [], False: []}
        for party, reason in matches:
            candidate = Candidate(
                party.id, party.name, party.kind, party.jurisdiction or None, 100, reason, is_certain=True
            )
            by_activity[party.status == PartyStatus.ACTIVE].append(candidate)
        return cls(by_activity[True], by_activity[False])


class PartyFinder:
    """Searches one snapshot of the store."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def find(self, search_text: str, entity_type: str, *, jurisdiction: str | None = None) -> Findings:
        """Return the parties of a type that a text can mean, best first; without their identifiers and roles.

        Args:
            search_text: an identifier, a name, an alias, a part of a name, or the id of a party.
            entity_type: see `Resolver.kinds_of`; `entity` means any.
            jurisdiction: ISO 3166 code that the parties must have; `US` includes `US-DE`.

        Raises:
            ValueError: the text is empty or too long, or the type or jurisdiction is unknown.
        """
        kinds = RESOLVER.kinds_of(entity_type)
        if kinds is not None and kinds[0] in RESOLVER.terms:
            return _find_terms(_parse_search_text(search_text), TermNames(kinds[0]))
        criteria = _Criteria(kinds, parse_jurisdiction(jurisdiction) if jurisdiction is not None else None)
        text = _parse_search_text(search_text)
        exact_matches = self._exact_matches(text, criteria)
        hits = exact_matches.active
        inactive_matches = exact_matches.inactive
        if not any(hit.reason in _CERTAIN_REASONS for hit in hits):
            inactive_matches = [*inactive_matches, *self._inactive_matches(text, criteria)]
        inactive_candidates = tuple(_rank(replace(match, is_certain=False) for match in inactive_matches))
        if not hits:
            names = NameIndex(self._session, kinds=criteria.kinds, jurisdiction=criteria.jurisdiction)
            hits = next((candidates for candidates in (step(text, names) for step in _STEPS) if candidates), [])
            if not hits:
                excluded_candidates = [
                    replace(match, reason=criteria.mismatch(match) or match.reason, is_certain=False)
                    for match in self._exact_matches(text, _NO_CRITERIA).active
                ]
                return Findings(
                    (), tuple(_rank([*excluded_candidates, *_near_matches(text, names)])), inactive_candidates
                )
        if inactive_candidates:
            # An inactive party has the same name, so only an identifier, id or exact name is certain.
            hits = [replace(hit, is_certain=hit.is_certain and hit.reason in _CERTAIN_REASONS) for hit in hits]
        return Findings(tuple(_rank(hits)), (), inactive_candidates)

    def _exact_matches(self, text: _SearchText, criteria: _Criteria) -> _ExactMatches:
        """Return the parties with this identifier, otherwise the parties with this name or id."""
        values = {text.raw.upper(), identifier_key(text.raw)}
        identified_ids = select(PartyIdentifier.party_id).where(PartyIdentifier.value.in_(values))
        identified_parties = [(party, _IDENTIFIER) for party in self._parties(identified_ids, criteria)]
        if any(party.status == PartyStatus.ACTIVE for party, _ in identified_parties):
            return _ExactMatches.from_parties(identified_parties)
        ids = union_all(
            select(Party.id).where(Party.id == text.raw),
            select(Party.id).where(Party.name_key == text.key, *criteria.conditions()),
            select(PartyName.party_id).where(PartyName.name_key == text.key),
        )
        return _ExactMatches.from_parties(
            [*identified_parties, *((party, _exact_reason(party, text)) for party in self._parties(ids, criteria))]
        )

    def _inactive_matches(self, text: _SearchText, criteria: _Criteria) -> list[Candidate]:
        """Return inactive parties with the whole name, in any word order and any spelling of the legal form."""
        stored_key = func.coalesce(PartyName.name_key, Party.name_key)
        query = (
            select(Party, PartySearch.use, stored_key)
            .join(PartySearch, PartySearch.party_id == Party.id)
            .outerjoin(PartyName, PartyName.id == PartySearch.name_id)
            .where(
                PartySearch.core.in_([core_of(text.words), core_of(text.core)]), Party.status == PartyStatus.INACTIVE
            )
            .limit(_EXACT_LIMIT)
        )
        inactive_names = [
            _known_name(party, use, key) for party, use, key in self._session.execute(query) if criteria.accepts(party)
        ]
        return [
            _whole_name_match(text, stored_name, is_certain=False)
            for stored_name in inactive_names
            if text.is_whole_name(stored_name) and text.has_legal_form_of_text(stored_name)
        ]

    def _parties(self, ids: Select[str] | CompoundSelect[str], criteria: _Criteria) -> list[Party]:
        """Return the parties with these ids that meet the conditions."""
        # Two queries, and no condition on the kind: otherwise a database may scan all parties of the kind.
        party_ids = set(self._session.scalars(ids.limit(_EXACT_LIMIT)))
        if not party_ids:
            return []
        parties = self._session.scalars(select(Party).where(Party.id.in_(sorted(party_ids))))
        return [party for party in parties if criteria.accepts(party)]


def find_parties(session: Session, search_text: str, *, entity_type: str, jurisdiction: str | None = None) -> Findings:
    """Return the parties of a type that a text can mean; see `PartyFinder.find`."""
    return PartyFinder(session).find(search_text, entity_type, jurisdiction=jurisdiction)


def _find_terms(text: _SearchText, names: TermNames) -> Findings:
    """Return the products or roles that a text can mean; these have no jurisdiction."""
    exact_matches = [
        replace(
            _candidate(stored_name, 100, ""),
            reason=_EXACT_NAME if stored_name.use == OWN_NAME else _OTHER_NAME,
            is_certain=True,
        )
        for stored_name in names.exact_terms(text.key, text.raw.upper())
    ]
    hits = exact_matches or next(
        (candidates for candidates in (step(text, names) for step in _STEPS) if candidates), []
    )
    return Findings(tuple(_rank(hits)), () if hits else tuple(_rank(_near_matches(text, names))))


class NameSource(Protocol):
    """Source of names for the search steps: the parties of a store, or the terms of the catalogue."""

    def exact_names(self, words: Sequence[str], core: Sequence[str]) -> list[KnownName]: ...

    def names_with_words(self, words: Sequence[str]) -> list[KnownName]: ...

    def names_with_prefixes(self, prefixes: Sequence[str]) -> list[KnownName]: ...

    def similar_names(self, words: Sequence[str], *, min_similarity: float) -> Iterator[list[KnownName]]: ...


SearchStep = Callable[[_SearchText, NameSource], list[Candidate]]


def _find_whole_names(text: _SearchText, names: NameSource) -> list[Candidate]:
    """Return the whole-name matches, preferring the same legal form, then the same word order."""
    stored_names = names.exact_names(text.words, text.core)
    matches = [stored_name for stored_name in stored_names if text.is_whole_name(stored_name)]
    if text.form and (
        same_form_matches := [stored_name for stored_name in matches if _form_of(stored_name) == text.form]
    ):
        matches = same_form_matches
    if same_order_matches := [stored_name for stored_name in matches if stored_name.core == text.core]:
        matches = same_order_matches
    # At the limit, names that were not read may also match.
    return [_whole_name_match(text, stored_name, is_certain=len(stored_names) < MAX_NAMES) for stored_name in matches]


def _whole_name_match(text: _SearchText, stored_name: KnownName, *, is_certain: bool) -> Candidate:
    """Return a whole-name match; a different legal form means a different company."""
    # A stored name without a legal form may belong to a company of any legal form.
    if text.form and _form_of(stored_name) not in ((), text.form):
        return _candidate(stored_name, 90, "the name with another legal form")
    has_same_order = stored_name.core == text.core
    return _candidate(
        stored_name,
        97 if has_same_order else 95,
        _NAME_WITHOUT_FORM if has_same_order else _REORDERED_NAME,
        is_certain=is_certain,
    )


def _find_all_words(text: _SearchText, names: NameSource) -> list[Candidate]:
    words = set(text.words)
    matches = [stored_name for stored_name in names.names_with_words(text.words) if words <= set(stored_name.words)]
    return [
        _candidate(stored_name, 85 + 10 * len(words) / len(stored_name.words), "contains all these words")
        for stored_name in matches
    ]


def _form_of(name: KnownName) -> tuple[str, ...]:
    return legal_form(name.words) if name.kind in _ORGANISATION_KINDS else ()


def _find_prefixes(text: _SearchText, names: NameSource) -> list[Candidate]:
    return [
        _candidate(stored_name, 80, "contains words with these beginnings")
        for stored_name in names.names_with_prefixes(text.words)
        if _are_prefixes(text.words, stored_name.words)
    ]


_STEPS: tuple[SearchStep, ...] = (_find_whole_names, _find_all_words, _find_prefixes)
"""Search steps from the most to the least certain; the first step with a result ends the search."""


def _near_matches(text: _SearchText, names: NameSource) -> list[Candidate]:
    candidates: list[Candidate] = []
    for batch_number, similar_names in enumerate(names.similar_names(text.core, min_similarity=MIN_NEAR_SIMILARITY)):
        similarities = ((stored_name, name_similarity(text.core, stored_name.core)) for stored_name in similar_names)
        candidates += [
            _candidate(stored_name, similarity, "different spelling")
            for stored_name, similarity in similarities
            if similarity >= MIN_NEAR_SIMILARITY
        ]
        if len({candidate.id for candidate in candidates}) >= (ENOUGH_NEAR_MATCHES if batch_number == 0 else 1):
            break
    return candidates


def _are_prefixes(prefixes: Sequence[str], words: Sequence[str]) -> bool:
    """Return whether each prefix starts a different word, in the order of the words."""
    position = 0
    for prefix in prefixes:
        while position < len(words) and not words[position].startswith(prefix):
            position += 1
        if position == len(words):
            return False
        position += 1
    return bool(prefixes)


def _candidate(stored_name: KnownName, score: float, reason: str, *, is_certain: bool = False) -> Candidate:
    reason = _reason_for_name(reason, stored_name.use)
    return Candidate(
        stored_name.id,
        stored_name.party_name,
        stored_name.kind,
        stored_name.jurisdiction or None,
        round(score, 1),
        reason,
        is_certain,
    )


def _known_name(party: Party, use: str, key: str) -> KnownName:
    """Return a name of a party from its key."""
    words = words_of(key)
    core = core_words(key) if party.kind in _ORGANISATION_KINDS else words
    return KnownName(party.id, party.name, party.kind, party.jurisdiction, use, words=words, core=core)


def _reason_for_name(reason: str, use: str) -> str:
    if use == NameUse.FORMER:
        return f"{reason} (a former name)"
    return f"{reason} (an alias)" if use == NameUse.ALIAS else reason


def _exact_reason(party: Party, text: _SearchText) -> str:
    if party.name_key == text.key:
        return _EXACT_NAME
    return _PARTY_ID if party.id == text.raw else _OTHER_NAME


def _rank(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Return the best candidate of each party, best first; ties are ordered by name, jurisdiction and id."""
    best_of_party: dict[str, Candidate] = {}
    for candidate in candidates:
        previous_candidate = best_of_party.get(candidate.id)
        if previous_candidate is None or candidate.score > previous_candidate.score:
            best_of_party[candidate.id] = candidate
    ranked_candidates = sorted(
        best_of_party.values(),
        key=lambda candidate: (-candidate.score, candidate.name, candidate.jurisdiction or "", candidate.id),
    )
    return ranked_candidates[:CANDIDATE_LIMIT]


def _parse_search_text(search_text: str) -> _SearchText:
    raw = clean_name(search_text, "search_text")
    key = name_key(raw)
    words = words_of(key)
    if not words:
        raise ValueError(f"search_text {raw!r} has no letter or digit")
    return _SearchText(raw, key, words, core_words(key), legal_form(words))
