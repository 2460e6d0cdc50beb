"""What a person is told of a question that is answered in rounds: what it means, and what each round brought.

`lines_of` is the one reading of the part `rounds` of a document; the live picture, the lines of a run that goes on and
what is said at its end are made of it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from dagwright.features.plan_extension.extender import GoalUnreachable
from dagwright.history.run_reader import RunView
from dagwright.interfaces.cli.output import one_line
from dagwright.interfaces.cli.progress import call_words
from dagwright.planning.rounds.documents import rounds_document
from dagwright.planning.rounds.loop import Rounds
from dagwright.planning.rounds.rounds import INTENTION
from dagwright.planning.rounds.state import RoundsState

WORDS = 600
"""Characters of one line of what a planner or a worker says."""
LEFT_OUT = "left out"
"""Status of a line that stands for several results."""
NO_CALLS: Mapping[str, str] = MappingProxyType({})
_OPEN = ("pending", "running")
_ENDS = {"pending": "never begun", LEFT_OUT: ""}
"""What is said of a run that has ended where that is not the status."""
_PHASES = {
    "idle": "waiting for a worker",
    "planning": "the planner is asked what to do next",
    "executing": "workers are at work",
    "joining": "all of the round has ended",
    "done": "the answer is being written",
    "failed": "it came to nothing",
}


@dataclass(frozen=True, slots=True)
class RoundLine:
    """One thing to tell of a run.

    Args:
        key: `meant`, `round 2` or `sg3`.
        name: of a sub-goal with its worker, else what is told.
        words: what a model or a worker says of it; empty if nothing is said.
        is_taken: whether a round has a plan; the reason of an answer that could not be taken is none of the run.
        status: of a sub-goal in its round, as the document has it; empty of all else.
        about: what a sub-goal is to do.
    """

    key: str
    name: str
    words: str
    is_taken: bool = True
    action: str = ""
    status: str = ""
    about: str = ""


def rounds_of(view: RunView) -> Mapping[str, Any] | None:
    """Returns how far a run has come that answers a question in rounds, without results; `None` of any other run."""
    return rounds_document(view.scheduler, lambda _value, _ref: None) if view.scheduler is not None else None


def calls_of(view: RunView, *, now: float) -> Mapping[str, str]:
    """Returns what is worth saying of the calls in flight: `sg3`, `plan`… -> which attempt it is, and why."""
    found = {}
    for task, call in view.pending.items():
        attempt = f"attempt {call.attempt}" if call.attempt > 1 else ""
        if words := ", ".join(filter(None, [attempt, call_words(call, now=now)])):
            # A sub-goal that is begun again, and a call of the planner behind the first, have a number behind the name.
            found[task.partition("#")[0]] = one_line(words, limit=WORDS)
    return found


def times_of(view: RunView) -> Mapping[str, float]:
    """Returns when it was that the lines of a question could be told: key of a line -> seconds since the epoch."""
    scheduler = view.scheduler
    if scheduler is None or not isinstance(scheduler.features.extension.extender, Rounds):
        return {}
    found = {"meant": scheduler.record_of(scheduler.state.newest_id(INTENTION))}
    try:
        calls = RoundsState(scheduler.state, scheduler.features.extension.extender.rounds).calls
    except GoalUnreachable:
        calls = ()
    found |= {f"round {call.round}": call.record for call in calls if call.record.ended_at is not None}
    return {key: record.ended_at for key, record in found.items() if record is not None and record.ended_at is not None}


def lines_of(told: Mapping[str, Any]) -> Iterator[RoundLine]:
    """Yields what a question means and its rounds, each with what ended in it and with what is still open of it.

    Args:
        told: the part `rounds` of a document.
    """
    if told.get("intention"):
        yield RoundLine("meant", "What is meant", _said(told["intention"]))
    sub_goals = {sub_goal["id"]: sub_goal for sub_goal in told.get("sub_goals", ())}
    rounds = told.get("rounds", ())
    # One that is begun again is among the sub-goals of each round that has begun it, and open in the newest alone.
    newest = {number: each["round"] for each in rounds for number in each["sub_goals"]}
    for each in rounds:
        action, reason = each["action"], _said(each["reasoning"])
        reason = " — ".join(filter(None, [reason, _said(each.get("refused"))]))
        if action or reason or each["sub_goals"]:
            name = f"Round {each['round']}"
            yield RoundLine(f"round {each['round']}", name, reason, is_taken=bool(action), action=action or "no plan")
        for result in each["results"]:
            yield _line(result["sub_goal_id"], sub_goals, result["status"], result["error"], result["message"])
        if omitted := each.get("omitted_results"):
            yield RoundLine("", f"results left out here: {omitted:,}", "", status=LEFT_OUT)
        for number in each["sub_goals"]:
            sub_goal = sub_goals.get(number, {})
            if sub_goal.get("status") in _OPEN and newest[number] == each["round"]:
                yield _line(number, sub_goals, sub_goal["status"], sub_goal.get("error"))


def round_lines(document: Mapping[str, Any]) -> Iterator[str]:
    """Yields what is said of the rounds of a run that has ended; nothing of any other run."""
    told = document.get("rounds")
    if not isinstance(told, Mapping):
        return
    for line in lines_of(told):
        if line.status:
            yield ": ".join(filter(None, [f"  {line.name}", _ENDS.get(line.status, line.status), line.words]))
        else:
            yield _reason(line)


def reason_lines(document: Mapping[str, Any]) -> Iterator[str]:
    """Yields the same without the sub-goals: what is meant, and why each round was planned."""
    told = document.get("rounds")
    yield from (_reason(line) for line in lines_of(told) if not line.status) if isinstance(told, Mapping) else ()


def phase_line(document: Mapping[str, Any], *, is_closed: bool) -> str | None:
    """Returns how far a question has come, on one line; `None` of any other run.

    Args:
        is_closed: whether its run has ended.
    """
    told = document.get("rounds")
    if not isinstance(told, Mapping) or "round" not in told:
        return None
    words = told["phase"] if is_closed else f"{told['phase']}: {phase_words(told)}"
    return f"round {told['round']} of {told['max_rounds']}, {words}"


def phase_words(told: Mapping[str, Any]) -> str:
    """Returns what goes on in a run, or by what it came to nothing.

    Args:
        told: the part `rounds` of a document.
    """
    phase = str(told["phase"])
    if phase == "planning" and not told.get("intention"):
        return "the question is put into words"
    words = _PHASES.get(phase, "")
    return words if phase != "failed" else told.get("planner_reasoning") or words


def new_lines(told: Mapping[str, Any] | None, seen: set[str]) -> Sequence[tuple[str, str]]:
    """Returns what is new in the rounds of a run where there is no picture: a word for each line, and the line.

    A sub-goal is told by the line of its node, the reason of a round as soon as its plan is taken, and before that what
    was wrong with one that could not be.

    Args:
        told: of `rounds_of`.
        seen: what was told before; what is told now is added.
    """
    lines = [line for line in (lines_of(told) if told is not None else ()) if line.words and not line.status]
    found = []
    for line in lines:
        words = line.words if line.is_taken else f"not taken: {line.words}"
        # Each answer that cannot be taken is told once.
        key = line.key if line.is_taken else f"{line.key}: {words}"
        if key not in seen:
            found.append((line.key, words))
        seen.add(key)
    return found


def _reason(line: RoundLine) -> str:
    if line.action:
        return f"{line.name} ({line.action}): {line.words or 'no reason given'}"
    return f"{line.name}: {line.words}"


def _line(
    number: int, sub_goals: Mapping[int, Mapping[str, Any]], status: str, error: Any, message: Any = None
) -> RoundLine:
    sub_goal = sub_goals.get(number, {})
    words = " — ".join(filter(None, [_said(error), _said(message)]))
    name = f"sg{number} {one_line(str(sub_goal.get('worker', '')))}".strip()
    return RoundLine(f"sg{number}", name, words, status=status, about=_said(sub_goal.get("description")))


def _said(text: Any) -> str:
    return one_line(str(text), limit=WORDS) if text else ""
