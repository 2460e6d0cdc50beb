"""`ask --session` and `session`: requests that share `@` names and earlier turns, with the scripted model."""

import asyncio
import json
from typing import Any

import pytest

from dagwright.testing import ModelServer
from tests.e2e.command import CommandLine, kill_process, wait_for_exit, with_model
from tests.support.chaos_tools import FOLDER_VARIABLE
from tests.support.eventually import eventually
from tests.support.goals import call_node, plan_text
from tests.support.held_starter import TURN_ENDED, TURN_SENT, TURN_UNSENT
from tests.support.intents import fund_intent, intents_response_text, product_intent
from tests.support.onboarding import intent

pytestmark = pytest.mark.server

_ASK_ARGUMENTS = ("ask", "--profile", "intents", "--session")


async def test_second_request_of_a_session_uses_the_fund_of_the_first_request(commands: CommandLine) -> None:
    name = "Fonds für Ann/1"
    script = (
        intents_response_text(fund_intent("Apex")),
        intents_response_text(product_intent("FUND_ACCOUNTING", "@cbu")),
        intents_response_text(fund_intent("Zenith")),
    )
    async with ModelServer(*script) as model_server:
        model_commands = with_model(commands, model_server)
        first_result = await model_commands(*_ASK_ARGUMENTS, name, "Create the Apex fund.", "--json")
        second_result = await model_commands(*_ASK_ARGUMENTS, name, "Add fund accounting too.")
        session_result = await model_commands("session", name, "--json")
        session_list = await model_commands("session", "--json")
        run_list = await model_commands("list", "--json")
        session_text_result = await model_commands("session", name)
        list_text_result = await model_commands("list")
        run_command_results = [
            await model_commands(command, f"session-{name}") for command in ("status", "watch", "cancel")
        ]
        end_result = await model_commands("session", name, "--end", "--json")
        third_result = await model_commands(*_ASK_ARGUMENTS, name, "Create the Zenith fund.", "--json")
        new_session = await model_commands("session", name, "--json")
    assert (first_result.code, second_result.code, second_result.stderr) == (0, 0, "")
    created_fund = first_result.document["nodes"]["@result_1"]["result"]
    assert first_result.document["context"] == {"cbu": {"id": created_fund["id"], "name": "Apex", "kind": "fund"}}
    run_id = session_result.document["turns"][1]["run_id"]
    assert f"run {run_id} in the session {name}" in second_result.stdout
    prompt = model_server.calls[1].text
    assert '{"ref": "@cbu", "kind": "fund", "name": "Apex"}' in prompt
    assert "Request: Create the Apex fund.\\nPlan: Does it.\\nIt set @cbu (Apex).\\nResult: completed" in prompt
    assert created_fund["id"] not in prompt
    document = session_result.document
    assert document["session_id"] == name
    assert document["status"] == "idle"
    assert document["context"] == first_result.document["context"]
    assert [(turn["number"], turn["request"], turn["status"], turn["explanation"]) for turn in document["turns"]] == [
        (1, "Create the Apex fund.", "completed", "Does it."),
        (2, "Add fund accounting too.", "completed", "Does it."),
    ]
    sessions = session_list.check_success().document["sessions"]
    (listed_session,) = [session for session in sessions if session["session_id"] == name]
    assert listed_session["turn_count"] == 2
    assert listed_session["last_request"] == "Add fund accounting too."
    assert listed_session["last_run_id"] == run_id
    assert {each["session_id"] for each in run_list.document["runs"] if each["run_id"] == run_id} == {name}
    assert f"session {name}: idle" in session_text_result.stdout
    assert name in list_text_result.stdout
    for each in run_command_results:
        assert (each.code, f"`dagwright session {name}` shows it" in each.stderr) == (2, True)
    assert f"@cbu: Apex (fund, {created_fund['id']})" in session_text_result.stdout
    end_message = "ends as soon as a worker serves it"
    assert end_result.document == {"session_id": name, "ok": True, "message": end_message}
    third_result.check_success()
    assert "The session has no names." in model_server.calls[2].text
    assert [turn["request"] for turn in new_session.document["turns"]] == ["Create the Zenith fund."]


async def test_plan_reads_and_adds_names_of_a_session(commands_with_private_server: CommandLine) -> None:
    def write_plan(name: str, *intents: Any) -> str:
        path = commands_with_private_server.folder / f"{name}.json"
        path.write_text(json.dumps({"intents": intents}), encoding="utf-8")
        return str(path)

    create_plan = write_plan("made", intent("cbu.ensure", name="Apex", jurisdiction="LU"))
    extend_plan = write_plan("more", intent("cbu.add-product", product="CUSTODY", refs={"cbu-id": "@cbu"}))
    commands = commands_with_private_server
    result_without_session = await commands("run", extend_plan, "--json")
    result_in_empty_session = await commands("run", extend_plan, "--session", "plans", "--json")
    first_result = await commands("run", create_plan, "--session", "plans", "--json")
    arguments = ("run", extend_plan, "--session", "plans", "--id", "plans-second", "--json")
    second_result, repeated_result = await commands(*arguments), await commands(*arguments)
    session_result = await commands("session", "plans", "--json")
    fund_id = first_result.document["context"]["cbu"]["id"]
    assert result_without_session.code == 2
    assert result_in_empty_session.code == 2
    assert result_without_session.document["errors"][0]["code"] == result_in_empty_session.document["errors"][0]["code"]
    assert [each.code for each in (first_result, second_result, repeated_result)] == [0, 0, 0]
    assert second_result.document["nodes"]["@result_1"]["lineage"] is not None
    assert fund_id in json.dumps(second_result.document["nodes"]["@result_1"]["result"])
    assert repeated_result.document["run_id"] == second_result.document["run_id"]
    expected = [("(the plan made.json)", "completed"), ("(the plan more.json)", "completed")]
    assert [(turn["request"], turn["status"]) for turn in session_result.document["turns"]] == expected


