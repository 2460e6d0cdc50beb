"""Requests in words on the real Temporal server, with the scripted model: plan, repair, run, answer."""

import json
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from dagwright.core.model.agent_cards import AgentCard
from dagwright.core.model.agents import agent_declaration
from dagwright.planner import Asked, prepare_goal
from dagwright.testing import ModelServer, Refused
from tests.support.agents import agent_runs
from tests.support.goals import call, ended, goal, purposes, written
from tests.support.people import answer, asks, view_of
from tests.support.runs import document_of, failed
from tests.support.tools import Bench

pytestmark = pytest.mark.server

SUM = written(call("a", "plus", left=1, right=2), call("b", "plus", left="{{a.result}}", right=4))


async def test_request_is_planned_run_and_answered(client: Client, tmp_path: Path) -> None:
    async with (
        ModelServer(SUM, "It is 7.") as server,
        agent_runs(client, server, tmp_path) as runs,
    ):
        found = await ended(runs, await runs.start_compiled(goal(runs, "Add 1, 2 and 4.", "plus", "echo")))
    assert (found["status"], found["output"], [*found["nodes"]]) == (
        "completed",
        "It is 7.",
        ["plan", "read", "a", "b", "answer"],
    )
    assert [found["nodes"][name]["result"] for name in ("a", "b")] == [3.0, 7.0]
    assert purposes([*server.calls]) == [("plan", "plan"), ("answer", "answer")]
    asked, told = server.calls
    assert asked.response_format == "json_schema"
    assert asked.text.endswith("\n\nRequest:\nAdd 1, 2 and 4.")
    assert told.messages[1]["content"] == (
        "Request:\nAdd 1, 2 and 4.\n\n"
        "Step 'a': completed\nError: null\nResult: 3.0\n\n"
        "Step 'b': completed\nError: null\nResult: 7.0"
    )


async def test_plan_that_cannot_be_run_goes_back_until_it_can(client: Client, tmp_path: Path) -> None:
    wrong = written(call("a", "plus", left=1), call("plan", "pls", left="{{c.result}}", right=4))
    prose = "I would first add the numbers."
    async with (
        ModelServer(wrong, prose, SUM, "It is 7.") as server,
        agent_runs(client, server, tmp_path) as runs,
    ):
        found = await ended(runs, await runs.start_compiled(goal(runs, "Add 1, 2 and 4.", "plus")))
    names = ["plan", "read", "plan#2", "read#2", "plan#3", "read#3", "a", "b", "answer"]
    assert (found["status"], found["output"], [*found["nodes"]]) == ("completed", "It is 7.", names)
    assert purposes([*server.calls]) == [
        ("plan", "plan"),
        ("plan#2", "repair"),
        ("plan#3", "repair"),
        ("answer", "answer"),
    ]
    first = server.calls[1].messages
    assert [message["role"] for message in first] == ["system", "user", "assistant", "user"]
    assert first[2]["content"] == wrong
    problems = found["nodes"]["read"]["result"]["problems"]
    assert [problem["code"] for problem in problems] == ["invalid_arguments", "invalid_reference", "unknown_tool"]
    assert all(json.dumps(problem["message"]) in first[3]["content"] for problem in problems)
    assert server.calls[2].messages[-2]["content"] == prose


async def test_nonsense_ends_the_run_with_the_last_plan_and_what_is_wrong_with_it(
    client: Client, tmp_path: Path
) -> None:
    nonsense = ["No.", "[]", '{"nodes": []}', *[written(call("a", "fly", to="the moon"))] * 7]
    async with ModelServer(*nonsense) as server, agent_runs(client, server, tmp_path) as runs:
        found = await ended(runs, await runs.start_compiled(goal(runs, "Fly.", "plus", plans=10)))
    assert found["status"] == "failed"
    assert found["error"] == (
        "plan_invalid: the model wrote 10 plans, and none can be run; unknown_tool at /nodes/0/tool: there is no tool "
        "'fly'"
    )
    assert len(server.calls) == 10
    assert found["nodes"]["read#10"]["result"]["problems"][0]["code"] == "unknown_tool"
    assert found["nodes"]["plan#10"]["result"]["message"]["content"] == nonsense[-1]


async def test_answer_is_told_what_failed_and_why(client: Client, tmp_path: Path) -> None:
    plan = written(
        call("a", "give_up", message="nobody there"), call("b", "echo", of="{{a.result}}"), call("c", "echo")
    )
    async with ModelServer(plan, "I could not.") as server, agent_runs(client, server, tmp_path) as runs:
        found = await ended(runs, await runs.start_compiled(goal(runs, "Try.", "give_up", "echo")))
    assert (found["status"], found["output"]) == ("completed_with_failures", "I could not.")
    assert found["nodes"]["a"] == failed("tool_failed: nobody there")
    failure = '{"code":"tool_failed","message":"nobody there","retryable":false}'
    why = '{"code":"dependency_failed","message":"Waiting for dependency: a failed","retryable":false}'
    assert server.calls[1].messages[1]["content"] == (
        "Request:\nTry.\n\n"
        f"Step 'a': failed\nError: {failure}\nResult: null\n\n"
        f"Step 'b': blocked\nError: {why}\nResult: null\n\n"
        "Step 'c': completed\nError: null\nResult: {}"
    )


