"""Session: the state of a conversation of several requests, and its transitions. The module has no side effects.

The workflow `Session` calls the transitions. The whole state is small JSON in the memo of the workflow, so clients can
read the state without a worker, and the next execution continues with the state. Old entries are dropped when new
entries are added.
"""

import json
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dagwright.core.boundary import wire
from dagwright.core.errors import DagwrightError
from dagwright.core.expressions.value_refs import encoded_size
from dagwright.core.model.lookups import filters_in
from dagwright.core.model.policy import Policy, policy_from_json
from dagwright.core.model.states import RunStatus
from dagwright.core.model.times import format_time
from dagwright.core.text import cut_bytes
from dagwright.planning.conversation import TurnSummary
from dagwright.protocol.messages import ParentSession
from dagwright.protocol.turn_summaries import answer_ref_from_json, response_of, shorten_responses
from dagwright.protocol.turns import (
    MAX_EXPLANATION_BYTES,
    MAX_NAMES,
    MAX_OUTCOME_BYTES,
    MAX_TURN_REQUEST_BYTES,
    TurnEnd,
    TurnStart,
    turn_end_from_json,
)

MAX_SESSION_NAME_BYTES = 150
"""Maximum size of the name of a session in UTF-8. The name with its prefix is a workflow id and a search attribute."""
MAX_STORED_TURNS = 50
"""Maximum number of turns that a session stores."""
MAX_TURNS_BYTES = 14_000
"""Maximum size of the encoded turns of a session without their responses, which have a limit of 16,000 bytes.

With all its parts, the state stays below the memo limit of 64 KiB.
"""
MAX_NAMES_BYTES = 6_000
"""Maximum size of the encoded entities of a session with their names."""
MAX_LOOKUPS_BYTES = 10_000
"""Maximum size of the encoded lookups of a session."""


class SessionIdInvalid(DagwrightError, ValueError):
    """The ID is not valid for a session; the text has the reason."""


def normalized_session_name(text: str) -> str:
    """Return the normalized name of a session: in NFC, without surrounding whitespace.

    Raises:
        SessionIdInvalid: no session can have this ID.
    """
    name = unicodedata.normalize("NFC", text).strip()
    if not 0 < len(name.encode(errors="replace")) <= MAX_SESSION_NAME_BYTES:
        problem = "is empty" if not name else f"has {len(name.encode(errors='replace')):,} bytes"
        raise SessionIdInvalid(f"the session ID {problem}; it must be 1-{MAX_SESSION_NAME_BYTES} bytes of UTF-8")
    # Invisible and bidirectional control characters would make two names look the same.
    if any(unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp") for character in name):
        raise SessionIdInvalid(f"the session ID {name!r} contains characters that are not allowed")
    return name


def session_workflow_id(session_name: str) -> str:
    """Return the workflow id of a session."""
    return f"{wire.ID_SESSION}{session_name}"


def session_name_in(workflow_id: str) -> str:
    """Return the stored name in the workflow id of a session; any other id is returned unchanged."""
    return workflow_id.removeprefix(wire.ID_SESSION)


def input_problem(message: Any, *, workflow_id: str) -> str | None:
    """Return the problem of the input of a session workflow, or `None`.

    Args:
        message: must be `{"session_id": NAME}` for the workflow ID `session-NAME`.
    """
    if not workflow_id.startswith(wire.ID_SESSION) or not session_name_in(workflow_id):
        return f"the workflow ID of a session is {wire.ID_SESSION}NAME, not {workflow_id!r:.200}"
    name = session_name_in(workflow_id)
    if not isinstance(message, Mapping) or message.get("session_id") != name:
        expected_json = json.dumps({"session_id": name}, ensure_ascii=False)
        return f"the input of a session is invalid: expected {expected_json}, got {message!r:.200}"
    return None


@dataclass(frozen=True, slots=True)
class Turn:
    """One request in a session.

    Args:
        number: 1 for the first turn of the session.
        run_id: id of the turn's run.
        status: `running`, or the final status of the run.
        outcome: outcome on one line.
        response: answer of the turn, if `outcome` does not contain the whole answer.
        response_ref: reference of the full answer, if the answer is in the payload store.
        names: names of the entities that the turn set.
        started_at, ended_at: RFC 3339.
    """

    number: int
    run_id: str
    request: str
    status: str = RunStatus.RUNNING.value
    explanation: str | None = None
    outcome: str | None = None
    response: str | None = None
    response_ref: Mapping[str, Any] | None = None
    names: Sequence[str] = ()
    started_at: str | None = None
    ended_at: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "run_id": self.run_id,
            "request": self.request,
            "status": self.status,
            "explanation": self.explanation,
            "outcome": self.outcome,
            "response": self.response,
            **({"response_ref": dict(self.response_ref)} if self.response_ref is not None else {}),
            "names": list(self.names),
            "started_at": self.started_at,
            "ended_at": self.ended_at,
        }

    def to_text(self, names: Mapping[str, Mapping[str, Any]]) -> str:
        """Return the turn as text for the next planner.

        Args:
            names: current entities of the session by name.
        """
        parts = [f"Request: {self.request or '(a plan)'}"]
        parts += [f"Plan: {self.explanation}"] if self.explanation else []
        entities = [f"@{name} ({names[name].get('name') or names[name]['id']})" for name in self.names if name in names]
        parts += [f"It set {', '.join(entities)}."] if entities else []
        result = f"Result: {self.status.replace('_', ' ')}"
        # The result comes last, because the end is cut if the text is too long.
        parts.append(f"{result}: {self.answer or self.outcome}" if self.answer or self.outcome else result)
        return "\n".join(parts)

    @property
    def answer(self) -> str | None:
        """Stored answer; `None` if the turn has no answer."""
        return self.response or (self.outcome if self.status == RunStatus.COMPLETED.value else None)

    def summary(self) -> TurnSummary:
        """Return the turn as a summary for requests that are answered in rounds."""
        answer = self.answer
        if answer is None:
            status = self.status.replace("_", " ")
            answer = f"({status}: {self.outcome})" if self.outcome else f"({status})"
        return TurnSummary(self.number, self.request or "(a plan)", answer)


