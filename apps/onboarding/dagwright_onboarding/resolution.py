"""Resolve a lookup to one party: by a search, and by asking a person if the result is ambiguous.

The resolver asks one question at a time: which of several parties is meant, another name if nothing is found, or the
details of a party to create. Between two questions only the checkpoint is stored: each call of the tool continues from
the checkpoint and the last answer. If an answer finds nothing, the person is asked again with the previous options.
This module must not change the store and must not import Temporal.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dagwright.plugins.entities import TEXT_FORMAT, join_kinds
from dagwright.tools.errors import AskPerson
from dagwright_onboarding.catalogue import PartyKind, kinds_of_entity_type, validate_date_of_birth
from dagwright_onboarding.entity_types import RESOLVER
from dagwright_onboarding.gateway import EntityGateway, KnownParty
from dagwright_onboarding.lookup import Candidate, Findings
from dagwright_onboarding.names import clean_name, name_key
from dagwright_onboarding.text_formats import parse_jurisdiction

LOOKUP_AMBIGUOUS = "lookup_ambiguous"
LOOKUP_NOT_FOUND = "lookup_not_found"
INVALID_FIELD = "invalid_field"

NONE_OF_THESE, CREATE_NEW = "none of these", "create new"
"""Options in addition to the parties; no party has one of these texts as its ID."""
CHOSEN_REASON, CREATED_REASON = "chosen by a person", "created at the request of a person"

_MAX_LISTED_CANDIDATES = 5
_MAX_QUOTED_CHARACTERS = 200
_MAX_TEXT_CHARACTERS = 1_000
"""Maximum length of a text in a checkpoint; no name is longer."""
_DATE_PATTERN = "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_JURISDICTION_PATTERN = "^[A-Za-z]{2}(-[A-Za-z0-9]{1,3})?$"


@dataclass(frozen=True, slots=True)
class LookupRequest:
    """A lookup of a plan.

    Args:
        jurisdiction: ISO 3166 code that the party must have; `None` for any.
    """

    search_text: str
    entity_type: str
    jurisdiction: str | None = None

    @property
    def description(self) -> str:
        """The lookup in words, for messages."""
        location = f" in {self.jurisdiction}" if self.jurisdiction else ""
        return f"{self.entity_type} {_quote(self.search_text)}{location}"

    @property
    def is_term(self) -> bool:
        """Whether a product or a role is looked up, which cannot be created."""
        kinds = RESOLVER.kinds_of(self.entity_type)
        return kinds is not None and all(kind in RESOLVER.terms for kind in kinds)

    def accepts(self, kind: str) -> bool:
        """Return whether a party of a kind matches the entity type."""
        kinds = RESOLVER.kinds_of(self.entity_type)
        return kinds is None or kind in kinds


@dataclass(frozen=True, slots=True)
class _PreviousQuestion:
    """The question that an answer belongs to.

    Args:
        step: `choose` if parties were offered as options.
        text: the text of the lookup, or the last text that a person gave.
        searched_text: the text whose search found the options.
    """

    step: str
    text: str
    searched_text: str


class PartyResolver:
    """Resolves one lookup.

    Args:
        gateway: the store of the parties.
        lookup: the lookup.
        is_interactive: whether a person can be asked; otherwise an ambiguous lookup returns a problem.
    """

    def __init__(self, gateway: EntityGateway, lookup: LookupRequest, *, is_interactive: bool) -> None:
        self._gateway = gateway
        self._lookup = lookup
        self._is_interactive = is_interactive

    def resolve(self, answers: Sequence[Any], checkpoint: Any) -> dict[str, Any]:
        """Return `{"entity", "reason"}`, `{"create", "reason"}` or `{"problem"}`.

        Args:
            answers: all answers so far, as in `context().answers`.
            checkpoint: the checkpoint of the last question.

        Raises:
            AskPerson: a person must say which party is meant.
        """
        if not answers or not isinstance(checkpoint, Mapping):
            return self._search(self._lookup.search_text)
        answer, text = answers[-1], str(checkpoint["text"])
        searched_text = str(checkpoint.get("shown", text))
        previous_question = _PreviousQuestion(checkpoint["step"], text, searched_text)
        match previous_question.step:
            case "choose":
                answered_text = answer["text"].strip() if "text" in answer else answer["selected"][0]["id"]
                return self._apply_choice(answered_text, previous_question)
            case "name":
                return self._apply_text(answer["text"].strip(), previous_question)
            case "kind":
                return self._party_to_create(text, kind=answer["selected"][0])
            case _:
                return self._party_to_create(text, kind=checkpoint["kind"], new_details=answer["data"])

    # Searching.

    def _search(self, text: str, previous_question: _PreviousQuestion | None = None) -> dict[str, Any]:
        """Return the party that a text means, or a problem.

        Args:
            previous_question: the previous question, if the text is an answer.

        Raises:
            AskPerson: the text is ambiguous or finds nothing.
        """
        lookup = self._lookup
        try:
            findings = self._find(text)
        except ValueError as error:
            return self._ask_or_report(
                INVALID_FIELD,
                f"{_without_full_stop(error)}.",
                "Correct the lookup.",
                text=text,
                previous_question=previous_question,
            )
        if findings.unambiguous_match is not None:
            return _party_entry(findings.unambiguous_match, findings.unambiguous_match.reason)
        searched_party = f"{lookup.entity_type} {_quote(text)}" + (
            f" in {lookup.jurisdiction}" if lookup.jurisdiction else ""
        )
        inactive_note = _inactive_sentence(findings.inactive_matches)
        if findings.hits:
            message = f"Several parties match {searched_party}: {_list_candidates(findings.hits)}."
            if len(findings.hits) == 1:
                [only_hit] = findings.hits
                message = (
                    f"Only a possible match for {searched_party}: {_list_candidates([only_hit])}: {only_hit.reason}."
                )
            if self._is_interactive:
                raise self._selection_question(findings.hits, text, introduction=inactive_note)
            hint = _advice(findings.hits, lookup)
            return _problem_entry(LOOKUP_AMBIGUOUS, inactive_note + message, hint, findings.hits)
        other_word = " other" if inactive_note else ""
        if lookup.is_term:
            near_note = f"; near: {_list_candidates(findings.near_matches)}" if findings.near_matches else ""
            message = f"No {lookup.entity_type} found for {searched_party}{near_note}."
            hint = "Use a name or a code of the catalogue (apps/onboarding/docs/verbs.yaml); it cannot be extended."
            return self._ask_or_report(
                LOOKUP_NOT_FOUND, message, hint, findings.near_matches, text=text, previous_question=previous_question
            )
        if findings.near_matches:
            near_list = _list_candidates(findings.near_matches)
            message = f"{inactive_note}No{other_word} party found for {searched_party}; near: {near_list}."
            hint = "Use the name and type of one of these parties, or create a new party first and refer to the result."
            return self._ask_or_report(
                LOOKUP_NOT_FOUND, message, hint, findings.near_matches, text=text, previous_question=previous_question
            )
        message = f"{inactive_note}No{other_word} party found for {searched_party}."
        hint = "Load the party first (`dagwright entities load FILE`), or create the party and refer to the result."
        if inactive_note:
            hint = "Use another party, or load this one with the status `active` (`dagwright entities load FILE`)."
        return self._ask_or_report(LOOKUP_NOT_FOUND, message, hint, text=text, previous_question=previous_question)

    def _find(self, text: str) -> Findings:
        return self._gateway.find(text, self._lookup.entity_type, jurisdiction=self._lookup.jurisdiction)

    def _ask_or_report(
        self,
        code: str,
        message: str,
        hint: str,
        candidates: Sequence[Candidate] = (),
        *,
        text: str,
        previous_question: _PreviousQuestion | None = None,
    ) -> dict[str, Any]:
        """Ask which party is meant; if no person can be asked, return a problem.

        Args:
            previous_question: the previous question, if the text is an answer.
        """
        if not self._is_interactive:
            return _problem_entry(code, message, hint, candidates)
        if previous_question is not None:
            raise self._repeated_question(f"{message} ", text, previous_question)
        raise self._name_question(f"{message} ", text)

    def _repeated_question(self, introduction: str, text: str, previous_question: _PreviousQuestion) -> AskPerson:
        """Return the previous question again: an answer that finds nothing does not remove the options.

        Args:
            introduction: the problem with the answer, as sentences.
            text: the last text that a person gave.
        """
        try:
            findings = self._find(previous_question.searched_text)
        except ValueError:
            findings = Findings(())
        # Do not repeat parties that the problem already lists.
        introduction += _inactive_sentence(
            [party for party in findings.inactive_matches if party.id not in introduction]
        )
        if previous_question.step == "choose" and findings.hits:
            return self._selection_question(
                findings.hits, text, searched_text=previous_question.searched_text, introduction=introduction
            )
        # The first question already listed the near matches of another type.
        near_list = _list_candidates([party for party in findings.near_matches if self._lookup.accepts(party.kind)])
        if near_list and near_list not in introduction:
            introduction = f"{introduction}Near {_quote(previous_question.searched_text)}: {near_list}. "
        return self._name_question(introduction, text, searched_text=previous_question.searched_text)

    def _selection_question(
        self, hits: Sequence[Candidate], text: str, *, searched_text: str | None = None, introduction: str = ""
    ) -> AskPerson:
        """Return the question which of several parties is meant.

        Args:
            text: the text of the lookup, or the last text that a person gave.
            searched_text: the text whose search found the parties, which the question shows; default: `text`.
            introduction: sentences before the question, such as the problem with the last answer.
        """
        shown_text = searched_text or text
        labels = [describe_candidate(hit) for hit in hits]
        options = [
            {"id": hit.id, "label": label if labels.count(label) == 1 else f"{label} {hit.id}"}
            for hit, label in zip(hits, labels, strict=True)
        ]
        other_options = [NONE_OF_THESE] if self._lookup.is_term else [NONE_OF_THESE, CREATE_NEW]
        options += [{"id": option, "label": option} for option in other_options]
        origin = f" (lookup: {self._lookup.description})" if shown_text != self._lookup.search_text else ""
        which_question = f"Which {self._lookup.entity_type} is meant by {_quote(shown_text)}{origin}?"
        prompt = f"{introduction}{which_question} Or enter another name."
        question = {"type": "SELECTION", "prompt": prompt, "options": options, "allow_text": True}
        return AskPerson(question, checkpoint=_checkpoint("choose", text, searched_text))

    def _name_question(self, introduction: str, text: str, *, searched_text: str | None = None) -> AskPerson:
        instructions = f"Enter another name, an identifier such as an LEI, the id of a party, or {CREATE_NEW!r}."
        entity_type = "party"
        if self._lookup.is_term:
            # The catalogue is closed, so no term can be created.
            entity_type, instructions = self._lookup.entity_type, "Enter another name or a code."
        prompt = f"{introduction}Which {entity_type} is meant by {self._lookup.description}? {instructions}"
        return AskPerson(
            {"type": "CLARIFICATION", "prompt": prompt}, checkpoint=_checkpoint("name", text, searched_text)
        )

    # Answers.

    def _apply_choice(self, answered_text: str, previous_question: _PreviousQuestion) -> dict[str, Any]:
        if answered_text.casefold() == NONE_OF_THESE:
            raise self._name_question("", previous_question.text, searched_text=previous_question.searched_text)
        return self._apply_text(answered_text, previous_question)

    def _apply_text(self, answered_text: str, previous_question: _PreviousQuestion) -> dict[str, Any]:
        """Apply an answer: `create new`, the id of a party, or a text to search."""
        if answered_text.casefold() == CREATE_NEW and not self._lookup.is_term:
            return self._party_to_create_from_lookup(previous_question.text)
        party = self._gateway.get(answered_text)
        if party is None or party.kind in RESOLVER.terms:
            return self._search(answered_text, previous_question)
        # The party may have been offered days ago. If the party is no longer valid, ask again rather than use another
        # option.
        if not party.is_active:
            raise self._repeated_question(
                f"{party.name!r} ({party.id}) is inactive. ", previous_question.text, previous_question
            )
        if not self._lookup.accepts(party.kind):
            expected_kinds = join_kinds(RESOLVER.kinds_of(self._lookup.entity_type) or ())
            problem = f"{party.name!r} is a {party.kind}, but the lookup is for a {expected_kinds}. "
            raise self._repeated_question(problem, previous_question.text, previous_question)
        return _party_entry(party, CHOSEN_REASON)

    # Creation.

    def _party_to_create_from_lookup(self, last_text: str) -> dict[str, Any]:
        """Return the party to create, with the name in the lookup.

        Args:
            last_text: the text of the lookup, or the last text that a person gave.

        Raises:
            AskPerson: details are missing, or the person who gave `last_text` must confirm the name.
        """
        lookup_text = self._lookup.search_text
        kinds = kinds_of_entity_type(self._lookup.entity_type)
        if last_text != lookup_text and len(kinds) == 1:
            raise self._details_question(lookup_text, kinds[0])
        return self._party_to_create(lookup_text)

    def _party_to_create(
        self, text: str, *, kind: str | None = None, new_details: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return the party to create as soon as its details are complete; nothing is created here.

        Raises:
            AskPerson: details are missing.
        """
        kinds = kinds_of_entity_type(self._lookup.entity_type)
        kind = kind or (kinds[0] if len(kinds) == 1 else None)
        if kind is None:
            options = [party_kind.value for party_kind in kinds]
            question = {
                "type": "SELECTION",
                "prompt": f"Is {_quote(text)} a person or an organisation?",
                "options": options,
            }
            raise AskPerson(question, checkpoint={"step": "kind", "text": text})
        details = dict(new_details or {})
        name = str(details.get("name", text))
        try:
            name = clean_name(name)
            jurisdiction = details.get("jurisdiction", self._lookup.jurisdiction)
            jurisdiction = parse_jurisdiction(str(jurisdiction)) if jurisdiction else None
            date_of_birth = (
                validate_date_of_birth(str(details["date_of_birth"])) if "date_of_birth" in details else None
            )
        except ValueError as error:
            raise self._details_question(text, kind, introduction=f"{_without_full_stop(error)}. ") from None
        lacks_jurisdiction = kind != PartyKind.PERSON and jurisdiction is None
        active_persons, inactive_persons = self._find_persons(name) if kind == PartyKind.PERSON else ([], [])
        if (active_persons or inactive_persons) and date_of_birth is None:
            raise self._details_question(
                text, kind, introduction=f"A person called {_quote(name)} already exists. ", requires_birth_date=True
            )
        if persons_of_same_birth := [person for person in active_persons if person.date_of_birth == date_of_birth]:
            raise self._selection_question(
                persons_of_same_birth, text, searched_text=name, introduction="This person already exists. "
            )
        if persons_of_same_birth := [person for person in inactive_persons if person.date_of_birth == date_of_birth]:
            raise self._name_question(f"This person already exists: {_inactive_sentence(persons_of_same_birth)}", text)
        if lacks_jurisdiction:
            raise self._details_question(text, kind)
        party = {
            "kind": str(kind),
            "name": name,
            "jurisdiction": jurisdiction,
            "date_of_birth": date_of_birth,
        }
        return {"create": {key: value for key, value in party.items() if value}, "reason": CREATED_REASON}

    def _details_question(
        self, text: str, kind: str, *, introduction: str = "", requires_birth_date: bool = False
    ) -> AskPerson:
        fields: dict[str, Any] = {"name": {"type": "string", "minLength": 1, TEXT_FORMAT: "name"}}
        required_fields = [] if _is_name(text) else ["name"]
        if not required_fields:
            fields["name"]["default"] = text
        if kind == PartyKind.PERSON:
            fields["date_of_birth"] = _text_field("date_of_birth", pattern=_DATE_PATTERN, example="1980-01-31")
            required_fields += ["date_of_birth"] if requires_birth_date else []
        if kind != PartyKind.PERSON or self._lookup.jurisdiction is None:
            fields["jurisdiction"] = _text_field("jurisdiction", pattern=_JURISDICTION_PATTERN, example="LU")
        if kind != PartyKind.PERSON and self._lookup.jurisdiction is None:
            required_fields.append("jurisdiction")
        schema = {"type": "object", "properties": fields, "required": required_fields, "additionalProperties": False}
        prompt = f"{introduction}Give the details of the {kind} to create as {_quote(text)}."
        question = {"type": "INFORMATION", "prompt": prompt, "schema": schema}
        return AskPerson(question, checkpoint={"step": "details", "text": text, "kind": str(kind)})

    def _find_persons(self, name: str) -> tuple[list[Candidate], list[Candidate]]:
        """Return the active and the inactive persons with exactly this name."""
        try:
            findings = self._gateway.find(name, PartyKind.PERSON)
        except ValueError:
            return [], []
        active_persons, inactive_persons = (
            [hit for hit in hits if hit.score >= _EXACT_SCORE] for hits in (findings.hits, findings.inactive_matches)
        )
        return active_persons, inactive_persons


