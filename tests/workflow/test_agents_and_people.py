"""Agents that ask people, on the real Temporal server: by a tool, by a marker, at their end, and what ends them."""

from pathlib import Path

import pytest
from temporalio.client import Client

from dagwright.core.boundary import wire
from dagwright.planning.agent_loop.asking import marker_in
from dagwright.testing import ModelServer, step, tool_call, tool_calls
from tests.support.agents import agent, agent_runs, answered, ended, said
from tests.support.eventually import eventually
from tests.support.people import answer, asks, view_of
from tests.support.runs import done
from tests.support.tools import Bench

pytestmark = pytest.mark.server


async def test_an_agent_asks_a_person_by_a_tool(client: Client, tmp_path: Path) -> None:
    steps = (tool_call("ask_person", prompt="Which?", options=["a", "b"]), step("You said b.", last='["b"]'))
    async with ModelServer(*steps) as model, agent_runs(client, model, tmp_path) as runs:
        plan = agent(runs, "echo", feedback_policy="on_request")
        handle = await runs.start_compiled(plan, inputs={"objective": "Choose."})
        await asks(runs, handle, "turn1.1")
        await answer(handle, "turn1.1", {"selected": ["b"]})
        assert await ended(runs, handle) == {
            "status": "completed",
            "output": "You said b.",
            "nodes": {
                "turn1": done(answered(None)),
                "turn1.1": done({"selected": ["b"]}),
                "turn2": done(answered("You said b.")),
            },
        }
    assert model.calls[0].tools == ["echo", "ask_person"]
    assert said(model.calls[1])[-2:] == [("assistant", ["ask_person"]), ("tool", '{"selected":["b"]}')]


async def test_a_marker_in_an_answer_opens_a_question_and_its_answer_goes_into_the_next_turn(
    client: Client, tmp_path: Path
) -> None:
    steps = ("First this. [[FEEDBACK CLARIFICATION: Which town?]]", step("Sunny in Ulm.", last="Ulm"))
    async with (
        ModelServer(*steps) as model,
        agent_runs(client, model, tmp_path, workflow_cache=False) as runs,
    ):
        plan = agent(runs, feedback_policy="on_request")
        handle = await runs.start_compiled(plan, inputs={"objective": "How is the weather?"})
        await asks(runs, handle, "turn1.ask")
        await answer(handle, "turn1.ask", {"text": "Ulm"})
        document = await ended(runs, handle)
    assert (document["status"], document["output"]) == ("completed", "Sunny in Ulm.")
    assert said(model.calls[1])[-1] == ("user", 'A person was asked: Which town?\nThe answer: {"text":"Ulm"}')


async def test_a_marker_in_the_last_answer_is_cut_from_it(client: Client, tmp_path: Path) -> None:
    steps = ("Rain, I think. [[FEEDBACK APPROVAL: Is it?]]",)
    async with ModelServer(*steps) as model, agent_runs(client, model, tmp_path) as runs:
        plan = agent(runs, feedback_policy="on_request", max_turns=1)
        handle = await runs.start_compiled(plan, inputs={"objective": "How is the weather?"})
        document = await ended(runs, handle)
    assert (document["status"], document["output"]) == ("completed", "Rain, I think.")


async def test_a_marker_means_nothing_to_an_agent_that_never_asks(client: Client, tmp_path: Path) -> None:
    words = "[[FEEDBACK APPROVAL: Is it?]]"
    async with ModelServer(words) as model, agent_runs(client, model, tmp_path) as runs:
        handle = await runs.start_compiled(agent(runs), inputs={"objective": "Say it."})
        assert (await ended(runs, handle))["output"] == words


