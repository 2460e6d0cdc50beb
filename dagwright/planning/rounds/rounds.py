"""A question that is answered in rounds of workers: what a run has to know of it, as it travels.

The texts that models are told travel along, so that another version of them changes no run that goes on.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from dagwright.core.model.tools import ROUNDS_KIND
from dagwright.core.model.worker_results import SUB_GOAL_PREFIX
from dagwright.planning.conversation import TurnSummary, turns_from_json
from dagwright.planning.model_calls.calls import ModelConfig, model_config_from_json

INTENTION, PLAN, ANSWER = "intention", "plan", "answer"
"""Ids of the nodes that a run adds by itself; those of the planner that follow have `#` and a number behind."""
PLANNER, REPAIR = "planner", "repair"
"""Purposes of the planner's calls: one for each round, and those in which it is shown what is wrong with its answer."""
Synthesis = Literal["assemble", "model"]
SYNTHESES: Sequence[Synthesis] = get_args(Synthesis)
SYNTHESIS: Synthesis = "assemble"
"""How the answer is made of the slots that the planner names: assembled without a model, or worded by one."""
MAX_ROUNDS = 10
MAX_ROUNDS_LIMIT = 50
"""More would be no answer to a question, and what the planner is told of them would be a list of beginnings."""
WORKER_TIMEOUT_S = 60.0
QUESTION_TIMEOUT_S = 3_600.0
"""Of one call of a worker that names no timeout, and of a whole question, unless settings say something else."""
MAX_REPAIRS = 3
"""How often a planner is shown in one round what is wrong with its answer."""
MAX_TRIES = 3
"""How often a sub-goal that fails is begun in the same words, before the planner is told that it repeats itself."""

MAX_ROUNDS_REACHED = "max_rounds"
PLANNER_REPEATS = "planner_repeats"
PLANNER_INVALID = "planner_invalid"
PLANNER_FAILED = "planner_failed"
PLANNER_STOPPED = "planner_stopped"
BUDGET_SPENT = "budget_spent"
"""Codes of the errors of runs whose planner did not come to its end."""

_OWN = re.compile(rf"({INTENTION}|{PLAN}|{ANSWER}|{SUB_GOAL_PREFIX}[0-9]+)(#[0-9]+)?")


def is_own(node_id: str) -> bool:
    """Tells whether an id is one of those that a run adds by itself, sub-goals with them."""
    return _OWN.fullmatch(node_id) is not None


@dataclass(frozen=True, slots=True)
class RoundsLimits:
    """How often the planner of a question is called, how long workers and the question may take, how it is answered.

    Args:
        max_rounds: how often the planner is asked, repairs not counted.
        worker_timeout_s: seconds of one call of a worker that names no timeout itself.
        deadline_s: seconds of the whole question; `None` is as long as it takes.
        synthesis: whether a model writes the answer.
    """

    max_rounds: int = MAX_ROUNDS
    worker_timeout_s: float = WORKER_TIMEOUT_S
    deadline_s: float | None = QUESTION_TIMEOUT_S
    synthesis: Synthesis = SYNTHESIS


@dataclass(frozen=True, slots=True)
class RoundsSpec:
    """A question, and all that is needed to plan for it round by round and to answer it.

    Args:
        question: in the words of whoever asks.
        workers: what a plan may use, as `dagwright.planner.plan_parser` tells tools.
        registry: what the planner is told of them.
        schema: response format of the planner.
        planner_prompt, answer_prompt: system messages.
        config: how models are asked.
        max_rounds: how often the planner is asked, repairs not counted.
        worker_timeout_s: seconds of one call of a worker that names no timeout itself.
        turns: what was said before, as documents show it; models are told it by the first call.
        synthesis: whether a model writes the answer.
    """

    question: str
    workers: Sequence[Mapping[str, Any]]
    registry: str
    schema: Mapping[str, Any]
    planner_prompt: str
    answer_prompt: str
    config: ModelConfig = field(default_factory=ModelConfig)
    max_rounds: int = MAX_ROUNDS
    worker_timeout_s: float = WORKER_TIMEOUT_S
    turns: Sequence[TurnSummary] = ()
    synthesis: Synthesis = SYNTHESIS

    def to_json(self) -> dict[str, Any]:
        """Returns the question as an extender travels in a plan."""
        encoded: dict[str, Any] = {
            "kind": ROUNDS_KIND,
            "question": self.question,
            "workers": [dict(worker) for worker in self.workers],
            "registry": self.registry,
            "schema": dict(self.schema),
            "planner_prompt": self.planner_prompt,
            "answer_prompt": self.answer_prompt,
            "max_rounds": self.max_rounds,
            "worker_timeout_s": self.worker_timeout_s,
            "turns": [turn.to_json() for turn in self.turns],
            "synthesis": self.synthesis,
        }
        config = self.config.to_json()
        return {**encoded, "config": config} if config else encoded


def rounds_from_json(encoded: Any) -> RoundsSpec:
    """Returns what `RoundsSpec.to_json` told.

    Raises:
        ValueError: it is none.
    """
    try:
        workers, schema = encoded["workers"], encoded["schema"]
        if not isinstance(workers, list) or not isinstance(schema, Mapping):
            raise ValueError("workers must be a list, and schema an object")
        return RoundsSpec(
            str(encoded["question"]),
            workers,
            str(encoded["registry"]),
            schema,
            str(encoded["planner_prompt"]),
            str(encoded["answer_prompt"]),
            model_config_from_json(encoded.get("config", {})),
            checked_max_rounds(encoded["max_rounds"]),
            float(encoded.get("worker_timeout_s", WORKER_TIMEOUT_S)),
            turns_from_json(encoded.get("turns", [])),
            # A run that was started without the field has a model write its answer.
            checked_synthesis(encoded.get("synthesis", "model")),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"this is no question to be answered in rounds: {error!r}") from None


def checked_max_rounds(value: Any) -> int:
    """Returns how many rounds there may be.

    Raises:
        ValueError: it is no such number.
    """
    if type(value) is not int or not 1 <= value <= MAX_ROUNDS_LIMIT:
        raise ValueError(f"expected a whole number from 1 to {MAX_ROUNDS_LIMIT}, not {value!r:.40}")
    return value


def checked_synthesis(value: Any) -> Synthesis:
    """Validate the kind of synthesis.

    Raises:
        ValueError: the value is not one of `SYNTHESES`.
    """
    if value not in SYNTHESES:
        raise ValueError(f"expected {' or '.join(map(repr, SYNTHESES))}, not {value!r:.40}")
    return "model" if value == "model" else "assemble"