_EXACT_SCORE = 100
"""Score of an identifier or an exact name."""


def _checkpoint(step: str, text: str, searched_text: str | None) -> dict[str, str]:
    """Return the checkpoint of a question whose answer is a name or an option.

    The checkpoint has the field `shown` only if the searched text differs from the text.
    """
    searched_field = (
        {"shown": searched_text[:_MAX_TEXT_CHARACTERS]} if searched_text is not None and searched_text != text else {}
    )
    return {"step": step, "text": text[:_MAX_TEXT_CHARACTERS], **searched_field}


def describe_candidate(candidate: Candidate) -> str:
    """Return a party in words with its type, jurisdiction, date of birth, identifiers and roles."""
    parts = _details(candidate)
    parts += [f"{identifier.scheme} {identifier.value}" for identifier in candidate.identifiers]
    return f"{candidate.name} ({', '.join([*parts, *candidate.roles])})"


def _details(candidate: Candidate) -> list[str]:
    """Return type, jurisdiction and date of birth; only the type for a product or a role."""
    if candidate.kind in RESOLVER.terms:
        return [candidate.kind]
    birth_text = [f"born {candidate.date_of_birth}"] if candidate.date_of_birth else []
    return [candidate.kind, candidate.jurisdiction or "jurisdiction unknown", *birth_text]


