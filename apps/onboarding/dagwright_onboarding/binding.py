"""Bind the results of lookups in one transaction: read each party again, and create the parties that users requested.

The call is idempotent like a verb: created parties are recorded under the idempotency key in the same transaction. This
module must not import Temporal.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy.orm import Session

from dagwright.plugins.entities import BY_ID, KNOWN_AS
from dagwright_onboarding.catalogue import PartyKind
from dagwright_onboarding.database import EntityDatabase
from dagwright_onboarding.effects import EffectLog, VerbCall
from dagwright_onboarding.entity_types import RESOLVER
from dagwright_onboarding.models import Party, PartyStatus
from dagwright_onboarding.parties import describe, is_id
from dagwright_onboarding.resolution import INVALID_FIELD, LOOKUP_NOT_FOUND, party_json
from dagwright_onboarding.verbs import NewParty, create_parties

VERB = "bind_parties"
MISSING_CONTEXT = "missing_context"
"""Code for an unusable context name (`@name`)."""
INVALID_ARGUMENTS = "invalid_arguments"
"""Code for an unusable party id in the plan."""
MAX_PROBLEMS_BYTES = 150_000
"""Limit of all problems as JSON: the run stores and reports them."""

Entry = dict[str, Any]


class _BindingFailed(Exception):
    """At least one entry cannot be bound; the transaction is rolled back."""

    def __init__(self, entries: list[Entry]) -> None:
        super().__init__("not every lookup can be bound")
        self.entries = entries


def bind_parties(database: EntityDatabase, lookup_results: Sequence[Mapping[str, Any]], *, key: str) -> list[Entry]:
    """Return an entry per lookup: `{"entity", "reason", "created"}`.

    If a lookup cannot be bound, return `{"problem"}` for that lookup, and `{}` for each lookup without a
    problem. A party is bound by its id, even if the party was renamed after the lookup. Nothing is created unless every
    lookup can be bound.

    Args:
        lookup_results: for each lookup the result of `PartyResolver.resolve`, or `{"entity"}` for a known party.
            For a party that the plan names, the result also has `known_as`, and `kinds` with the allowed kinds.
        key: idempotency key of the call.
    """
    if any("problem" in entry for entry in lookup_results):
        return _problems_of(lookup_results)
    try:
        if any("create" in entry for entry in lookup_results):
            return EffectLog(database).run_once(
                key, VERB, list[Entry], lambda call: _bind_and_create(call, lookup_results)
            )
        return database.read(lambda session: _bind_all(session, lookup_results))
    except _BindingFailed as error:
        return error.entries


def _bind_and_create(call: VerbCall, lookup_results: Sequence[Mapping[str, Any]]) -> list[Entry]:
    entries = _bind_all(call.session, lookup_results)
    for position, entry in enumerate(lookup_results):
        if "create" in entry:
            entries[position] = _create(call, entry)
    if any("problem" in entry for entry in entries):
        raise _BindingFailed(_problems_of(entries))
    return entries


def _create(call: VerbCall, entry: Mapping[str, Any]) -> Entry:
    fields = entry["create"]
    new_party = NewParty(
        PartyKind(fields["kind"]), fields["name"], fields.get("jurisdiction"), fields.get("date_of_birth")
    )
    try:
        [party] = create_parties(call, [new_party])
    except ValueError as error:
        return {"problem": _problem(INVALID_FIELD, str(error))}
    created_party = party_json(party.id, party.name, party.kind, party.jurisdiction)
    return {"entity": created_party, "reason": entry["reason"], "created": party.created}


def _bind_all(session: Session, lookup_results: Sequence[Mapping[str, Any]]) -> list[Entry]:
    """Return the entries with the current state of each party; entries with `create` stay unchanged.

    Raises:
        _BindingFailed: a party can no longer be used.
    """
    entries = [_current_entry(session, entry) if "entity" in entry else dict(entry) for entry in lookup_results]
    if any("problem" in entry for entry in entries):
        raise _BindingFailed(_problems_of(entries))
    return entries


def _current_entry(session: Session, entry: Mapping[str, Any]) -> Entry:
    entity = entry["entity"]
    if entity.get("kind") in RESOLVER.terms:
        return {"entity": dict(entity), "reason": str(entry.get("reason", "")), "created": False}
    party = session.get(Party, entity["id"]) if is_id(entity["id"]) else None
    if KNOWN_AS in entry and (problem := _usage_problem(party, entry)) is not None:
        return {"problem": _problem_of_known_party(entry, problem)}
    if party is None:
        message = f"{entity.get('kind', 'party')} {entity.get('name')!r} ({entity['id']}) no longer exists"
        return {"problem": _problem(LOOKUP_NOT_FOUND, message)}
    if party.status != PartyStatus.ACTIVE:
        return {"problem": _problem(LOOKUP_NOT_FOUND, f"{describe(party)} is inactive")}
    found_party = party_json(party.id, party.name, party.kind, party.jurisdiction)
    return {"entity": found_party, "reason": str(entry.get("reason", "")), "created": False}


def _problem_of_known_party(entry: Mapping[str, Any], message: str) -> dict[str, Any]:
    known_as, kinds = entry[KNOWN_AS], _kinds_text(entry)
    if known_as == BY_ID:
        code, hint = INVALID_ARGUMENTS, f"give the id of a {kinds}, or look up its name under lookups"
    else:
        name = known_as.removeprefix("@")
        code, hint = MISSING_CONTEXT, f"give the id of a {kinds} in the context: {name}=ID"
    return {"code": code, "message": message, "hint": hint, "candidates": []}


def _usage_problem(party: Party | None, entry: Mapping[str, Any]) -> str | None:
    """Return why a party that the plan names cannot be used, or `None`."""
    shown_id, is_by_id = repr(entry["entity"]["id"])[:80], entry[KNOWN_AS] == BY_ID
    name = shown_id if is_by_id else entry[KNOWN_AS]
    if party is None:
        return f"No party has the id {shown_id}." if is_by_id else f"{name} is {shown_id}, and no party has that id."
    if party.status != PartyStatus.ACTIVE:
        return f"{name} is {describe(party)}, which is inactive."
    if party.kind not in entry["kinds"]:
        return f"{name} is {describe(party)}; expected a {_kinds_text(entry)}."
    return None


def _kinds_text(entry: Mapping[str, Any]) -> str:
    return " or ".join(entry["kinds"])


def _problem(code: str, message: str) -> dict[str, Any]:
    hint = "Start the run again; the lookup asks which party is meant."
    return {"code": code, "message": f"Lookup result: {message}.", "hint": hint, "candidates": []}


def _problems_of(entries: Sequence[Mapping[str, Any]]) -> list[Entry]:
    """Return the problems by position, with fewer candidates each if all problems together exceed the limit."""
    problems: list[Entry] = [{"problem": dict(entry["problem"])} if "problem" in entry else {} for entry in entries]
    for max_candidates in (10, 3, 1, 0):
        if len(json.dumps(problems)) <= MAX_PROBLEMS_BYTES:
            break
        for problem in (entry["problem"] for entry in problems if entry):
            problem["candidates"] = list(problem.get("candidates", ()))[:max_candidates]
    return problems
