"""People answer requests of a run: `feedback`, `inbox` and the output of commands while the run waits."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from dagwright.interfaces.cli.command_arguments import account_name
from tests.e2e.command import CommandLine, kill_process, read_line_with, wait_for_exit
from tests.e2e.conftest import WritePlan, calculation
from tests.support.eventually import eventually

pytestmark = pytest.mark.server


def _human_node(node_id: str = "check", **human: Any) -> dict[str, Any]:
    return {"id": node_id, "human": {"prompt": f"Is {node_id} right?", "assignee": "ann", **human}}


async def _inbox_of(commands: CommandLine, run_id: str, *options: str) -> list[dict[str, Any]]:
    """Return the open requests of this run only, because other tests have runs on the same server."""
    result = await commands("inbox", "--run", run_id, "--json", *options)
    requests: list[dict[str, Any]] = result.check_success().document["requests"]
    return requests


async def _wait_for_requests(commands: CommandLine, run_id: str, count: int = 1) -> list[dict[str, Any]]:
    requests: list[dict[str, Any]] = []

    async def has_requests() -> bool:
        requests[:] = await _inbox_of(commands, run_id, "--wait", "2m")
        return len(requests) == count

    await eventually(has_requests)
    return requests


async def test_run_waits_for_an_answer_that_becomes_the_result_of_its_node(
    commands: CommandLine, write_plan: WritePlan
) -> None:
    plan = write_plan(
        calculation("sum", "2 + 3"),
        _human_node(prompt="Total {{sum.result}}. Publish?", deadline="2d"),
        calculation("after", "7", when="check.result.approved"),
    )
    run_process = await commands.start("run", plan, "--id", "answered-run")
    await read_line_with(run_process, "check waits for ann: Total 5. Publish?")
    [request] = await _wait_for_requests(commands, "answered-run")
    status_text_result = await commands("status", "answered-run")
    status_result = await commands("status", "answered-run", "--json")
    inbox_result = await commands("inbox", "--assignee", "ann", "--type", "approval")
    old_requests = await _inbox_of(commands, "answered-run", "--older-than", "1d")
    selection_options = ("--run", "answered-run", "--type", "selection", "--wait", "1s")
    empty_inbox_result = await commands("inbox", *selection_options, "--json")
    invalid_result = await commands("feedback", "answered-run", "check", "--select", "x", "--json")
    feedback_result = await commands(
        "feedback", "answered-run", "check", "--approve", "--reason", "fine", "--by", "ben", "--json"
    )
    run_result = await wait_for_exit(run_process)
    repeated_result = await commands("feedback", "answered-run", "check", "--approve", "--json")

    assert {name: request[name] for name in ("request_id", "node_id", "type", "prompt", "options", "assignee")} == {
        **{"request_id": "check", "node_id": "check", "type": "APPROVAL", "prompt": "Total 5. Publish?"},
        **{"options": None, "assignee": "ann"},
    }
    assert (status_result.document["status"], status_result.document["waiting_for"]) == ("waiting", [request])
    assert "check waits for ann: Total 5. Publish? (until " in status_text_result.stdout
    assert "  dagwright feedback answered-run check --approve  (or --reject)\n" in status_text_result.stdout
    assert ("answered-run  check  APPROVAL for ann, open for " in inbox_result.stdout, old_requests) == (True, [])
    assert (empty_inbox_result.code, empty_inbox_result.document["code"]) == (1, "no_request")
    message_start = "no request has arrived within 1s; `dagwright explain answered-run` shows"
    assert empty_inbox_result.document["message"].startswith(message_start)
    assert (invalid_result.code, invalid_result.document["ok"]) == (2, False)
    assert "the request is an APPROVAL, not a SELECTION: " in invalid_result.document["message"]
    assert (feedback_result.code, feedback_result.document["ok"]) == (0, True)
    assert (run_result.code, run_result.stderr) == (0, "")
    rejection = {
        "run_id": "answered-run",
        "ok": False,
        "code": "answer_rejected",
        "message": "the run 'answered-run' has ended",
    }
    assert (repeated_result.code, repeated_result.document) == (2, rejection)
    result = await commands("result", "answered-run", "--json")
    assert result.document["nodes"]["check"]["result"] == {"approved": True, "reason": "fine"}
    assert result.document["waiting_for"] == []


async def test_answer_without_a_worker_is_sent_by_signal(commands: CommandLine, write_plan: WritePlan) -> None:
    run_process = await commands.start("run", write_plan(_human_node()), "--id", "without-worker")
    await read_line_with(run_process, "check waits for ann")
    await kill_process(run_process)
    invalid_result = await commands("feedback", "without-worker", "check", "--text", "yes")
    accepted_result = await commands("feedback", "without-worker", "check", "--approve", "--by", "ann")
    second_result = await commands("feedback", "without-worker", "check", "--reject", "--by", "ben")
    watch_result = await commands("watch", "without-worker", "--json")

    assert invalid_result.code == 2
    assert "unknown key 'text'" in invalid_result.stderr
    assert accepted_result.code == 0
    assert accepted_result.stdout == (
        "no worker responded within 3 s, so the answer was sent as a signal; it is applied as soon as a worker serves "
        "the run; `dagwright watch without-worker` starts a worker\n"
    )
    assert second_result.code == 2
    assert re.fullmatch(r"'check' was answered by ann at \S+ \(approved, through signal\)\n", second_result.stderr)
    assert (watch_result.code, watch_result.document["nodes"]["check"]["result"]["approved"]) == (0, True)


async def test_option_all_answers_the_requests_of_all_sub_plans_of_a_node(
    commands: CommandLine, write_plan: WritePlan
) -> None:
    sub_plan = {"plan": 1, "inputs": {"x": {}}, "nodes": [_human_node()], "output": "{{check.result.reason}}"}
    map_fields = {"for_each": ["a", "b", "c"], "key": "{{item}}", "arguments": {"x": "{{item}}"}}
    plan = write_plan({"id": "each", "plan": sub_plan, **map_fields}, _human_node("single"), output="{{each.result}}")
    run_process = await commands.start("run", plan, "--id", "all")
    requests = await _wait_for_requests(commands, "all", 4)
    ambiguous_result = await commands("feedback", "all", "--all", "--approve")
    invalid_result = await commands("feedback", "all", "each/check", "--all", "--text", "yes", "--json")
    missing_item_result = await commands("feedback", "all", "each/check", "--approve")
    feedback_result = await commands("feedback", "all", "each/check", "--all", "--approve", "--reason", "fine")
    repeated_result = await commands("feedback", "all", "each/check", "--all", "--approve")
    last_result = await commands("feedback", "all", "--all", "--approve")
    run_result = await wait_for_exit(run_process)

    expected = ["each[a]/check", "each[b]/check", "each[c]/check", "single"]
    assert sorted(request["request_id"] for request in requests) == expected
    results = (ambiguous_result, invalid_result, feedback_result, repeated_result, last_result, run_result)
    assert [each.code for each in results] == [2, 2, 0, 2, 0, 0]
    assert ambiguous_result.stderr.startswith("the run 'all' has 4 open requests; name one: ")
    assert invalid_result.document["message"].startswith(
        "answered in 0 of 3 sub-plans: 'each/check': unknown key 'text'"
    )
    assert missing_item_result.code == 2
    assert re.fullmatch(
        r"'each' has a sub-plan for each of its items: name an item, as each\[key\]/check; "
        r"open requests are each\[.\]/check, each\[.\]/check, each\[.\]/check; `--all` answers all of them\n",
        missing_item_result.stderr,
    )
    assert feedback_result.stdout == "answered in 3 of 3 sub-plans: 'each/check' is answered\n"
    assert repeated_result.stderr.startswith("the run 'all' has no open request 'each/check'")
    result = await commands("result", "all", "--json")
    assert result.document["output"] == ["fine", "fine", "fine"]


async def test_feedback_without_a_terminal_requires_an_answer(commands: CommandLine, write_plan: WritePlan) -> None:
    form = {"type": "object", "properties": {"size": {"enum": ["S", "L"]}, "hat": {}}, "required": ["size"]}
    form_node = _human_node("c", type="INFORMATION", schema=form)
    plan = write_plan(_human_node("a"), _human_node("b", type="GUIDANCE"), form_node)
    run_process = await commands.start("run", plan, "--id", "answer-required")
    await read_line_with(run_process, "c waits for ann")
    form_result = await commands("feedback", "answer-required", "c")
    status_result = await commands("status", "answer-required")
    missing_answer_result = await commands("feedback", "answer-required", "b")
    ambiguous_request_result = await commands("feedback", "answer-required", "--approve")
    unknown_request_result = await commands("feedback", "answer-required", "aa", "--approve", "--json")
    unknown_run_result = await commands("feedback", "nowhere", "a", "--approve", "--json")

    results = (missing_answer_result, ambiguous_request_result, unknown_request_result, unknown_run_result)
    assert [each.code for each in results] == [2, 2, 2, 2]
    assert missing_answer_result.stderr == "b waits for ann: Is b right? (give --text TEXT)\n"
    assert form_result.stderr == (
        "c waits for ann: Is c right? (give --data JSON; its fields: size (S or L); hat (optional))\n"
    )
    assert "\n  size (S or L)\n  hat (optional)\n" in status_result.stdout
    assert ambiguous_request_result.stderr == "the run 'answer-required' has 3 open requests; name one: a, b, c\n"
    assert unknown_request_result.document["message"] == "there is no request 'aa'; did you mean 'a'?"
    assert unknown_run_result.document["message"].startswith("there is no run 'nowhere'")
    await commands("cancel", "answer-required")
    assert (await wait_for_exit(run_process)).code == 3
    assert await _inbox_of(commands, "answer-required") == []


async def test_explain_shows_a_default_answer_and_status_shows_a_pause(
    commands: CommandLine, write_plan: WritePlan
) -> None:
    default = {"default": {"approved": True, "reason": "by the plan"}}
    plan = write_plan(_human_node("late", deadline="1s", on_timeout=default), _human_node("open"))
    run_process = await commands.start("run", plan, "--id", "deadline")
    await _wait_for_requests(commands, "deadline", 1)
    pause_result = await commands("pause", "deadline")

    async def is_pause_noted() -> bool:
        notes = (await commands("status", "deadline", "--json")).document["notes"]
        pause_note = f"paused by {account_name()}"
        return [note["message"] for note in notes] == [pause_note, f"nothing new starts: {pause_note}"]

    await eventually(is_pause_noted)
    explain_result = await commands("explain", "deadline", "--node", "late")
    await commands("cancel", "deadline")

    assert (pause_result.code, (await wait_for_exit(run_process)).code) == (0, 3)
    line = r"\n  +approved at .+: no answer, default applied at the deadline; requested from ann at .+\n"
    assert re.search(line, explain_result.stdout), explain_result.stdout


async def test_answer_to_guidance_adds_nodes_from_a_file(
    commands: CommandLine, write_plan: WritePlan, tmp_path: Path
) -> None:
    plan = write_plan(calculation("sum", "2 + 3"), _human_node("hint", type="GUIDANCE"))
    run_process = await commands.start("run", plan, "--id", "guided")
    await read_line_with(run_process, "hint waits for ann")
    nodes_file = tmp_path / "more.json"
    nodes_file.write_text(json.dumps([calculation("bad", "1", depends_on=["som"]), {"id": "x", "tool": "calculater"}]))
    invalid_result = await commands("feedback", "guided", "hint", "--nodes", str(nodes_file), "--json")
    conflicting_result = await commands("feedback", "guided", "hint", "--nodes", str(nodes_file), "--approve")
    nodes_file.write_text(json.dumps({"plan": 1, "nodes": [calculation("more", "{{sum.result}} * 10")]}))
    feedback_result = await commands(
        "feedback", "guided", "--nodes", str(nodes_file), "--text", "ten times", "--by", "ann"
    )
    run_result = await wait_for_exit(run_process)

    assert invalid_result.code == 2
    assert [(error["code"], error["pointer"]) for error in invalid_result.document["errors"]] == [
        ("unknown_tool", "/nodes/1/tool"),
        ("unknown_dependency", "/nodes/0/depends_on/0"),
    ]
    assert conflicting_result.code == 2
    assert conflicting_result.stderr == "--approve and --nodes contradict each other: give one answer\n"
    assert (feedback_result.code, feedback_result.stdout) == (0, "'hint' is answered\n")
    run_result.check_success()
    nodes = (await commands("result", "guided", "--json")).document["nodes"]
    expected = {"sum": 5, "hint": {"text": "ten times", "nodes": ["more"]}, "more": 50}
    assert {name: node["result"] for name, node in nodes.items()} == expected
    assert nodes["more"]["lineage"]["overrides"][0]["request_id"] == "hint"
