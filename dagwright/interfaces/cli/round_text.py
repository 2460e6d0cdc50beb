"""Text about a run that answers a question in rounds: the interpretation, and the results of each round.

The live progress, the progress lines and the final text all use `decode_rounds`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from dagwright.features.plan_extension.extender import GoalUnreachable
from dagwright.interfaces.cli.output import one_line
from dagwright.interfaces.cli.progress_tree import call_text
from dagwright.planning.rounds.rounds_documents import rounds_document
from dagwright.planning.rounds.rounds_extender import Rounds
from dagwright.planning.rounds.rounds_spec import INTENTION
from dagwright.planning.rounds.rounds_state import RoundsState

if TYPE_CHECKING:
    from dagwright.history.run_view import RunView

MAX_TEXT_CHARACTERS = 600
"""Maximum length of a text that a planner or worker tool wrote."""
OMITTED = "omitted"
"""Status of a line with the number of omitted results."""
NO_CALL_TEXTS: Mapping[str, str] = MappingProxyType({})
_OPEN_STATUSES = ("pending", "running")
_END_TEXTS = {"pending": "never started", OMITTED: ""}
"""Status of a sub-goal -> text after the end of a run; the default is the name of the status."""
_PHASES = {
    "idle": "waiting for a worker",
    "planning": "the planner decides what to do next",
    "executing": "worker tools are running",
    "joining": "all calls of the round have ended",
    "done": "the answer is being written",
    "failed": "no answer was found",
}


@dataclass(frozen=True, slots=True)
class RoundLine:
    """A line about the rounds of a run.

    Args:
        key: identifies the line: `question` (the interpretation of the question), `round 2`, or `sg3` (sub-goal 3).
        name: sub-goal and worker tool, or the heading of the line.
        text: text of a model or worker tool, such as a reason or an error; may be empty.
        is_accepted: false if the line is about a rejected plan.
        action: decision of the planner in a round; empty for other lines.
        status: status of a sub-goal in its round, as in the document; empty for other lines.
        description: description of a sub-goal.
    """

    key: str
    name: str
    text: str
    is_accepted: bool = True
    action: str = ""
    status: str = ""
    description: str = ""


def rounds_of(view: "RunView") -> Mapping[str, Any] | None:
    """Return the part `rounds` of the document of a run, without results; `None` for a run without rounds."""
    return rounds_document(view.scheduler, lambda _value, _ref: None) if view.scheduler is not None else None


def call_texts_of(view: "RunView", *, now: float) -> Mapping[str, str]:
    """Return texts about open calls that were retried, lost or cancelled: `sg3` or `plan` -> attempt and reason."""
    call_texts = {}
    for task_id, call in view.pending_calls.items():
        attempt = f"attempt {call.attempt}" if call.attempt > 1 else ""
        if text := ", ".join(filter(None, [attempt, call_text(call, now=now)])):
            # Later attempts of a sub-goal and later calls of the planner have IDs such as `sg3#2`.
            call_texts[task_id.partition("#")[0]] = one_line(text, limit=MAX_TEXT_CHARACTERS)
    return call_texts


def round_times_of(view: "RunView") -> Mapping[str, float]:
    """Return the times of the lines about rounds: key of a line -> seconds since the epoch."""
    scheduler = view.scheduler
    if scheduler is None or not isinstance(scheduler.features.extension.extender, Rounds):
        return {}
    records = {"question": scheduler.record_of(scheduler.state.newest_id(INTENTION))}
    try:
        calls = RoundsState(scheduler.state, scheduler.features.extension.extender.spec).calls
    except GoalUnreachable:
        calls = ()
    records |= {f"round {call.round}": call.record for call in calls if call.record.ended_at is not None}
    return {
        key: record.ended_at for key, record in records.items() if record is not None and record.ended_at is not None
    }


def decode_rounds(rounds_part: Mapping[str, Any]) -> Iterator[RoundLine]:
    """Yield the interpretation of the question, then each round with its results and open sub-goals.

    Args:
        rounds_part: the part `rounds` of a document.
    """
    if rounds_part.get("intention"):
        yield RoundLine("question", "Interpretation", _line_or_empty(rounds_part["intention"]))
    sub_goals = {sub_goal["id"]: sub_goal for sub_goal in rounds_part.get("sub_goals", ())}
    rounds = rounds_part.get("rounds", ())
    # A sub-goal that was started again is in several rounds, and open only in its newest round.
    newest_round_of = {number: round_part["round"] for round_part in rounds for number in round_part["sub_goals"]}
    for round_part in rounds:
        action, reason = round_part["action"], _line_or_empty(round_part["reasoning"])
        reason = " — ".join(filter(None, [reason, _line_or_empty(round_part.get("plan_problems"))]))
        if action or reason or round_part["sub_goals"]:
            name = f"Round {round_part['round']}"
            yield RoundLine(
                f"round {round_part['round']}", name, reason, is_accepted=bool(action), action=action or "no plan"
            )
        for result in round_part["results"]:
            yield _sub_goal_line(result["sub_goal_id"], sub_goals, result["status"], result["error"], result["message"])
        if omitted := round_part.get("omitted_results"):
            yield RoundLine("", f"results omitted: {omitted:,}", "", status=OMITTED)
        for number in round_part["sub_goals"]:
            sub_goal = sub_goals.get(number, {})
            if sub_goal.get("status") in _OPEN_STATUSES and newest_round_of[number] == round_part["round"]:
                yield _sub_goal_line(number, sub_goals, sub_goal["status"], sub_goal.get("error"))


def final_round_lines(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield lines about the rounds of a run that has ended; nothing for a run without rounds."""
    rounds_part = document.get("rounds")
    if not isinstance(rounds_part, Mapping):
        return
    for line in decode_rounds(rounds_part):
        if line.status:
            yield ": ".join(filter(None, [f"  {line.name}", _END_TEXTS.get(line.status, line.status), line.text]))
        else:
            yield _reason_text(line)


