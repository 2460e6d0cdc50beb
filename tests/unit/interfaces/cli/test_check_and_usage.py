"""The command `check` works without a server, and bad usage is reported in one message without a traceback."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from dagwright.interfaces.cli.app import run_command_line
from dagwright.interfaces.cli.shared_options import SITE
from tests.support.docs import ROOT, anchors_of


def _calculator(node_id: str, expression: str) -> dict[str, Any]:
    return {"id": node_id, "tool": "calculator", "arguments": {"expression": expression}}


_VALID_PLAN = {
    "plan": 1,
    "title": "Small",
    "inputs": {"n": {"type": "integer", "prompt": "How many?"}},
    "nodes": [
        _calculator("a", "{{PLACEHOLDER_n}} + 1"),
        _calculator("b", "{{a.result}} + 1"),
        _calculator("c", "{{a.result}} + {{b.result}}"),
    ],
}
_ROOT = str(Path(__file__).parents[4])
_PLAN_WITH_UNKNOWN_TOOL = {"plan": 1, "nodes": [{"id": "x", "tool": "calculate", "arguments": {}}]}


RunCommand = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run_command(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunCommand:
    """Function that runs a command in an empty folder, and returns its exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str, str]:
        exit_code = run_command_line([*arguments])
        streams = capsys.readouterr()
        return exit_code, streams.out, streams.err

    return run


def _write(name: str, *values: Any) -> str:
    Path(name).write_text("\n".join(json.dumps(value) for value in values), encoding="utf-8")
    return name


def _plan_with_unknown_tools(*names: str, **fields: Any) -> dict[str, Any]:
    return {"plan": 1, "nodes": [{"id": name, "tool": "calculate"} for name in names], **fields}


def test_json_output_for_a_valid_plan_is_one_line(run_command: RunCommand) -> None:
    exit_code, out, err = run_command("check", _write("small.json", _VALID_PLAN), "--json")
    assert (exit_code, err, out.count("\n")) == (0, "", 1)
    assert json.loads(out) == {
        **{"file": "small.json", "line": None, "status": "valid", "title": "Small", "dialect": "plan", "node_count": 3},
        **{"edge_count": 3, "levels": [["a"], ["b"], ["c"]], "critical_path": ["a", "b", "c"], "expected_events": 11},
        "input_schema": {
            "type": "object",
            "properties": {"n": {"type": "integer", "description": "How many?"}},
            "required": ["n"],
            "additionalProperties": False,
        },
        **{"notes": [], "errors": []},
    }


def test_output_of_a_tools_file_goes_to_stderr(run_command: RunCommand) -> None:
    Path("tools.py").write_text("from dagwright.tools import tool\nprint('loaded')\n@tool\ndef send() -> None: ...\n")
    exit_code, out, err = run_command("check", _write("small.json", _VALID_PLAN), "--tools", "tools.py", "--json")
    assert (exit_code, json.loads(out)["status"], err) == (0, "valid", "loaded\n")


def test_nodes_without_undo_are_noted_with_the_option_compensate(run_command: RunCommand) -> None:
    Path("tools.py").write_text(
        "from dagwright.tools import tool\n"
        "@tool(effects='idempotent', undo='free')\ndef book() -> None: ...\n"
        "@tool(effects='idempotent')\ndef free(key: str, arguments: dict, result: object) -> None: ...\n"
        "@tool\ndef send() -> None: ...\n"
    )
    nodes = [{"id": "a", "tool": "book"}, {"id": "b", "tool": "send"}]
    arguments = ["check", _write("plan.json", {"plan": 1, "nodes": nodes}), "--tools", "tools.py", "--json"]
    message = "'b' cannot be compensated: the tool 'send' has no undo"
    note = {"code": "not_compensated", "node_id": "b", "message": message}
    for options, notes in ((["--compensate"], [note]), ([], [])):
        exit_code, out, _ = run_command(*arguments, *options)
        assert (exit_code, json.loads(out)["notes"]) == (0, notes)


