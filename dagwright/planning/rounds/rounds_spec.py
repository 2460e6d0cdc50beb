"""Specification of a question that is answered in rounds of worker tools, and its JSON.

The specification includes the prompts, so a change of the prompts does not affect running runs.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from dagwright.core.model.tools import ROUNDS_KIND
from dagwright.core.model.worker_results import SUB_GOAL_PREFIX
from dagwright.planning.conversation import TurnSummary, turns_from_json
from dagwright.planning.model_calls.model_requests import ModelConfig, model_config_from_json

INTENTION, PLAN, ANSWER = "intention", "plan", "answer"
"""Ids of the nodes that a run adds by itself; later planner calls have the suffix `#` and a number."""
PLANNER, REPAIR = "planner", "repair"
"""Purposes of the planner's calls: `planner` for the first call of a round, `repair` for repairs of its answer."""
Synthesis = Literal["assemble", "model"]
"""How the answer is made: with `assemble`, it consists of the slots that the planner names; with `model`, a model
writes the answer."""
SYNTHESES: Sequence[Synthesis] = get_args(Synthesis)
DEFAULT_SYNTHESIS: Synthesis = "assemble"
DEFAULT_MAX_ROUNDS = 10
"""Default limit for the rounds of a question."""
ROUNDS_LIMIT = 50
"""Largest number of rounds that can be set for a question. With more rounds, the prompt would list only shortened
sub-goals."""
WORKER_TIMEOUT_S = 60.0
"""Default timeout for one call of a worker tool that declares no timeout."""
QUESTION_TIMEOUT_S = 3_600.0
"""Default timeout for a whole question."""
MAX_REPAIRS = 3
"""Maximum number of repairs of the planner's answer per round."""
MAX_ATTEMPTS = 3
"""Maximum number of attempts of the same failing sub-goal; a further attempt is rejected as a repetition."""

MAX_ROUNDS_REACHED = "max_rounds"
PLANNER_REPEATS = "planner_repeats"
PLANNER_INVALID = "planner_invalid"
PLANNER_FAILED = "planner_failed"
PLANNER_STOPPED = "planner_stopped"
BUDGET_SPENT = "budget_spent"
"""Error codes of runs whose planner did not finish."""

_GENERATED_ID = re.compile(rf"({INTENTION}|{PLAN}|{ANSWER}|{SUB_GOAL_PREFIX}[0-9]+)(#[0-9]+)?")


def is_reserved(node_id: str) -> bool:
    """Return whether the run itself assigns this id, including the ids of sub-goals."""
    return _GENERATED_ID.fullmatch(node_id) is not None


@dataclass(frozen=True, slots=True)
class RoundsLimits:
    """Limits for the planner, the worker tools and the whole question, and the kind of synthesis.

    Args:
        max_rounds: maximum number of planner calls, not counting repairs.
        worker_timeout_s: seconds per call of a worker tool that declares no timeout.
        deadline_s: seconds for the whole question; `None` for no limit.
        synthesis: how the slots become the answer.
    """

    max_rounds: int = DEFAULT_MAX_ROUNDS
    worker_timeout_s: float = WORKER_TIMEOUT_S
    deadline_s: float | None = QUESTION_TIMEOUT_S
    synthesis: Synthesis = DEFAULT_SYNTHESIS


@dataclass(frozen=True, slots=True)
class RoundsSpec:
    """A question, and everything that is needed to plan and answer it.

    Args:
        question: as the user wrote it.
        workers: worker tools that a plan may use, as `planner.plan_parser.encode_tools` serializes them.
        registry: text about the worker tools in the planner's prompt.
        schema: response format of the planner.
        planner_prompt, answer_prompt: system messages.
        config: settings of the model calls.
        max_rounds: maximum number of planner calls, not counting repairs.
        worker_timeout_s: seconds per call of a worker tool that declares no timeout.
        turns: earlier turns of the session, for run documents. Models see them only in the prompt of the intention.
        synthesis: how the slots become the answer.
    """

    question: str
    workers: Sequence[Mapping[str, Any]]
    registry: str
    schema: Mapping[str, Any]
    planner_prompt: str
    answer_prompt: str
    config: ModelConfig = field(default_factory=ModelConfig)
    max_rounds: int = DEFAULT_MAX_ROUNDS
    worker_timeout_s: float = WORKER_TIMEOUT_S
    turns: Sequence[TurnSummary] = ()
    synthesis: Synthesis = DEFAULT_SYNTHESIS

    def to_json(self) -> dict[str, Any]:
        """Serialize the specification as the `extender` of a plan."""
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
    """Parse the JSON of `RoundsSpec.to_json`.

    Raises:
        ValueError: the JSON is invalid.
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
            # In runs that were started without the field, a model writes the answer.
            checked_synthesis(encoded.get("synthesis", "model")),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a question for rounds: {error!r}") from None


def checked_max_rounds(value: Any) -> int:
    """Validate the maximum number of rounds.

    Raises:
        ValueError: the value is not an integer in range.
    """
    if type(value) is not int or not 1 <= value <= ROUNDS_LIMIT:
        raise ValueError(f"expected a whole number from 1 to {ROUNDS_LIMIT}, not {value!r:.40}")
    return value


def checked_synthesis(value: Any) -> Synthesis:
    """Validate the kind of synthesis.

    Raises:
        ValueError: the value is not one of `SYNTHESES`.
    """
    if value not in SYNTHESES:
        raise ValueError(f"expected {' or '.join(map(repr, SYNTHESES))}, not {value!r:.40}")
    return "model" if value == "model" else "assemble"