async def test_large_results_are_cut_for_the_answer(client: Client, tmp_path: Path) -> None:
    plan = written(call("big", "table", rows=5000), call("small", "text", size=9000), call("many", "text", size=8100))
    async with ModelServer(plan, "Done.") as server, agent_runs(client, server, tmp_path) as runs:
        found = await ended(runs, await runs.start_compiled(goal(runs, "Look.", "table", "text")))
    assert (found["status"], found["output"]) == ("completed", "Done.")
    told = server.calls[1].text
    assert len(told) < 27_000
    assert told.count("[… cut here: ") == 3


async def test_plan_only_ends_with_the_plan(client: Client, tmp_path: Path) -> None:
    async with ModelServer("No.", SUM) as server, agent_runs(client, server, tmp_path) as runs:
        plan = goal(runs, "Add.", "plus", ends_with_plan=True)
        found = await ended(runs, await runs.start_compiled(plan))
    assert found["status"] == "completed"
    assert [node["id"] for node in found["output"]["nodes"]] == ["a", "b"]
    assert [*found["nodes"]] == ["plan", "read", "plan#2", "read#2"]


async def test_model_that_cannot_be_asked_ends_the_run_with_advice(client: Client, tmp_path: Path) -> None:
    refused = Refused(404, "The model `small` does not exist", code="model_not_found")
    async with ModelServer(refused) as server, agent_runs(client, server, tmp_path) as runs:
        found = await ended(runs, await runs.start_compiled(goal(runs, "Add.", "plus")))
    assert found["status"] == "failed"
    assert found["nodes"]["plan"]["error"].startswith("model_unknown: small at ")


async def test_write_of_a_plan_is_held_for_a_person_whatever_the_plan_says(client: Client, tmp_path: Path) -> None:
    bench = Bench()
    write = {**call("a", "change", name="world"), "approval": "never"}
    async with (
        ModelServer(written(write), "It was not allowed.") as server,
        agent_runs(client, server, tmp_path, bench=bench) as runs,
    ):
        handle = await runs.start_compiled(goal(runs, "Change it.", "change"))
        await asks(runs, handle, "a")
        await answer(handle, "a", {"approved": False, "reason": "no"})
        found = await ended(runs, handle)
    assert (found["status"], found["output"]) == ("completed_with_failures", "It was not allowed.")
    assert found["nodes"]["a"] == failed("rejected: rejected by ann: no")
    assert found["nodes"]["read"]["result"]["notes"][0]["node"] == "a"
    assert bench.effects["world"] == []
    assert "rejected by ann: no" in server.calls[1].text


async def test_plan_is_approved_as_a_whole_and_its_writes_are_not_asked_about(client: Client, tmp_path: Path) -> None:
    bench = Bench()
    plan = written(call("a", "change", name="all of it"))
    async with (
        ModelServer(plan, "Done.") as server,
        agent_runs(client, server, tmp_path, bench=bench) as runs,
    ):
        handle = await runs.start_compiled(goal(runs, "Change it.", "change", asks_first=True))
        await asks(runs, handle, "approve")
        [request] = (await view_of(runs, handle)).document()["waiting_for"]
        assert request["prompt"].startswith(
            "May this plan run?\n\nThe plan has 1 node; 1 of them can change something."
        )
        await answer(handle, "approve", {"approved": True})
        found = await ended(runs, handle)
    assert (found["status"], found["output"], [*found["nodes"]]) == (
        "completed",
        "Done.",
        ["plan", "read", "approve", "a", "answer"],
    )
    assert len(bench.effects["all of it"]) == 1


async def test_what_nobody_was_shown_of_an_approved_plan_is_asked_about(client: Client, tmp_path: Path) -> None:
    plan = written(*[call(f"n{place}", "change", name=f"n{place}") for place in range(41)])
    bench = Bench()
    async with ModelServer(plan, "Done.") as server, agent_runs(client, server, tmp_path, bench=bench) as runs:
        handle = await runs.start_compiled(goal(runs, "Change it.", "change", asks_first=True))
        await asks(runs, handle, "approve")
        [request] = (await view_of(runs, handle)).document()["waiting_for"]
        assert request["prompt"].endswith(
            "\n… and 1 more, 1 of them can change something\n\n"
            "Of 1 of its nodes not all is shown; the policy decides on each of them."
        )
        await answer(handle, "approve", {"approved": True})
        await asks(runs, handle, "n40")
        await answer(handle, "n40", {"approved": False})
        found = await document_of(handle)
    assert (found["status"], found["output"], bench.effects["n40"]) == ("completed_with_failures", "Done.", [])
    assert [len(bench.effects[f"n{place}"]) for place in range(40)] == [1] * 40