def reason_lines(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield the interpretation and the reason of each round, without sub-goals."""
    rounds_part = document.get("rounds")
    yield from (
        (_reason_text(line) for line in decode_rounds(rounds_part) if not line.status)
        if isinstance(rounds_part, Mapping)
        else ()
    )


def phase_line(document: Mapping[str, Any], *, is_closed: bool) -> str | None:
    """Return the current round and phase of a run on one line; `None` for a run without rounds.

    Args:
        is_closed: the run has ended.
    """
    rounds_part = document.get("rounds")
    if not isinstance(rounds_part, Mapping) or "round" not in rounds_part:
        return None
    text = rounds_part["phase"] if is_closed else f"{rounds_part['phase']}: {phase_text(rounds_part)}"
    return f"round {rounds_part['round']} of {rounds_part['max_rounds']}, {text}"


def phase_text(rounds_part: Mapping[str, Any]) -> str:
    """Describe the phase of a run that answers a question in rounds; for a failed run, return the reason.

    Args:
        rounds_part: the part `rounds` of a document.
    """
    phase = str(rounds_part["phase"])
    if phase == "planning" and not rounds_part.get("intention"):
        return "the question is being interpreted"
    text = _PHASES.get(phase, "")
    return text if phase != "failed" else rounds_part.get("planner_reasoning") or text


def new_round_lines(rounds_part: Mapping[str, Any] | None, printed_keys: set[str]) -> Sequence[tuple[str, str]]:
    """Return the new lines about rounds for progress without a terminal: key and text of each line.

    Sub-goals are omitted, because their nodes have lines. Before the plan of a round is accepted, the lines have the
    errors of rejected plans; afterwards, the reason of the accepted plan.

    Args:
        rounds_part: result of `rounds_of`.
        printed_keys: keys of earlier lines; new keys are added.
    """
    lines = [
        line
        for line in (decode_rounds(rounds_part) if rounds_part is not None else ())
        if line.text and not line.status
    ]
    new_texts = []
    for line in lines:
        text = line.text if line.is_accepted else f"rejected: {line.text}"
        # Each rejected plan is shown once.
        key = line.key if line.is_accepted else f"{line.key}: {text}"
        if key not in printed_keys:
            new_texts.append((line.key, text))
        printed_keys.add(key)
    return new_texts


def _reason_text(line: RoundLine) -> str:
    if line.action:
        return f"{line.name} ({line.action}): {line.text or 'no reason given'}"
    return f"{line.name}: {line.text}"


def _sub_goal_line(
    number: int, sub_goals: Mapping[int, Mapping[str, Any]], status: str, error: Any, message: Any = None
) -> RoundLine:
    sub_goal = sub_goals.get(number, {})
    text = " — ".join(filter(None, [_line_or_empty(error), _line_or_empty(message)]))
    name = f"sg{number} {one_line(str(sub_goal.get('worker', '')))}".strip()
    return RoundLine(f"sg{number}", name, text, status=status, description=_line_or_empty(sub_goal.get("description")))


def _line_or_empty(text: Any) -> str:
    return one_line(str(text), limit=MAX_TEXT_CHARACTERS) if text else ""
