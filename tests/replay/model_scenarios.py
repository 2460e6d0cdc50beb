"""Scenarios of saved histories with model calls: agents, text requests, streamed plans and budgets."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

from dagwright.core.model.compiled import CompiledNode, CompiledPlan
from dagwright.planning.agent_loop.spec import AgentSpec, agent_plan
from dagwright.testing import ANY_NUMBER, When, slow, step, text, tool_calls
from tests.support.agents import helper_plan
from tests.support.eventually import eventually
from tests.support.goals import call_node, goal_plan, plan_text
from tests.support.people import answer, wait_for_requests, wait_for_requests_of_children
from tests.support.rounds import continue_response, question_plan, ref, sub_goal
from tests.support.runs import Handle, Runs, document_of
from tests.support.tools import CallHarness

Scenario = Callable[[Runs, CallHarness], Awaitable[Handle]]
"""Run a scenario to its end, and return the handle of the run."""


def _compiled_plan_scenario(plan_for: Callable[[Runs], CompiledPlan]) -> Scenario:
    async def run(runs: Runs, harness: CallHarness) -> Handle:
        handle = await runs.start_compiled_plan(plan_for(runs))
        await document_of(handle)
        return handle

    return run


async def _agent(runs: Runs, harness: CallHarness) -> Handle:
    plan = helper_plan(runs, "plus", "write", feedback_policy="on_request")
    node = CompiledNode("agent", kind="plan", arguments={"objective": "Add and write."}, sub_plan=plan, timeout_s=0.0)
    handle = await runs.start_compiled_plan(CompiledPlan((node,)))
    await wait_for_requests_of_children(runs, handle, "agent/turn1.2")
    child = runs.client.get_workflow_handle(f"{handle.id}/agent")
    await answer(child, "turn1.2", {"approved": False, "reason": "no"})
    await wait_for_requests_of_children(runs, handle, "agent/turn2.ask")
    await answer(child, "turn2.ask", {"text": "Yes"})
    await document_of(handle)
    return handle


async def _reviewed_agent(runs: Runs, harness: CallHarness) -> Handle:
    """An agent whose answers a person reviews."""
    plan = helper_plan(runs, feedback_policy="always")
    handle = await runs.start_compiled_plan(plan, inputs={"objective": "Write a line."})
    await wait_for_requests(runs.client, handle.id, "turn1.check")
    await answer(handle, "turn1.check", {"approved": False, "reason": "too short"})
    await wait_for_requests(runs.client, handle.id, "turn2.check")
    await answer(handle, "turn2.check", {"approved": True})
    await document_of(handle)
    return handle


async def _goal(runs: Runs, harness: CallHarness) -> Handle:
    handle = await runs.start_compiled_plan(goal_plan(runs, "Add up.", "plus", "give_up", approve_plan=True))
    await wait_for_requests(runs.client, handle.id, "approve")
    await answer(handle, "approve", {"approved": True})
    await document_of(handle)
    return handle


async def _streamed_plan(runs: Runs, harness: CallHarness) -> Handle:
    """The first node starts while the model writes the plan. Then the stream breaks off, and the plan is repaired."""
    handle = await runs.start_compiled_plan(goal_plan(runs, "Look it up.", "hold", "plus"))
    await eventually(lambda: "looked up" in harness.entered)

    async def is_repaired() -> bool:
        document = await handle.query("status")
        return bool(document["nodes"].get("plan#2", {}).get("status") == "completed")

    await eventually(is_repaired)
    harness.open("looked up")
    await document_of(handle)
    return handle


async def _budget(runs: Runs, harness: CallHarness) -> Handle:
    """Three agents share a budget that a person raises twice. Two of the agents are in a child run."""
    child_plan = CompiledPlan((_agent_node("deep"), _agent_node("deeper")))
    plan = CompiledPlan((CompiledNode("in", kind="plan", sub_plan=child_plan, timeout_s=0.0), _agent_node("near")))
    handle = await runs.start_compiled_plan(plan, budget={"calls": 1})
    await wait_for_requests(runs.client, handle.id, "budget")
    await answer(handle, "budget", {"data": {"calls": 1}})
    await wait_for_requests(runs.client, handle.id, "budget#2")
    await answer(handle, "budget#2", {"data": {"calls": None}})
    await document_of(handle)
    return handle


def _agent_node(name: str) -> CompiledNode:
    plan = agent_plan(AgentSpec(name), prompt="You are brief.", result_titles={})
    return CompiledNode(name, kind="plan", arguments={"objective": "Say a word."}, sub_plan=plan, timeout_s=0.0)


_PLAN_OF_SUM = plan_text(
    call_node("a", "plus", left=1, right=2),
    call_node("b", "plus", left="{{a.result}}", right=4),
    call_node("c", "give_up"),
)
_PLAN_WITH_FAILING_NODE = plan_text(
    {**call_node("a", "give_up"), "on_error": "replan"},
    {**call_node("b", "plus", left=2, right=1), "depends_on": ["a"]},
    call_node("c", "give_up"),
)
_LOOK_NODE = call_node("look", "hold", name="looked up")
_SUM_NODE = call_node("sum", "plus", left=1, right=2)
_PLAN_WITH_MISSING_NODE = plan_text(
    _LOOK_NODE, call_node("last", "plus", left="{{sum.result}}", right="{{sum.result}}")
)
_CHUNK_CHARACTERS = 8
"""Number of characters in a chunk of a stream."""
_CHUNKS_WITH_FIRST_NODE = -(-(len(json.dumps({"nodes": [_LOOK_NODE]})) + 20) // _CHUNK_CHARACTERS)
"""Number of the chunks that contain the first node and a few more characters."""

_ROUND_CONDITIONS: dict[str, Any] = {"text": "Question:\nCompare them."}
_PLANNER_CONDITIONS: dict[str, Any] = {"metadata": {"purpose": "planner"}, **_ROUND_CONDITIONS}
_PICK_SUB_GOAL = sub_goal(1, "pick", name="Maersk")
_STEPS_OF_ROUNDS = (
    step("Compare Maersk and others.", when=When(metadata={"purpose": "intention"}), times=ANY_NUMBER),
    step(
        continue_response(_PICK_SUB_GOAL, sub_goal(2, "add_up", numbers=ref(1, "numbers"))),
        when=When(last="This is round 1", **_PLANNER_CONDITIONS),
        times=ANY_NUMBER,
    ),
    step(
        continue_response(sub_goal(3, "clarify", question="Which?", more=1), _PICK_SUB_GOAL),
        when=When(last="This is round 2", **_PLANNER_CONDITIONS),
        times=ANY_NUMBER,
    ),
    step(
        continue_response(sub_goal(3, "clarify", question="Which?"), _PICK_SUB_GOAL),
        when=When(metadata={"purpose": "repair"}, **_ROUND_CONDITIONS),
        times=ANY_NUMBER,
    ),
    step(
        continue_response(sub_goal(4, "rows", count=500)),
        when=When(last="This is round 3", **_PLANNER_CONDITIONS),
        times=ANY_NUMBER,
    ),
    step("Which one?", when=When(metadata={"purpose": "answer"}, **_ROUND_CONDITIONS), times=ANY_NUMBER),
)
MODEL_STEPS = (
    *_STEPS_OF_ROUNDS,
    step("I would add them up.", when=When(last="Add up.", metadata={"purpose": "plan"}), times=ANY_NUMBER),
    # The response to the second attempt of a plan whose stream broke off. The model call of this attempt also matches
    # later steps, so this step comes first.
    step(
        slow(
            text(plan_text(_LOOK_NODE, _SUM_NODE, call_node("last", "fly"))),
            chunk_characters=_CHUNK_CHARACTERS,
            chunk_delay_s=0.02,
        ),
        when=When(last="Your last answer ended"),
        times=ANY_NUMBER,
    ),
    step(
        slow(
            text(_PLAN_WITH_MISSING_NODE),
            chunk_characters=_CHUNK_CHARACTERS,
            chunk_delay_s=0.05,
            cut_after=_CHUNKS_WITH_FIRST_NODE + 10,
        ),
        when=When(last="Look it up.", metadata={"purpose": "plan"}),
        times=ANY_NUMBER,
    ),
    step(
        slow(
            text(plan_text(_SUM_NODE, call_node("last", "plus", left="{{sum.result}}", right="{{sum.result}}"))),
            chunk_characters=_CHUNK_CHARACTERS,
            chunk_delay_s=0.02,
        ),
        when=When(text="Look it up.", metadata={"purpose": "repair"}),
        times=ANY_NUMBER,
    ),
    step(_PLAN_WITH_FAILING_NODE, when=When(last="Go on.", metadata={"purpose": "plan"}), times=ANY_NUMBER),
    step(
        plan_text(call_node("a", "plus", left=1, right=1)),
        when=When(last="'a' failed", metadata={"purpose": "replan"}),
        times=ANY_NUMBER,
    ),
    step(
        plan_text(call_node("d", "plus", left="{{b.result}}", right=1)),
        when=When(last="the fourth", metadata={"purpose": "replan"}),
        times=ANY_NUMBER,
    ),
    step("It is 4.", when=When(text="Step 'd'", metadata={"purpose": "answer"}), times=ANY_NUMBER),
    step(
        json.dumps({"answer": "It is 3.", "missing": ["the fourth"]}),
        when=When(text="Step 'a#2'", metadata={"purpose": "answer"}),
        times=ANY_NUMBER,
    ),
    step(_PLAN_OF_SUM, when=When(metadata={"purpose": "repair"}), times=ANY_NUMBER),
    step("It is 7.", when=When(metadata={"purpose": "answer"}), times=ANY_NUMBER),
    step(
        tool_calls(("plus", {"left": 1, "right": 2}), ("write", {"name": "replay"}), ("minus", {})),
        when=When(last="Add and write."),
        times=ANY_NUMBER,
    ),
    step("3. [[FEEDBACK CLARIFICATION: Is that enough?]]", when=When(last="Unknown tool"), times=ANY_NUMBER),
    step("It is 3.", when=When(last="Yes"), times=ANY_NUMBER),
    step("Lines.", when=When(last="Write a line."), times=ANY_NUMBER),
    step("A line.", when=When(last="too short"), times=ANY_NUMBER),
    step("Word.", when=When(last="Say a word."), times=ANY_NUMBER),
)
"""Responses of the model in the scenarios."""


MODEL_SCENARIOS: dict[str, Scenario] = {
    "agent": _agent,
    "reviewed": _reviewed_agent,
    "goal": _goal,
    # This goal is replanned twice: after a failed node, and after an answer with missing information.
    "replanned": _compiled_plan_scenario(lambda runs: goal_plan(runs, "Go on.", "plus", "give_up")),
    "streamed": _streamed_plan,
    "budget": _budget,
    # A worker tool fails once, a response is repaired once, and all rounds are used.
    "rounds": _compiled_plan_scenario(
        lambda runs: question_plan(runs, "Compare them.", max_rounds=3, synthesis="model")
    ),
}
"""Name of the history -> the scenario that produces it."""
