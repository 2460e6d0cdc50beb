"""`ask --session` and `session`: several requests that know of each other, with the scripted model."""

import asyncio
import json
from typing import Any

import pytest

from dagwright.testing import ModelServer
from tests.e2e.command import CommandLine, wait_for_exit, with_model
from tests.support.chaos_tools import FOLDER_VARIABLE
from tests.support.eventually import eventually
from tests.support.goals import call, plan_text
from tests.support.held_starter import TURN_ENDED, TURN_SENT, TURN_UNSENT
from tests.support.intents import fund, intents_answer, product
from tests.support.onboarding import intent

pytestmark = pytest.mark.server

_ASK = ("ask", "--profile", "intents", "--session")


async def test_second_request_continues_with_the_fund_of_the_first(command_line: CommandLine) -> None:
    name = "Fonds für Ann/1"
    answers = (
        intents_answer(fund("Apex")),
        intents_answer(product("FUND_ACCOUNTING", "@cbu")),
        intents_answer(fund("Zenith")),
    )
    async with ModelServer(*answers) as server:
        commands = with_model(command_line, server)
        first_result = await commands(*_ASK, name, "Create the Apex fund.", "--json")
        second_result = await commands(*_ASK, name, "Add fund accounting too.")
        shown = await commands("session", name, "--json")
        listed = await commands("session", "--json")
        runs = await commands("list", "--json")
        words = await commands("session", name)
        table = await commands("list")
        no_run = [await commands(*order, f"session-{name}") for order in (("status",), ("watch",), ("cancel",))]
        closed = await commands("session", name, "--end", "--json")
        third = await commands(*_ASK, name, "Create the Zenith fund.", "--json")
        restarted = await commands("session", name, "--json")
    assert (first_result.code, second_result.code, second_result.stderr) == (0, 0, "")
    made = first_result.document["nodes"]["@result_1"]["result"]
    assert first_result.document["context"] == {"cbu": {"id": made["id"], "name": "Apex", "kind": "fund"}}
    run = shown.document["turns"][1]["run_id"]
    assert f"run {run} in the session {name}" in second_result.stdout
    result = server.calls[1].text
    assert '{"ref": "@cbu", "kind": "fund", "name": "Apex"}' in result
    assert "Request: Create the Apex fund.\\nPlan: Does it.\\nIt set @cbu (Apex).\\nResult: completed" in result
    assert made["id"] not in result
    document = shown.document
    assert (document["session_id"], document["status"], document["context"]) == (
        name,
        "idle",
        first_result.document["context"],
    )
    assert [(turn["number"], turn["request"], turn["status"], turn["explanation"]) for turn in document["turns"]] == [
        (1, "Create the Apex fund.", "completed", "Does it."),
        (2, "Add fund accounting too.", "completed", "Does it."),
    ]
    (line,) = [session for session in listed.check_success().document["sessions"] if session["session_id"] == name]
    assert (line["turns"], line["last_request"], line["last_run_id"]) == (2, "Add fund accounting too.", run)
    assert {each["session_id"] for each in runs.document["runs"] if each["run_id"] == run} == {name}
    assert f"session {name}: idle" in words.stdout
    assert name in table.stdout
    assert [end.code for end in no_run] == [2, 2, 2]
    assert [f"`dagwright session {name}` shows it" in end.stderr for end in no_run] == [True, True, True]
    assert f"@cbu: Apex (fund, {made['id']})" in words.stdout
    ending = "ends as soon as a worker serves it"
    assert closed.document == {"run_id": f"session-{name}", "ok": True, "message": ending}
    third.check_success()
    assert "The session has no names." in server.calls[2].text
    assert [turn["request"] for turn in restarted.document["turns"]] == ["Create the Zenith fund."]


async def test_plan_runs_with_the_names_of_a_session_and_leaves_its_own(own_command_line: CommandLine) -> None:
    def plan(name: str, *intents: Any) -> str:
        path = own_command_line.folder / f"{name}.json"
        path.write_text(json.dumps({"intents": intents}), encoding="utf-8")
        return str(path)

    made = plan("made", intent("cbu.ensure", name="Apex", jurisdiction="LU"))
    more = plan("more", intent("cbu.add-product", product="CUSTODY", refs={"cbu-id": "@cbu"}))
    commands = own_command_line
    alone = await commands("run", more, "--json")
    early = await commands("run", more, "--session", "plans", "--json")
    first_result = await commands("run", made, "--session", "plans", "--json")
    order = ("run", more, "--session", "plans", "--id", "plans-second", "--json")
    second, again = await commands(*order), await commands(*order)
    result = await commands("session", "plans", "--json")
    fund = first_result.document["context"]["cbu"]["id"]
    assert (alone.code, early.code, alone.document["errors"][0]["code"]) == (2, 2, early.document["errors"][0]["code"])
    assert [end.code for end in (first_result, second, again)] == [0, 0, 0]
    assert second.document["nodes"]["@result_1"]["lineage"] is not None
    assert fund in json.dumps(second.document["nodes"]["@result_1"]["result"])
    assert again.document["run_id"] == second.document["run_id"]
    expected = [("(the plan made.json)", "completed"), ("(the plan more.json)", "completed")]
    assert [(turn["request"], turn["status"]) for turn in result.document["turns"]] == expected


