"""`ask` plans and answers a request in words, with the scripted model; also `examples.ask_demo`."""

import json
import shlex

import pytest

from dagwright.testing import HttpError, ModelServer
from tests.e2e.command import CommandLine, wait_for_exit, with_model
from tests.support.goals import call_node, plan_text

pytestmark = pytest.mark.server

_SUM_NODE = call_node("sum", "calculator", expression="1 + 2")
SUM_PLAN = plan_text(_SUM_NODE, call_node("more", "calculator", expression="{{sum.result}} * 2"))


async def test_ask_prints_the_answer_first(commands: CommandLine) -> None:
    async with ModelServer(SUM_PLAN, "It is 6.") as model_server:
        result = await with_model(commands, model_server)("ask", "Double the sum of 1 and 2.", "--id", "ask-first")
    lines = result.stdout.splitlines()
    assert (result.code, result.stderr) == (0, "")
    answer_index = lines.index("It is 6.")
    assert lines[0] == "run ask-first"
    assert lines[answer_index + 1].startswith("ask-first (Double the sum of 1 and 2.): completed in ")


async def test_ask_writes_the_document_and_returns_it_again_for_the_same_id(commands: CommandLine) -> None:
    async with ModelServer(SUM_PLAN, "It is 6.") as model_server:
        model_commands = with_model(commands, model_server)
        first_result = await model_commands("ask", "Double it.", "--model", "large", "--id", "ask-again", "--json")
        repeated_result = await model_commands("ask", "Double it.", "--model", "large", "--id", "ask-again", "--json")
        different_result = await model_commands("ask", "Triple it.", "--model", "large", "--id", "ask-again", "--json")
        run_list = await model_commands("list", "--json")
    assert first_result.code == 0
    assert first_result.document["output"] == "It is 6."
    assert first_result.document["usage"]["calls"] == 2
    assert repeated_result.document == first_result.document
    assert (different_result.code, different_result.document["code"]) == (2, "run_id_in_use")
    assert {call.model for call in model_server.calls} == {"large"}
    assert "ask-again" in {run["run_id"] for run in run_list.document["runs"]}


async def test_option_plan_only_writes_a_plan_that_can_be_run(commands: CommandLine) -> None:
    async with ModelServer(SUM_PLAN) as model_server:
        result = await with_model(commands, model_server)("ask", "Double it.", "--plan-only", "--id", "ask-plan-only")
    assert (result.code, result.stderr) == (0, "")
    assert [node["id"] for node in result.document["nodes"]] == ["sum", "more"]
    run_result = await commands("run", "-", "--json", "--id", "ask-plan-only-run", stdin_text=result.stdout)
    assert (run_result.code, run_result.document["output"]) == (0, {"more": 6})


async def test_error_of_invalid_plans_names_the_nodes_of_the_last_response(commands: CommandLine) -> None:
    async with ModelServer(*["I cannot."] * 4) as model_server:
        result = await with_model(commands, model_server)("ask", "Fly.", "--id", "ask-no-plan")
    lines = result.stdout.splitlines()
    error_index = next(index for index, line in enumerate(lines) if line.startswith("error: plan_invalid: "))
    assert (result.code, '"read#4"' in result.stdout) == (1, False)
    assert lines[error_index + 1] == (
        "the last response of the model, and its errors: "
        "dagwright node ask-no-plan plan#4, dagwright node ask-no-plan read#4"
    )


async def test_failure_of_the_planner_is_reported_once(commands: CommandLine) -> None:
    error = HttpError(401, "Incorrect API key provided: key.", code="invalid_api_key")
    async with ModelServer("I cannot.", error) as model_server:
        result = await with_model(commands, model_server)("ask", "Fly.", "--id", "ask-invalid-key")
    lines = result.stdout.splitlines()
    summary_index = next(
        index for index, line in enumerate(lines) if line.startswith("ask-invalid-key (Fly.): failed in ")
    )
    error_lines = [line for line in lines[summary_index + 1 :] if "Incorrect API key provided" in line]
    assert (result.code, [line.partition(" at ")[0] for line in error_lines]) == (1, ["failed: plan#2: small"])


