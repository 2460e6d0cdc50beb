"""`run`: the output, the exit code, batches, and IDs that belong to a run with another plan."""

import json
import re
from pathlib import Path

import pytest

from tests.e2e.command import CommandLine
from tests.e2e.conftest import WritePlan, calculation, wait_node

pytestmark = pytest.mark.server

_TOOLS = '''
from dagwright.tools import tool

@tool(effects="read")
def greet(name: str, count: int = 1) -> list[str]:
    """Greets."""
    return [f"Hello {name}"] * count
'''


@pytest.mark.fresh
async def test_option_json_prints_only_the_document(commands: CommandLine, write_plan: WritePlan) -> None:
    plan = write_plan(
        calculation("a", "{{PLACEHOLDER_n}} + 1"),
        calculation("b", "{{a.result}} * 2"),
        title="Twice",
        inputs={"n": {"type": "integer"}},
    )
    result = await commands("run", plan, "--input", "n=20", "--json")

    assert (result.code, result.stderr) == (0, "")
    document = result.document
    names = ["run_id", "execution_id", "status", "title", "output", "error", "nodes", "waiting_for", "usage", "notes"]
    assert list(document) == names
    assert (document["status"], document["title"], document["output"]) == ("completed", "Twice", {"b": 42})
    assert {name: node["result"] for name, node in document["nodes"].items()} == {"a": 21, "b": 42}


async def test_without_a_terminal_every_change_of_state_is_a_line(commands: CommandLine, write_plan: WritePlan) -> None:
    plan = write_plan(
        calculation("fan", "10 / {{item}}", for_each=[1, 2]),
        calculation("bad", "1 / 0"),
        calculation("after", "{{bad.result}}"),
    )
    result = await commands("run", plan, "--id", "lines")

    assert result.code == 1
    ends = re.findall(r"^\d\d:\d\d:\d\d  (completed|failed|blocked) +(\S+)", result.stdout, re.MULTILINE)
    completed_ends = [("completed", name) for name in ("fan", "fan[0]", "fan[1]")]
    assert sorted(ends) == [("blocked", "after"), *completed_ends, ("failed", "bad")]
    assert "lines: completed with failures in " in result.stdout
    assert "failed: bad: '1 / 0' divides by zero\nblocked by failures: after\n" in result.stdout
    assert "\x1b" not in result.stdout
    assert result.stderr == ""


async def test_plan_from_standard_input_runs_with_tools_of_a_file(commands: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "greetings.py").write_text(_TOOLS, encoding="utf-8")
    (tmp_path / "values.yaml").write_text("name: Ann\ncount: 1\n", encoding="utf-8")
    plan = """
plan: 1
inputs: {name: {type: string}, count: {type: integer}}
nodes:
  - {id: hi, tool: greet, arguments: {name: "{{PLACEHOLDER_name}}", count: "{{PLACEHOLDER_count}}"}}
output: "{{hi.result}}"
"""
    arguments = ("--tools", "greetings.py", "--input-file", "values.yaml", "--input", "count=2", "--json")
    result = await commands("run", "-", *arguments, stdin_text=plan)

    assert (result.code, result.document["output"]) == (0, ["Hello Ann", "Hello Ann"])


async def test_same_id_attaches_to_the_run_of_the_same_plan_and_inputs(
    commands: CommandLine, write_plan: WritePlan, tmp_path: Path
) -> None:
    # These tools include one with the name of the built-in tool `calculator`.
    other_signature = 'calculator(expression: str, name: str = "", count: int = 1)'
    other_tools = _TOOLS.replace("greet(name: str, count: int = 1)", other_signature)
    (tmp_path / "calculating.py").write_text(other_tools, encoding="utf-8")
    plan = write_plan(calculation("a", "6 * 7"))
    first_result = await commands("run", plan, "--id", "same-plan", "--json")
    repeated_result = await commands("run", plan, "--id", "same-plan", "--json")
    other_tools_result = await commands("run", plan, "--id", "same-plan", "--json", "--tools", "calculating.py")
    other_model_result = await commands("run", plan, "--id", "same-plan", "--model", "large", "--json")
    other_plan_result = await commands("run", write_plan(calculation("a", "6 * 8")), "--id", "same-plan", "--json")
    plan_with_input = write_plan(calculation("a", "6 * {{PLACEHOLDER_count}}"), inputs={"count": {"type": "integer"}})
    await commands("run", plan_with_input, "--id", "same-plan-7", "--input", "count=7", "--json")
    other_input_result = await commands("run", plan_with_input, "--id", "same-plan-7", "--input", "count=8", "--json")
    other_plan_and_input_result = await commands(
        "run", plan_with_input, "--id", "same-plan", "--input", "count=8", "--json"
    )

    assert (first_result.code, repeated_result.code, other_tools_result.code) == (0, 0, 0)
    assert repeated_result.document == first_result.document == other_tools_result.document
    assert other_plan_result.code == 2
    assert other_plan_result.document["code"] == "run_id_in_use"
    assert [
        each.document["message"]
        for each in (other_plan_result, other_input_result, other_plan_and_input_result, other_model_result)
    ] == [
        "the id 'same-plan' belongs to a run with another plan; choose another id",
        "the id 'same-plan-7' belongs to a run with other inputs ('count'); choose another id",
        "the id 'same-plan' belongs to a run with another plan and other inputs ('count'); choose another id",
        "the id 'same-plan' belongs to a run with another model; choose another id",
    ]
    assert other_plan_result.stderr.strip() == other_plan_result.document["message"]


