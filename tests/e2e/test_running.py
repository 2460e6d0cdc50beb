"""`run`: what it writes, how it ends, and whose run an id is."""

import json
import re
from pathlib import Path

import pytest

from tests.e2e.command import CommandLine
from tests.e2e.conftest import Plans, calculation, pause

pytestmark = pytest.mark.server

_TOOLS = '''
from dagwright.tools import tool

@tool(effects="read")
def greet(name: str, count: int = 1) -> list[str]:
    """Greets."""
    return [f"Hello {name}"] * count
'''


async def test_json_is_exactly_the_document(command_line: CommandLine, write_plan: Plans) -> None:
    plan = write_plan(
        calculation("a", "{{PLACEHOLDER_n}} + 1"),
        calculation("b", "{{a.result}} * 2"),
        title="Twice",
        inputs={"n": {"type": "integer"}},
    )
    end = await command_line("run", plan, "--input", "n=20", "--json")

    assert (end.code, end.stderr) == (0, "")
    document = end.document
    assert list(document) == [
        "workflow_id", "run_id", "status", "title", "output", "error", "nodes", "waiting_for", "usage", "notes",
    ]  # fmt: skip
    assert (document["status"], document["title"], document["output"]) == ("completed", "Twice", {"b": 42})
    assert {name: node["result"] for name, node in document["nodes"].items()} == {"a": 21, "b": 42}


async def test_without_a_terminal_every_change_of_state_is_a_line(command_line: CommandLine, write_plan: Plans) -> None:
    plan = write_plan(
        calculation("fan", "10 / {{item}}", for_each=[1, 2]),
        calculation("bad", "1 / 0"),
        calculation("after", "{{bad.result}}"),
    )
    end = await command_line("run", plan, "--id", "lines")

    assert end.code == 1
    ends = re.findall(r"^\d\d:\d\d:\d\d  (completed|failed|blocked) +(\S+)", end.stdout, re.MULTILINE)
    assert sorted(ends) == [
        ("blocked", "after"), ("completed", "fan"), ("completed", "fan[0]"), ("completed", "fan[1]"), ("failed", "bad"),
    ]  # fmt: skip
    assert "lines: completed with failures in " in end.stdout
    assert "failed: bad: '1 / 0' divides by zero\nblocked by failures: after\n" in end.stdout
    assert "\x1b" not in end.stdout
    assert end.stderr == ""


async def test_plan_from_standard_input_with_tools_of_a_file(command_line: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "greetings.py").write_text(_TOOLS, encoding="utf-8")
    (tmp_path / "values.yaml").write_text("name: Ann\ncount: 1\n", encoding="utf-8")
    plan = """
plan: 1
inputs: {name: {type: string}, count: {type: integer}}
nodes:
  - {id: hi, tool: greet, arguments: {name: "{{PLACEHOLDER_name}}", count: "{{PLACEHOLDER_count}}"}}
output: "{{hi.result}}"
"""
    arguments = ("--tools", "greetings.py", "--inputs", "values.yaml", "--input", "count=2", "--json")
    end = await command_line("run", "-", *arguments, text=plan)

    assert (end.code, end.document["output"]) == (0, ["Hello Ann", "Hello Ann"])