def _party_entry(party: Candidate | KnownParty, reason: str) -> dict[str, Any]:
    return {"entity": party_json(party.id, party.name, party.kind, party.jurisdiction), "reason": reason}


def _problem_entry(code: str, message: str, hint: str, candidates: Sequence[Candidate]) -> dict[str, Any]:
    candidate_objects = [_candidate_json(candidate) for candidate in candidates]
    return {"problem": {"code": code, "message": message, "hint": hint, "candidates": candidate_objects}}


def party_json(party_id: str, name: str, kind: str, jurisdiction: str | None) -> dict[str, Any]:
    """Return the JSON of a party, as in the result of a lookup."""
    return {"id": party_id, "name": name, "kind": kind, "jurisdiction": jurisdiction or None}


def _candidate_json(candidate: Candidate) -> dict[str, Any]:
    return {
        **party_json(candidate.id, candidate.name, candidate.kind, candidate.jurisdiction),
        "date_of_birth": candidate.date_of_birth,
        "score": candidate.score,
        "reason": candidate.reason,
        "identifiers": [
            {"scheme": identifier.scheme, "value": identifier.value} for identifier in candidate.identifiers
        ],
        "roles": list(candidate.roles),
    }


def _list_candidates(candidates: Sequence[Candidate]) -> str:
    listed_parties = [
        f"{candidate.name} ({', '.join([*_details(candidate), candidate.id])})"
        for candidate in candidates[:_MAX_LISTED_CANDIDATES]
    ]
    omitted_count = len(candidates) - len(listed_parties)
    return "; ".join(listed_parties) + (f"; and {omitted_count} more" if omitted_count > 0 else "")


