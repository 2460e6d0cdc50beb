"""Extenders that add nodes to a running plan, and the turns of an agent."""

from collections.abc import Callable
from typing import Any

import pytest

from dagwright.core.expressions.references import ResultOf
from dagwright.core.model.compiled import CompiledNode
from dagwright.core.model.states import NodeError
from dagwright.core.model.tools import Effects, ToolDeclaration
from dagwright.core.scheduler.extension import Extension
from dagwright.core.scheduler.run_state import RunState
from dagwright.features.plan_extension.component import MAX_EXTENSIONS
from dagwright.features.plan_extension.extender import GoalUnreachable
from dagwright.features.run_scheduler import RunScheduler, create_scheduler
from dagwright.planning.agent_loop.agent_extender import AgentLoop
from dagwright.planning.agent_loop.spec import MAX_TOOL_CALLS, AgentSpec, agent_plan
from tests.support.plan_building import (
    NoExtension,
    compiled_plan,
    ids_of,
    node,
    overrides_of,
    plan_of,
    restored_scheduler,
    scheduler_of,
    start_ready_tasks,
    statuses_of,
    with_extender,
)


class CountingExtender(NoExtension):
    """Extender that appends nodes until the plan has `max_nodes`. The output is the result of the last node."""

    def __init__(self, max_nodes: int) -> None:
        self._max_nodes = max_nodes

    def next_extension(self, state: RunState) -> Extension | None:
        count = len(state.plan.nodes)
        if count >= self._max_nodes or not state.records[-1].status.is_final:
            return None
        new_node = CompiledNode(f"n{count}", tool="any", dependencies=(count - 1,))
        return Extension(count, (new_node,), output=(None, (((), (ResultOf(new_node.id, "result"),)),)))


class FunctionExtender(NoExtension):
    """Extender that calls a function as soon as the first node has ended."""

    def __init__(self, next_extension: Callable[[RunState], Extension | None]) -> None:
        self._next_extension = next_extension

    def next_extension(self, state: RunState) -> Extension | None:
        return self._next_extension(state) if state.records[0].status.is_final else None


def test_plan_is_extended_when_its_last_node_ends_and_its_output_is_the_last_result() -> None:
    scheduler = with_extender(scheduler_of(node("n0")), CountingExtender(3))
    for number in range(3):
        assert ids_of(start_ready_tasks(scheduler)) == [f"n{number}"]
        assert not scheduler.is_finished
        scheduler.complete(f"n{number}", number, at=1.0)
    assert (scheduler.is_finished, scheduler.output()) == (True, (2, None))
    assert overrides_of(scheduler, "n2") == []


def test_extended_plan_is_kept_in_the_next_execution_and_not_extended_after_a_stop() -> None:
    scheduler = with_extender(scheduler_of(node("n0")), CountingExtender(3))
    start_ready_tasks(scheduler)
    scheduler.complete("n0", 0, at=1.0)
    successor = restored_scheduler(scheduler, compiled_plan(plan_of(node("n0"))), extender=CountingExtender(3))
    assert ids_of(start_ready_tasks(successor)) == ["n1"]
    successor.complete("n1", 1, at=2.0)
    assert statuses_of(successor) == {"n0": "completed", "n1": "completed", "n2": "ready"}
    scheduler = with_extender(scheduler_of(node("n0")), CountingExtender(3))
    start_ready_tasks(scheduler)
    scheduler.cancel(1.0)
    scheduler.task_cancelled("n0", at=1.0)
    assert (scheduler.is_finished, statuses_of(scheduler)) == (True, {"n0": "cancelled"})


def _raise_key_error(state: RunState) -> Extension | None:
    raise KeyError("lost")


def _give_up(state: RunState) -> Extension | None:
    raise GoalUnreachable(NodeError("rejected", "the goal was rejected"))


def _add_duplicate(state: RunState) -> Extension:
    return Extension(len(state.plan.nodes), (CompiledNode("n0", tool="any"),))


def _add_no_nodes(state: RunState) -> Extension:
    return Extension(len(state.plan.nodes), ())


_DUPLICATE = "the plan cannot be extended: the run has a node or item 'n0' already"
_NO_PROGRESS = f"the plan was extended {MAX_EXTENSIONS} times in a row without progress"