async def test_second_request_waits_or_is_refused(own_command_line: CommandLine) -> None:
    one, two = (plan_text(call("a", "calculator", expression=expression)) for expression in ("1", "2"))
    async with ModelServer(one, "One.", two, "Two.") as server:
        commands = with_model(own_command_line, server)
        order = ("ask", "--session", "s", "First.", "--id", "first-turn", "--approve-plan", "--detach", "--json")
        first, same = await commands(*order), await commands(*order)
        assert (first.code, first.document["ok"], same.document) == (0, True, first.document)
        refused = await commands("ask", "--session", "s", "Second.", "--detach", "--json")
        assert (refused.code, refused.document["status"]) == (2, "session_busy")
        # With other tools it would be another worker, which other commands would not find.
        with_tools = ("--detach", "--json", "--tools", "tests.support.chaos_tools")
        other = await commands("ask", "--session", "s", "Second.", *with_tools)
        assert (other.code, other.document["status"]) == (2, "session_busy")
        assert len([*(own_command_line.folder / "state" / "workers").glob("*.lock")]) == 1
        waiting = await commands.start("ask", "--session", "s", "Second.")
        assert waiting.stderr is not None
        line = (await asyncio.wait_for(waiting.stderr.readline(), 120)).decode()
        assert line.startswith(
            "the session s is running first-turn (First.); this request waits for the end of that run: "
        )
        await _approve(commands, "first-turn")
        result = await wait_for_exit(waiting)
        shown = await commands("session", "s", "--json")
    assert (result.code, "Two." in result.stdout.splitlines()) == (0, True)
    turns = [(turn["request"], turn["outcome"]) for turn in shown.document["turns"]]
    assert turns == [("First.", "One."), ("Second.", "Two.")]
    assert "Request: First.\\nResult: completed: One." in server.calls[2].text


@pytest.mark.parametrize("point", [TURN_UNSENT, TURN_SENT, TURN_ENDED])
async def test_turn_of_a_killed_command_is_one_run(command_line: CommandLine, point: str) -> None:
    session, run = f"killed-{point}", f"killed-turn-{point}"
    async with ModelServer(plan_text(call("a", "calculator", expression="1")), "One.") as server:
        commands = with_model(command_line, server)
        commands.environment[FOLDER_VARIABLE] = str(commands.folder)
        held = commands.folder / f"hold-{point}"
        held.touch()
        order = ("ask", "--session", session, "First.", "--id", run, "--json")
        killed = await commands.start(*order, program=("tests/support/held_starter.py",))
        await eventually((commands.folder / f"reached-{point}").exists)
        killed.kill()
        await wait_for_exit(killed)
        left = await commands("session", session, "--json")
        result = await commands(*order)
        shown = await commands("session", session, "--json")
    if point == TURN_UNSENT:
        assert left.document["status"] == "not_found"
    else:
        assert [turn["run_id"] for turn in left.document["turns"]] == [run]
    assert (result.code, result.document["output"]) == (0, "One.")
    turns = [(turn["run_id"], turn["status"], turn["outcome"]) for turn in shown.document["turns"]]
    assert (turns, shown.document["status"]) == ([(run, "completed", "One.")], "idle")


async def _wait_for_request(commands: CommandLine, run: str, request: str = "approve") -> None:
    async def asks() -> bool:
        inbox = await commands("inbox", "--json")
        return (run, request) in [(request["run_id"], request["request_id"]) for request in inbox.document["requests"]]

    await eventually(asks)


async def _approve(commands: CommandLine, run: str) -> None:
    await _wait_for_request(commands, run)
    approved = await commands("feedback", run, "approve", "--approve")
    assert (approved.code, approved.stderr) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["ask", "--session", " ", "Do it."], "bad_usage"),
        (["session", "--end"], "bad_usage"),
        (["session", "nobody has it", "--end"], "not_found"),
    ],
)
async def test_invalid_session_is_refused(command_line: CommandLine, arguments: list[str], status: str) -> None:
    async with ModelServer() as server:
        result = await with_model(command_line, server)(*arguments, "--json")
    assert (result.code, result.document["status"]) == (2, status)