async def test_deadline_of_the_command_ends_the_run(commands: CommandLine, write_plan: WritePlan) -> None:
    plan = write_plan(wait_node("long", "10m"))
    result = await commands("run", plan, "--deadline", "500ms", "--json")

    assert result.code == 1
    assert result.document["status"] == "failed"
    assert result.document["nodes"]["long"]["status"] == "cancelled"


async def test_terminal_prompts_for_inputs_and_shows_progress(commands: CommandLine, write_plan: WritePlan) -> None:
    plan = write_plan(
        calculation("double", "{{PLACEHOLDER_n}} * 2"),
        calculation("fan", "{{item}} + {{double.result}}", for_each=[1, 2, 3]),
        inputs={"n": {"type": "integer", "prompt": "Which number?"}},
        output="{{fan.result}}",
    )
    code, screen = await commands.run_on_terminal("run", plan, answers="many\n21\n")

    assert code == 0
    assert "Which number? (a whole number): " in screen
    assert "enter a whole number, not 'many'" in screen
    assert re.search(r"✓\S* +double", screen)
    assert "████████████████████ 3/3" in screen
    assert "2 of 2 nodes" in screen
    assert "\x1b[32m" in screen
    links = re.findall(r"^Temporal UI: http://\S+/history\r?$", screen, re.MULTILINE)
    assert (len(links), screen.count("http://")) == (1, 1)


async def test_colours_are_off_by_option_and_by_variable(commands: CommandLine, write_plan: WritePlan) -> None:
    plan = write_plan(calculation("a", "1 + 1"))
    _, option_screen = await commands.run_on_terminal("run", plan, "--no-color")
    commands.environment["NO_COLOR"] = "1"
    _, variable_screen = await commands.run_on_terminal("run", plan)

    assert "✓" in option_screen
    assert "✓" in variable_screen
    assert re.findall(r"\x1b\[3\dm", option_screen + variable_screen) == []


async def test_unreachable_server_is_reported_in_one_sentence(commands: CommandLine, write_plan: WritePlan) -> None:
    commands.environment["TEMPORAL_ADDRESS"] = "127.0.0.1:1"
    result = await commands("run", write_plan(calculation("a", "1")), "--json")

    assert result.code == 4
    assert result.document["code"] == "server_unavailable"
    assert result.stderr == result.document["message"] + "\n"
    assert "127.0.0.1:1" in result.stderr