def _inactive_sentence(candidates: Sequence[Candidate]) -> str:
    """Return a sentence that lists inactive parties; empty without candidates."""
    if not candidates:
        return ""
    return f"{_list_candidates(candidates)} {'is' if len(candidates) == 1 else 'are'} inactive. "


def _advice(hits: Sequence[Candidate], lookup: LookupRequest) -> str:
    """Return how to write the lookup so that it finds exactly one of these parties without a question."""
    names = Counter(name_key(hit.name) for hit in hits)
    jurisdictions = Counter(hit.jurisdiction for hit in hits if hit.jurisdiction)
    schemes = sorted({identifier.scheme for hit in hits for identifier in hit.identifiers})
    attributes = ["its id"]
    if name_key(lookup.search_text) not in names and any(count == 1 for count in names.values()):
        attributes.append("its whole name")
    attributes += [f"its {scheme}" for scheme in schemes]
    location = ""
    if lookup.jurisdiction is None and len(hits) > 1 and any(count == 1 for count in jurisdictions.values()):
        location = ", or add its jurisdiction"
    return (
        f"Name the party by {' or '.join(attributes)}, as search_text of the lookup or in the user's request{location}."
    )


def _text_field(text_format: str, *, pattern: str, example: str) -> dict[str, Any]:
    """Return the schema of a text; the pattern is for clients that ignore the keyword `TEXT_FORMAT`."""
    return {"type": "string", "pattern": pattern, TEXT_FORMAT: text_format, "description": f"such as {example}"}


def _is_name(text: str) -> bool:
    try:
        clean_name(text)
    except ValueError:
        return False
    return True


def _quote(text: str) -> str:
    return repr(text if len(text) <= _MAX_QUOTED_CHARACTERS else f"{text[:_MAX_QUOTED_CHARACTERS]}…")


def _without_full_stop(error: ValueError) -> str:
    return str(error).rstrip(".")[:500]