async def test_same_id_attaches_to_the_same_plan_and_refuses_another(
    command_line: CommandLine, write_plan: Plans, tmp_path: Path
) -> None:
    (tmp_path / "calculating.py").write_text(
        _TOOLS.replace(
            "greet(name: str, count: int = 1)", 'calculator(expression: str, name: str = "", count: int = 1)'
        ),
        encoding="utf-8",
    )
    plan = write_plan(calculation("a", "6 * 7"))
    first = await command_line("run", plan, "--id", "mine", "--json")
    again = await command_line("run", plan, "--id", "mine", "--json")
    other_tools = await command_line("run", plan, "--id", "mine", "--json", "--tools", "calculating.py")
    model = await command_line("run", plan, "--id", "mine", "--model", "large", "--json")
    other = await command_line("run", write_plan(calculation("a", "6 * 8")), "--id", "mine", "--json")
    with_input = write_plan(calculation("a", "6 * {{PLACEHOLDER_count}}"), inputs={"count": {"type": "integer"}})
    await command_line("run", with_input, "--id", "mine-of-7", "--input", "count=7", "--json")
    other_input = await command_line("run", with_input, "--id", "mine-of-7", "--input", "count=8", "--json")
    both = await command_line("run", with_input, "--id", "mine", "--input", "count=8", "--json")

    assert (first.code, again.code, other_tools.code) == (0, 0, 0)
    assert again.document == first.document == other_tools.document
    assert other.code == 2
    assert other.document["status"] == "id_in_use"
    assert [end.document["message"] for end in (other, other_input, both, model)] == [
        "the id 'mine' belongs to a run with another plan; choose another id",
        "the id 'mine-of-7' belongs to a run with other inputs ('count'); choose another id",
        "the id 'mine' belongs to a run with another plan and other inputs ('count'); choose another id",
        "the id 'mine' belongs to a run with another model; choose another id",
    ]
    assert other.stderr.strip() == other.document["message"]


async def test_missing_input_is_refused_where_nobody_can_be_asked(command_line: CommandLine, write_plan: Plans) -> None:
    plan = write_plan(calculation("a", "{{PLACEHOLDER_n}}"), inputs={"n": {"type": "number", "prompt": "How many?"}})
    end = await command_line("run", plan, "--json")

    assert end.code == 2
    assert end.document == {
        "status": "invalid",
        "file": plan,
        "line": None,
        "errors": [
            {
                "code": "missing_input",
                "pointer": "/inputs/n",
                "node": None,
                "message": "the input 'n' is missing: How many?",
                "hint": "give it with --input n=VALUE",
            }
        ],
    }


async def test_deadline_of_the_command_ends_the_run(command_line: CommandLine, write_plan: Plans) -> None:
    plan = write_plan(pause("long", "10m"))
    end = await command_line("run", plan, "--timeout", "500ms", "--json")

    assert end.code == 1
    assert end.document["status"] == "failed"
    assert end.document["nodes"]["long"]["status"] == "cancelled"


async def test_terminal_is_asked_and_shows_the_picture(command_line: CommandLine, write_plan: Plans) -> None:
    plan = write_plan(
        calculation("double", "{{PLACEHOLDER_n}} * 2"),
        calculation("fan", "{{item}} + {{double.result}}", for_each=[1, 2, 3]),
        inputs={"n": {"type": "integer", "prompt": "Which number?"}},
        output="{{fan.result}}",
    )
    code, screen = await command_line.on_terminal("run", plan, answers="many\n21\n")

    assert code == 0
    assert "Which number? (a whole number): " in screen
    assert "type a whole number, not 'many'" in screen
    assert re.search(r"✓\S* +double", screen)
    assert "████████████████████ 3/3" in screen
    assert "2 of 2 nodes" in screen
    assert "\x1b[32m" in screen
    links = re.findall(r"^Temporal UI: http://\S+/history\r?$", screen, re.MULTILINE)
    assert (len(links), screen.count("http://")) == (1, 1)


async def test_colours_are_off_when_asked(command_line: CommandLine, write_plan: Plans) -> None:
    plan = write_plan(calculation("a", "1 + 1"))
    _, by_option = await command_line.on_terminal("run", plan, "--no-color")
    command_line.environment["NO_COLOR"] = "1"
    _, by_variable = await command_line.on_terminal("run", plan)

    assert "✓" in by_option
    assert "✓" in by_variable
    assert re.findall(r"\x1b\[3\dm", by_option + by_variable) == []


async def test_server_that_is_down_is_told_in_one_sentence(command_line: CommandLine, write_plan: Plans) -> None:
    command_line.environment["TEMPORAL_ADDRESS"] = "127.0.0.1:1"
    end = await command_line("run", write_plan(calculation("a", "1")), "--json")

    assert end.code == 4
    assert end.document["status"] == "no_server"
    assert end.stderr == end.document["message"] + "\n"
    assert "127.0.0.1:1" in end.stderr


