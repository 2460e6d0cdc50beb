"""Binding what lookups found, all at once: the last look at each party, and the parties that people wanted created.

It is idempotent as a verb is: what was created is recorded under the idempotency key, in the same transaction. This
module must not import Temporal.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy.orm import Session

from dagwright.plugins.entities import BY_ID, KNOWN_AS
from dagwright_onboarding.catalogue import PartyKind
from dagwright_onboarding.database import EntityDatabase
from dagwright_onboarding.effects import Call, EffectLog
from dagwright_onboarding.entity_types import RESOLVER
from dagwright_onboarding.models import Party, PartyStatus
from dagwright_onboarding.parties import described, is_id
from dagwright_onboarding.resolution import INVALID_FIELD, LOOKUP_NOT_FOUND, party_json
from dagwright_onboarding.verbs import NewParty, create_parties

VERB = "bind_parties"
MISSING_CONTEXT = "missing_context"
"""Code of what a name of the session cannot stand for."""
INVALID_ARGUMENTS = "invalid_arguments"
"""Code of an id that is written out and cannot be used."""
PROBLEMS_BYTES = 150_000
"""JSON of all that could not be bound: the run keeps it, and tells it."""

Entry = dict[str, Any]


class _Unbound(Exception):
    """Not all can be bound, so nothing of the transaction is kept."""

    def __init__(self, entries: list[Entry]) -> None:
        super().__init__("not all can be bound")
        self.entries = entries


def bind_parties(database: EntityDatabase, found: Sequence[Mapping[str, Any]], *, key: str) -> list[Entry]:
    """Returns what each lookup is bound to, in order: `{"party", "reason", "created"}`, or `{"problem"}` for any.

    A party may be called otherwise by now: it is bound by its id. Nothing is created unless all can be bound.

    Args:
        found: of each lookup what `PartySearch.found` told, or `{"party"}` for one that was known before; of one
            that the plan knows with `known_as` and `kinds`, one of which it has to be.
        key: idempotency key of the call.
    """
    if any("problem" in entry for entry in found):
        return _problems_of(found)
    try:
        if any("create" in entry for entry in found):
            return EffectLog(database).once(key, VERB, list[Entry], lambda call: _bound_and_created(call, found))
        return database.read(lambda session: _bound(session, found))
    except _Unbound as unbound:
        return unbound.entries


def _bound_and_created(call: Call, found: Sequence[Mapping[str, Any]]) -> list[Entry]:
    entries = _bound(call.session, found)
    for place, entry in enumerate(found):
        if "create" in entry:
            entries[place] = _created(call, entry)
    if any("problem" in entry for entry in entries):
        raise _Unbound(_problems_of(entries))
    return entries


def _created(call: Call, entry: Mapping[str, Any]) -> Entry:
    wanted = entry["create"]
    new = NewParty(PartyKind(wanted["kind"]), wanted["name"], wanted.get("jurisdiction"), wanted.get("date_of_birth"))
    try:
        [party] = create_parties(call, [new])
    except ValueError as error:
        return {"problem": _problem(INVALID_FIELD, str(error))}
    told = party_json(party.id, party.name, party.kind, party.jurisdiction)
    return {"party": told, "reason": entry["reason"], "created": party.created}


def _bound(session: Session, found: Sequence[Mapping[str, Any]]) -> list[Entry]:
    """Returns the entries with each party as it is now; those that are to be created stay as they are.

    Raises:
        _Unbound: one of the parties cannot be used any more.
    """
    entries = [_looked_at(session, entry) if "party" in entry else dict(entry) for entry in found]
    if any("problem" in entry for entry in entries):
        raise _Unbound(_problems_of(entries))
    return entries


def _looked_at(session: Session, entry: Mapping[str, Any]) -> Entry:
    chosen = entry["party"]
    if chosen.get("kind") in RESOLVER.terms:
        return {"party": dict(chosen), "reason": str(entry.get("reason", "")), "created": False}
    party = session.get(Party, chosen["id"]) if is_id(chosen["id"]) else None
    if KNOWN_AS in entry and (wrong := _why_not_taken(party, entry)) is not None:
        return {"problem": _problem_of_known(entry, wrong)}
    if party is None:
        told = f"{chosen.get('kind', 'party')} {chosen.get('name')!r} ({chosen['id']}) is not there any more"
        return {"problem": _problem(LOOKUP_NOT_FOUND, told)}
    if party.status != PartyStatus.ACTIVE:
        return {"problem": _problem(LOOKUP_NOT_FOUND, f"{described(party)} is inactive")}
    told_party = party_json(party.id, party.name, party.kind, party.jurisdiction)
    return {"party": told_party, "reason": str(entry.get("reason", "")), "created": False}


def _problem_of_known(entry: Mapping[str, Any], message: str) -> dict[str, Any]:
    known_as, either = entry[KNOWN_AS], _either(entry)
    if known_as == BY_ID:
        code, hint = INVALID_ARGUMENTS, f"give the id of a {either}, or write under lookups what it is called"
    else:
        name = known_as.removeprefix("@")
        code, hint = MISSING_CONTEXT, f"give the id of a {either} with --context {name}=ID"
    return {"code": code, "message": message, "hint": hint, "candidates": []}


def _why_not_taken(party: Party | None, entry: Mapping[str, Any]) -> str | None:
    """Returns why a party that the plan knows cannot be used, `None` if it can."""
    given, is_by_id = repr(entry["party"]["id"])[:80], entry[KNOWN_AS] == BY_ID
    name = given if is_by_id else entry[KNOWN_AS]
    if party is None:
        return f"No party has the id {given}." if is_by_id else f"{name} is {given}, and no party has that id."
    if party.status != PartyStatus.ACTIVE:
        return f"{name} is {described(party)}, which is inactive."
    if party.kind not in entry["kinds"]:
        return f"{name} is {described(party)}, and a {_either(entry)} is needed."
    return None


def _either(entry: Mapping[str, Any]) -> str:
    return " or ".join(entry["kinds"])


def _problem(code: str, message: str) -> dict[str, Any]:
    hint = "Run it again: what is meant is asked again."
    return {"code": code, "message": f"What was looked up: {message}.", "hint": hint, "candidates": []}


def _problems_of(entries: Sequence[Mapping[str, Any]]) -> list[Entry]:
    """Returns the problems in their places, with fewer candidates each if all of them would be too long."""
    told: list[Entry] = [{"problem": dict(entry["problem"])} if "problem" in entry else {} for entry in entries]
    for most in (10, 3, 1, 0):
        if len(json.dumps(told)) <= PROBLEMS_BYTES:
            break
        for problem in (entry["problem"] for entry in told if entry):
            problem["candidates"] = list(problem.get("candidates", ()))[:most]
    return told
