"""Requests in words that become intents, on the real Temporal server, with the scripted model."""

import json
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from dagwright.core.boundary import wire
from dagwright.core.model.policy import Policy
from tests.support.goals import ended, purposes, scripted_runs
from tests.support.intents import answer, fund, intents_goal, made, product, said, seed
from tests.support.onboarding import intent
from tests.support.people import answer as give
from tests.support.people import asks, view_of
from tests.support.runs import document_of

pytestmark = pytest.mark.server

APPROVING = Policy(approves_changes=True)


async def test_request_becomes_intents_that_run_without_an_answer(client: Client, tmp_path: Path) -> None:
    script = said(fund("Apex"), product("CUSTODY", "@result_1"), product("FUND_ACCOUNTING", "@result_1"))
    async with scripted_runs(client, tmp_path, script) as (server, runs):
        found = await ended(runs, await runs.start_compiled(intents_goal(runs, "Create Apex in Luxembourg.")))
    nodes = found["nodes"]
    assert (found["status"], [*nodes]) == ("completed", ["plan", "read", "@result_1", "@result_2", "@result_3"])
    assert found["output"] == {name: nodes[name]["result"] for name in ("@result_2", "@result_3")}
    assert {nodes[name]["result"]["cbu_id"] for name in ("@result_2", "@result_3")} == {
        nodes["@result_1"]["result"]["id"]
    }
    read = nodes["read"]["result"]
    assert (read["explanation"], read["confidence"], read["changes"]) == ("Does it.", 0.9, 3)
    assert purposes([*server.calls]) == [("plan", "plan")]
    asked = server.calls[0]
    assert (asked.response_format, asked.text.endswith("\n\nRequest:\nCreate Apex in Luxembourg.")) == (
        "json_schema",
        True,
    )


async def test_examples_of_the_seed_run_as_answers_of_a_model(client: Client, tmp_path: Path) -> None:
    names = ["chain", "diamond", "forward-reference", "result-reference", "session-reference"]
    first = said(intent("cbu.ensure", name="Session Fund"))
    async with scripted_runs(client, tmp_path, first, *(said(*seed(name)) for name in names)) as (_, runs):
        begun = await ended(runs, await runs.start_compiled(intents_goal(runs)))
        cbu = begun["nodes"]["@result_1"]["result"]["id"]
        for name in names:
            plan = intents_goal(runs, context={"cbu": {"id": cbu, "name": "Session Fund", "kind": "fund"}})
            found = await ended(runs, await runs.start_compiled(plan))
            assert (found["status"], {*made(found).values()}) == ("completed", {"completed"}), name
            assert len(made(found)) == len(seed(name)), name


async def test_intents_that_cannot_run_go_back_in_their_own_words(client: Client, tmp_path: Path) -> None:
    problems = {
        "circular": "CircularDependencyError: @result_1 → @result_2 → @result_1",
        "result-of-nothing": "Invalid reference: @result_2: nothing makes it",
        "session-reference-without-session": "'cbu-id' is @cbu, which the session does not have",
    }
    script = [text for name in problems for text in (said(*seed(name)), said(fund("Mended")))]
    async with scripted_runs(client, tmp_path, *script) as (server, runs):
        for name, told in problems.items():
            before = len(server.calls)
            found = await ended(runs, await runs.start_compiled(intents_goal(runs)))
            nodes = ["plan", "read", "plan#2", "read#2", "@result_1"]
            assert (found["status"], [*found["nodes"]]) == ("completed", nodes), name
            assert [each for each in found["nodes"]["read"]["result"]["problems"] if told in each["message"]], name
            assert purposes([*server.calls][before:]) == [("plan", "plan"), ("plan#2", "repair")]
            repair = server.calls[-1].messages[-1]["content"]
            assert repair.startswith("These intents cannot be run:")
            assert told in repair
            assert '"at": "/intents/' in repair


async def test_garbage_ends_the_run_with_what_is_wrong(client: Client, tmp_path: Path) -> None:
    texts = ["No.", " ", "[]", '{"intents": []}', "```json\n{\n```", '{"nodes": []}', "\x00{{}}"]
    async with scripted_runs(client, tmp_path, *[text for text in texts for _ in range(2)]) as (_, runs):
        for text in texts:
            found = await ended(runs, await runs.start_compiled(intents_goal(runs, plans=2)))
            assert (found["status"], made(found)) == ("failed", {}), text
            assert found["error"].startswith(("plan_invalid: the model wrote 2 plans", "model_")), text


async def test_nothing_to_do_completes_with_the_explanation(client: Client, tmp_path: Path) -> None:
    script = said(explanation="It has custody already.", confidence=0)
    async with scripted_runs(client, tmp_path, script) as (_, runs):
        plan = intents_goal(runs, confidence=0.9, asks_first=True, policy=APPROVING)
        found = await ended(runs, await runs.start_compiled(plan, policy=APPROVING))
    assert (found["status"], found["output"], [*found["nodes"]]) == ("completed", {}, ["plan", "read"])
    assert found["nodes"]["read"]["result"]["explanation"] == "It has custody already."