@dataclass(frozen=True, slots=True)
class TurnRejection:
    """Why a session rejects a turn.

    Args:
        code: `session_busy`, `session_changed` or `session_ending`.
        run_id: ID of the running run, for `session_busy`.
    """

    code: str
    message: str
    run_id: str | None = None


@dataclass(slots=True)
class SessionRecord:
    """State of a session. Times are seconds since the epoch.

    Args:
        version: increased by each change, to detect a turn that was prepared for an older version.
        names: name of an entity, without `@` -> `{"id", "name", "kind"}`, the newest last.
        resolved_lookups: entities found for search texts, the newest last, in the form of the result document.
        turns: the newest turns, oldest first.
        omitted_turns: number of dropped turns.
        is_ending: the session accepts no more turns, and ends when no turn is running.
    """

    name: str
    version: int = 0
    names: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    resolved_lookups: list[Mapping[str, Any]] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    omitted_turns: int = 0
    policy: Policy | None = None
    is_ending: bool = False

    @property
    def running_turn(self) -> Turn | None:
        """The running turn, if any."""
        return self.turns[-1] if self.turns and self.turns[-1].status == RunStatus.RUNNING.value else None

    @property
    def has_ended(self) -> bool:
        """Whether the session has ended."""
        return self.is_ending and self.running_turn is None

    @property
    def status(self) -> str:
        """`idle`, `running`, `ending` (with a running turn) or `ended`."""
        if self.is_ending:
            return "ended" if self.has_ended else "ending"
        return "idle" if self.running_turn is None else "running"

    def turn_of(self, run_id: str) -> Turn | None:
        """Return the turn of a run, if it is still stored."""
        return next((turn for turn in reversed(self.turns) if turn.run_id == run_id), None)

    def turn_texts(self) -> list[str]:
        """Return the turns that have ended as texts for the next planner, oldest first."""
        return [turn.to_text(self.names) for turn in self._ended_turns()]

    def turn_summaries(self) -> list[TurnSummary]:
        """Return summaries of the ended turns for a request that is answered in rounds, oldest first."""
        return [turn.summary() for turn in self._ended_turns()]

    def with_answers(self, answers: Mapping[str, str]) -> "SessionRecord":
        """Return the session with full answers in place of cut answers.

        Args:
            answers: run ID of a turn -> full answer of the turn.
        """
        turns = [replace(turn, response=answers.get(turn.run_id, turn.response)) for turn in self.turns]
        return replace(self, turns=turns)

    def with_shortened_answers(self) -> "SessionRecord":
        """Return the session with its answers cut to the lengths that a session stores."""
        responses = shorten_responses([turn.response for turn in self.turns])
        turns = [replace(turn, response=response) for turn, response in zip(self.turns, responses, strict=True)]
        return replace(self, turns=turns)

    def _ended_turns(self) -> list[Turn]:
        return [turn for turn in self.turns if turn.status != RunStatus.RUNNING.value]

    # Transitions.

    def rejection_of(self, start: TurnStart) -> TurnRejection | None:
        """Return why a turn cannot start, or `None`. A turn that exists already is not rejected."""
        if self.turn_of(start.run_id) is not None:
            return None
        if self.is_ending:
            return TurnRejection("session_ending", f"the session {self.name!r} is ending and accepts no more requests")
        if (running_turn := self.running_turn) is not None:
            run_id = running_turn.run_id
            message = f"the session {self.name!r} is busy with the run {run_id!r}; the next turn can start after it"
            return TurnRejection("session_busy", message, run_id)
        if start.version not in (None, self.version):
            message = f"the session {self.name!r} has changed since this turn was prepared: prepare it again"
            return TurnRejection("session_changed", message)
        return None

    def start_turn(self, start: TurnStart, *, at: float) -> bool:
        """Start a turn that is not rejected; return `False` for a turn that exists already."""
        if self.turn_of(start.run_id) is not None:
            return False
        number = self.omitted_turns + len(self.turns) + 1
        self.turns.append(Turn(number, start.run_id, start.request, started_at=format_time(at)))
        self.policy = start.policy or self.policy
        self._record_change()
        return True

    def input_of_turn(self, start: TurnStart, *, workflow_id: str) -> dict[str, Any]:
        """Return the input of the run of a turn: the input that was sent, with the state of the session.

        Args:
            workflow_id: workflow id of the session.
        """
        turn_input = {**start.run_input, "session": ParentSession(workflow_id, start.run_id).to_json()}
        if self.resolved_lookups:
            turn_input["known_entities"] = [dict(lookup) for lookup in self.resolved_lookups]
        options = turn_input.get("options")
        if self.policy is not None and (options is None or isinstance(options, Mapping)):
            turn_input["options"] = {"policy": self.policy.to_json(), **(options or {})}
        if "compiled" not in turn_input and not turn_input.get("context"):
            # The plan is not compiled yet, so its names are not resolved yet.
            turn_input["context"] = {name: dict(entity) for name, entity in self.names.items()}
        return turn_input

    def end_turn(self, run_id: str, end: TurnEnd, *, at: float) -> bool:
        """Record the end of the run of a turn; return `False` if that turn is not running.

        Args:
            run_id: id of the turn's run.
        """
        turn = self.running_turn
        if turn is None or turn.run_id != run_id:
            return False
        self.turns[-1] = replace(
            turn,
            status=end.status,
            outcome=end.outcome,
            response=end.response,
            response_ref=end.response_ref,
            explanation=end.explanation,
            names=tuple(end.names),
            ended_at=format_time(at),
        )
        for name, entity in end.names.items():
            self.names.pop(name, None)
            self.names[name] = entity
        # After a failed lookup, it is unknown which entities still exist. To look up all entities again costs little.
        self.resolved_lookups = [] if end.has_failed_lookup else self.resolved_lookups
        for lookup in end.resolved_lookups:
            self.resolved_lookups = [
                known_lookup
                for known_lookup in self.resolved_lookups
                if _lookup_key(known_lookup) != _lookup_key(lookup)
            ]
            self.resolved_lookups.append(lookup)
        self._record_change()
        return True

    def drop_turn(self, run_id: str) -> None:
        """Remove the running turn, because the ID of the turn belongs to a run that another client started."""
        if self.running_turn is not None and self.running_turn.run_id == run_id:
            self.turns.pop()
            self._record_change()

    def end(self) -> None:
        """Accept no more turns."""
        self.is_ending = True
        self._record_change()

    def _record_change(self) -> None:
        self.version += 1
        self.turns = self.with_shortened_answers().turns
        encoded_turns = [{**turn.to_json(), "response": None} for turn in self.turns]
        turn_count = _count_of_newest(encoded_turns, max_count=MAX_STORED_TURNS, max_bytes=MAX_TURNS_BYTES)
        self.omitted_turns += len(self.turns) - turn_count
        self.turns = self.turns[len(self.turns) - turn_count :]
        lookup_count = _count_of_newest(list(self.resolved_lookups), max_bytes=MAX_LOOKUPS_BYTES)
        self.resolved_lookups = self.resolved_lookups[len(self.resolved_lookups) - lookup_count :]
        names = list(self.names.items())
        name_count = _count_of_newest(names, max_count=MAX_NAMES, max_bytes=MAX_NAMES_BYTES)
        self.names = dict(names[len(names) - name_count :])

    # Serialization.

    def to_json(self) -> dict[str, Any]:
        """Return the session for its memo and for documents."""
        return {
            "session_id": self.name,
            "status": self.status,
            "version": self.version,
            "context": {name: dict(entity) for name, entity in self.names.items()},
            "lookups": [dict(lookup) for lookup in self.resolved_lookups],
            "turns": [turn.to_json() for turn in self.turns],
            "omitted_turns": self.omitted_turns,
            "policy": self.policy.to_json() if self.policy is not None else None,
        }


