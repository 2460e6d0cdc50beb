"""`ask --profile intents`: from words to parties, with the scripted model."""

import json
import re

import pytest

from dagwright.testing import ModelServer
from tests.e2e.command import CommandLine, asking, ended
from tests.support.eventually import eventually
from tests.support.intents import answer, fund, product, said
from tests.support.onboarding import intent, looked_up

pytestmark = pytest.mark.server

WORDS = "Create Apex in Luxembourg with custody."
APEX = said(fund("Apex"), product("CUSTODY", "@result_1"), explanation="Makes Apex,\nwith custody.", confidence=0.75)


async def test_end_tells_the_explanation_and_what_each_intent_has_made(command_line: CommandLine) -> None:
    async with ModelServer(APEX) as server:
        end = await asking(command_line, server)("ask", WORDS, "--profile", "intents", "--id", "intents-told")
    lines = end.stdout.splitlines()
    assert (end.code, end.stderr) == (0, "")
    first = lines.index("Makes Apex, with custody. (75% sure)")
    assert lines[first + 1].startswith('@result_1 cbu.ensure: {"id": "fund_')
    assert lines[first + 2].startswith('@result_2 cbu.add-product: {"id": ')
    assert lines[first + 3].startswith(f"intents-told ({WORDS}): completed in ")
    watched = await command_line("watch", "intents-told")
    assert {*lines[first : first + 3]} <= {*watched.stdout.splitlines()}


async def test_document_has_what_was_made_and_what_the_model_says_of_it(command_line: CommandLine) -> None:
    async with ModelServer(APEX, said(product("DEPOSITARY", "@cbu"))) as server:
        commands = asking(command_line, server)
        first = await commands("ask", WORDS, "--profile", "intents", "--id", "intents-first", "--json")
        cbu = first.document["nodes"]["@result_1"]["result"]["id"]
        named = ("ask", "Depositary too.", "--profile", "intents", "--context", f"cbu={cbu}", "--id", "intents-second")
        second = await commands(*named, "--json")
        again = await commands(*named, "--json")
        other = await commands(*[part.replace(cbu, "other") for part in named], "--json")
    read = first.document["nodes"]["read"]["result"]
    assert (first.code, first.document["output"]["@result_2"]["product"]) == (0, "CUSTODY")
    assert (read["explanation"], read["confidence"]) == ("Makes Apex,\nwith custody.", 0.75)
    assert second.document["output"]["@result_1"]["cbu_id"] == cbu
    assert again.document == second.document
    assert (other.code, other.document["status"]) == (2, "id_in_use")
    assert '{"ref": "@cbu"}' in server.calls[1].text
    assert cbu not in json.dumps(server.calls[1].messages)


async def test_plan_only_writes_intents_that_can_be_run(command_line: CommandLine) -> None:
    async with ModelServer(APEX) as server:
        commands = asking(command_line, server)
        end = await commands("ask", WORDS, "--profile", "intents", "--plan-only", "--id", "intents-only")
    assert (end.code, end.stderr) == (0, "")
    assert end.document == json.loads(APEX)
    ran = await command_line("run", "-", "--json", "--id", "intents-only-run", text=end.stdout)
    assert (ran.code, [*ran.document["nodes"]]) == (0, ["@result_1", "@result_2"])


async def test_unsure_plan_is_shown_and_approved_on_the_terminal(command_line: CommandLine) -> None:
    async with ModelServer(APEX) as server:
        code, screen = await asking(command_line, server).on_terminal(
            "ask", WORDS, "--profile", "intents", "--confidence", "0.8", answers="yes\n"
        )
    assert (code, "The model is 75% sure: “Makes Apex,\\nwith custody.”" in screen) == (0, True)
    assert screen.count("May it run? (yes, no or edit): ") == 1
    assert "@result_2 cbu.add-product: " in screen