async def test_repaired_plan_runs_and_notes_its_repairs(commands: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "answer.txt"
    file.write_text('Here it is:\n1. calculatr("6 * 7")\n2. calculator("$1 + 1")\n3. join()\n', encoding="utf-8")
    result = await commands("run", str(file), "--repair", "--json")

    assert (result.code, result.document["output"]) == (0, {"2": 43})
    message = "the tool 'calculatr' was read as 'calculator'"
    assert result.stderr == f"repaired: {message}\n"
    assert result.document["notes"] == [{"code": "tool", "node_id": "1", "message": f"repaired: {message}"}]
    status_result = await commands("status", result.document["run_id"], "--json")
    assert status_result.document["notes"] == result.document["notes"]


def _write_batch(folder: Path, *plans: object) -> str:
    text = "\n".join(plan if isinstance(plan, str) else json.dumps(plan) for plan in plans)
    (folder / "batch.jsonl").write_text(text + "\n", encoding="utf-8")
    return "batch.jsonl"


async def test_each_line_of_a_batch_is_a_run_and_a_failed_line_does_not_stop_the_other_lines(
    commands: CommandLine,
) -> None:
    first_plan, failing_plan, last_plan = (
        {"plan": 1, "title": expression, "nodes": [calculation("a", expression)]}
        for expression in ("1 + 1", "1 / 0", "3")
    )
    file = _write_batch(commands.folder, first_plan, "", failing_plan, last_plan)
    result = await commands("run", file, "--id", "batch", "--json")
    repeated_result = await commands("run", file, "--id", "batch")
    # A line whose ID belongs to a run with another plan is an error; the other lines run.
    conflicting_file = _write_batch(commands.folder, last_plan, "", "", last_plan)
    conflicting_result = await commands("run", conflicting_file, "--id", "batch", "--json")
    documents = [json.loads(line) for line in result.stdout.splitlines()]
    expected = [(1, "batch-1", "completed"), (3, "batch-3", "failed"), (4, "batch-4", "completed")]
    assert [(document["line"], document["run_id"], document["status"]) for document in documents] == expected
    assert (result.code, documents[0]["output"], documents[2]["output"]) == (1, {"a": 2}, {"a": 3})
    assert repeated_result.code == 1
    assert repeated_result.stdout.splitlines()[0] == "line 1:"
    assert repeated_result.stdout.splitlines()[-1] == "3 runs: 2 completed, 1 failed"
    conflicting_documents = [json.loads(line) for line in conflicting_result.stdout.splitlines()]
    assert conflicting_result.code == 2
    assert [(entry["line"], entry.get("code", entry.get("status"))) for entry in conflicting_documents] == [
        (1, "run_id_in_use"),
        (4, "completed"),
    ]


async def test_each_plan_of_a_batch_gets_the_inputs_that_it_declares(commands: CommandLine) -> None:
    net_plan, gross_plan = (
        {"plan": 1, "inputs": {name: {"type": "number"}}, "nodes": [calculation("a", f"{{{{PLACEHOLDER_{name}}}}}")]}
        for name in ("net", "gross")
    )
    arguments = ("run", _write_batch(commands.folder, net_plan, gross_plan), "--input", "net=1", "--input", "gross=2")
    result = await commands(*arguments, "--json")
    invalid_result = await commands(*arguments, "--input", "nett=3")
    session_result = await commands(*arguments, "--session", "s")
    assert [json.loads(line)["output"] for line in result.stdout.splitlines()] == [{"a": 1}, {"a": 2}]
    assert invalid_result.code == 2
    problem = "no plan of the batch has the input 'nett' (did you mean 'net'?)"
    assert invalid_result.stderr == f"batch.jsonl: invalid_field at /inputs/nett: {problem}\nno run was started\n"
    assert (session_result.code, "a .jsonl file has one run per line" in session_result.stderr) == (2, True)


async def test_detached_batch_prints_the_ids_of_its_runs(commands_with_private_server: CommandLine) -> None:
    plan = {"plan": 1, "nodes": [calculation("a", "1 + 1")]}
    result = await commands_with_private_server(
        "run", _write_batch(commands_with_private_server.folder, plan, plan), "--detach", "--id", "d", "--json"
    )
    entries = [json.loads(line) for line in result.stdout.splitlines()]
    reported_runs = [(entry["line"], entry["run_id"], entry["ok"]) for entry in entries]
    assert (result.code, reported_runs) == (0, [(1, "d-1", True), (2, "d-2", True)])
    watch_result = await commands_with_private_server("watch", "d-2", "--json")
    assert (watch_result.code, watch_result.document["output"]) == (0, {"a": 2})


@pytest.mark.parametrize(
    ("lines", "errors"),
    [
        (
            ({"plan": 1, "nodes": [calculation("a", "1")]}, {"plan": 1, "nodes": []}, "{"),
            [(2, "empty_plan"), (3, "invalid_syntax")],
        ),
        (("", ""), [(None, "empty_plan")]),
        (({"plan": 1, "nodes": [calculation("a", "{{PLACEHOLDER_n}}")]},), [(1, "missing_input")]),
    ],
)
async def test_invalid_line_of_a_batch_starts_no_run(
    commands: CommandLine, lines: tuple[object, ...], errors: list[tuple[int, str]]
) -> None:
    result = await commands("run", _write_batch(commands.folder, *lines), "--id", "invalid-batch", "--json")
    documents = [json.loads(line) for line in result.stdout.splitlines()]
    assert (result.code, [(document["line"], document["errors"][0]["code"]) for document in documents]) == (2, errors)
    assert result.stderr.splitlines()[-1] == "no run was started"
    assert (await commands("status", "invalid-batch-1")).code == 2