def test_each_file_and_each_line_of_a_jsonl_file_gets_an_output_line(run_command: RunCommand) -> None:
    files = [_write("many.jsonl", _VALID_PLAN, _PLAN_WITH_UNKNOWN_TOOL), _write("one.json", _VALID_PLAN), "none.json"]
    exit_code, out, _ = run_command("check", *files, "--json")
    documents = [json.loads(line) for line in out.splitlines()]
    assert exit_code == 2
    assert [(document["file"], document["line"], document["status"]) for document in documents] == [
        ("many.jsonl", 1, "valid"),
        ("many.jsonl", 2, "invalid"),
        ("one.json", None, "valid"),
        ("none.json", None, "invalid"),
    ]
    hint, message = "did you mean 'calculator'?", "there is no tool 'calculate'"
    problem = {"code": "unknown_tool", "pointer": "/nodes/0/tool", "node_id": "x", "message": message, "hint": hint}
    assert documents[1]["errors"] == [problem]


def test_table_lists_levels_and_critical_path(run_command: RunCommand) -> None:
    exit_code, out, _ = run_command("check", _write("small.json", _VALID_PLAN))
    assert exit_code == 0
    assert [" ".join(line.split()) for line in out.splitlines()] == [
        "small.json: valid",
        "title Small",
        "dialect plan",
        "nodes 3 with 3 edges in 3 levels",
        "level 0 a",
        "level 1 b",
        "level 2 c",
        "critical path a → b → c",
        "events about 11 in the run's history",
        "input n (integer): How many?",
    ]
    name = "/".join(["a" * 200, "b" * 200, "plan.json"])
    Path(name).parent.mkdir(parents=True)
    exit_code, out, _ = run_command("check", _write(name, _VALID_PLAN))
    assert (exit_code, out.splitlines()[0]) == (0, f"{name}: valid")


def test_long_list_of_problems_is_truncated_and_the_rest_is_counted(run_command: RunCommand) -> None:
    for count, rest_text in ((27, "7 more problems"), (21, "1 more problem")):
        file = _write("wrong.json", _plan_with_unknown_tools(*(f"n{number}" for number in range(count))))
        exit_code, _, err = run_command("check", file)
        assert (exit_code, len(err.splitlines())) == (2, 21)
        assert err.splitlines()[-1] == f"wrong.json: and {rest_text}; --json lists all"
    exit_code, out, _ = run_command("check", _write("one.json", {"plan": 1, "nodes": [_calculator("a", "1")]}))
    assert (exit_code, re.search(r"1 with 0 edges in 1 level *\n", out) is not None) == (0, True)


def _codes_and_pointers(text: str) -> list[tuple[str, str]]:
    return [(error["code"], error["pointer"]) for error in json.loads(text)["errors"]]


def test_unreadable_file_does_not_hide_other_problems(run_command: RunCommand) -> None:
    Path("odd.json").write_text('{"nodes": [{"id": "x", "tool": "unknown", "tool": "none"}]}', encoding="utf-8")
    nodes: list[Any] = [
        {"id": "gone", "plan": "none.json"},
        {"id": "odd", "plan": "odd.json"},
        {"id": "inline", "plan": {}, "arguments": {"x": 1}},
        {"id": "x", "tool": "calculate"},
    ]
    exit_code, out, _ = run_command("check", _write("plan.json", {"nodes": nodes}), "--json")
    assert exit_code == 2
    assert _codes_and_pointers(out) == [
        ("unreadable", "/nodes/0/plan"),
        ("invalid_field", "/nodes/1/plan/nodes/0/tool"),
        ("empty_plan", "/nodes/2/plan"),
        ("unknown_tool", "/nodes/3/tool"),
    ]


def test_all_invalid_inputs_of_a_run_are_reported(run_command: RunCommand) -> None:
    nodes = [_calculator(name, f"{{{{PLACEHOLDER_{name}}}}}") for name in "abcd"]
    plan = {"plan": 1, "inputs": {name: {"type": "integer"} for name in "abcd"}, "nodes": nodes}
    files = [_write("plan.json", plan), "--input-file", _write("values.json", {"c": "y"})]
    exit_code, out, _ = run_command("run", *files, "--input", "strange=1", "--input", "a=x", "--input", "b=1", "--json")
    assert exit_code == 2
    assert _codes_and_pointers(out) == [
        ("invalid_field", "/inputs/strange"),
        ("invalid_field", "/inputs/a"),
        ("missing_input", "/inputs/d"),
        ("invalid_field", "/inputs/c"),
    ]


_INTENTS = {"intents": [{"verb": "cbu.add-product", "params": {"product": "CUSTODY"}, "refs": {"cbu-id": "@cbu"}}]}