async def test_lookups_that_fail_are_told_once_each_with_place_and_advice(
    command_line: CommandLine, write_plan: Plans, tmp_path: Path
) -> None:
    (tmp_path / "parties.csv").write_text("id,name,kind\nsarah,Sarah Chen,person\n", encoding="utf-8")
    await command_line("entities", "load", "parties.csv")

    def intent(name: str) -> dict[str, object]:
        lookups = {"entity-id": {"search_text": name, "entity_type": "person"}}
        return {"verb": "entity.show", "params": {}, "refs": {}, "lookups": lookups}

    (tmp_path / "showing.py").write_text(
        _TOOLS.replace("def greet", "def show")
        .replace("@tool(", "@tool(name='entity.show', ")
        .replace("name: str, count: int = 1", "**given: str"),
        encoding="utf-8",
    )
    (tmp_path / "plan.json").write_text(json.dumps({"intents": [intent("Zaphod Beeblebrox"), intent("Sarah Cohen")]}))
    end = await command_line("run", "plan.json", "--tools", "showing.py", "--id", "lookups-fail", "--no-ask")

    assert end.code == 1
    assert [line for line in end.stdout.splitlines() if line.startswith("error")] == [
        "error: lookup_not_found at /intents/0/lookups/entity-id: No party found for person 'Zaphod Beeblebrox'. "
        "(Load the party first (`dagwright entities load FILE`), or create it and refer to its result.)",
        "error: lookup_not_found at /intents/1/lookups/entity-id: No party found for person 'Sarah Cohen'; near: "
        "Sarah Chen (person, jurisdiction not known, sarah). "
        "(Use one of these names with its own type, or create the party first and refer to its result.)",
    ]
    told = await command_line("run", "plan.json", "--tools", "showing.py", "--json", "--no-ask")
    document = json.loads(told.stdout)
    assert (told.code, document["status"], document["error"]["code"]) == (1, "failed", "lookup_not_found")
    assert [each["pointer"] for each in document["error"]["errors"]] == [
        "/intents/0/lookups/entity-id",
        "/intents/1/lookups/entity-id",
    ]
    assert [each["name"] for each in document["error"]["errors"][1]["candidates"]] == ["Sarah Chen"]


async def test_plan_of_a_model_runs_with_mend_and_its_notes_tell_what_was_mended(
    command_line: CommandLine, tmp_path: Path
) -> None:
    file = tmp_path / "answer.txt"
    file.write_text('Here it is:\n1. calculatr("6 * 7")\n2. calculator("$1 + 1")\n3. join()\n', encoding="utf-8")
    end = await command_line("run", str(file), "--mend", "--json")

    assert (end.code, end.document["output"]) == (0, {"2": 43})
    message = "the tool 'calculatr' was read as 'calculator'"
    assert end.stderr == f"mended: {message}\n"
    assert end.document["notes"] == [{"code": "tool", "node": "1", "message": f"mended: {message}"}]
    shown = await command_line("status", end.document["workflow_id"], "--json")
    assert shown.document["notes"] == end.document["notes"]


async def test_a_step_that_does_not_end_keeps_nobody_from_the_result(command_line: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "stubborn.py").write_text(
        """
import asyncio
from dagwright.tools import tool

@tool(effects="read", timeout="1s", max_attempts=1)
async def refuse() -> int:
    \"\"\"Never ends.\"\"\"
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass
""",
        encoding="utf-8",
    )
    plan = json.dumps({"plan": 1, "nodes": [{"id": "a", "tool": "refuse"}]})
    end = await command_line("run", "-", "--tools", "stubborn.py", "--id", "stubborn", "--json", text=plan)
    assert (end.code, end.document["status"]) == (1, "failed")
    assert end.stderr.splitlines()[-1] == "a step does not end, so the command leaves it behind"
