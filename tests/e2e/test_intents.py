"""`ask --profile intents` executes the intents that the scripted model writes for a request in words."""

import json

import pytest

from dagwright.testing import ModelServer
from tests.e2e.command import CommandLine, with_model
from tests.support.intents import fund_intent, intents_response_text, product_intent

pytestmark = pytest.mark.server

REQUEST = "Create Apex in Luxembourg with custody."
APEX_RESPONSE = intents_response_text(
    fund_intent("Apex"),
    product_intent("CUSTODY", "@result_1"),
    explanation="Makes Apex,\nwith custody.",
    confidence=0.75,
)


async def test_ask_prints_the_explanation_and_the_result_of_each_intent(commands: CommandLine) -> None:
    async with ModelServer(APEX_RESPONSE) as model_server:
        result = await with_model(commands, model_server)(
            "ask", REQUEST, "--profile", "intents", "--id", "intents-reported"
        )
    lines = result.stdout.splitlines()
    assert (result.code, result.stderr) == (0, "")
    first_index = lines.index("Makes Apex, with custody. (75% sure)")
    assert lines[first_index + 1].startswith('@result_1 cbu.ensure: {"id": "fund_')
    assert lines[first_index + 2].startswith('@result_2 cbu.add-product: {"id": ')
    assert lines[first_index + 3].startswith(f"intents-reported ({REQUEST}): completed in ")
    watch_result = await commands("watch", "intents-reported")
    assert {*lines[first_index : first_index + 3]} <= {*watch_result.stdout.splitlines()}


async def test_document_has_the_results_and_the_explanation_of_the_model(commands: CommandLine) -> None:
    async with ModelServer(APEX_RESPONSE, intents_response_text(product_intent("DEPOSITARY", "@cbu"))) as model_server:
        model_commands = with_model(commands, model_server)
        first_result = await model_commands("ask", REQUEST, "--profile", "intents", "--id", "intents-first", "--json")
        cbu_id = first_result.document["nodes"]["@result_1"]["result"]["id"]
        options = ("--profile", "intents", "--id", "intents-second", "--json", "--context")
        second_result, repeated_result, different_result = [
            await model_commands("ask", "Depositary too.", *options, f"cbu={context_id}")
            for context_id in (cbu_id, cbu_id, "other")
        ]
    parsed_response = first_result.document["nodes"]["read"]["result"]
    assert (first_result.code, first_result.document["output"]["@result_2"]["product"]) == (0, "CUSTODY")
    assert (parsed_response["explanation"], parsed_response["confidence"]) == ("Makes Apex,\nwith custody.", 0.75)
    assert second_result.document["output"]["@result_1"]["cbu_id"] == cbu_id
    assert repeated_result.document == second_result.document
    assert (different_result.code, different_result.document["code"]) == (2, "run_id_in_use")
    assert '{"ref": "@cbu"}' in model_server.calls[1].text
    assert cbu_id not in json.dumps(model_server.calls[1].messages)


async def test_option_plan_only_writes_intents_that_can_be_run(commands: CommandLine) -> None:
    async with ModelServer(APEX_RESPONSE) as model_server:
        model_commands = with_model(commands, model_server)
        result = await model_commands("ask", REQUEST, "--profile", "intents", "--plan-only", "--id", "intents-only")
    assert (result.code, result.stderr) == (0, "")
    assert result.document == json.loads(APEX_RESPONSE)
    run_result = await commands("run", "-", "--json", "--id", "intents-only-run", stdin_text=result.stdout)
    assert (run_result.code, [*run_result.document["nodes"]]) == (0, ["@result_1", "@result_2"])


async def test_plan_below_the_confidence_limit_is_approved_on_the_terminal(commands: CommandLine) -> None:
    async with ModelServer(APEX_RESPONSE) as model_server:
        code, screen = await with_model(commands, model_server).run_on_terminal(
            "ask", REQUEST, "--profile", "intents", "--confidence", "0.8", answers="yes\n"
        )
    assert (code, "The model is 75% sure: “Makes Apex,\\nwith custody.”" in screen) == (0, True)
    assert screen.count("Run this plan? (yes, no or edit): ") == 1
    assert "@result_2 cbu.add-product: " in screen
