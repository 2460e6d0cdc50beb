"""Sub-goals: what a planner of rounds wants done, by which worker, and from which slots of others.

The fields are those in which planners write them and documents show them. It must not import how models are asked: a
call of a planner carries what its answer is read against.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from dagwright.core.model.worker_cards import GoalType
from dagwright.core.model.worker_results import SUB_GOAL_PREFIX
from dagwright.core.validation.workers import Worker

SubGoalStatus = Literal["pending", "running", "success", "partial", "failed"]
"""`pending` is what waits for slots that are not there, or for its turn."""
STATUSES: Sequence[SubGoalStatus] = get_args(SubGoalStatus)
_WORDS = re.compile(r"\W+")
DONE: Sequence[SubGoalStatus] = ("success", "partial")


@dataclass(frozen=True, slots=True)
class InputRef:
    """A slot that another sub-goal puts out."""

    from_sub_goal: int
    slot: str

    def to_json(self) -> dict[str, Any]:
        """Returns the reference as planners write it."""
        return {"from_sub_goal": self.from_sub_goal, "slot": self.slot}


Input = InputRef | tuple[InputRef, ...]
"""One slot, or several as a list."""


def refs_of(given: Input) -> tuple[InputRef, ...]:
    """Returns the references of an input."""
    return (given,) if isinstance(given, InputRef) else given


def inputs_to_json(inputs: Mapping[str, Input]) -> dict[str, Any]:
    """Returns inputs as planners write them."""
    return {
        name: given.to_json() if isinstance(given, InputRef) else [ref.to_json() for ref in given]
        for name, given in inputs.items()
    }


def inputs_from_json(encoded: Any) -> dict[str, Input]:
    """Returns the inputs that `inputs_to_json` told.

    Raises:
        ValueError: they are none.
    """
    try:
        return {
            str(name): tuple(map(_ref_from_json, given)) if isinstance(given, list) else _ref_from_json(given)
            for name, given in encoded.items()
        }
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"these are no inputs: {error!r}") from None


def _ref_from_json(encoded: Any) -> InputRef:
    return InputRef(int(encoded["from_sub_goal"]), str(encoded["slot"]))


@dataclass(frozen=True, slots=True)
class PlannedSubGoal:
    """One piece of work for one worker, as a planner wants it; what its worker is told of it is `tools.SubGoal`.

    Args:
        inputs: argument of the worker -> the slots that it gets.
        params: arguments that are written out.
        outputs: slots that the worker puts out.
    """

    id: int
    worker: str
    description: str
    outputs: tuple[str, ...]
    goal_type: GoalType
    inputs: Mapping[str, Input] = field(default_factory=dict)
    params: Mapping[str, Any] = field(default_factory=dict)

    @property
    def node_id(self) -> str:
        """Returns the id of its node."""
        return f"{SUB_GOAL_PREFIX}{self.id}"

    @property
    def sources(self) -> tuple[int, ...]:
        """Returns the sub-goals whose slots it gets, each once."""
        return tuple(dict.fromkeys(ref.from_sub_goal for given in self.inputs.values() for ref in refs_of(given)))

    def to_json(self) -> dict[str, Any]:
        """Returns the sub-goal as planners write it."""
        return {
            "id": self.id,
            "worker": self.worker,
            "description": self.description,
            "inputs": inputs_to_json(self.inputs),
            "params": dict(self.params),
            "outputs": list(self.outputs),
            "goal_type": self.goal_type,
        }


def sub_goal_from_json(encoded: Any) -> PlannedSubGoal:
    """Returns the sub-goal that `PlannedSubGoal.to_json` told.

    Raises:
        ValueError: it is none.
    """
    try:
        return PlannedSubGoal(
            int(encoded["id"]),
            str(encoded["worker"]),
            str(encoded["description"]),
            tuple(map(str, encoded["outputs"])),
            "deliverable" if encoded["goal_type"] == "deliverable" else "support",
            inputs_from_json(encoded["inputs"]),
            dict(encoded["params"]),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"this is no sub-goal: {error!r}") from None


@dataclass(frozen=True, slots=True)
class KnownSubGoal:
    """What became of a sub-goal, as far as an answer of the planner is read against it.

    What was written for it does not travel along: a call of the planner carries all that there are.

    Args:
        sources: the sub-goals whose slots it gets.
        work: the same for the same work, of `work_of`.
        slots: of one that is done, those that are not null.
        tries: how often it was begun; 1 for one that was never tried again.
    """

    id: int
    worker: str
    sources: tuple[int, ...]
    work: str
    status: SubGoalStatus
    slots: tuple[str, ...] = ()
    tries: int = 1

    def to_json(self) -> dict[str, Any]:
        """Returns it as it travels."""
        return {
            "id": self.id,
            "worker": self.worker,
            "sources": list(self.sources),
            "work": self.work,
            "status": self.status,
            "slots": list(self.slots),
            "tries": self.tries,
        }


def work_of(sub_goal: PlannedSubGoal, worker: Worker | None) -> str:
    """Returns the same digest for the same work: of a worker that reads the description, only in the same words."""
    reads = worker is None or worker.card.takes_sub_goal
    words = _WORDS.sub(" ", sub_goal.description.casefold()).strip() if reads else ""
    parts = [sub_goal.worker, dict(sub_goal.params), inputs_to_json(sub_goal.inputs), words]
    encoded = json.dumps(parts, sort_keys=True, ensure_ascii=False).encode(errors="replace")
    return hashlib.sha256(encoded).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class RoundContext:
    """Says of a call that its answer is one of a planner of rounds, and what it is read against.

    Args:
        workers: what the planner may use, as `contracts.goals` tells tools.
        known: the sub-goals that there are, in the order in which they came up.
    """

    workers: Sequence[Mapping[str, Any]]
    known: Sequence[KnownSubGoal] = ()

    def to_json(self) -> dict[str, Any]:
        """Returns it as it travels."""
        return {"workers": [dict(worker) for worker in self.workers], "known": [each.to_json() for each in self.known]}


def round_context_from_json(encoded: Any) -> RoundContext:
    """Returns what `RoundContext.to_json` told.

    Raises:
        ValueError: it is none.
    """
    try:
        return RoundContext(tuple(encoded["workers"]), tuple(map(_known_from_json, encoded["known"])))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"this is no question to a planner of rounds: {error!r}") from None


def _known_from_json(encoded: Any) -> KnownSubGoal:
    if encoded["status"] not in STATUSES:
        raise ValueError(f"{encoded['status']!r:.40} is no status of a sub-goal")
    return KnownSubGoal(
        int(encoded["id"]),
        str(encoded["worker"]),
        tuple(map(int, encoded["sources"])),
        str(encoded["work"]),
        encoded["status"],
        tuple(map(str, encoded["slots"])),
        int(encoded["tries"]),
    )
