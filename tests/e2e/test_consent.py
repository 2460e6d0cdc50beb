"""Requests to people before a run or a call starts: missing inputs, approval of a plan, approval of a call."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.command import CommandLine, read_line_with, wait_for_exit
from tests.e2e.conftest import WritePlan, calculation
from tests.support.eventually import eventually

pytestmark = pytest.mark.server

_TOOLS = """
from dagwright.tools import tool

@tool(effects="write")
def pay(to: str) -> str:
    return f"paid {to}"
"""


@pytest.fixture
def tools(tmp_path: Path) -> str:
    """A file with the tool `pay`, whose effects are `write`."""
    path = tmp_path / "bank.py"
    path.write_text(_TOOLS, encoding="utf-8")
    return str(path)


def _pay(node_id: str, to: str) -> dict[str, Any]:
    return {"id": node_id, "tool": "pay", "arguments": {"to": to}}


async def test_detached_run_requests_its_inputs(
    commands_with_private_server: CommandLine, write_plan: WritePlan
) -> None:
    plan = write_plan(
        calculation("sum", "{{PLACEHOLDER_left}} + {{PLACEHOLDER_right}}"),
        inputs={"left": {"type": "integer"}, "right": {"type": "integer", "default": 5}},
        output="{{sum.result}}",
    )
    started_result = await commands_with_private_server("run", plan, "--id", "inputs-later", "--detach", "--json")

    async def has_requested_inputs() -> bool:
        pending_requests = (await commands_with_private_server("status", "inputs-later", "--json")).document[
            "waiting_for"
        ]
        return [(request["request_id"], request["type"]) for request in pending_requests] == [("inputs", "INFORMATION")]

    await eventually(has_requested_inputs)
    status_result = await commands_with_private_server("status", "inputs-later")
    invalid_result = await commands_with_private_server("feedback", "inputs-later", "inputs", "--data", '{"left": "x"}')
    feedback_result = await commands_with_private_server(
        "feedback", "inputs-later", "inputs", "--data", '{"left": 2}', "--by", "ann"
    )
    watch_result = await commands_with_private_server("watch", "inputs-later", "--json")
    final_status_result = await commands_with_private_server("status", "inputs-later")

    started_result.check_success()
    command = """dagwright feedback inputs-later inputs --data '{"left": 1}'"""
    assert started_result.document["message"].endswith(f"; it waits for its inputs: `{command}`")
    assert command in status_result.stdout
    assert (invalid_result.code, feedback_result.code, feedback_result.stdout) == (2, 0, "'inputs' is answered\n")
    assert 'data/left: "x" is not of type "integer"' in invalid_result.stderr
    assert (watch_result.code, watch_result.document["output"]) == (0, 7)
    answer_line = re.compile(r"^inputs: answered by ann at \S+ \S+ \S+ through update$", re.MULTILINE)
    assert answer_line.search(final_status_result.stdout)


async def test_policy_file_requests_approval_of_calls(commands: CommandLine, write_plan: WritePlan, tools: str) -> None:
    policy = commands.folder / "policy.yaml"
    policy.write_text("rules:\n  - {tool: pay, then: ask}\n", encoding="utf-8")
    plan = write_plan(_pay("a", "ann"), _pay("b", "ben"), output="{{b.result}}")
    run_process = await commands.start("run", plan, "--tools", tools, "--policy", str(policy), "--id", "calls-approved")
    await read_line_with(run_process, "b waits for anyone: Approve 'pay'?")
    reject_result = await commands("feedback", "calls-approved", "a", "--reject", "--by", "cy")
    approve_result = await commands(
        "feedback", "calls-approved", "b", "--approve", "--arguments", '{"to": "bob"}', "--by", "cy"
    )
    result = await wait_for_exit(run_process)

    assert [each.code for each in (reject_result, approve_result, result)] == [0, 0, 1]
    assert "rejected by cy" in result.stdout
    assert result.stdout.endswith("paid bob\n")


async def test_plan_is_approved_or_rejected_on_the_terminal(
    commands: CommandLine, write_plan: WritePlan, tools: str
) -> None:
    plan = write_plan(calculation("sum", "1 + 1"), {**_pay("a", "ann"), "depends_on": ["sum"]}, title="Pay ann")
    arguments = ("run", plan, "--tools", tools, "--approve-plan")
    rejected_code, rejected_screen = await commands.run_on_terminal(*arguments, "--id", "not-approved", answers="no\n")
    code, screen = await commands.run_on_terminal(*arguments, "--id", "approved", answers="maybe\nyes\n")
    run_list = await commands("list", "--json")

    expected_lines = [
        "The plan 'Pay ann' has 2 nodes; 1 of them can change something.",
        "- sum: calculator (pure)",
        '! a: pay (write) with {"to":"ann"}, after sum',
    ]
    assert [line in rejected_screen.splitlines() for line in expected_lines] == [True] * 3
    assert (rejected_code, "the plan was not approved; nothing has run" in rejected_screen) == (2, True)
    assert (code, screen.count("Run this plan?"), "paid ann" in screen) == (0, 2, True)
    ids = [run["run_id"] for run in run_list.document["runs"]]
    assert ("approved" in ids, "not-approved" in ids) == (True, False)


async def test_plan_of_a_run_without_a_terminal_is_approved_by_feedback(
    commands: CommandLine, write_plan: WritePlan, tools: str
) -> None:
    plan = write_plan(_pay("a", "ann"))
    run_process = await commands.start("run", plan, "--tools", tools, "--approve-plan", "--id", "approval-by-feedback")
    line = await read_line_with(run_process, "plan waits for anyone: ")
    explain_result = await commands("explain", "approval-by-feedback", "--json")
    code, screen = await commands.run_on_terminal("feedback", "approval-by-feedback", answers="yes\n")
    result = await wait_for_exit(run_process)

    message = "plan waits for anyone: The plan has 1 node; 1 of them can change something."
    assert message in line
    assert explain_result.document["message"] == message
    assert re.search(r'^! a: pay \(write\) with {"to":"ann"}\r?$', screen, re.MULTILINE)
    assert (code, result.code) == (0, 0)
    document = (await commands("result", "approval-by-feedback", "--json")).document
    assert (document["status"], document["nodes"]["a"]["result"]) == ("completed", "paid ann")
