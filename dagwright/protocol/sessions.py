"""A session: what a conversation of several requests knows, and what may happen to it, as pure code.

The workflow `Session` drives it. Its whole state is small plain JSON, which lies in the memo of the workflow: so
whoever looks needs no worker, and the next execution finds it there. What is new pushes out what is oldest.
"""

import json
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dagwright.core.boundary import wire
from dagwright.core.boundary.text import cut_bytes
from dagwright.core.errors import DagwrightError
from dagwright.core.model.lookups import filters_in
from dagwright.core.model.policy import Policy, policy_from_json
from dagwright.core.model.states import RunStatus
from dagwright.core.model.times import format_time
from dagwright.planning.conversation import TurnSummary
from dagwright.protocol.documents import encoded_size
from dagwright.protocol.messages import TurnPlace
from dagwright.protocol.turn_summaries import place_from_json, response_of, shortened
from dagwright.protocol.turns import (
    EXPLANATION_BYTES,
    NAMES,
    OUTCOME_BYTES,
    REQUEST_BYTES,
    TurnEnd,
    TurnStart,
    turn_end_from_json,
)

NAME_BYTES = 150
"""UTF-8 of the name of a session: with what stands before it, it is a workflow id and a search attribute."""
TURNS = 50
"""Turns that a session remembers."""
TURNS_BYTES = 14_000
NAMES_BYTES = 6_000
LOOKUPS_BYTES = 10_000
"""Encoded parts of the state, the turns without their answers. With those (`RESPONSES_BYTES`) and a policy it stays
below the 64 KiB that a memo may have in every database of a server."""


class SessionNameInvalid(DagwrightError, ValueError):
    """No session can have that name; the text says why."""


def session_name(text: str) -> str:
    """Returns a name of a session as it is kept: in NFC, without blanks around it.

    Raises:
        SessionNameInvalid: it is none.
    """
    name = unicodedata.normalize("NFC", text).strip()
    if not 0 < len(name.encode(errors="replace")) <= NAME_BYTES:
        told = "is empty" if not name else f"has {len(name.encode(errors='replace')):,} bytes"
        raise SessionNameInvalid(f"the name of the session {told}; it has 1 to {NAME_BYTES} bytes of UTF-8")
    # Marks that turn lines around or cannot be seen would make two names look like one.
    if any(unicodedata.category(sign) in ("Cc", "Cf", "Cs", "Zl", "Zp") for sign in name):
        raise SessionNameInvalid(f"the name {name!r} holds characters that the name of a session cannot have")
    return name


def session_id(name: str) -> str:
    """Returns the workflow id of a session."""
    return f"{wire.ID_SESSION}{name}"


def name_of_session(workflow_id: str) -> str:
    """Returns the name of the session that has a workflow id; anybody may have given a workflow any."""
    return workflow_id.removeprefix(wire.ID_SESSION)


def input_problem(message: Any, *, workflow_id: str) -> str | None:
    """Check the input of a session workflow; returns the problem, or `None`.

    Args:
        message: must be `{"session_id": NAME}`, where NAME is the one in the workflow ID `session-NAME`.
    """
    if not workflow_id.startswith(wire.ID_SESSION) or not name_of_session(workflow_id):
        return f"the workflow ID of a session is {wire.ID_SESSION}NAME, not {workflow_id!r:.200}"
    name = name_of_session(workflow_id)
    if not isinstance(message, Mapping) or message.get("session_id") != name:
        expected = json.dumps({"session_id": name}, ensure_ascii=False)
        return f"the input of a session is invalid: expected {expected}, got {message!r:.200}"
    return None