async def test_option_plan_only_writes_nothing_to_stdout_if_every_plan_is_invalid(commands: CommandLine) -> None:
    async with ModelServer(*["I cannot."] * 4) as model_server:
        result = await with_model(commands, model_server)("ask", "Fly.", "--plan-only", "--id", "ask-no-plan-only")
    lines = result.stderr.splitlines()
    assert (result.code, result.stdout) == (1, "")
    assert lines[0].startswith("ask-no-plan-only (Fly.): failed in ")
    assert lines[1].startswith("error: plan_invalid: the model wrote 4 plans, and none can be run; ")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ("' '", "empty_request"),
        pytest.param("x" * 100_000, "too_large", id="long"),
        ("'Do it.' --profile rounds", "no_tools"),
        ("'Do it.' --confidence 0.5", "invalid_value"),
        ("'Do it.' --context cbu=x", "invalid_value"),
        ("'Do it.' --profile intents --confidence 1.5", "invalid_value"),
        ("'Do it.' --profile intents --context 'a b=x'", "invalid_value"),
        ("'Do it.' --profile intents --max-replans 1", "invalid_value"),
        ("'Do it.' --budget 1$", "invalid_value"),
        ("'Do it.' --deadline soon", "invalid_value"),
        ("'Do it.' --plan-only --approve-plan", "invalid_value"),
        ("'Do it.' --plan-only --detach", "invalid_value"),
        ("'Do it.' --max-repairs 20", "invalid_value"),
        ("'Do it.' --max-repairs -1", "invalid_value"),
    ],
)
async def test_invalid_requests_and_options_are_rejected(commands: CommandLine, arguments: str, code: str) -> None:
    commands.environment["DAGWRIGHT_MODEL"] = "small"
    result = await commands("ask", *shlex.split(arguments), "--json")
    assert (result.code, result.document["code"]) == (2, code)


_NO_MODEL = "no model is configured: give one with --model, or set DAGWRIGHT_MODEL"
_NO_KEY = (
    "there is no key for https://api.openai.com/v1: "
    "set OPENAI_API_KEY, or OPENAI_BASE_URL for a service that needs no key"
)
_USE_SCRIPTED_MODEL = (
    "to try the command without a model, use a scripted model (`python -m dagwright.testing`; examples/maritime of the "
    "repository has scripts)"
)


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"OPENAI_API_KEY": "key"}, f"{_NO_MODEL}; {_USE_SCRIPTED_MODEL}"),
        ({}, f"{_NO_MODEL}; {_NO_KEY}; {_USE_SCRIPTED_MODEL}"),
    ],
    ids=["no model", "no model and no key"],
)
async def test_missing_model_is_reported(commands: CommandLine, variables: dict[str, str], message: str) -> None:
    commands.environment |= variables
    result = await commands("ask", "Do it.", "--json")
    assert (result.code, result.document) == (2, {"code": "model_not_set", "message": message})


@pytest.mark.parametrize("options", [(), ("--detach",)], ids=["in the foreground", "in the background"])
async def test_missing_key_is_reported_before_anything_starts(
    commands_without_server: CommandLine, options: tuple[str, ...]
) -> None:
    result = await commands_without_server("ask", "Do it.", "--model", "small", *options, "--json")
    assert (result.code, result.document) == (
        2,
        {"code": "model_key_missing", "message": f"{_NO_KEY}; {_USE_SCRIPTED_MODEL}"},
    )


async def test_unreadable_prices_are_reported_before_anything_starts(commands: CommandLine) -> None:
    async with ModelServer() as model_server:
        model_commands = with_model(commands, model_server)
        ask_result = await model_commands.with_variables(DAGWRIGHT_PRICES="none.yaml")(
            "ask", "Double it.", "--id", "ask-prices"
        )
        status_result = await model_commands("status", "ask-prices")
    assert (ask_result.code, ask_result.stdout) == (2, "")
    assert ask_result.stderr.startswith("DAGWRIGHT_PRICES cannot be used: ")
    assert status_result.code == 2