def test_option_context_sets_the_values_of_context_names(run_command: RunCommand) -> None:
    file = _write("intents.json", _INTENTS)
    exit_code, out, _ = run_command("check", file, "--json")
    assert (exit_code, _codes_and_pointers(out)[0][0]) == (2, "missing_context")
    for context in ("cbu=fund_1", "@cbu=fund_1"):
        exit_code, out, _ = run_command("check", file, "--context", context, "--json")
        assert (exit_code, json.loads(out)["notes"]) == (0, [])
    # After the note, the run is rejected because of its invalid `--input`. So no server is started.
    exit_code, _, err = run_command(
        "run", file, "--context", "cbu=fund_1", "--context", "cbuu=x", "--input", "strange=1"
    )
    note, error_line = err.splitlines()
    assert (exit_code, note) == (2, "note: the plan does not use @cbuu, which `context` gives; did you mean 'cbu'?")
    assert "the plan has no input 'strange'" in error_line


def test_unused_context_name_is_noted(run_command: RunCommand) -> None:
    options = ["--context", "cbuu=x", "--context", "@manco=y", "--json"]
    for plan in (_INTENTS, {"plan": 1, "nodes": [{"id": "a", "plan": _INTENTS}]}):
        exit_code, out, _ = run_command("check", _write("intents.json", plan), "--context", "cbu=fund_1", *options)
        assert exit_code == 0
        assert [(note["code"], note["message"]) for note in json.loads(out)["notes"]] == [
            ("unused_context", "the plan does not use @cbuu, which `context` gives; did you mean 'cbu'?"),
            ("unused_context", "the plan does not use @manco, which `context` gives; it uses @cbu"),
        ]
    exit_code, out, _ = run_command("check", _write("small.json", _VALID_PLAN), *options)
    assert (exit_code, json.loads(out)["notes"][0]["message"].rpartition("; ")[2]) == (0, "it uses no context names")


@pytest.mark.waits
def test_python_m_dagwright_runs_check_without_temporal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    command = [sys.executable, "-X", "importtime", "-m", "dagwright", "check", _write("small.json", _VALID_PLAN)]
    environment = {"PYTHONPATH": _ROOT, "PATH": ""}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout.splitlines()[0]) == (0, "small.json: valid")
    lines = result.stderr.splitlines()
    assert [line for line in lines if not line.startswith("import time:")] == []
    modules = [line.rpartition("|")[2].strip() for line in lines]
    assert ("dagwright.interfaces.cli" in modules, "temporalio" in modules) == (True, False)


