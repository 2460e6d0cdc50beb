"""What an agent does next, from what its model said: how many calls are made, and what is told of the others."""

from typing import Any

from dagwright.contracts.agent_pursuit import AgentPursuit
from dagwright.contracts.agent_spec import MOST_CALLS, AgentSpec, agent_plan
from dagwright.plan.scheduler import Scheduler
from dagwright.plan.tools import Effects, ToolDeclaration
from tests.unit.plan.building import ids_of, started

TOOLS = {name: ToolDeclaration(name, Effects.READ) for name in ("look", "find")}
TOO_MANY = "It was not called: one turn calls at most 64 tools."


def agent_of(spec: AgentSpec) -> Scheduler:
    """Returns the run of an agent, whose first turn has started."""
    scheduler = Scheduler(agent_plan(spec, prompt="", results={}), {"objective": "Look."})
    scheduler.pursuit = AgentPursuit(spec)
    scheduler.begin(0.0)
    assert ids_of(started(scheduler)) == ["turn1"]
    return scheduler


def calling(*tools: str) -> dict[str, Any]:
    """Returns the answer of a model that calls tools."""
    calls = [{"id": f"c{place}", "name": tool, "arguments": "{}"} for place, tool in enumerate(tools)]
    return {
        "message": {"role": "assistant", "content": None, "tool_calls": calls},
        "finish_reason": "tool_calls",
        "model": "small",
        "usage": {"calls": 1, "prompt_tokens": 5, "completion_tokens": 5},
    }


def told(scheduler: Scheduler) -> list[str]:
    """Returns what the turn that starts now is told of what was called."""
    [turn] = started(scheduler)
    return [message["content"] for message in turn.arguments["messages"] if message["role"] == "tool"]


def test_so_many_calls_of_a_turn_are_made_and_the_others_answered_in_one_sentence() -> None:
    scheduler = agent_of(AgentSpec("helper", tools=TOOLS))
    scheduler.complete("turn1", calling(*["look"] * (MOST_CALLS + 100)), at=1.0)
    made = ids_of(started(scheduler))
    assert made == [f"turn1.{place}" for place in range(1, MOST_CALLS + 1)]
    for name in made:
        assert ids_of(started(scheduler)) == []
        scheduler.complete(name, "seen", at=2.0)
    assert told(scheduler) == ["seen"] * MOST_CALLS + [TOO_MANY] * 100


def test_tools_are_named_once_to_a_model_that_calls_many_that_are_not_there() -> None:
    scheduler = agent_of(AgentSpec("helper", tools=TOOLS))
    scheduler.complete("turn1", calling("loot", "x" * 1_000, "fin"), at=1.0)
    assert told(scheduler) == [
        "There is no tool 'loot'; did you mean 'look'? There are: look, find.",
        f"There is no tool '{'x' * 80}'.",
        "There is no tool 'fin'.",
    ]


def test_the_tokens_of_all_turns_count() -> None:
    scheduler = agent_of(AgentSpec("helper", tools=TOOLS, max_tokens=20))
    for turn in ("turn1", "turn2"):
        scheduler.complete(turn, calling("look"), at=1.0)
        if turn == "turn1":
            assert ids_of(started(scheduler)) == ["turn1.1"]
            scheduler.complete("turn1.1", "seen", at=2.0)
            assert told(scheduler) == ["seen"]
    assert told(scheduler) == ["It was not called: this agent has used the 20 tokens that it may use."]