@dataclass(frozen=True, slots=True)
class Turn:
    """One request in a session.

    Args:
        number: 1 for the first of the session.
        run: id of its run.
        status: `running`, or how the run ended.
        outcome: what came of it, on one line.
        response: its answer, if the outcome does not say all of it.
        response_at: where all of that answer lies, if it is too long for a run to hold.
        names: names that it set.
        began_at, ended_at: RFC 3339.
    """

    number: int
    run: str
    request: str
    status: str = RunStatus.RUNNING.value
    explanation: str | None = None
    outcome: str | None = None
    response: str | None = None
    response_at: Mapping[str, Any] | None = None
    names: Sequence[str] = ()
    began_at: str | None = None
    ended_at: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Returns the turn as documents and the state have it."""
        return {
            "number": self.number,
            "run_id": self.run,
            "request": self.request,
            "status": self.status,
            "explanation": self.explanation,
            "outcome": self.outcome,
            "response": self.response,
            **({"response_at": dict(self.response_at)} if self.response_at is not None else {}),
            "names": list(self.names),
            "began_at": self.began_at,
            "ended_at": self.ended_at,
        }

    def words(self, names: Mapping[str, Mapping[str, Any]]) -> str:
        """Returns the turn as the next planner is told of it.

        Args:
            names: of the session now.
        """
        parts = [f"Request: {self.request or '(a plan)'}"]
        parts += [f"Plan: {self.explanation}"] if self.explanation else []
        known = [f"@{name} ({names[name].get('name') or names[name]['id']})" for name in self.names if name in names]
        parts += [f"It set {', '.join(known)}."] if known else []
        told = f"Result: {self.status.replace('_', ' ')}"
        # Last, for it is what is cut where all of it is too long.
        parts.append(f"{told}: {self.answer or self.outcome}" if self.answer or self.outcome else told)
        return "\n".join(parts)

    @property
    def answer(self) -> str | None:
        """Its answer, as far as the session keeps it; `None` of a turn that has given none."""
        return self.response or (self.outcome if self.status == RunStatus.COMPLETED.value else None)

    def summary(self) -> TurnSummary:
        """Returns the turn as a request is told of it that is answered in rounds."""
        told = self.answer
        if told is None:
            status = self.status.replace("_", " ")
            told = f"({status}: {self.outcome})" if self.outcome else f"({status})"
        return TurnSummary(self.number, self.request or "(a plan)", told)


@dataclass(frozen=True, slots=True)
class TurnRefused:
    """Why a session does not start a turn.

    Args:
        code: `session_busy`, `session_changed`, `session_ending`.
        run: the run that goes on, if that is why.
    """

    code: str
    message: str
    run: str | None = None


@dataclass(slots=True)
class Session:
    """What a session knows; times are seconds since the epoch.

    Args:
        version: rises with each change, so that a turn that was prepared for an older one is seen.
        names: name without `@` -> `{"id", "name", "kind"}`, the newest last.
        bindings: entities that search texts were bound to, the newest last, as the document of a run has them.
        turns: the newest of them, oldest first.
        omitted_turns: how many older ones are forgotten.
        is_ending: it takes no more turns, and has ended as soon as none runs.
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
    def running(self) -> Turn | None:
        """The turn whose run goes on."""
        return self.turns[-1] if self.turns and self.turns[-1].status == RunStatus.RUNNING.value else None

    @property
    def has_ended(self) -> bool:
        """Whether nothing can happen to it any more."""
        return self.is_ending and self.running is None

    @property
    def status(self) -> str:
        """`idle`, `running`, `ending` (with the turn that runs) or `ended`."""
        if self.is_ending:
            return "ended" if self.has_ended else "ending"
        return "idle" if self.running is None else "running"

    def ids(self) -> dict[str, str]:
        """Returns what the names of the session stand for in a plan: name without `@` -> id."""
        return {name: str(known["id"]) for name, known in self.names.items()}

    def turn_of(self, run: str) -> Turn | None:
        """Returns the turn that a run is of, as far as it is remembered."""
        return next((turn for turn in reversed(self.turns) if turn.run == run), None)

    def turn_words(self) -> list[str]:
        """Returns what the next planner is told of the turns that have ended, oldest first."""
        return [turn.words(self.names) for turn in self._ended_turns()]

    def turn_summaries(self) -> list[TurnSummary]:
        """Returns what a request that is answered in rounds is told of them, oldest first."""
        return [turn.summary() for turn in self._ended_turns()]

    def with_answers(self, answers: Mapping[str, str]) -> "Session":
        """Returns the session with all of some answers: id of a run -> its answer."""
        turns = [replace(turn, response=answers.get(turn.run, turn.response)) for turn in self.turns]
        return replace(self, turns=turns)

    def shortened(self) -> "Session":
        """Returns the session with as much of the answers of its turns as requests are told."""
        responses = shortened([turn.response for turn in self.turns])
        turns = [replace(turn, response=each) for turn, each in zip(self.turns, responses, strict=True)]
        return replace(self, turns=turns)

    def _ended_turns(self) -> list[Turn]:
        return [turn for turn in self.turns if turn.status != RunStatus.RUNNING.value]

    # What happens to it.

    def refusal_of(self, start: TurnStart) -> TurnRefused | None:
        """Returns why a turn cannot start, and changes nothing; one that is there already is not refused."""
        if self.turn_of(start.run) is not None:
            return None
        if self.is_ending:
            return TurnRefused("session_ending", f"the session {self.name!r} is being ended and takes no more requests")
        if (running := self.running) is not None:
            message = f"the session {self.name!r} is at work on the run {running.run!r}; the next turn starts after it"
            return TurnRefused("session_busy", message, running.run)
        if start.version not in (None, self.version):
            message = f"the session {self.name!r} has changed since this turn was prepared: prepare it again"
            return TurnRefused("session_changed", message)
        return None

    def begin_turn(self, start: TurnStart, *, at: float) -> bool:
        """Begins a turn that is not refused; returns false for one that is there already."""
        if self.turn_of(start.run) is not None:
            return False
        number = self.omitted_turns + len(self.turns) + 1
        self.turns.append(Turn(number, start.run, start.request, began_at=format_time(at)))
        self.policy = start.policy or self.policy
        self._changed()
        return True

    def started_with(self, start: TurnStart, *, workflow_id: str) -> dict[str, Any]:
        """Returns what the run of a turn is started with: what was sent, and what the session knows.

        Args:
            workflow_id: of the session.
        """
        found = {**start.start, "session": TurnPlace(workflow_id, start.run).to_json()}
        if self.resolved_lookups:
            found["bound"] = [dict(lookup) for lookup in self.resolved_lookups]
        options = found.get("options")
        if self.policy is not None and (options is None or isinstance(options, Mapping)):
            found["options"] = {"policy": self.policy.to_json(), **(options or {})}
        if "compiled" not in found and not found.get("context"):
            # Nobody has read the plan yet, so nobody has put in what its names stand for.
            found["context"] = {name: dict(known) for name, known in self.names.items()}
        return found

    def end_turn(self, run: str, end: TurnEnd, *, at: float) -> bool:
        """Takes over what the run of a turn has come to; returns false if that turn does not run, and changes nothing.

        Args:
            run: id of the run that was started for it.
        """
        turn = self.running
        if turn is None or turn.run != run:
            return False
        self.turns[-1] = replace(
            turn,
            status=end.status,
            outcome=end.outcome,
            response=end.response,
            response_at=end.response_at,
            explanation=end.explanation,
            names=tuple(end.names),
            ended_at=format_time(at),
        )
        for name, known in end.names.items():
            self.names.pop(name, None)
            self.names[name] = known
        # Nobody knows here which of them is gone, and to look up all again costs little.
        self.resolved_lookups = [] if end.is_unbound else self.resolved_lookups
        for lookup in end.resolved_lookups:
            self.resolved_lookups = [each for each in self.resolved_lookups if _looked_up(each) != _looked_up(lookup)]
            self.resolved_lookups.append(lookup)
        self._changed()
        return True

    def drop_turn(self, run: str) -> None:
        """Takes back the turn that runs: its run is there already, and was not started for it."""
        if self.running is not None and self.running.run == run:
            self.turns.pop()
            self._changed()

    def end(self) -> None:
        """Takes no more turns."""
        self.is_ending = True
        self._changed()

    def _changed(self) -> None:
        self.version += 1
        self.turns = self.shortened().turns
        told = [{**turn.to_json(), "response": None} for turn in self.turns]
        kept = _newest(told, most=TURNS, most_bytes=TURNS_BYTES)
        self.omitted_turns += len(self.turns) - kept
        self.turns = self.turns[len(self.turns) - kept :]
        kept = _newest(list(self.resolved_lookups), most_bytes=LOOKUPS_BYTES)
        self.resolved_lookups = self.resolved_lookups[len(self.resolved_lookups) - kept :]
        names = list(self.names.items())
        kept = _newest(names, most=NAMES, most_bytes=NAMES_BYTES)
        self.names = dict(names[len(names) - kept :])

    # How it travels.

    def to_json(self) -> dict[str, Any]:
        """Returns the session as its memo has it, and as documents show it."""
        return {
            "session_id": self.name,
            "status": self.status,
            "version": self.version,
            "context": {name: dict(known) for name, known in self.names.items()},
            "lookups": [dict(lookup) for lookup in self.resolved_lookups],
            "turns": [turn.to_json() for turn in self.turns],
            "omitted_turns": self.omitted_turns,
            "policy": self.policy.to_json() if self.policy is not None else None,
        }