@pytest.mark.parametrize(
    ("next_extension", "error"),
    [
        (_raise_key_error, NodeError("InternalError", "the plan could not be extended: KeyError: 'lost'")),
        (_give_up, NodeError("rejected", "the goal was rejected")),
        (_add_duplicate, NodeError("too_large", _DUPLICATE)),
        (_add_no_nodes, NodeError("InternalError", _NO_PROGRESS)),
    ],
)
def test_run_ends_with_the_error_of_an_extender_that_cannot_continue(
    next_extension: Callable[[RunState], Extension | None], error: NodeError
) -> None:
    scheduler = with_extender(scheduler_of(node("n0"), node("other", "n0")), FunctionExtender(next_extension))
    start_ready_tasks(scheduler)
    scheduler.complete("n0", 0, at=1.0)
    assert (scheduler.state.error, scheduler.is_finished) == (error, True)
    assert statuses_of(scheduler) == {"n0": "completed", "other": "cancelled"}


TOOLS = {name: ToolDeclaration(name, Effects.READ) for name in ("look", "find")}
TOO_MANY_CALLS = "Not called: one turn may call at most 64 tools."


def agent_scheduler(spec: AgentSpec) -> RunScheduler:
    plan = agent_plan(spec, prompt="", result_titles={})
    scheduler = with_extender(create_scheduler(plan, {"objective": "Look."}), AgentLoop(spec))
    scheduler.start(0.0)
    assert ids_of(start_ready_tasks(scheduler)) == ["turn1"]
    return scheduler


def turn_with_calls(*tools: str) -> dict[str, Any]:
    calls = [{"id": f"c{number}", "name": tool, "arguments": "{}"} for number, tool in enumerate(tools)]
    return {
        "message": {"role": "assistant", "content": None, "tool_calls": calls},
        "finish_reason": "tool_calls",
        "model": "small",
        "usage": {"calls": 1, "prompt_tokens": 5, "completion_tokens": 5},
    }


def start_next_turn(scheduler: RunScheduler) -> list[str]:
    """Start the next turn. Return the results of tool calls in the messages of the turn."""
    [turn] = start_ready_tasks(scheduler)
    return [message["content"] for message in turn.arguments["messages"] if message["role"] == "tool"]


def test_calls_over_the_limit_of_a_turn_are_not_made_and_get_a_message() -> None:
    scheduler = agent_scheduler(AgentSpec("helper", tools=TOOLS))
    scheduler.complete("turn1", turn_with_calls(*["look"] * (MAX_TOOL_CALLS + 100)), at=1.0)
    call_ids = ids_of(start_ready_tasks(scheduler))
    assert call_ids == [f"turn1.{number}" for number in range(1, MAX_TOOL_CALLS + 1)]
    for name in call_ids:
        assert ids_of(start_ready_tasks(scheduler)) == []
        scheduler.complete(name, "seen", at=2.0)
    assert start_next_turn(scheduler) == ["seen"] * MAX_TOOL_CALLS + [TOO_MANY_CALLS] * 100


def test_model_that_calls_many_unknown_tools_gets_the_list_of_tools_once() -> None:
    scheduler = agent_scheduler(AgentSpec("helper", tools=TOOLS))
    scheduler.complete("turn1", turn_with_calls("loot", "x" * 1_000, "fin"), at=1.0)
    assert start_next_turn(scheduler) == [
        "Unknown tool 'loot'; did you mean 'look'? Available tools: look, find.",
        f"Unknown tool '{'x' * 80}'.",
        "Unknown tool 'fin'.",
    ]


def test_tokens_of_all_turns_count_against_the_limit() -> None:
    scheduler = agent_scheduler(AgentSpec("helper", tools=TOOLS, max_tokens=20))
    for turn in ("turn1", "turn2"):
        scheduler.complete(turn, turn_with_calls("look"), at=1.0)
        if turn == "turn1":
            assert ids_of(start_ready_tasks(scheduler)) == ["turn1.1"]
            scheduler.complete("turn1.1", "seen", at=2.0)
            assert start_next_turn(scheduler) == ["seen"]
    assert start_next_turn(scheduler) == ["Not called: the agent has used its limit of 20 tokens."]