# Approval.


async def test_plan_is_approved_where_the_model_is_less_sure(client: Client, tmp_path: Path) -> None:
    cases: list[tuple[Any, float | None]] = [
        (0.9, 0.91), (None, 0.1), ("0.5", 0.9), (0.9, None), (0.9, 0.9), (None, 0.0), (1, 1.0),
    ]  # fmt: skip
    script = [said(fund("Apex"), confidence=confidence) for confidence, _ in cases]
    async with scripted_runs(client, tmp_path, *script) as (_, runs):
        for confidence, asked in cases:
            is_asked = asked is not None and float(confidence or 0) < asked
            handle = await runs.start_compiled(intents_goal(runs, confidence=asked))
            if is_asked:
                await asks(runs, handle, "approve")
                assert made((await view_of(runs, handle)).document()) == {}
                await give(handle, "approve", {"approved": True})
            found = await ended(runs, handle)
            ends = (found["status"], "approve" in found["nodes"], made(found))
            assert ends == ("completed", is_asked, {"@result_1": "completed"}), (confidence, asked)


async def test_run_that_asks_nobody_fails_where_the_model_is_not_sure_enough(client: Client, tmp_path: Path) -> None:
    script = said(fund("Apex"), confidence=0.6)
    async with scripted_runs(client, tmp_path, script) as (_, runs):
        handle = await runs.start_compiled(intents_goal(runs, confidence=0.75), asks=False)
        found = await document_of(handle)
    assert (found["status"], [*found["nodes"]], made(found)) == ("failed", ["plan", "read"], {})
    assert found["error"]["code"] == "low_confidence"
    assert found["error"]["message"].startswith(
        "the model gives its intents a confidence of 0.6, 0.75 is wanted, and nobody is asked in this run"
    )


async def test_whoever_approves_may_give_other_intents(client: Client, tmp_path: Path) -> None:
    async with scripted_runs(client, tmp_path, said(fund("Apex"))) as (_, runs):
        handle = await runs.start_compiled(intents_goal(runs, asks_first=True))
        await asks(runs, handle, "approve")
        wrong = {"approved": True, "arguments": {"plan": answer(product("GOLD", "@result_2"))}}
        await give(handle, "approve", wrong)
        await asks(runs, handle, "approve#2")
        [request] = (await view_of(runs, handle)).document()["waiting_for"]
        other = answer(fund("Apex II"), product("CUSTODY", "@result_1"))
        await give(handle, "approve#2", {"approved": True, "arguments": {"plan": other}})
        found = await ended(runs, handle)
    assert "The plan that was given instead cannot be run: invalid_arguments at /intents/0" in request["prompt"]
    assert (found["status"], made(found)) == ("completed", {"@result_1": "completed", "@result_2": "completed"})
    assert found["nodes"]["@result_1"]["result"]["name"] == "Apex II"


# Around it.


async def test_intent_that_fails_blocks_only_what_needs_it_and_nothing_is_planned_again(
    client: Client, tmp_path: Path
) -> None:
    script = said(intent("cbu.ensure", name="Apex", client_type="?"), product("CUSTODY", "@result_1"), fund("B"))
    async with scripted_runs(client, tmp_path, script) as (server, runs):
        found = await ended(runs, await runs.start_compiled(intents_goal(runs)))
    assert (found["status"], made(found)) == (
        "completed_with_failures",
        {"@result_1": "failed", "@result_2": "blocked", "@result_3": "completed"},
    )
    assert len(server.calls) == 1


async def test_request_from_outside_with_names_of_a_session(client: Client, tmp_path: Path) -> None:
    async with scripted_runs(client, tmp_path, said(fund("Apex")), said(product("CUSTODY", "@cbu"))) as (server, runs):
        made_first = await ended(
            runs,
            await runs.start_raw(
                {"plan": {"goal": "Make Apex.", "profile": "intents"}}, workflow=wire.WORKFLOW_PURSUE_GOAL
            ),
        )
        cbu = made_first["nodes"]["@result_1"]["result"]["id"]
        request = {"goal": "Custody too.", "profile": "intents", "turns": ["Made Apex."], "confidence": 0.5}
        context = {"cbu": {"id": cbu, "name": "Apex", "kind": "fund"}}
        handle = await runs.start_raw({"plan": request, "context": context}, workflow=wire.WORKFLOW_PURSUE_GOAL)
        found = await ended(runs, handle)
    assert (found["status"], found["nodes"]["@result_1"]["result"]["cbu_name"]) == ("completed", "Apex")
    told = server.calls[1].text
    assert ('{"ref": "@cbu", "kind": "fund", "name": "Apex"}' in told, '- "Made Apex."' in told) == (True, True)
    assert cbu not in json.dumps(server.calls[1].messages)