def _looked_up(lookup: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what an entity was found for."""
    return (lookup.get("search_text"), lookup.get("entity_type"), filters_in(lookup))


def _newest(values: Sequence[Any], *, most_bytes: int, most: int | None = None) -> int:
    """Returns how many of the last values have room; at least one does."""
    left = most_bytes
    for count, value in enumerate(reversed(values)):
        left -= encoded_size(value)
        if count and (left < 0 or count == most):
            return count
    return len(values)


def session_from_json(encoded: Any, *, name: str) -> Session:
    """Returns the session that `Session.to_json` told.

    Args:
        name: of the session, by its workflow id.

    Raises:
        ValueError: it is none.
    """
    try:
        end = turn_end_from_json({"status": "completed", "names": encoded["context"], "bindings": encoded["lookups"]})
        return Session(
            name=name,
            version=int(encoded["version"]),
            names=dict(end.names),
            resolved_lookups=list(end.resolved_lookups),
            turns=[_turn_from_json(turn) for turn in encoded["turns"]][-TURNS:],
            omitted_turns=int(encoded["omitted_turns"]),
            policy=policy_from_json(encoded["policy"]) if encoded.get("policy") is not None else None,
            is_ending=encoded["status"] in ("ending", "ended"),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"this is no session: {error!r}") from None


def _turn_from_json(encoded: Mapping[str, Any]) -> Turn:
    return Turn(
        number=int(encoded["number"]),
        run=str(encoded["run_id"]),
        request=cut_bytes(str(encoded["request"]), max_bytes=REQUEST_BYTES),
        status=str(encoded["status"]),
        explanation=_cut(encoded.get("explanation"), EXPLANATION_BYTES),
        outcome=_cut(encoded.get("outcome"), OUTCOME_BYTES),
        response=response_of(encoded.get("response")),
        response_at=place_from_json(encoded.get("response_at")),
        names=tuple(str(name) for name in encoded.get("names", ())),
        began_at=_cut(encoded.get("began_at"), 40),
        ended_at=_cut(encoded.get("ended_at"), 40),
    )


def _cut(value: Any, max_bytes: int) -> str | None:
    return cut_bytes(value, max_bytes=max_bytes) if isinstance(value, str) else None