def test_unknown_input_of_a_file_and_unused_context_name_are_noted(run_command: RunCommand) -> None:
    node = {"id": "a", "tool": "wait", "arguments": {"duration": "{{PLACEHOLDER_d}}"}}
    file, values = _write("plan.json", {"plan": 1, "nodes": [node]}), _write("values.json", {"other": 1})
    exit_code, _, err = run_command("run", file, "--input-file", values, "--context", "cbuu=x")
    assert exit_code == 2
    assert err.splitlines() == [
        "note: the plan does not use @cbuu, which `context` gives; it uses no context names",
        "--input-file: values.json: ignored, the plan has no input 'other'; it has d",
        "plan.json: missing_input at /inputs/d: the input 'd' is missing "
        "(give it with --input d=VALUE, or in Python with inputs={'d': VALUE})",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run"], "Missing argument 'PLAN'; see `dagwright run --help`"),
        (["wach", "x"], "No such command 'wach'. Did you mean 'watch'?; see `dagwright --help`"),
        (["list", "--limit", "0"], "Invalid value for '--limit': it must be at least 1; see "),
        (["list", "--limit", "1001"], "Invalid value for '--limit': it must be at most 1000; see "),
        (["list", "--limit", "x"], "Invalid value for '--limit': it must be a whole number; see "),
        (["run", "none.json"], "none.json: unreadable: there is no file none.json"),
        (["run", "."], ".: unreadable: . is a folder, not a file"),
        (["run", "broken.json"], "broken.json: invalid_syntax: broken.json is not valid JSON: "),
        (["run", "small.json", "--input", "n"], "--input must be KEY=VALUE, not 'n'"),
        (
            ["run", "small.json", "--input", "n=x"],
            "invalid_field at /inputs/n: the input 'n': 'x' is not of type integer",
        ),
        (["run", "small.json"], "small.json: missing_input at /inputs/n: the input 'n' is missing: How many?"),
        (["run", "small.json", "--deadline", "soon"], "--deadline: 'soon' is not a duration; "),
        (["run", "small.json", "--input-file", "none.yaml"], "--input-file: there is no file none.yaml"),
        (["run", "small.json", "--tools", "none.py"], "The tools file none.py does not exist"),
        (["run", "small.json", "--dialect", "poem"], "small.json: invalid_field: unknown dialect 'poem'"),
        (["run", "unknown.json"], "unknown.json: unknown_tool at /nodes/0/tool: there is no tool 'calculate'"),
        (["entities", "load", "none.csv"], "none.csv"),
        (["run", "small.json", "--agents", "agents.yaml"], "the agents: there is no file "),
        (["run", "small.json", "--agents", "small.json"], "small.json: /plan: unknown key; write the agents under"),
        (["run", "small.json", "--policy", "policy.yaml"], "the policy: there is no file policy.yaml"),
        (["run", "small.json", "--policy", "small.json"], "the policy small.json: unknown key 'plan'"),
        (["check", "small.json", "--agents", "agents.yaml"], "the agents: there is no file "),
        (["cancel", "run-1", "--branch"], "--branch needs --node"),
        (["retry", "run-1", "--node", "a", "--arguments", "5"], "--arguments must be a JSON object"),
        (["set-result", "run-1", "five", "--node", "a"], "set-result must be JSON, not 'five': "),
        (["graph", "x", "--format", "png"], "Invalid value for '--format': 'png' is not one of mermaid, svg, json; "),
        (["list", "--status", "canceled"], "completed_with_failures, failed, cancelled; did you mean 'cancelled'?; "),
        (["worker", "--serve", "tool"], "'tool' is not one of all, workflows, tools; did you mean 'tools'?; see"),
    ],
)
def test_bad_usage_is_reported_on_one_line(arguments: list[str], message: str, run_command: RunCommand) -> None:
    _write("small.json", _VALID_PLAN)
    _write("unknown.json", _PLAN_WITH_UNKNOWN_TOOL)
    Path("broken.json").write_text('{"plan": 1,\n "nodes": [}', encoding="utf-8")
    exit_code, out, err = run_command(*arguments)
    assert (exit_code, out, message in err, err.count("\n")) == (2, "", True, 1), err


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "small.json", "--input", "q=\udcff"],
        ["run", "small.json", "--input", "\udcff=1"],
        ["run", "small.json", "--id", "a\udcff"],
        ["check", "small.json", "--context", "cbu=\udcff"],
        ["status", "\udcff"],
        ["cancel", "run-1", "--reason", "\udcff"],
    ],
)
def test_argument_that_is_not_utf_8_is_rejected(arguments: list[str], run_command: RunCommand) -> None:
    _write("small.json", _VALID_PLAN)
    exit_code, out, err = run_command(*arguments, "--json")
    assert (exit_code, json.loads(out)["code"], err.count("\n")) == (2, "invalid_field", 1)
    assert ("\\udcff" in err, err.endswith("is not valid UTF-8\n")) == (True, True)


@pytest.mark.parametrize("name", ["run", "check"])
def test_missing_files_and_syntax_errors_are_reported(name: str, run_command: RunCommand) -> None:
    exit_code, _, err = run_command(name, "\udcff.json")
    assert (exit_code, "unreadable" in err) == (2, True)
    exit_code, out, _ = run_command(name, "none.txt", "--repair", "--json")
    assert (exit_code, _codes_and_pointers(out)) == (2, [("unreadable", "")])
    Path("broken.json").write_text('{"plan": 1,\n "nodes": [}', encoding="utf-8")
    exit_code, _, err = run_command(name, "broken.json")
    assert (exit_code, "line 2, column 12" in err) == (2, True)


def test_option_json_reports_bad_usage_as_a_document(run_command: RunCommand) -> None:
    exit_code, out, err = run_command("status", "--json")
    assert (exit_code, json.loads(out)) == (2, {"code": "invalid_value", "message": err.strip()})
    exit_code, out, err = run_command("graph", "x", "--format", "svg", "--json")
    message = "--json and --format svg contradict each other; give one of them"
    assert (exit_code, json.loads(out), err) == (2, {"code": "invalid_value", "message": message}, f"{message}\n")


