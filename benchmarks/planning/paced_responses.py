"""Scripted responses of a model that writes 50 tokens a second: plans of three shapes, and equivalent agent turns.

The model is scripted, so that only the method differs: the calls of the tool, the final answer and the tokens per
second are the same. In favour of the agent, reading the prompt takes no time, and the agent calls tools without
reasoning first.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.planning.slow_tools import statement_about
from dagwright.planning.plan_and_execute.goal_spec import ANSWER, PLAN
from dagwright.testing import Completion, Step, When, slow, step, text, tool_call

TOKENS_PER_S = 50.0
TOKEN_CHARACTERS = 4
CHUNK_CHARACTERS = 8
"""Characters per chunk of a streamed response."""
CHUNK_S = CHUNK_CHARACTERS / TOKEN_CHARACTERS / TOKENS_PER_S

TOOL = "look_up"
ANSWER_TEXT = (
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


def independent_calls(size: int) -> Shape:
    """Return calls without dependencies."""
    return Shape("independent", [()] * size)


def chained_calls(size: int) -> Shape:
    """Return calls that each depend on the previous one."""
    return Shape("chain", [(index - 1,) if index else () for index in range(size)])


def joined_calls(size: int) -> Shape:
    """Return calls; each call of the last third depends on two calls of the first two thirds."""
    join_count = size // 3
    return Shape("mixed", [*[()] * (size - join_count), *[(2 * index, 2 * index + 1) for index in range(join_count)]])


SHAPES: Sequence[Callable[[int], Shape]] = (independent_calls, chained_calls, joined_calls)


def _topic(index: int) -> str:
    return f"average monthly rent of a flat with two rooms in {_CITIES[index]}"


def plan_text(shape: Shape) -> str:
    """Return the plan that a model writes if it follows the prompt."""
    nodes = []
    for index, dependencies in enumerate(shape.dependencies):
        arguments = {"topic": _topic(index)}
        if dependencies:
            arguments["known"] = "; ".join(f"{{{{{_node_id(dependency)}.result}}}}" for dependency in dependencies)
        title = f"Look up the rents of {_CITIES[index]}"
        nodes.append({"id": _node_id(index), "title": title, "tool": TOOL, "arguments": arguments})
    return json.dumps({"nodes": nodes, "title": "Compare the rents of cities"})


def _node_id(index: int) -> str:
    return _CITIES[index].lower()


def agent_call_arguments(shape: Shape) -> Sequence[Mapping[str, Any]]:
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


def writing_s(model_text: str) -> float:
    """Return how long the model writes a text, in seconds."""
    return len(model_text) / TOKEN_CHARACTERS / TOKENS_PER_S


def whole_response(answer: Completion, model_text: str) -> Completion:
    """Return a response that arrives when all of it has been written."""
    return slow(answer, first_byte_delay_s=writing_s(model_text))


def planner_script(run_id: str, shape: Shape, *, is_streamed: bool) -> Sequence[Step]:
    """Return the model's responses to the planner and the synthesizer of a run."""
    model_text = plan_text(shape)
    streamed_plan = slow(text(model_text), chunk_characters=CHUNK_CHARACTERS, chunk_delay_s=CHUNK_S)
    plan = streamed_plan if is_streamed else whole_response(text(model_text), model_text)
    return (
        step(plan, when=When(metadata={"run_id": run_id, "purpose": PLAN}, is_streamed=is_streamed)),
        step(whole_response(text(ANSWER_TEXT), ANSWER_TEXT), when=When(metadata={"run_id": run_id, "purpose": ANSWER})),
    )


def agent_script(run_id: str, shape: Shape) -> Sequence[Step]:
    """Return the model's responses to an agent that calls one tool per turn."""
    calls = [
        whole_response(tool_call(TOOL, **arguments), TOOL + json.dumps(arguments, ensure_ascii=False))
        for arguments in agent_call_arguments(shape)
    ]
    return [
        step(answer, when=When(metadata={"run_id": run_id}))
        for answer in (*calls, whole_response(text(ANSWER_TEXT), ANSWER_TEXT))
    ]
