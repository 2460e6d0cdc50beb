"""Binding the lookups of a request: each to exactly one party, or all that is wrong with them at once.

The plain JSON in and out of the activity `resolve_lookups` is made here, so the activity stays thin.
This module must not change the store and must not import Temporal.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dagwright.entities.database import EntityDatabase
from dagwright.entities.lookup import CANDIDATE_LIMIT, Candidate, Findings, PartyFinder

LOOKUP_AMBIGUOUS = "lookup_ambiguous"
LOOKUP_NOT_FOUND = "lookup_not_found"
INVALID_FIELD = "invalid_field"

_SHOWN_IN_MESSAGE = 5


@dataclass(frozen=True, slots=True)
class LookupProblem:
    """A lookup that could not be bound.

    Args:
        index: position in the list of lookups.
        code: `lookup_ambiguous`, `lookup_not_found` or `invalid_field`.
        message: one sentence that names the text and lists the first candidates.
        hint: what to do about it.
        candidates: the hits of an ambiguous lookup, the near ones of one that found nothing; best first.
    """

    index: int
    code: str
    message: str
    hint: str
    candidates: tuple[Candidate, ...] = ()

    def as_json(self, candidates: int = CANDIDATE_LIMIT) -> dict[str, Any]:
        """Returns the problem as plain JSON with at most that many candidates, the best."""
        shown = [asdict(candidate) for candidate in self.candidates[:candidates]]
        return {**asdict(self), "candidates": shown}


class LookupsFailed(ValueError):
    """Not every lookup could be bound; `problems` says all that is wrong, in the order of the lookups."""

    def __init__(self, problems: Sequence[LookupProblem]) -> None:
        super().__init__(" ".join(problem.message for problem in problems))
        self.problems = tuple(problems)


def problems_as_json(problems: Sequence[LookupProblem], *, limit_bytes: int) -> list[dict[str, Any]]:
    """Returns the problems as JSON of at most `limit_bytes`: fewer candidates each, then fewer problems."""
    for candidates in (CANDIDATE_LIMIT, 3, 1, 0):
        told = [problem.as_json(candidates) for problem in problems]
        sizes = [len(json.dumps(problem)) + len(", ") for problem in told]
        if sum(sizes) <= limit_bytes:
            return told
    total = 0
    for count, size in enumerate(sizes):
        total += size
        if total > limit_bytes:
            return told[:count]
    return told


def resolve_lookups(database: EntityDatabase, lookups: Sequence[Any]) -> list[Candidate]:
    """Returns the one party that each lookup means, in the order of the lookups, all from one view.

    Args:
        lookups: `{"search_text", "entity_type"}` each; further keys are ignored.

    Raises:
        LookupsFailed: a lookup is malformed, or means no party or several.
    """
    outcomes = database.read(lambda session: _outcomes(PartyFinder(session), lookups))
    problems = [outcome for outcome in outcomes if isinstance(outcome, LookupProblem)]
    if problems:
        raise LookupsFailed(problems)
    return [outcome for outcome in outcomes if isinstance(outcome, Candidate)]


def _outcomes(finder: PartyFinder, lookups: Sequence[Any]) -> list[Candidate | LookupProblem]:
    return [_outcome(finder, lookup, index=index) for index, lookup in enumerate(lookups)]


def _outcome(finder: PartyFinder, lookup: Any, *, index: int) -> Candidate | LookupProblem:
    fields: Mapping[str, Any] = lookup if isinstance(lookup, Mapping) else {}
    search_text, entity_type = fields.get("search_text"), fields.get("entity_type")
    if not isinstance(search_text, str) or not isinstance(entity_type, str):
        return LookupProblem(
            index, INVALID_FIELD, "A lookup needs search_text and entity_type, both text.", "Give both."
        )
    try:
        findings = finder.find(search_text, entity_type)
    except ValueError as error:
        return LookupProblem(index, INVALID_FIELD, f"{error}.", "Correct the lookup.")
    if len(findings.hits) == 1:
        return findings.hits[0]
    return _problem(findings, f"{entity_type} {search_text!r}", index=index)


def _problem(findings: Findings, asked: str, *, index: int) -> LookupProblem:
    if findings.hits:
        message = f"Several parties can be meant by {asked}: {_listed(findings.hits)}."
        hint = "Use the whole name or an identifier of the one you mean."
        return LookupProblem(index, LOOKUP_AMBIGUOUS, message, hint, findings.hits)
    if findings.near:
        message = f"No party found for {asked}; near: {_listed(findings.near)}."
        hint = "Use one of these names with its own type, or create the party first and refer to its result."
        return LookupProblem(index, LOOKUP_NOT_FOUND, message, hint, findings.near)
    hint = "Load the party first (`dagwright entities load FILE`), or create it and refer to its result."
    return LookupProblem(index, LOOKUP_NOT_FOUND, f"No party found for {asked}.", hint)


def _listed(candidates: Sequence[Candidate]) -> str:
    shown = [
        f"{found.name} ({found.kind}, {found.jurisdiction or 'jurisdiction not known'}, {found.id})"
        for found in candidates[:_SHOWN_IN_MESSAGE]
    ]
    left_out = len(candidates) - len(shown)
    return "; ".join(shown) + (f"; and {left_out} more" if left_out > 0 else "")