async def test_request_during_a_turn_waits_or_is_rejected_with_detach(
    commands_with_private_server: CommandLine,
) -> None:
    first_plan, second_plan = (
        plan_text(call_node("a", "calculator", expression=expression)) for expression in ("1", "2")
    )
    async with ModelServer(first_plan, "One.", second_plan, "Two.") as model_server:
        commands = with_model(commands_with_private_server, model_server)
        arguments = ("ask", "--session", "s", "First.", "--id", "first-turn", "--approve-plan", "--detach", "--json")
        first_result, repeated_result = await commands(*arguments), await commands(*arguments)
        assert first_result.code == 0
        assert first_result.document["ok"] is True
        assert repeated_result.document == first_result.document
        rejected_result = await commands("ask", "--session", "s", "Second.", "--detach", "--json")
        assert (rejected_result.code, rejected_result.document["code"]) == (2, "session_busy")
        # With `--tools`, the command would start a second worker, but the command is rejected first.
        tool_options = ("--detach", "--json", "--tools", "tests.support.chaos_tools")
        other_tools_result = await commands("ask", "--session", "s", "Second.", *tool_options)
        assert (other_tools_result.code, other_tools_result.document["code"]) == (2, "session_busy")
        assert len([*(commands_with_private_server.folder / "state" / "workers").glob("*.lock")]) == 1
        waiting_process = await commands.start("ask", "--session", "s", "Second.")
        assert waiting_process.stderr is not None
        line = (await asyncio.wait_for(waiting_process.stderr.readline(), 120)).decode()
        message = "the session s is running first-turn (First.); this turn waits for the end of that run: "
        assert line.startswith(message)
        await _approve(commands, "first-turn")
        result = await wait_for_exit(waiting_process)
        session_result = await commands("session", "s", "--json")
    assert (result.code, "Two." in result.stdout.splitlines()) == (0, True)
    turns = [(turn["request"], turn["outcome"]) for turn in session_result.document["turns"]]
    assert turns == [("First.", "One."), ("Second.", "Two.")]
    assert "Request: First.\\nResult: completed: One." in model_server.calls[2].text


@pytest.mark.parametrize("point", [TURN_UNSENT, TURN_SENT, TURN_ENDED])
async def test_repeated_command_after_a_kill_starts_no_second_run(commands: CommandLine, point: str) -> None:
    session_id, run_id = f"killed-{point}", f"killed-turn-{point}"
    async with ModelServer(plan_text(call_node("a", "calculator", expression="1")), "One.") as model_server:
        model_commands = with_model(commands, model_server)
        model_commands.environment[FOLDER_VARIABLE] = str(model_commands.folder)
        hold_file = model_commands.folder / f"hold-{point}"
        hold_file.touch()
        arguments = ("ask", "--session", session_id, "First.", "--id", run_id, "--json")
        process = await model_commands.start(*arguments, program=("tests/support/held_starter.py",))
        await eventually((model_commands.folder / f"reached-{point}").exists)
        await kill_process(process)
        session_after_kill = await model_commands("session", session_id, "--json")
        result = await model_commands(*arguments)
        final_session = await model_commands("session", session_id, "--json")
    if point == TURN_UNSENT:
        assert session_after_kill.document["code"] == "not_found"
    else:
        assert [turn["run_id"] for turn in session_after_kill.document["turns"]] == [run_id]
    assert (result.code, result.document["output"]) == (0, "One.")
    turns = [(turn["run_id"], turn["status"], turn["outcome"]) for turn in final_session.document["turns"]]
    assert (turns, final_session.document["status"]) == ([(run_id, "completed", "One.")], "idle")


async def _approve(commands: CommandLine, run_id: str) -> None:
    async def has_request() -> bool:
        requests = (await commands("inbox", "--json")).document["requests"]
        return (run_id, "approve") in [(request["run_id"], request["request_id"]) for request in requests]

    await eventually(has_request)
    feedback_result = await commands("feedback", run_id, "approve", "--approve")
    assert (feedback_result.code, feedback_result.stderr) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["ask", "--session", " ", "Do it."], "invalid_session_id"),
        (["session", "--end"], "invalid_value"),
        (["session", "missing", "--end"], "not_found"),
    ],
)
async def test_invalid_session_is_rejected(commands: CommandLine, arguments: list[str], code: str) -> None:
    async with ModelServer() as model_server:
        result = await with_model(commands, model_server)(*arguments, "--json")
    assert (result.code, result.document["code"]) == (2, code)
