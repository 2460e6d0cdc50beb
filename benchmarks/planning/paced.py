"""What a model says that writes 50 tokens a second: plans of three shapes, and the turns of an agent in their place.

The model is scripted, so that nothing but the way of working differs: the same calls of the same tool, the same answer
at the end, the same tokens a second. To the advantage of the agent, it reads in no time however much it was told, and
calls its tools without a thought before.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.planning.slow_tools import said_of
from dagwright.planning.plan_and_execute.goals import ANSWER, PLAN
from dagwright.testing import Completion, Step, slow, step, text, tool_call

TOKENS_PER_S = 50.0
TOKEN_CHARACTERS = 4
PIECE_CHARACTERS = 8
"""Characters of one piece of a stream."""
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
        before: places of the calls whose results each call needs, all of them before it.
    """

    name: str
    before: Sequence[Sequence[int]]


def independent(size: int) -> Shape:
    """Returns calls that do not wait for each other."""
    return Shape("independent", [()] * size)


def chain(size: int) -> Shape:
    """Returns calls of which each needs the one before it."""
    return Shape("chain", [(place - 1,) if place else () for place in range(size)])


def mixed(size: int) -> Shape:
    """Returns calls of which the last third needs two of the others each."""
    joins = size // 3
    return Shape("mixed", [*[()] * (size - joins), *[(2 * place, 2 * place + 1) for place in range(joins)]])


SHAPES: Sequence[Callable[[int], Shape]] = (independent, chain, mixed)


def _topic(place: int) -> str:
    return f"average monthly rent of a flat with two rooms in {_CITIES[place]}"


def plan_text(shape: Shape) -> str:
    """Returns the plan as a model writes it that keeps to the prompt."""
    nodes = []
    for place, before in enumerate(shape.before):
        arguments = {"topic": _topic(place)}
        if before:
            arguments["known"] = "; ".join(f"{{{{{_id(other)}.result}}}}" for other in before)
        title = f"Look up the rents of {_CITIES[place]}"
        nodes.append({"id": _id(place), "title": title, "tool": TOOL, "arguments": arguments})
    return json.dumps({"nodes": nodes, "title": "Compare the rents of cities"})


def _id(place: int) -> str:
    return _CITIES[place].lower()


def turns(shape: Shape) -> Sequence[Mapping[str, Any]]:
    """Returns the arguments of the calls that an agent makes one after the other; it writes out what it was told."""
    return [
        {"topic": _topic(place)} | ({"known": "; ".join(said_of(_topic(other)) for other in before)} if before else {})
        for place, before in enumerate(shape.before)
    ]


def writing_s(words: str) -> float:
    """Returns how long the model writes, in seconds."""
    return len(words) / TOKEN_CHARACTERS / TOKENS_PER_S


def at_once(answer: Completion, words: str) -> Completion:
    """Returns an answer that comes when all of it has been written."""
    return slow(answer, first_s=writing_s(words))


def planner_script(run: str, shape: Shape, *, is_streamed: bool) -> Sequence[Step]:
    """Returns what the model says to the planner of a run, and what to its synthesizer."""
    words = plan_text(shape)
    streamed = slow(text(words), characters=PIECE_CHARACTERS, each_s=PIECE_S)
    plan = streamed if is_streamed else at_once(text(words), words)
    return (
        step(plan, metadata={"run": run, "purpose": PLAN}, is_streamed=is_streamed),
        step(at_once(text(ANSWER_WORDS), ANSWER_WORDS), metadata={"run": run, "purpose": ANSWER}),
    )


def agent_script(run: str, shape: Shape) -> Sequence[Step]:
    """Returns what the model says to an agent that calls one tool a turn."""
    calls = [
        at_once(tool_call(TOOL, **arguments), TOOL + json.dumps(arguments, ensure_ascii=False))
        for arguments in turns(shape)
    ]
    return [step(answer, metadata={"run": run}) for answer in (*calls, at_once(text(ANSWER_WORDS), ANSWER_WORDS))]
