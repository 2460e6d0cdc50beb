"""`check`, which needs no server, and the answers to bad usage: one sentence, no traceback, the right exit code."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dagwright.interfaces.cli.app import run_command_line

_VALID = {
    "plan": 1,
    "title": "Small",
    "inputs": {"n": {"type": "integer", "prompt": "How many?"}},
    "nodes": [
        {"id": "a", "tool": "calculator", "arguments": {"expression": "{{PLACEHOLDER_n}} + 1"}},
        {"id": "b", "tool": "calculator", "arguments": {"expression": "{{a.result}} + 1"}},
        {"id": "c", "tool": "calculator", "arguments": {"expression": "{{a.result}} + {{b.result}}"}},
    ],
}
_ROOT = str(Path(__file__).parents[3])
_UNKNOWN_TOOL = {"plan": 1, "nodes": [{"id": "x", "tool": "calculate", "arguments": {}}]}


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def _write(name: str, *values: Any) -> str:
    Path(name).write_text("\n".join(json.dumps(value) for value in values), encoding="utf-8")
    return name


def test_document_of_a_valid_plan_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    code = run_command_line(["check", _write("small.json", _VALID), "--json"])

    written = capsys.readouterr()
    assert (code, written.err) == (0, "")
    assert written.out.count("\n") == 1
    assert json.loads(written.out) == {
        "file": "small.json",
        "line": None,
        "status": "valid",
        "title": "Small",
        "dialect": "plan",
        "nodes": 3,
        "edges": 3,
        "levels": [["a"], ["b"], ["c"]],
        "critical_path": ["a", "b", "c"],
        "inputs": [{"name": "n", "type": "integer", "prompt": "How many?"}],
        "expected_events": 11,
        "notes": [],
    }


def test_what_tools_print_stands_beside_the_document(capsys: pytest.CaptureFixture[str]) -> None:
    Path("tools.py").write_text("from dagwright.tools import tool\nprint('loaded')\n@tool\ndef send() -> None: ...\n")
    assert run_command_line(["check", _write("small.json", _VALID), "--tools", "tools.py", "--json"]) == 0
    written = capsys.readouterr()
    assert (json.loads(written.out)["status"], written.err) == ("valid", "loaded\n")


def test_what_a_run_of_all_or_nothing_could_not_take_back_is_noted_where_that_is_asked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("tools.py").write_text(
        "from dagwright.tools import tool\n"
        "@tool(effects='idempotent', undo='free')\ndef book() -> None: ...\n"
        "@tool(effects='idempotent')\ndef free(key: str, arguments: dict, result: object) -> None: ...\n"
        "@tool\ndef send() -> None: ...\n"
    )
    nodes = [{"id": "a", "tool": "book"}, {"id": "b", "tool": "send"}]
    arguments = ["check", _write("plan.json", {"plan": 1, "nodes": nodes}), "--tools", "tools.py", "--json"]
    assert run_command_line([*arguments, "--all-or-nothing"]) == 0
    message = "'b' cannot be taken back: the tool 'send' has no undo"
    assert json.loads(capsys.readouterr().out)["notes"] == [{"code": "stands", "node": "b", "message": message}]
    assert run_command_line(arguments) == 0
    assert json.loads(capsys.readouterr().out)["notes"] == []


def test_each_line_of_a_jsonl_file_and_each_file_gets_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    files = [_write("many.jsonl", _VALID, _UNKNOWN_TOOL), _write("one.json", _VALID), "none.json"]
    code = run_command_line(["check", *files, "--json"])

    documents = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert code == 2
    assert [(item["file"], item["line"], item["status"]) for item in documents] == [
        ("many.jsonl", 1, "valid"),
        ("many.jsonl", 2, "invalid"),
        ("one.json", None, "valid"),
        ("none.json", None, "invalid"),
    ]
    assert documents[1]["errors"] == [
        {
            "code": "unknown_tool",
            "pointer": "/nodes/0/tool",
            "node": "x",
            "message": "there is no tool 'calculate'",
            "hint": "did you mean 'calculator'?",
        }
    ]


def test_table_for_people_names_levels_and_path(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["check", _write("small.json", _VALID)]) == 0

    first, *rest = capsys.readouterr().out.splitlines()
    assert first == "small.json: valid"
    assert [" ".join(line.split()) for line in rest] == [
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


def test_result_of_a_file_with_a_long_name_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    name = "/".join(["a" * 200, "b" * 200, "plan.json"])
    Path(name).parent.mkdir(parents=True)
    assert run_command_line(["check", _write(name, _VALID)]) == 0
    assert capsys.readouterr().out.splitlines()[0] == f"{name}: valid"


def test_person_is_told_how_to_see_the_problems_that_are_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [{"id": f"n{number}", "tool": "calculate"} for number in range(27)]
    assert run_command_line(["check", _write("wrong.json", {"plan": 1, "nodes": nodes})]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 21
    assert lines[-1] == "wrong.json: and 7 more problems; --json tells all of them"


def test_what_there_is_one_of_is_told_as_one(capsys: pytest.CaptureFixture[str]) -> None:
    one = {"plan": 1, "nodes": [{"id": "a", "tool": "calculator", "arguments": {"expression": "1"}}]}
    assert run_command_line(["check", _write("one.json", one)]) == 0
    assert re.search(r"1 with 0 edges in 1 level *\n", capsys.readouterr().out)
    nodes = [{"id": f"n{number}", "tool": "calculate"} for number in range(21)]
    assert run_command_line(["check", _write("wrong.json", {"plan": 1, "nodes": nodes})]) == 2
    assert "and 1 more problem;" in capsys.readouterr().err


def _errors(text: str) -> list[tuple[str, str]]:
    return [(error["code"], error["pointer"]) for error in json.loads(text)["errors"]]


def test_file_that_cannot_be_read_hides_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    Path("odd.json").write_text('{"nodes": [{"id": "x", "tool": "nobody", "tool": "none"}]}', encoding="utf-8")
    nodes: list[Any] = [
        {"id": "gone", "plan": "none.json"},
        {"id": "odd", "plan": "odd.json"},
        {"id": "inline", "plan": {}, "arguments": {"x": 1}},
        {"id": "x", "tool": "calculate"},
    ]
    assert run_command_line(["check", _write("plan.json", {"nodes": nodes}), "--json"]) == 2
    assert _errors(capsys.readouterr().out) == [
        ("unreadable", "/nodes/0/plan"),
        ("invalid_field", "/nodes/1/plan/nodes/0/tool"),
        ("empty_plan", "/nodes/2/plan"),
        ("unknown_tool", "/nodes/3/tool"),
    ]


@pytest.mark.parametrize("command", ["check", "run"])
def test_lone_surrogate_hides_nothing(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [{"id": "a\ud800", "tool": "nobody"}, {"id": "b", "tool": "calculate", "depends_on": ["a\ud800", "c"]}]
    assert run_command_line([command, _write("plan.json", {"nodes": nodes}), "--json"]) == 2
    assert _errors(capsys.readouterr().out) == [
        ("invalid_syntax", "/nodes/0/id"),
        ("invalid_syntax", "/nodes/1/depends_on/0"),
        ("unknown_tool", "/nodes/0/tool"),
        ("unknown_tool", "/nodes/1/tool"),
        ("unknown_dependency", "/nodes/1/depends_on/1"),
    ]


def test_every_wrong_input_of_a_run_is_told_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    names = ["a", "b", "c", "d"]
    nodes = [
        {"id": name, "tool": "calculator", "arguments": {"expression": f"{{{{PLACEHOLDER_{name}}}}}"}} for name in names
    ]
    plan = {"plan": 1, "inputs": {name: {"type": "integer"} for name in names}, "nodes": nodes}
    arguments = [
        "--input",
        "strange=1",
        "--input",
        "a=x",
        "--input",
        "b=1",
        "--inputs",
        _write("values.json", {"c": "y"}),
    ]
    assert run_command_line(["run", _write("plan.json", plan), *arguments, "--json"]) == 2
    assert _errors(capsys.readouterr().out) == [
        ("invalid_field", "/inputs/strange"),
        ("invalid_field", "/inputs/a"),
        ("missing_input", "/inputs/d"),
        ("invalid_field", "/inputs/c"),
    ]


def test_session_names_are_given_by_context(capsys: pytest.CaptureFixture[str]) -> None:
    plan = {"intents": [{"verb": "cbu.add-product", "params": {"product": "CUSTODY"}, "refs": {"cbu-id": "@cbu"}}]}
    file = _write("intents.json", plan)

    assert run_command_line(["check", file, "--json"]) == 2
    refused = json.loads(capsys.readouterr().out)
    assert refused["errors"][0]["code"] == "missing_context"

    for given in ("cbu=fund_1", "@cbu=fund_1"):
        assert run_command_line(["check", file, "--context", given, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["notes"] == []


def test_session_name_that_the_plan_does_not_use_is_noted(capsys: pytest.CaptureFixture[str]) -> None:
    intents = [{"verb": "cbu.add-product", "params": {"product": "CUSTODY"}, "refs": {"cbu-id": "@cbu"}}]
    inner = {"plan": 1, "nodes": [{"id": "a", "plan": {"intents": intents}}]}
    more = ["--context", "cbuu=x", "--context", "@manco=y", "--json"]
    for plan in ({"intents": intents}, inner):
        assert run_command_line(["check", _write("intents.json", plan), "--context", "cbu=fund_1", *more]) == 0
        assert [(note["code"], note["message"]) for note in json.loads(capsys.readouterr().out)["notes"]] == [
            ("unused_context", "the plan does not use @cbuu, which --context gives; did you mean 'cbu'?"),
            ("unused_context", "the plan does not use @manco, which --context gives; it uses @cbu"),
        ]
    assert run_command_line(["check", _write("small.json", _VALID), *more]) == 0
    [note, _] = json.loads(capsys.readouterr().out)["notes"]
    assert note["message"].endswith("; it uses no name of a session")


def test_run_notes_a_session_name_that_the_plan_does_not_use(capsys: pytest.CaptureFixture[str]) -> None:
    intents = [{"verb": "cbu.add-product", "params": {"product": "CUSTODY"}, "refs": {"cbu-id": "@cbu"}}]
    # Refused for another reason, so that no server is started.
    arguments = ["--context", "cbu=fund_1", "--context", "cbuu=x", "--input", "strange=1"]
    assert run_command_line(["run", _write("intents.json", {"intents": intents}), *arguments]) == 2
    note, refused = capsys.readouterr().err.splitlines()
    assert note == "note: the plan does not use @cbuu, which --context gives; did you mean 'cbu'?"
    assert "the plan has no input 'strange'" in refused


def test_tools_can_be_taken_on_trust() -> None:
    assert run_command_line(["check", _write("plan.json", _UNKNOWN_TOOL), "--any-tool"]) == 0


@pytest.mark.waits
def test_package_is_the_same_program_and_its_check_imports_no_temporal() -> None:
    command = [sys.executable, "-X", "importtime", "-m", "dagwright", "check", _write("small.json", _VALID)]
    ended = subprocess.run(command, env={"PYTHONPATH": _ROOT, "PATH": ""}, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout.splitlines()[0]) == (0, "small.json: valid")
    modules = [line.rpartition("|")[2].strip() for line in ended.stderr.splitlines() if line.startswith("import time:")]
    assert len(modules) == len(ended.stderr.splitlines())
    assert ("dagwright.interfaces.cli" in modules, "temporalio" in modules) == (True, False)


def test_input_that_the_plan_does_not_have_is_refused_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    plan = {
        "plan": 1,
        "inputs": {"net": {"type": "number", "default": 1}, "flag": {"type": "string"}},
        "nodes": [
            {"id": "a", "when": "inputs.flag == 'x'", "tool": "wait", "arguments": {"duration": "{{PLACEHOLDER_d}}"}}
        ],
    }
    given = ["--input", "nett=4", "--input", "flag=x", "--input", "d=1s"]
    code = run_command_line(["run", _write("plan.json", plan), *given])

    written = capsys.readouterr()
    assert (code, written.out) == (2, "")
    assert written.err == (
        "plan.json: invalid_field at /inputs/nett: the plan has no input 'nett' (did you mean 'net'?)\n"
    )


def test_strange_input_of_a_file_and_strange_name_are_told_and_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    plan = {"plan": 1, "nodes": [{"id": "a", "tool": "wait", "arguments": {"duration": "{{PLACEHOLDER_d}}"}}]}
    more = ["--inputs", _write("values.json", {"other": 1}), "--context", "cbuu=x"]
    code = run_command_line(["run", _write("plan.json", plan), *more])

    assert code == 2
    assert capsys.readouterr().err.splitlines() == [
        "note: the plan does not use @cbuu, which --context gives; it uses no name of a session",
        "--inputs: values.json: the plan has no input 'other', so it is not used; it has d",
        "plan.json: missing_input at /inputs/d: the input 'd' is missing (give it with --input d=VALUE)",
    ]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["run"], "Missing argument 'PLAN'; see `dagwright run --help`"),
        (["wach", "x"], "No such command 'wach'. Did you mean 'watch'?; see `dagwright --help`"),
        (["list", "--limit", "0"], "Invalid value for '--limit': it must be at least 1; see "),
        (["list", "--limit", "1001"], "Invalid value for '--limit': it must be at most 1000; see "),
        (["list", "--limit", "x"], "Invalid value for '--limit': it must be a whole number; see "),
        (["run", "none.json"], "none.json: unreadable: there is no file none.json"),
        (["run", "."], ".: unreadable: . is a folder, not a file"),
        (["run", "broken.json"], "broken.json: invalid_syntax: broken.json is no valid JSON: "),
        (["run", "small.json", "--input", "n"], "--input takes KEY=VALUE, not 'n'"),
        (["run", "small.json", "--input", "n=x"], "invalid_field at /inputs/n: the input 'n': 'x' is no integer"),
        (["run", "small.json"], "small.json: missing_input at /inputs/n: the input 'n' is missing: How many?"),
        (["run", "small.json", "--timeout", "soon"], "--timeout: 'soon' is no duration; write a number and a unit"),
        (["run", "small.json", "--inputs", "none.yaml"], "--inputs: there is no file none.yaml"),
        (["run", "small.json", "--tools", "none.py"], "There is no file none.py of tools"),
        (["run", "small.json", "--dialect", "poem"], "small.json: invalid_field: there is no dialect 'poem'"),
        (["run", "unknown.json"], "unknown.json: unknown_tool at /nodes/0/tool: there is no tool 'calculate'"),
        (["entities", "load", "none.csv"], "none.csv"),
        (["run", "small.json", "--agents", "agents.yaml"], "the agents: there is no file "),
        (["run", "small.json", "--agents", "small.json"], "small.json: /plan: unknown key; the agents stand under"),
        (["run", "small.json", "--policy", "policy.yaml"], "the policy: there is no file policy.yaml"),
        (["run", "small.json", "--policy", "small.json"], "the policy small.json: unknown key 'plan'"),
        (["check", "small.json", "--agents", "agents.yaml"], "the agents: there is no file "),
        (["cancel", "run-1", "--branch"], "--branch needs --node"),
        (["retry", "run-1", "--node", "a", "--arguments", "5"], "--arguments must be a JSON object"),
        (["set-result", "run-1", "five", "--node", "a"], "set-result takes JSON, and 'five' is none: "),
        (["graph", "x", "--format", "png"], "Invalid value for '--format': 'png' is not one of 'mermaid'"),
    ],
)  # fmt: skip
def test_bad_usage_is_told_in_one_sentence(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _write("small.json", _VALID)
    _write("unknown.json", _UNKNOWN_TOOL)
    Path("broken.json").write_text('{"plan": 1,\n "nodes": [}', encoding="utf-8")

    code = run_command_line(arguments)

    written = capsys.readouterr()
    assert code == 2
    assert written.out == ""
    assert sentence in written.err
    assert written.err.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "small.json", "--input", "q=\udcff"],
        ["run", "small.json", "--input", "\udcff=1"],
        ["run", "small.json", "--id", "a\udcff"],
        ["run", "small.json", "--timeout", "\udcff"],
        ["check", "small.json", "--context", "cbu=\udcff"],
        ["check", "small.json", "--dialect", "\udcff"],
        ["status", "\udcff"],
        ["cancel", "run-1", "--reason", "\udcff"],
    ],
)
def test_argument_that_is_no_utf_8_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    _write("small.json", _VALID)

    code = run_command_line([*arguments, "--json"])

    written = capsys.readouterr()
    assert (code, json.loads(written.out)["status"]) == (2, "invalid_field")
    assert "\\udcff" in written.err
    assert written.err.endswith("is no UTF-8\n")
    assert written.err.count("\n") == 1


@pytest.mark.parametrize("command", ["run", "check"])
def test_file_may_have_any_name(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line([command, "\udcff.json"]) == 2
    assert "unreadable" in capsys.readouterr().err


def test_bad_usage_is_a_document_with_json(capsys: pytest.CaptureFixture[str]) -> None:
    code = run_command_line(["status", "--json"])

    written = capsys.readouterr()
    assert code == 2
    assert json.loads(written.out) == {"status": "bad_usage", "message": written.err.strip()}


def test_graph_is_json_or_a_picture(capsys: pytest.CaptureFixture[str]) -> None:
    code = run_command_line(["graph", "x", "--format", "svg", "--json"])

    written = capsys.readouterr()
    sentence = "--json writes the graph as JSON, and --format svg does not: leave one of them out"
    assert (code, written.err) == (2, f"{sentence}\n")
    assert json.loads(written.out) == {"status": "bad_usage", "message": sentence}


def test_syntax_error_names_line_and_column(capsys: pytest.CaptureFixture[str]) -> None:
    Path("broken.json").write_text('{"plan": 1,\n "nodes": [}', encoding="utf-8")

    assert run_command_line(["check", "broken.json"]) == 2
    assert "line 2, column 12" in capsys.readouterr().err


def test_setting_that_can_not_be_used_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAGWRIGHT_LOG_LEVEL", "shouting")

    assert run_command_line(["check", _write("small.json", _VALID)]) == 2
    assert capsys.readouterr().err.startswith("DAGWRIGHT_LOG_LEVEL can not be used: ")


def test_parties_are_loaded_and_refused_rows_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    Path("parties.csv").write_text("name,kind,jurisdiction\nAnn Lee,person,GB\n,person,GB\n", encoding="utf-8")

    assert run_command_line(["entities", "load", "parties.csv", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert (report["added"], report["updated"], report["unchanged"]) == (1, 0, 0)
    assert [row["line"] for row in report["refused"]] == [3]


def test_help_says_what_each_value_is_and_not_its_type(capsys: pytest.CaptureFixture[str]) -> None:
    run_command_line(["--help"])
    names = re.findall(r"^  ([a-z]+)  ", capsys.readouterr().out.partition("Commands:")[2], re.MULTILINE)
    commands = [[name] for name in names if name not in ("entities", "store")]
    commands += [["entities", "load"], ["store", "show"], ["store", "clean"]]
    assert len(commands) > 10
    for command in commands:
        assert run_command_line([*command, "--help"]) == 0
        lines = capsys.readouterr().out.splitlines()
        entries = [line for line in lines if re.match(r"  (-|[A-Z]+ )", line)]
        assert [line for line in entries if re.search("<[a-z]", line) or not re.search(r"\S  +\S", line)] == [], command


def test_answer_of_a_model_is_checked_with_mend_and_only_then(capsys: pytest.CaptureFixture[str]) -> None:
    nodes = "{'id': 'a', 'tool': 'Calculator', 'arguments': {'expression': '1'}}"
    Path("answer.txt").write_text(f"Sure:\n```json\n{{'plan': 1, 'nodes': [{nodes}]}}\n```\n", encoding="utf-8")
    assert run_command_line(["check", "answer.txt", "--json"]) == 2
    capsys.readouterr()

    code = run_command_line(["check", "answer.txt", "--mend", "--json"])

    document = json.loads(capsys.readouterr().out)
    assert (code, document["status"], document["levels"]) == (0, "valid", [["a"]])
    codes = [mend["code"] for mend in document["mends"]]
    assert codes == ["fenced", "prose", *["single_quotes"] * 9, "tool"]
    assert [note["code"] for note in document["notes"]] == ["fenced", "prose", "single_quotes", "tool"]
    assert document["notes"][2]["message"] == "mended: the text 'plan' stands in single quotes; 8 more like it"
    assert document["mends"][-1] == {
        "code": "tool",
        "pointer": "/nodes/0/tool",
        "offset": None,
        "message": "the tool 'Calculator' was read as 'calculator'",
    }


def test_plan_of_which_a_part_was_cut_off_does_not_run(capsys: pytest.CaptureFixture[str]) -> None:
    first = {"id": "a", "tool": "calculator", "arguments": {"expression": "1"}}
    Path("cut.txt").write_text(json.dumps({"plan": 1, "nodes": [first, first]})[:-20], encoding="utf-8")
    assert run_command_line(["run", "cut.txt", "--mend", "--json"]) == 2
    document = json.loads(capsys.readouterr().out)
    assert [(error["code"], error["hint"]) for error in document["errors"]] == [
        ("cut_off", "have the rest written, or close the plan by hand if this is all of it")
    ]
    plan = {"plan": 1, "output": "{{b.result}}", "nodes": [first, {**first, "id": "b"}]}
    Path("cut.txt").write_text(json.dumps(plan)[:-20], encoding="utf-8")
    assert run_command_line(["check", "cut.txt", "--mend", "--json"]) == 2
    document = json.loads(capsys.readouterr().out)
    assert [error["code"] for error in document["errors"]] == ["cut_off", "invalid_reference"]


@pytest.mark.parametrize("command", ["check", "run"])
def test_file_that_is_not_there_is_told_with_mend_too(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line([command, "none.txt", "--mend", "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["errors"][0]["code"] == "unreadable"


async def test_interrupt_while_the_program_is_still_loading_ends_it_quietly(tmp_path: Path) -> None:
    # Found instead of the library, which takes its time.
    (tmp_path / "typer.py").write_text("import time\nprint('loading', flush=True)\ntime.sleep(600)\n", encoding="utf-8")
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        f"{_ROOT}/starter.py",
        "check",
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        # A shell makes the programs that it starts in the background ignore it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"loading\n"
    process.send_signal(signal.SIGINT)
    _, told = await process.communicate()
    assert (process.returncode, told) == (130, b"")
