"""Sub-goals: what a planner of rounds wants done, by which worker, and from which slots of others.

The fields are those in which planners write them and documents show them. It must not import how models are asked: a
call of a planner carries what its answer is read against.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from dagwright.core.boundary.json_codec import JsonCodec
from dagwright.core.model.worker_cards import GoalType
from dagwright.core.model.worker_results import SUB_GOAL_PREFIX
from dagwright.core.validation.workers import Worker

SubGoalStatus = Literal["pending", "running", "success", "partial", "failed"]
"""`pending` is what waits for slots that are not there, or for its turn."""
_WORDS = re.compile(r"\W+")
DONE: Sequence[SubGoalStatus] = ("success", "partial")


@dataclass(frozen=True, slots=True)
class InputRef:
    """A slot that another sub-goal puts out."""

    from_sub_goal: int
    slot: str


Input = InputRef | tuple[InputRef, ...]
"""One slot, or several as a list."""


def refs_of(given: Input) -> tuple[InputRef, ...]:
    """Returns the references of an input."""
    return (given,) if isinstance(given, InputRef) else given


@dataclass(frozen=True, slots=True, kw_only=True)
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
    inputs: Mapping[str, Input] = field(default_factory=dict)
    params: Mapping[str, Any] = field(default_factory=dict)
    outputs: tuple[str, ...]
    goal_type: GoalType

    @property
    def node_id(self) -> str:
        """Returns the id of its node."""
        return f"{SUB_GOAL_PREFIX}{self.id}"

    @property
    def sources(self) -> tuple[int, ...]:
        """Returns the sub-goals whose slots it gets, each once."""
        return tuple(dict.fromkeys(ref.from_sub_goal for given in self.inputs.values() for ref in refs_of(given)))


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


def work_of(sub_goal: PlannedSubGoal, worker: Worker | None) -> str:
    """Returns the same digest for the same work: of a worker that reads the description, only in the same words."""
    reads = worker is None or worker.card.takes_sub_goal
    words = _WORDS.sub(" ", sub_goal.description.casefold()).strip() if reads else ""
    parts = [sub_goal.worker, dict(sub_goal.params), INPUTS.encode(sub_goal.inputs), words]
    encoded = json.dumps(parts, sort_keys=True, ensure_ascii=False).encode(errors="replace")
    return hashlib.sha256(encoded).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class RoundContext:
    """Says of a call that its answer is one of a planner of rounds, and what it is read against.

    Args:
        workers: what the planner may use, as `planning.plan_and_execute.goals` tells tools.
        known: the sub-goals that there are, in the order in which they came up.
    """

    workers: Sequence[Mapping[str, Any]]
    known: Sequence[KnownSubGoal] = ()


SUB_GOALS: JsonCodec[PlannedSubGoal] = JsonCodec(PlannedSubGoal, name="sub-goal")
INPUTS: JsonCodec[Mapping[str, Input]] = JsonCodec(Mapping[str, Input], name="inputs")
ROUND_CONTEXTS: JsonCodec[RoundContext] = JsonCodec(RoundContext, name="context of a planner call")