async def test_option_max_repairs_limits_the_repair_requests(commands: CommandLine) -> None:
    async with ModelServer("I cannot.") as model_server:
        result = await with_model(commands, model_server)(
            "ask", "Fly.", "--max-repairs", "0", "--json", "--id", "ask-once"
        )
    assert result.code == 1
    assert result.document["error"]["code"] == "plan_invalid"
    assert [*result.document["nodes"]] == ["plan", "read"]


async def test_repairs_are_shown(commands: CommandLine) -> None:
    misspelled_plan = plan_text(call_node("sum", "calculater", expression="1 + 2"))
    repair = "repaired: the tool 'calculater' was read as 'calculator' (sum)"
    async with ModelServer(misspelled_plan, "It is 3.") as model_server:
        result = await with_model(commands, model_server)("ask", "Add 1 and 2.", "--id", "ask-repaired")
    assert (result.code, "It is 3." in result.stdout, repair in result.stdout.splitlines()) == (0, True, True)
    async with ModelServer(misspelled_plan) as model_server:
        result = await with_model(commands, model_server)(
            "ask", "Add 1 and 2.", "--plan-only", "--id", "ask-repaired-only"
        )
    assert result.code == 0
    assert result.document["nodes"][0]["tool"] == "calculator"
    assert result.stderr.splitlines() == [repair]


async def test_demo_reports_first_that_a_script_plays_the_model(commands: CommandLine) -> None:
    result = await wait_for_exit(await commands.start(program=("-m", "examples.ask_demo")))
    lines = result.stdout.splitlines()
    assert (result.code, lines[0]) == (0, "no OPENAI_API_KEY is set, so a script plays the model")
    assert any("running    plan#2  call_model · repairing the plan" in line for line in lines)
    assert any(line.startswith("The regions sold 1,305.75 together.") for line in lines)


async def test_demo_calls_the_configured_model(commands: CommandLine) -> None:
    plan = plan_text(call_node("files", "list_files", folder="data", pattern="*.txt"))
    async with ModelServer(plan, "There are four.") as model_server:
        model_commands = with_model(commands, model_server)
        del model_commands.environment["DAGWRIGHT_MODEL"]
        result = await wait_for_exit(await model_commands.start(program=("-m", "examples.ask_demo")))
    advice = "to run the demo without a model, unset OPENAI_API_KEY and OPENAI_BASE_URL"
    assert result.code == 0
    assert result.stdout.splitlines()[0] == f"model: gpt-4o-mini at {model_server.base_url}; {advice}"
    assert "There are four." in result.stdout.splitlines()
    assert json.dumps("list_files") in model_server.calls[0].text


async def test_ask_reports_why_it_replanned(commands: CommandLine) -> None:
    failing_call = {**call_node("sum", "calculator", expression="1 / 0"), "on_error": "replan"}
    script = (plan_text(failing_call), plan_text(failing_call), "There is no answer.")
    async with ModelServer(*script) as model_server:
        model_commands = with_model(commands, model_server)
        ask_result = await model_commands("ask", "Divide.", "--id", "ask-replan", "--max-replans", "1")
        status_result = await model_commands("status", "ask-replan")
        explain_result = await model_commands("explain", "ask-replan")
    lines = ask_result.stdout.splitlines()
    assert (ask_result.code, "There is no answer." in lines) == (1, True)
    assert any("call_model · planning again (1 of 1): 'sum' failed: " in line for line in lines)
    [line] = [line for line in lines if line.startswith("plan#2: planning again (1 of 1): 'sum' failed: ")]
    assert line in status_result.stdout or "planning again (1 of 1)" in status_result.stdout
    assert "sum#2" in explain_result.stdout
