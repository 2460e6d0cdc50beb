"""Sub-goals: units of work that the planner of rounds requests from worker tools.

Planners write sub-goals, and run documents contain them. This module must not import model calls, because model calls
import this module: a planner call contains the sub-goals against which its answer is checked.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from dagwright.core.boundary.json_codec import JsonCodec
from dagwright.core.model.tools import GoalType
from dagwright.core.model.worker_results import SUB_GOAL_PREFIX

if TYPE_CHECKING:
    from dagwright.core.validation.worker_tools import WorkerTool

SubGoalStatus = Literal["pending", "running", "success", "partial", "failed"]
"""`pending`: waits for input slots, or has not started yet."""
_NON_WORDS = re.compile(r"\W+")
DONE_STATUSES: Sequence[SubGoalStatus] = ("success", "partial")


@dataclass(frozen=True, slots=True)
class InputRef:
    """A slot of another sub-goal."""

    from_sub_goal: int
    slot: str


Input = InputRef | tuple[InputRef, ...]
"""One slot, or several as a list."""


def refs_of(value: Input) -> tuple[InputRef, ...]:
    """Return the references of an input."""
    return (value,) if isinstance(value, InputRef) else value


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSubGoal:
    """Work for one worker tool, as the planner requests it; the worker tool receives `tools.SubGoal`.

    Args:
        inputs: argument of the worker tool -> the slots that it receives.
        params: arguments with literal values.
        outputs: slots that the worker tool fills.
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
        """ID of the sub-goal's node."""
        return f"{SUB_GOAL_PREFIX}{self.id}"

    @property
    def sources(self) -> tuple[int, ...]:
        """Ids of the sub-goals that provide its inputs, without duplicates."""
        return tuple(dict.fromkeys(ref.from_sub_goal for value in self.inputs.values() for ref in refs_of(value)))


@dataclass(frozen=True, slots=True)
class KnownSubGoal:
    """Facts about a sub-goal against which the next answer of the planner is checked.

    Arguments are omitted, because they could be large, and each planner call contains all known sub-goals.

    Args:
        sources: ids of the sub-goals that provide its inputs.
        work: digest from `work_digest`, equal for equal work.
        slots: slots other than null, if the sub-goal is done.
        attempts: number of attempts, including the first.
    """

    id: int
    worker: str
    sources: tuple[int, ...]
    work: str
    status: SubGoalStatus
    slots: tuple[str, ...] = ()
    attempts: int = 1


def work_digest(sub_goal: PlannedSubGoal, worker: "WorkerTool | None") -> str:
    """Return a digest of the work of a sub-goal.

    The digest includes the description of the sub-goal only if the worker tool reads the description.
    """
    reads_description = worker is None or worker.card.takes_sub_goal
    text = _NON_WORDS.sub(" ", sub_goal.description.casefold()).strip() if reads_description else ""
    parts = [sub_goal.worker, dict(sub_goal.params), INPUTS.encode(sub_goal.inputs), text]
    encoded = json.dumps(parts, sort_keys=True, ensure_ascii=False).encode(errors="replace")
    return hashlib.sha256(encoded).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class RoundContext:
    """Marks a model call as a planner call, and contains the data against which the answer of the planner is checked.

    Args:
        workers: worker tools that the planner may use, as `planner.plan_parser.encode_tools` serializes them.
        known: the known sub-goals, in the order in which they were first requested.
    """

    workers: Sequence[Mapping[str, Any]]
    known: Sequence[KnownSubGoal] = ()


SUB_GOALS: JsonCodec[PlannedSubGoal] = JsonCodec(PlannedSubGoal, name="sub-goal")
INPUTS: JsonCodec[Mapping[str, Input]] = JsonCodec(Mapping[str, Input], name="inputs")
ROUND_CONTEXTS: JsonCodec[RoundContext] = JsonCodec(RoundContext, name="context of a planner call")
