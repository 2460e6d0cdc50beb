"""A question that is answered in rounds of workers: what a run has to know of it, as it travels.

The texts that models are told travel along, so that another version of them changes no run that goes on.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dagwright.contracts.model_calls import ModelConfig, model_config_from_json
from dagwright.contracts.sub_goals import SUB_GOAL_PREFIX
from dagwright.plan.model_tools import ROUNDS_KIND

INTENTION, PLAN, ANSWER = "intention", "plan", "answer"
"""Ids of the nodes that a run adds by itself; those of the planner that follow have `#` and a number behind."""
PLANNER, REPAIR = "planner", "repair"
"""Purposes of the planner's calls: one for each round, and those in which it is shown what is wrong with its answer."""
MAX_ROUNDS = 10
MAX_ROUNDS_LIMIT = 50
"""More would be no answer to a question, and what the planner is told of them would be a list of beginnings."""
MOST_REPAIRS = 3
"""How often a planner is shown in one round what is wrong with its answer."""
MOST_TRIES = 3
"""How often a sub-goal that fails is begun in the same words, before the planner is told that it repeats itself."""
TURNS_TOLD = 20
"""Earlier turns that a model is told of, the newest ones."""
TURN_CHARACTERS = 4_000
"""Of each of the two sides of a turn."""

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
class TurnSummary:
    """One turn of a conversation: what a person said, and what was answered."""

    turn_id: int
    human_message: str
    ai_response: str

    def to_json(self) -> dict[str, Any]:
        """Returns the turn as it travels."""
        return {"turn_id": self.turn_id, "human_message": self.human_message, "ai_response": self.ai_response}


def turns_from_json(encoded: Any) -> tuple[TurnSummary, ...]:
    """Returns the turns of a list of objects, oldest first.

    Raises:
        ValueError: it is none; the text says what was expected.
    """
    expected = 'a list of {"turn_id": 1, "human_message": "…", "ai_response": "…"}'
    if not isinstance(encoded, list):
        raise ValueError(f"turns: expected {expected}")
    found = []
    for place, turn in enumerate(encoded):
        said = [turn.get(name) for name in ("human_message", "ai_response")] if isinstance(turn, Mapping) else []
        number = turn.get("turn_id") if said else None
        if type(number) is not int or not all(isinstance(text, str) for text in said):
            raise ValueError(f"turns[{place}]: expected {expected}")
        found.append(TurnSummary(number, str(said[0]), str(said[1])))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Rounds:
    """A question, and all that is needed to plan for it round by round and to answer it.

    Args:
        question: in the words of whoever asks.
        workers: what a plan may use, as `dagwright.planner.reading` tells tools.
        registry: what the planner is told of them.
        schema: response format of the planner.
        planner_prompt, answer_prompt: system messages.
        config: how models are asked.
        max_rounds: how often the planner is asked, repairs not counted.
    """

    question: str
    workers: Sequence[Mapping[str, Any]]
    registry: str
    schema: Mapping[str, Any]
    planner_prompt: str
    answer_prompt: str
    config: ModelConfig = field(default_factory=ModelConfig)
    max_rounds: int = MAX_ROUNDS

    def to_json(self) -> dict[str, Any]:
        """Returns the question as a pursuit travels in a plan."""
        encoded: dict[str, Any] = {
            "kind": ROUNDS_KIND,
            "question": self.question,
            "workers": [dict(worker) for worker in self.workers],
            "registry": self.registry,
            "schema": dict(self.schema),
            "planner_prompt": self.planner_prompt,
            "answer_prompt": self.answer_prompt,
            "max_rounds": self.max_rounds,
        }
        config = self.config.to_json()
        return {**encoded, "config": config} if config else encoded


def rounds_from_json(encoded: Any) -> Rounds:
    """Returns what `Rounds.to_json` told.

    Raises:
        ValueError: it is none.
    """
    try:
        workers, schema = encoded["workers"], encoded["schema"]
        if not isinstance(workers, list) or not isinstance(schema, Mapping):
            raise ValueError("workers must be a list, and schema an object")
        return Rounds(
            str(encoded["question"]),
            workers,
            str(encoded["registry"]),
            schema,
            str(encoded["planner_prompt"]),
            str(encoded["answer_prompt"]),
            model_config_from_json(encoded.get("config", {})),
            checked_max_rounds(encoded["max_rounds"]),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"this is no question to be answered in rounds: {error!r}") from None


def checked_max_rounds(value: Any) -> int:
    """Returns how many rounds there may be.

    Raises:
        ValueError: it is no such number.
    """
    if type(value) is not int or not 1 <= value <= MAX_ROUNDS_LIMIT:
        raise ValueError(f"max_rounds must be a whole number from 1 to {MAX_ROUNDS_LIMIT}, not {value!r:.40}")
    return value
