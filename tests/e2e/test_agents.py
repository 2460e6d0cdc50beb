"""The command `run` executes plans whose nodes are agents of a card file."""

import json

import pytest

from dagwright.testing import ModelServer, When, step, tool_call
from tests.e2e.command import CommandLine, with_model
from tests.e2e.conftest import WritePlan, calculation

pytestmark = pytest.mark.server

_ADDER = {"description": "Adds numbers", "objective_template": "Add {numbers}", "type": "llm", "prompt": "You add."}
_WRITER = {"description": "Writes", "objective_template": "Write {text}", "type": "llm", "prompt": "You write."}
_CARDS = {"agents": {"adder": {**_ADDER, "tools": ["calculator"]}, "writer": _WRITER}}
_PLAN = {
    "nodes": [
        {"id": "add", "agent": "adder", "objective": "Add 6 and 7."},
        {"id": "write", "agent": "writer", "objective": "Write the sum.", "depends_on": ["add"]},
    ],
    "metadata": {"explanation": "two steps"},
}


async def test_plan_with_agents_of_a_card_file_runs(commands: CommandLine) -> None:
    (commands.folder / "cards.json").write_text(json.dumps(_CARDS), encoding="utf-8")
    (commands.folder / "plan.json").write_text(json.dumps(_PLAN), encoding="utf-8")
    # The argument `last` of a step is a text in the last message of the model call that the step answers.
    steps = (
        step(tool_call("calculator", expression="6+7"), when=When(last="Add 6")),
        step("It is 13.", when=When(last="13")),
        step("Thirteen.", when=When(last="Write the sum.")),
    )
    async with ModelServer(*steps) as model:
        # This test has its own task queue: the workers of other tests call other model servers.
        model_commands = with_model(commands, model).with_variables(DAGWRIGHT_TASK_QUEUE="agents-of-a-test")
        result = await model_commands("run", "plan.json", "--agents", "cards.json", "--model", "tiny", "--json")
    result.check_success()
    nodes = result.document["nodes"]
    assert (result.document["status"], result.document["output"]) == ("completed", {"write": "Thirteen."})
    assert {name: node["tool"] for name, node in nodes.items()} == {"add": "agent.adder", "write": "agent.writer"}
    usage = result.document["usage"]
    assert (usage["calls"], [*usage["agents"]]) == (3, ["adder", "writer"])
    assert {call.model for call in model.calls} == {"tiny"}
    assert "Result of add:\n\nIt is 13." in model.calls[2].text


@pytest.mark.parametrize(
    ("options", "environment", "code", "message_start"),
    [
        ((), {}, "model_not_set", "no model is configured and the agent of node 'nested/add' needs one"),
        (
            ("--model", "small"),
            {},
            "model_key_missing",
            "there is no key for https://api.openai.com/v1 and the agent of node",
        ),
        (("--detach",), {"OPENAI_API_KEY": "key"}, "model_not_set", "no model is configured and the agent of node"),
    ],
)
async def test_run_of_agents_does_not_start_if_the_model_or_the_key_is_missing(
    commands_without_server: CommandLine,
    write_plan: WritePlan,
    options: tuple[str, ...],
    environment: dict[str, str],
    code: str,
    message_start: str,
) -> None:
    (commands_without_server.folder / "cards.json").write_text(json.dumps(_CARDS), encoding="utf-8")
    nested_node = {"id": "nested", "plan": {"nodes": _PLAN["nodes"]}, "depends_on": ["first"]}
    plan = write_plan(calculation("first", "1+1"), nested_node)
    commands_without_server.environment |= environment

    result = await commands_without_server("run", plan, "--agents", "cards.json", *options, "--json")

    assert (result.code, result.document["code"]) == (2, code)
    assert result.document["message"].startswith(message_start)