async def test_whoever_approves_may_give_another_plan_of_what_the_request_may_use(
    client: Client, tmp_path: Path
) -> None:
    wrong = {
        "approve#2": (call("c", "plus", left=5), "invalid_arguments at "),
        "approve#3": (call("c", "echo"), "unknown_tool at /nodes/0/tool"),
    }
    async with ModelServer(SUM, "It is 10.") as server, agent_runs(client, server, tmp_path) as runs:
        handle = await runs.start_compiled(goal(runs, "Add.", "plus", asks_first=True))
        asked = "approve"
        await asks(runs, handle, asked)
        for name, (node, problem) in wrong.items():
            await answer(handle, asked, {"approved": True, "arguments": {"plan": {"nodes": [node]}}})
            await asks(runs, handle, asked := name)
            [request] = (await view_of(runs, handle)).document()["waiting_for"]
            told = "May this plan run?\n\nThe plan that was given instead cannot be run: "
            assert request["prompt"].startswith(told + problem)
        other = {"nodes": [call("c", "plus", left=5, right=5)]}
        await answer(handle, asked, {"approved": True, "arguments": {"plan": other}})
        found = await ended(runs, handle)
    assert (found["status"], found["output"]) == ("completed", "It is 10.")
    assert [*found["nodes"]] == ["plan", "read", "approve", *wrong, "c", "answer"]


@pytest.mark.parametrize("message", [{"goal": "Add."}, {"plan": {"goal": " Add.\n", "config": {"seed": 7}}}])
async def test_request_is_started_by_any_client(client: Client, tmp_path: Path, message: dict[str, Any]) -> None:
    async with ModelServer(SUM, "It is 7.") as server, agent_runs(client, server, tmp_path) as runs:
        found = await ended(runs, await runs.start_raw(message, workflow="PursueGoal"))
    assert (found["status"], found["output"]) == ("completed", "It is 7.")
    assert [call.body.get("seed") for call in server.calls] == [
        message.get("plan", {}).get("config", {}).get("seed")
    ] * 2


async def test_request_of_a_client_of_which_nothing_can_come_ends_its_run_at_once(
    client: Client, tmp_path: Path
) -> None:
    wrong = {"goal": "Add.", "confg": {}, "approve_plan": "yes", "config": {"temperature": 9}}
    async with ModelServer() as server, agent_runs(client, server, tmp_path) as runs:
        documents = [
            await document_of(await runs.start_raw(message, workflow="PursueGoal"))
            for message in ({"goal": " "}, {"goal": "x" * 1_000_000}, {"plan": wrong}, {"goal": None})
        ]
    assert [document["status"] for document in documents] == ["failed"] * 4
    assert [document["error"]["errors"][0]["code"] for document in documents] == [
        "empty_goal",
        "too_large",
        "invalid_field",
        "invalid_field",
    ]
    assert documents[3]["error"]["errors"][0]["message"] == "a request is a text, not NoneType"
    assert [problem["pointer"] for problem in documents[2]["error"]["errors"]] == ["/confg", "/approve_plan", "/config"]


async def test_request_of_a_client_says_how_often_its_plan_goes_back(client: Client, tmp_path: Path) -> None:
    async with ModelServer("No.", "No.") as server, agent_runs(client, server, tmp_path) as runs:
        goals = [{"goal": "Add.", "max_repairs": repairs} for repairs in (1, 20)]
        found, refused = [
            await document_of(await runs.start_raw({"plan": given}, workflow="PursueGoal")) for given in goals
        ]
    assert found["error"]["message"].startswith("the model wrote 2 plans, and none can be run; ")
    (problem,) = refused["error"]["errors"]
    assert (problem["pointer"], problem["message"]) == ("/max_repairs", "max_repairs must be a number from 0 to 19")


async def test_calls_of_a_run_are_told_apart_as_the_page_of_the_planner_says(client: Client, tmp_path: Path) -> None:
    card = AgentCard(name="clerk", description="Reads", objective_template="Read {what}", type="llm", prompt="Read.")
    plan = written({"id": "mail", "agent": "clerk", "objective": "Read my mail."})
    async with (
        ModelServer("I would read it.", plan, "Nothing new.", "No news.") as server,
        agent_runs(client, server, tmp_path) as runs,
    ):
        known = {"echo": runs.tools["echo"], (declared := agent_declaration(card)).name: declared}
        handle = await runs.start_compiled(prepare_goal("Read my mail.", known, Asked())[0])
        await ended(runs, handle)
    assert [(each.metadata, each.is_streamed, each.response_format) for each in server.calls] == [
        ({"run": handle.id, "node": "plan", "purpose": "plan"}, True, "json_schema"),
        ({"run": handle.id, "node": "plan#2", "purpose": "repair"}, True, "json_schema"),
        ({"run": f"{handle.id}/mail", "node": "turn1", "purpose": "agent"}, True, "text"),
        ({"run": handle.id, "node": "answer", "purpose": "answer"}, True, "json_schema"),
    ]
    planned, mended, _, answered = (each.messages for each in server.calls)
    assert planned[0]["content"].startswith("You plan.")
    assert mended[:2] == planned
    assert mended[-1]["content"].startswith("This plan cannot be run:")
    assert answered[0]["content"].startswith("You answer a request")
