"""People answer requests of a run: `feedback`, `inbox` and the output of commands while the run waits."""

import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from dagwright.interfaces.cli.command_arguments import account_name
from tests.e2e.command import CommandLine, read_line_with, wait_for_exit
from tests.e2e.conftest import WritePlan, calculation
from tests.support.eventually import eventually

pytestmark = pytest.mark.server


def _human_node(node_id: str = "check", **human: Any) -> dict[str, Any]:
    return {"id": node_id, "human": {"prompt": f"Is {node_id} right?", "assignee": "ann", **human}}


async def _inbox_of(command_line: CommandLine, workflow_id: str, *options: str) -> list[dict[str, Any]]:
    """Return the open requests of a run; other tests have runs on the same server."""
    result = await command_line("inbox", "--run", workflow_id, "--json", *options)
    requests: list[dict[str, Any]] = result.check_success().document["requests"]
    return requests


async def _wait_for_requests(command_line: CommandLine, workflow_id: str, count: int = 1) -> list[dict[str, Any]]:
    requests: list[dict[str, Any]] = []

    async def has_requests() -> bool:
        requests[:] = await _inbox_of(command_line, workflow_id, "--wait", "2m")
        return len(requests) == count

    await eventually(has_requests)
    return requests


async def test_run_waits_for_an_answer_and_has_it_as_result(command_line: CommandLine, write_plan: WritePlan) -> None:
    plan = write_plan(
        calculation("sum", "2 + 3"),
        _human_node(prompt="Total {{sum.result}}. Publish?", deadline="2d"),
        calculation("after", "7", when="check.result.approved"),
    )
    run_process = await command_line.start("run", plan, "--id", "answered-run")
    await read_line_with(run_process, "check waits for ann: Total 5. Publish?")
    [request] = await _wait_for_requests(command_line, "answered-run")
    status_text = await command_line("status", "answered-run")
    status_result = await command_line("status", "answered-run", "--json")
    inbox_result = await command_line("inbox", "--assignee", "ann", "--type", "approval")
    old_requests = await _inbox_of(command_line, "answered-run", "--older-than", "1d")
    empty_inbox_result = await command_line(
        "inbox", "--run", "answered-run", "--type", "selection", "--wait", "1s", "--json"
    )
    invalid_result = await command_line("feedback", "answered-run", "check", "--select", "x", "--json")
    feedback_result = await command_line(
        "feedback", "answered-run", "check", "--approve", "--reason", "fine", "--by", "ben", "--json"
    )
    run_result = await wait_for_exit(run_process)
    repeated_result = await command_line("feedback", "answered-run", "check", "--approve", "--json")

    assert {name: request[name] for name in ("request_id", "node_id", "type", "prompt", "options", "assignee")} == {
        **{"request_id": "check", "node_id": "check", "type": "APPROVAL", "prompt": "Total 5. Publish?"},
        **{"options": None, "assignee": "ann"},
    }
    assert (status_result.document["status"], status_result.document["waiting_for"]) == ("waiting", [request])
    assert "check waits for ann: Total 5. Publish? (until " in status_text.stdout
    assert "  dagwright feedback answered-run check --approve  (or --reject)\n" in status_text.stdout
    assert ("answered-run  check  APPROVAL for ann, open for " in inbox_result.stdout, old_requests) == (True, [])
    assert (empty_inbox_result.code, empty_inbox_result.document["status"]) == (1, "no_request")
    assert empty_inbox_result.document["message"].startswith(
        "no request has arrived within 1s; `dagwright explain answered-run` shows"
    )
    assert (invalid_result.code, invalid_result.document["ok"]) == (2, False)
    assert "unknown key 'selected'" in invalid_result.document["message"]
    assert (feedback_result.code, feedback_result.document["ok"]) == (0, True)
    assert (run_result.code, run_result.stderr) == (0, "")
    rejection = {"run_id": "answered-run", "ok": False, "message": "the run 'answered-run' has ended"}
    assert (repeated_result.code, repeated_result.document) == (2, rejection)
    result = await command_line("result", "answered-run", "--json")
    assert result.document["nodes"]["check"]["result"] == {"approved": True, "reason": "fine"}
    assert result.document["waiting_for"] == []