def _lookup_key(lookup: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the fields that identify a lookup."""
    return (lookup.get("search_text"), lookup.get("entity_type"), filters_in(lookup))


def _count_of_newest(values: Sequence[Any], *, max_bytes: int, max_count: int | None = None) -> int:
    """Return how many of the last values fit, at least 1."""
    remaining_bytes = max_bytes
    for count, value in enumerate(reversed(values)):
        remaining_bytes -= encoded_size(value)
        if count and (remaining_bytes < 0 or count == max_count):
            return count
    return len(values)


def session_from_json(encoded: Any, *, name: str) -> SessionRecord:
    """Decode the result of `SessionRecord.to_json`.

    Args:
        name: name of the session, from its workflow id.

    Raises:
        ValueError: `encoded` is not the JSON of a session.
    """
    try:
        end = turn_end_from_json({"status": "completed", "names": encoded["context"], "bindings": encoded["lookups"]})
        return SessionRecord(
            name=name,
            version=int(encoded["version"]),
            names=dict(end.names),
            resolved_lookups=list(end.resolved_lookups),
            turns=[_turn_from_json(turn) for turn in encoded["turns"]][-MAX_STORED_TURNS:],
            omitted_turns=int(encoded["omitted_turns"]),
            policy=policy_from_json(encoded["policy"]) if encoded.get("policy") is not None else None,
            is_ending=encoded["status"] in ("ending", "ended"),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a session: {error!r}") from None


def _turn_from_json(encoded: Mapping[str, Any]) -> Turn:
    return Turn(
        number=int(encoded["number"]),
        run_id=str(encoded["run_id"]),
        request=cut_bytes(str(encoded["request"]), max_bytes=MAX_TURN_REQUEST_BYTES),
        status=str(encoded["status"]),
        explanation=_cut(encoded.get("explanation"), MAX_EXPLANATION_BYTES),
        outcome=_cut(encoded.get("outcome"), MAX_OUTCOME_BYTES),
        response=response_of(encoded.get("response")),
        response_ref=answer_ref_from_json(encoded.get("response_ref")),
        names=tuple(str(name) for name in encoded.get("names", ())),
        started_at=_cut(encoded.get("started_at"), 40),
        ended_at=_cut(encoded.get("ended_at"), 40),
    )


def _cut(value: Any, max_bytes: int) -> str | None:
    return cut_bytes(value, max_bytes=max_bytes) if isinstance(value, str) else None