async def test_plan_that_is_sure_enough_is_not_asked_about_on_the_terminal(command_line: CommandLine) -> None:
    async with ModelServer(APEX) as server:
        code, screen = await asking(command_line, server).on_terminal(
            "ask", WORDS, "--profile", "intents", "--confidence", "0.75", answers=""
        )
    assert (code, "May it run?" in screen, "@result_2 cbu.add-product: " in screen) == (0, False, True)


async def test_policy_has_changes_approved_elsewhere(own_command_line: CommandLine) -> None:
    policy = own_command_line.folder / "policy.json"
    policy.write_text('{"approves_changes": true}', encoding="utf-8")
    arguments = ("--profile", "intents", "--policy", str(policy), "--detach", "--id", "intents-policy", "--json")
    async with ModelServer(said(fund("Apex"))) as server:
        commands = asking(own_command_line, server)
        assert (await commands("ask", WORDS, *arguments)).code == 0
        watching = await commands.start("watch", "intents-policy", "--json")

        async def asks() -> bool:
            asked = await commands("inbox", "--json")
            return [(each["workflow_id"], each["id"]) for each in asked.document] == [("intents-policy", "approve")]

        await eventually(asks)
        assert (await commands("feedback", "intents-policy", "approve", "--approve")).code == 0
        end = await ended(watching)
    assert (end.code, end.document["output"]["@result_1"]["name"]) == (0, "Apex")


async def test_plan_of_a_person_is_approved_by_the_same_policy(command_line: CommandLine) -> None:
    for name, content in (("policy.json", {"approves_changes": True}), ("plan.json", answer(fund("Apex")))):
        (command_line.folder / name).write_text(json.dumps(content), encoding="utf-8")
    run = ("run", "plan.json", "--policy", "policy.json", "--id", "intents-of-a-person")
    code, screen = await command_line.on_terminal(*run, answers="no\n")
    assert (code, "1 of them can change something" in screen) == (2, True)


async def test_nothing_to_do_is_explained(command_line: CommandLine) -> None:
    async with ModelServer(said(explanation="It has custody.", confidence=1)) as server:
        end = await asking(command_line, server)("ask", WORDS, "--profile", "intents", "--id", "intents-nothing")
    assert (end.code, "It has custody. (100% sure)" in end.stdout.splitlines()) == (0, True)


async def test_ambiguous_director_is_asked_and_answered_by_another_command(own_command_line: CommandLine) -> None:
    folder = own_command_line.folder
    (folder / "parties.csv").write_text(
        "name,kind,jurisdiction\nMaria Garcia,person,ES\nMaria Garcia,person,LU\n", encoding="utf-8"
    )
    assert (await own_command_line("entities", "load", "parties.csv")).code == 0
    director = intent(
        "cbu.assign-role",
        refs={"cbu-id": "@result_1"},
        lookups={"entity-id": looked_up("Maria Garcia")},
        role="DIRECTOR",
    )
    script = said(fund("Apex"), director, explanation="Makes Apex.", confidence=0.9)
    name = "lookup:person:Maria Garcia"
    async with ModelServer(script) as server:
        commands = asking(own_command_line, server)
        running = await commands.start("ask", WORDS, "--profile", "intents", "--id", "intents-asked")

        async def asks() -> bool:
            asked = await commands("inbox", "--json")
            return [(each["workflow_id"], each["id"]) for each in asked.document] == [("intents-asked", name)]

        await eventually(asks)
        [request] = (await commands("inbox", "--json")).document
        [chosen] = [each["id"] for each in request["options"] if "LU" in each["label"]]
        answered = await commands("feedback", "intents-asked", name, "--select", chosen)
        end = await ended(running)
    assert (answered.code, end.code) == (0, 0)
    lines = end.stdout.splitlines()
    first = lines.index("Makes Apex. (90% sure)")
    bound = r"'Maria Garcia' is Maria Garcia \(person, LU, \S+\): chosen by a person"
    assert re.fullmatch(bound, lines[first + 1])
    assert lines[first + 2].startswith("@result_1 cbu.ensure: ")
    assert len(server.calls) == 1