async def test_answer_without_a_worker_is_sent_by_signal(command_line: CommandLine, write_plan: WritePlan) -> None:
    run_process = await command_line.start("run", write_plan(_human_node()), "--id", "without-worker")
    await read_line_with(run_process, "check waits for ann")
    run_process.send_signal(signal.SIGKILL)
    await wait_for_exit(run_process)
    invalid_result = await command_line("feedback", "without-worker", "check", "--text", "yes")
    accepted_result = await command_line("feedback", "without-worker", "check", "--approve", "--by", "ann")
    second_result = await command_line("feedback", "without-worker", "check", "--reject", "--by", "ben")
    watch_result = await command_line("watch", "without-worker", "--json")

    assert invalid_result.code == 2
    assert "unknown key 'text'" in invalid_result.stderr
    assert (accepted_result.code, accepted_result.stdout) == (
        0,
        "no worker responded within 3 s, so the answer was sent as a signal; it is applied as soon as a worker serves "
        "the run; `dagwright watch without-worker` starts a worker\n",
    )
    assert second_result.code == 2
    assert re.fullmatch(r"'check' was answered by ann at \S+ \(approved, through signal\)\n", second_result.stderr)
    assert (watch_result.code, watch_result.document["nodes"]["check"]["result"]["approved"]) == (0, True)


async def test_option_all_answers_the_requests_of_all_sub_plans_of_a_node(
    command_line: CommandLine, write_plan: WritePlan
) -> None:
    sub_plan = {"plan": 1, "inputs": {"x": {}}, "nodes": [_human_node()], "output": "{{check.result.reason}}"}
    map_node = {
        "id": "each",
        "for_each": ["a", "b", "c"],
        "key": "{{item}}",
        "plan": sub_plan,
        "arguments": {"x": "{{item}}"},
    }
    run_process = await command_line.start(
        "run", write_plan(map_node, _human_node("single"), output="{{each.result}}"), "--id", "all"
    )
    requests = await _wait_for_requests(command_line, "all", 4)
    ambiguous_result = await command_line("feedback", "all", "--all", "--approve")
    invalid_result = await command_line("feedback", "all", "each/check", "--all", "--text", "yes", "--json")
    missing_item_result = await command_line("feedback", "all", "each/check", "--approve")
    feedback_result = await command_line("feedback", "all", "each/check", "--all", "--approve", "--reason", "fine")
    repeated_result = await command_line("feedback", "all", "each/check", "--all", "--approve")
    last_result = await command_line("feedback", "all", "--all", "--approve")
    run_result = await wait_for_exit(run_process)

    expected = ["each[a]/check", "each[b]/check", "each[c]/check", "single"]
    assert sorted(request["request_id"] for request in requests) == expected
    assert [
        each.code
        for each in (ambiguous_result, invalid_result, feedback_result, repeated_result, last_result, run_result)
    ] == [2, 2, 0, 2, 0, 0]
    assert ambiguous_result.stderr.startswith("the run 'all' has 4 open requests; name one: ")
    assert invalid_result.document["message"].startswith(
        "answered in 0 of 3 sub-plans: 'each/check': unknown key 'text'"
    )
    assert missing_item_result.code == 2
    assert re.fullmatch(
        r"'each' has a sub-plan for each of its items: name one, as each\[key\]/check; "
        r"open requests are each\[.\]/check, each\[.\]/check, each\[.\]/check; `--all` answers all of them\n",
        missing_item_result.stderr,
    )
    assert feedback_result.stdout == "answered in 3 of 3 sub-plans: 'each/check' is answered\n"
    assert repeated_result.stderr.startswith("the run 'all' has no open request 'each/check'")
    result = await command_line("result", "all", "--json")
    assert result.document["output"] == ["fine", "fine", "fine"]