def test_help_describes_each_value_and_not_its_type(run_command: RunCommand) -> None:
    names = re.findall(r"^  ([a-z-]+)  ", run_command("--help")[1].partition("Runs:")[2], re.MULTILINE)
    groups = {"agents", "entities", "keys", "new", "store", "tool"}
    assert groups <= {*names}
    commands = [[name] for name in names if name not in groups]
    commands += [["entities", "load"], ["store", "show"], ["store", "prune"], ["tool", "resume"]]
    assert len(commands) > 10
    for command_words in commands:
        exit_code, out, _ = run_command(*command_words, "--help")
        entries = [line for line in out.splitlines() if re.match(r"  (-|[A-Z]+ )", line)]
        undescribed_lines = [line for line in entries if re.search("<[a-z]", line) or not re.search(r"\S  +\S", line)]
        assert (exit_code, undescribed_lines) == (0, []), command_words


def test_help_has_whole_summaries_and_reference_links(run_command: RunCommand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    pages = {name: anchors_of(ROOT / f"docs/reference/{name}.md") for name in ("cli", "commands")}
    for command in ("", "entities", "store", "tool", "run", "set-result", "entities find", "store prune", "tool pause"):
        out = run_command(*command.split(), "--help")[1]
        assert "..." not in out.replace("[ARGS]...", ""), command
        page, _, anchor = out.rstrip().rpartition(f"Documentation: {SITE}reference/")[2].partition("/")
        assert page in pages, out
        assert not anchor or anchor.removeprefix("#") in pages[page], out
    site_settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\ntheme:")[0]
    assert yaml.safe_load(site_settings)["site_url"] == SITE


def test_answer_of_a_model_is_repaired_only_with_the_option_repair(run_command: RunCommand) -> None:
    nodes = "{'id': 'a', 'tool': 'Calculator', 'arguments': {'expression': '1'}}"
    Path("answer.txt").write_text(f"Sure:\n```json\n{{'plan': 1, 'nodes': [{nodes}]}}\n```\n", encoding="utf-8")
    assert run_command("check", "answer.txt", "--json")[0] == 2
    exit_code, out, _ = run_command("check", "answer.txt", "--repair", "--json")
    document = json.loads(out)
    assert (exit_code, document["status"], document["levels"]) == (0, "valid", [["a"]])
    codes = [repair["code"] for repair in document["repairs"]]
    assert codes == ["fenced", "prose", *["single_quotes"] * 9, "tool"]
    assert [note["code"] for note in document["notes"]] == ["fenced", "prose", "single_quotes", "tool"]
    assert document["notes"][2]["message"] == "repaired: the text 'plan' is in single quotes; 8 more like it"
    message = "the tool 'Calculator' was read as 'calculator'"
    assert document["repairs"][-1] == {"code": "tool", "pointer": "/nodes/0/tool", "offset": None, "message": message}


def test_truncated_plan_does_not_run(run_command: RunCommand) -> None:
    nodes = [_calculator("a", "1"), _calculator("b", "1")]
    Path("cut.txt").write_text(json.dumps({"plan": 1, "nodes": nodes})[:-20], encoding="utf-8")
    exit_code, out, _ = run_command("run", "cut.txt", "--repair", "--json")
    hint = "ask the model for the rest, or complete the plan manually"
    assert (exit_code, [(error["code"], error["hint"]) for error in json.loads(out)["errors"]]) == (
        2,
        [("truncated", hint)],
    )
    plan = {"plan": 1, "output": "{{b.result}}", "nodes": nodes}
    Path("cut.txt").write_text(json.dumps(plan)[:-20], encoding="utf-8")
    exit_code, out, _ = run_command("check", "cut.txt", "--repair", "--json")
    assert (exit_code, [error[0] for error in _codes_and_pointers(out)]) == (2, ["truncated", "invalid_reference"])


async def test_interrupt_while_the_program_is_loading_ends_the_program_without_output(tmp_path: Path) -> None:
    # This module replaces the library `typer`, and its import takes 600 s.
    (tmp_path / "typer.py").write_text("import time\nprint('loading', flush=True)\ntime.sleep(600)\n", encoding="utf-8")
    command = [sys.executable, f"{_ROOT}/starter.py", "check"]
    process = await asyncio.create_subprocess_exec(
        *command,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        # A shell makes the programs that it starts in the background ignore SIGINT.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"loading\n"
    process.send_signal(signal.SIGINT)
    _, error_output = await process.communicate()
    assert (process.returncode, error_output) == (130, b"")