async def test_a_person_sees_each_answer_of_an_agent_that_always_asks(client: Client, tmp_path: Path) -> None:
    async with (
        ModelServer("Bad.", step("Better.", last="too short")) as model,
        agent_runs(client, model, tmp_path) as runs,
    ):
        plan = agent(runs, feedback_policy="always")
        handle = await runs.start_compiled(plan, inputs={"objective": "Write."})
        await asks(runs, handle, "turn1.check")
        [request] = await handle.query(wire.QUERY_PENDING)
        await answer(handle, "turn1.check", {"approved": False, "reason": "too short"})
        await asks(runs, handle, "turn2.check")
        await answer(handle, "turn2.check", {"approved": True})
        document = await ended(runs, handle)
    assert request["prompt"] == "helper answers:\n\nBad.\n\nIs that good?"
    assert (document["status"], document["output"]) == ("completed", "Better.")
    assert said(model.calls[1])[-1] == ("user", "A person does not take this answer: too short. Do better.")


async def test_an_answer_that_is_but_a_question_is_asked_where_the_policy_says_so(
    client: Client, tmp_path: Path
) -> None:
    async with ModelServer("Which town?", "Sunny.") as model, agent_runs(client, model, tmp_path) as runs:
        plan = agent(runs, feedback_policy="heuristic")
        handle = await runs.start_compiled(plan, inputs={"objective": "How is the weather?"})
        await asks(runs, handle, "turn1.ask")
        await answer(handle, "turn1.ask", {"text": "Ulm"})
        assert (await ended(runs, handle))["output"] == "Sunny."


async def test_a_call_that_a_person_cancels_or_answers_by_hand_is_told_to_the_model(
    client: Client, tmp_path: Path, unique: str
) -> None:
    bench = Bench()
    calls = tool_calls(("hold", {"name": unique}), ("write", {"name": unique}))
    async with (
        ModelServer(calls, step("Then without.", last="made by hand")) as model,
        agent_runs(client, model, tmp_path, bench=bench) as runs,
    ):
        handle = await runs.start_compiled(agent(runs, "hold", "write"), inputs={"objective": "Wait."})
        await eventually(lambda: unique in bench.entered)
        await asks(runs, handle, "turn1.2")
        await handle.execute_update(wire.CANCEL_NODE, {"node": "turn1.1", "branch": False, "reason": "no", "by": "ann"})
        await handle.execute_update(wire.SET_RESULT, {"node": "turn1.2", "result": "made by hand", "by": "ann"})
        document = await ended(runs, handle)
    assert (document["output"], bench.effects[unique]) == ("Then without.", [])
    assert {name: node["status"] for name, node in document["nodes"].items()} == {
        "turn1": "completed",
        "turn1.1": "cancelled",
        "turn1.2": "completed",
        "turn2": "completed",
    }
    told = [content for role, content in said(model.calls[1]) if role == "tool"]
    assert [told[0].split(":")[0], told[1]] == ["It was cancelled", "made by hand"]


async def test_a_question_far_into_a_long_answer_is_asked(client: Client, tmp_path: Path) -> None:
    long = f"{'So far I know nothing. ' * 3_000}[[FEEDBACK SELECTION: Which town? | Ulm | Bonn]]{' And more.' * 500}"
    async with (
        ModelServer(long, step("Ulm, then.", last="Ulm")) as model,
        agent_runs(client, model, tmp_path) as runs,
    ):
        plan = agent(runs, feedback_policy="on_request")
        handle = await runs.start_compiled(plan, inputs={"objective": "Choose."})
        await asks(runs, handle, "turn1.ask")
        [request] = (await view_of(runs, handle)).document()["waiting_for"]
        assert (request["prompt"], request["options"]) == ("Which town?", ["Ulm", "Bonn"])
        await answer(handle, "turn1.ask", {"selected": ["Ulm"]})
        document = await ended(runs, handle)
    assert document["output"] == "Ulm, then."


@pytest.mark.parametrize(
    ("text", "marker"),
    [
        ("none", None),
        ("a [[FEEDBACK: Which?]] b [[FEEDBACK: Why?]]", "[[FEEDBACK: Which?]]"),
        ("[[ FEEDBACK APPROVAL: May I?\nNow? ]]", "[[ FEEDBACK APPROVAL: May I?\nNow? ]]"),
        ("[[FEEDBACK x:" * 100_000, None),
        (f"[[FEEDBACK: {'x' * 3_000}]]", None),
    ],
)
def test_a_marker_is_found_in_answers_of_any_length(text: str, marker: str | None) -> None:
    assert marker_in(text) == marker