async def test_feedback_without_a_terminal_requires_an_answer(command_line: CommandLine, write_plan: WritePlan) -> None:
    form = {"type": "object", "properties": {"size": {"enum": ["S", "L"]}, "hat": {}}, "required": ["size"]}
    human_nodes = [
        _human_node("a"),
        _human_node("b", type="GUIDANCE"),
        _human_node("c", type="INFORMATION", schema=form),
    ]
    run_process = await command_line.start("run", write_plan(*human_nodes), "--id", "answer-required")
    await read_line_with(run_process, "c waits for ann")
    form_result = await command_line("feedback", "answer-required", "c")
    status_result = await command_line("status", "answer-required")
    missing_answer_result = await command_line("feedback", "answer-required", "b")
    ambiguous_request_result = await command_line("feedback", "answer-required", "--approve")
    unknown_request_result = await command_line("feedback", "answer-required", "aa", "--approve", "--json")
    unknown_run_result = await command_line("feedback", "nowhere", "a", "--approve", "--json")

    assert [
        each.code
        for each in (missing_answer_result, ambiguous_request_result, unknown_request_result, unknown_run_result)
    ] == [2, 2, 2, 2]
    assert missing_answer_result.stderr == "b waits for ann: Is b right? (give --text TEXT)\n"
    assert form_result.stderr == (
        "c waits for ann: Is c right? (give --data JSON; its fields: size (S or L); hat (optional))\n"
    )
    assert "\n  size (S or L)\n  hat (optional)\n" in status_result.stdout
    assert ambiguous_request_result.stderr == "the run 'answer-required' has 3 open requests; name one: a, b, c\n"
    assert unknown_request_result.document["message"] == "there is no request 'aa'; did you mean 'a'?"
    assert unknown_run_result.document["message"].startswith("there is no run 'nowhere'")
    await command_line("cancel", "answer-required")
    assert (await wait_for_exit(run_process)).code == 3
    assert await _inbox_of(command_line, "answer-required") == []


async def test_explain_reports_a_default_answer_and_status_reports_a_pause(
    command_line: CommandLine, write_plan: WritePlan
) -> None:
    default = {"default": {"approved": True, "reason": "by the plan"}}
    plan = write_plan(_human_node("late", deadline="1s", on_timeout=default), _human_node("open"))
    run_process = await command_line.start("run", plan, "--id", "deadline")
    await _wait_for_requests(command_line, "deadline", 1)
    pause_result = await command_line("pause", "deadline")

    async def is_noted() -> bool:
        notes = (await command_line("status", "deadline", "--json")).document["notes"]
        pause_note = f"paused by {account_name()}"
        return [note["message"] for note in notes] == [pause_note, f"nothing new starts: {pause_note}"]

    await eventually(is_noted)
    explain_result = await command_line("explain", "deadline", "--node", "late")
    await command_line("cancel", "deadline")

    assert (pause_result.code, (await wait_for_exit(run_process)).code) == (0, 3)
    assert re.search(
        r"\n  +approved at .+: no answer, default applied at the deadline; requested from ann at .+\n",
        explain_result.stdout,
    ), explain_result.stdout


async def test_answer_to_guidance_adds_nodes_from_a_file(
    command_line: CommandLine, write_plan: WritePlan, tmp_path: Path
) -> None:
    plan = write_plan(calculation("sum", "2 + 3"), _human_node("hint", type="GUIDANCE"))
    run_process = await command_line.start("run", plan, "--id", "guided")
    await read_line_with(run_process, "hint waits for ann")
    nodes_file = tmp_path / "more.json"
    nodes_file.write_text(json.dumps([calculation("bad", "1", depends_on=["som"]), {"id": "x", "tool": "calculater"}]))
    invalid_result = await command_line("feedback", "guided", "hint", "--nodes", str(nodes_file), "--json")
    conflicting_result = await command_line("feedback", "guided", "hint", "--nodes", str(nodes_file), "--approve")
    nodes_file.write_text(json.dumps({"plan": 1, "nodes": [calculation("more", "{{sum.result}} * 10")]}))
    feedback_result = await command_line(
        "feedback", "guided", "--nodes", str(nodes_file), "--text", "ten times", "--by", "ann"
    )
    run_result = await wait_for_exit(run_process)

    assert invalid_result.code == 2
    assert [(error["code"], error["pointer"]) for error in invalid_result.document["errors"]] == [
        ("unknown_tool", "/nodes/1/tool"),
        ("unknown_dependency", "/nodes/0/depends_on/0"),
    ]
    assert (conflicting_result.code, conflicting_result.stderr) == (
        2,
        "--approve and --nodes contradict each other: give one answer\n",
    )
    assert (feedback_result.code, feedback_result.stdout) == (0, "'hint' is answered\n")
    run_result.check_success()
    nodes = (await command_line("result", "guided", "--json")).document["nodes"]
    expected = {"sum": 5, "hint": {"text": "ten times", "nodes": ["more"]}, "more": 50}
    assert {name: node["result"] for name, node in nodes.items()} == expected
    assert nodes["more"]["lineage"]["overrides"][0]["request_id"] == "hint"
