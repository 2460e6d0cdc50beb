"""Scripted responses of a model that writes 50 tokens a second: plans of three shapes, and equivalent agent turns.

The model is scripted, so that only the method differs: the same calls of the same tool, the same final answer, the same
tokens per second. In favour of the agent, reading the prompt takes no time, and the agent calls tools
without reasoning first.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.planning.slow_tools import statement_about
from dagwright.planning.plan_and_execute.goal_spec import ANSWER, PLAN
from dagwright.testing import Completion, Step, slow, step, text, tool_call

TOKENS_PER_S = 50.0
TOKEN_CHARACTERS = 4
PIECE_CHARACTERS = 8
"""Characters per stream chunk."""
PIECE_S = PIECE_CHARACTERS / TOKEN_CHARACTERS / TOKENS_PER_S

TOOL = "look_up"
ANSWER_WORDS = (
    "Rents have risen faster than wages in every city that was looked at, and the most where fewest homes were built; "
    "the figures are those of the last year, and none of them was missing."
)

_CITIES = ("Lisbon", "Vienna", "Warsaw", "Dublin", "Athens", "Zagreb", "Prague", "Madrid", "Berlin")


@dataclass(frozen=True, slots=True)
class Shape:
    """A graph of calls.

    Args:
        dependencies: for each call, the indices of the earlier calls whose results it needs.
    """

    name: str
    dependencies: Sequence[Sequence[int]]


def independent(size: int) -> Shape:
    """Return calls without dependencies."""
    return Shape("independent", [()] * size)


def chain(size: int) -> Shape:
    """Return calls that each depend on the previous one."""
    return Shape("chain", [(index - 1,) if index else () for index in range(size)])


def calls_and_joins(size: int) -> Shape:
    """Return calls; each call of the last third depends on two of the other calls."""
    joins = size // 3
    return Shape("mixed", [*[()] * (size - joins), *[(2 * index, 2 * index + 1) for index in range(joins)]])


SHAPES: Sequence[Callable[[int], Shape]] = (independent, chain, calls_and_joins)


def _topic(index: int) -> str:
    return f"average monthly rent of a flat with two rooms in {_CITIES[index]}"


def plan_text(shape: Shape) -> str:
    """Return the plan of a model that follows the prompt."""
    nodes = []
    for index, dependencies in enumerate(shape.dependencies):
        arguments = {"topic": _topic(index)}
        if dependencies:
            arguments["known"] = "; ".join(f"{{{{{_id(dependency)}.result}}}}" for dependency in dependencies)
        title = f"Look up the rents of {_CITIES[index]}"
        nodes.append({"id": _id(index), "title": title, "tool": TOOL, "arguments": arguments})
    return json.dumps({"nodes": nodes, "title": "Compare the rents of cities"})


def _id(index: int) -> str:
    return _CITIES[index].lower()


def agent_turns(shape: Shape) -> Sequence[Mapping[str, Any]]:
    """Return the arguments of an agent's successive calls, including the results that it copies."""
    return [
        {"topic": _topic(index)}
        | (
            {"known": "; ".join(statement_about(_topic(dependency)) for dependency in dependencies)}
            if dependencies
            else {}
        )
        for index, dependencies in enumerate(shape.dependencies)
    ]


def writing_s(message: str) -> float:
    """Return how long the model writes a text, in seconds."""
    return len(message) / TOKEN_CHARACTERS / TOKENS_PER_S


def at_once(answer: Completion, message: str) -> Completion:
    """Return a response that arrives when all of it has been written."""
    return slow(answer, first_s=writing_s(message))


def planner_script(run: str, shape: Shape, *, is_streamed: bool) -> Sequence[Step]:
    """Return the model's responses to the planner and the synthesizer of a run."""
    message = plan_text(shape)
    streamed_plan = slow(text(message), characters=PIECE_CHARACTERS, each_s=PIECE_S)
    plan = streamed_plan if is_streamed else at_once(text(message), message)
    return (
        step(plan, metadata={"run": run, "purpose": PLAN}, is_streamed=is_streamed),
        step(at_once(text(ANSWER_WORDS), ANSWER_WORDS), metadata={"run": run, "purpose": ANSWER}),
    )


def agent_script(run: str, shape: Shape) -> Sequence[Step]:
    """Return the model's responses to an agent that calls one tool per turn."""
    calls = [
        at_once(tool_call(TOOL, **arguments), TOOL + json.dumps(arguments, ensure_ascii=False))
        for arguments in agent_turns(shape)
    ]
    return [step(answer, metadata={"run": run}) for answer in (*calls, at_once(text(ANSWER_WORDS), ANSWER_WORDS))]
