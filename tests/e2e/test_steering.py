"""An operator steers a run with commands: `pause`, `limits`, `policy`, `cancel`, `retry`, `set-result`, `add-nodes`."""

import json
from pathlib import Path
from typing import Any

import pytest

from dagwright.interfaces.cli.command_arguments import account_name
from tests.e2e.command import CommandLine, kill_process, read_line_with, wait_for_exit
from tests.e2e.conftest import WritePlan, calculation, wait_node
from tests.support.eventually import eventually

pytestmark = pytest.mark.server


async def _read_nodes(commands: CommandLine, run_id: str) -> dict[str, Any]:
    return dict((await commands("status", run_id, "--json")).document.get("nodes", {}))


async def _wait_for_states(commands: CommandLine, run_id: str, **states: str) -> None:
    async def has_states() -> bool:
        nodes = await _read_nodes(commands, run_id)
        return all(name in nodes and nodes[name]["status"] == state for name, state in states.items())

    await eventually(has_states)


async def test_run_is_repaired_while_it_continues(commands: CommandLine, write_plan: WritePlan, tmp_path: Path) -> None:
    plan = write_plan(
        calculation("sum", "1 / 0"),
        calculation("after", "{{sum.result}} + 1"),
        wait_node("long", "1h"),
        calculation("last", "2", depends_on=["long"]),
    )
    run_process = await commands.start("run", plan, "--id", "repaired")
    await _wait_for_states(commands, "repaired", after="blocked", long="running")

    invalid_result = await commands("retry", "repaired", "--node", "som", "--json")
    running_node_result = await commands("set-result", "repaired", "5", "--node", "long", "--json")
    invalid_json_result = await commands("set-result", "repaired", "five", "--node", "sum", "--json")
    options = ("--arguments", '{"expression": "2 * 3"}', "--by", "ann")
    retry_result = await commands("retry", "repaired", "--node", "sum", *options)
    await _wait_for_states(commands, "repaired", after="completed")

    nodes_file = tmp_path / "more.json"
    nodes_file.write_text(json.dumps([calculation("more", "{{sum.result}} * 10"), {"id": "bad", "tool": "calculater"}]))
    rejected_result = await commands("add-nodes", "repaired", str(nodes_file), "--json")
    nodes_file.write_text(json.dumps({"plan": 1, "nodes": [calculation("more", "{{sum.result}} * 10")]}))
    add_result = await commands("add-nodes", "repaired", str(nodes_file), "--by", "ann", "--json")
    await _wait_for_states(commands, "repaired", more="completed")

    branch_options = ("--node", "long", "--branch", "--reason", "enough", "--by", "ann", "--json")
    cancel_result = await commands("cancel", "repaired", *branch_options)
    run_result = await wait_for_exit(run_process)
    late_retry_result = await commands("retry", "repaired", "--node", "long", "--json")

    expected = (
        2,
        {
            "run_id": "repaired",
            "ok": False,
            "code": "command_rejected",
            "message": "the run has no node 'som'; did you mean 'sum'?",
        },
    )
    assert (invalid_result.code, invalid_result.document) == expected
    assert running_node_result.code == 2
    assert running_node_result.document["message"] == "'long' is running; cancel it first"
    assert (invalid_json_result.code, invalid_json_result.document["code"]) == (2, "invalid_value")
    assert retry_result.code == 0
    assert retry_result.stdout == "repaired: 'sum' is retried with these arguments, as a new node\n"
    assert rejected_result.code == 2
    problems = [(error["code"], error["pointer"]) for error in rejected_result.document["errors"]]
    assert problems == [("unknown_tool", "/nodes/1/tool")]
    assert add_result.code == 0
    assert add_result.document == {"run_id": "repaired", "ok": True, "message": "one node was added"}
    assert (cancel_result.code, cancel_result.document["ok"]) == (0, True)
    assert run_result.code == 1
    message = "the run 'repaired' has ended; `fork` starts a new run that reuses its results"
    assert late_retry_result.code == 2
    assert late_retry_result.document == {"run_id": "repaired", "ok": False, "code": "run_ended", "message": message}
    table = (await commands("status", "repaired")).stdout
    (row,) = [line for line in table.splitlines() if " more " in line]
    assert row.rstrip().endswith("added to the plan by ann")
    assert "\nmanual: add nodes by ann at " in (await commands("node", "repaired", "more")).stdout
    nodes = await _read_nodes(commands, "repaired")
    assert {name: (node["status"], node["result"]) for name, node in nodes.items()} == {
        **{"sum": ("superseded", None), "sum#2": ("completed", 6), "after": ("completed", 7)},
        **{"long": ("cancelled", None), "last": ("cancelled", None), "more": ("completed", 60)},
    }
    assert nodes["sum#2"]["supersedes"] == "sum"
    overrides = [step for name in ("sum#2", "long", "more") for step in nodes[name]["lineage"]["overrides"]]
    assert [step["by"] for step in overrides] == ["ann"] * 3


async def test_json_that_cannot_be_stored_and_empty_ids_are_rejected(commands: CommandLine) -> None:
    nested_json = "[" * 9_000 + "]" * 9_000
    results = [
        await commands(*arguments, "--json")
        for arguments in (
            *(("set-result", "nowhere", value, "--node", "sum") for value in ('"\\ud800"', nested_json, "1e999")),
            ("pause", ""),
            ("feedback", "", "check", "--approve"),
        )
    ]
    messages = [each.document["message"] for each in results]
    assert [each.code for each in results] == [2] * 5
    assert all(message.startswith("set-result must be JSON, not '") for message in messages[:3])
    assert all(message.startswith("there is no run ''") for message in messages[3:])


async def test_node_of_a_sub_plan_is_steered_by_its_path(commands: CommandLine, write_plan: WritePlan) -> None:
    nodes = [calculation("sum", "1 / 0"), calculation("double", "{{sum.result}} * 2"), wait_node("long", "1h")]
    sub_plan = {"plan": 1, "nodes": nodes}
    plan = write_plan({"id": "archive", "plan": {**sub_plan, "output": "{{double.result}}"}})
    run_process = await commands.start("run", plan, "--id", "repaired_parent")
    await _wait_for_states(commands, "repaired_parent/archive", double="blocked", long="running")
    set_result = await commands("set-result", "repaired_parent", "4", "--node", "archive/sum", "--json")
    await _wait_for_states(commands, "repaired_parent/archive", double="completed")
    cancel_result = await commands("cancel", "repaired_parent", "--node", "archive/long", "--json")
    run_result = await wait_for_exit(run_process)
    assert set_result.document["message"] == "the result of 'sum' is set"
    assert (cancel_result.document["ok"], run_result.code) == (True, 0)
    assert (await _read_nodes(commands, "repaired_parent"))["archive"]["result"] == 8
    node_json_result = await commands("node", "repaired_parent", "archive/sum", "--json")
    node_text_result = await commands("node", "repaired_parent", "archive/sum")
    table_result = await commands("status", "repaired_parent/archive")
    missing_node_result = await commands("node", "repaired_parent", "archive/som", "--json")
    assert (node_json_result.document["node_id"], node_json_result.document["run_id"]) == (
        "archive/sum",
        "repaired_parent/archive",
    )
    assert (node_json_result.document["result"], node_text_result.stdout.splitlines()[0]) == (
        4,
        "archive/sum: completed",
    )
    assert f"\nmanual: set result by {account_name()} at " in node_text_result.stdout
    (line,) = [line for line in table_result.stdout.splitlines() if " sum " in line]
    assert line.rstrip().endswith(f"result set manually by {account_name()}")
    message = "the run 'repaired_parent/archive' has no node 'som'; did you mean 'sum'?"
    assert (missing_node_result.code, missing_node_result.document) == (2, {"code": "not_found", "message": message})


async def test_run_is_paused_limited_and_cancelled_while_it_runs(
    commands: CommandLine, write_plan: WritePlan, tmp_path: Path
) -> None:
    plan = write_plan(wait_node("long", "1h"), calculation("last", "2", depends_on=["long"]))
    run_process = await commands.start("run", plan, "--id", "limited", "--deadline", "2h")
    await _wait_for_states(commands, "limited", long="running")

    pause_result = await commands("pause", "limited", "--reason", "too early", "--by", "ann")
    second_pause_result = await commands("pause", "limited", "--json")
    limits_result = await commands("limits", "limited", "--max-parallel", "3", "--deadline", "4h", "--by", "ann")
    past_deadline_result = await commands("limits", "limited", "--deadline", "1ms", "--json")
    invalid_deadline_result = await commands("limits", "limited", "--deadline", "soon")
    current_limits_result = await commands("limits", "limited", "--json")
    (tmp_path / "policy.yaml").write_text("otherwise: ask\n")
    policy_result = await commands("policy", "limited", str(tmp_path / "policy.yaml"), "--by", "ann")
    current_policy_result = await commands("policy", "limited", "--json")
    status_result = await commands("status", "limited", "--json")
    resume_result = await commands("resume", "limited", "--by", "bob")
    cancel_result = await commands("cancel", "limited", "--reason", "enough", "--by", "ann")
    run_result = await wait_for_exit(run_process)
    late_limits_result = await commands("limits", "limited", "--max-parallel", "3", "--json")
    document = (await commands("result", "limited", "--json")).document

    assert [each.stdout for each in (pause_result, limits_result, policy_result, resume_result, cancel_result)] == [
        "limited: the run is paused; running nodes finish\n",
        "limited: the run now has max_parallel 3 and deadline 4h\n",
        "limited: the policy is changed\n",
        "limited: the run continues\n",
        "limited: the run is being stopped\n",
    ]
    rejected_results = (second_pause_result, past_deadline_result, invalid_deadline_result, late_limits_result)
    assert [each.code for each in rejected_results] == [2, 2, 2, 2]
    assert [each.code for each in (pause_result, cancel_result, run_result)] == [0, 0, 3]
    assert second_pause_result.document["message"] == "the run is paused already, paused by ann: too early"
    assert past_deadline_result.document["message"].startswith("the run started ")
    assert invalid_deadline_result.stderr.startswith("--deadline must be a duration such as 4h, or none: ")
    assert current_limits_result.document["max_parallel"] == 3
    assert current_limits_result.document["deadline"] is not None
    assert current_policy_result.document == {"run_id": "limited", "policy": {"rules": [], "otherwise": "ask"}}
    notes = [
        "paused by ann: too early",
        "max_parallel 3 and deadline 4h set by ann",
        "policy changed by ann",
        "nothing new starts: paused by ann",
    ]
    assert [note["message"] for note in status_result.document["notes"]] == notes
    end_notes = ["resumed by bob", "cancelled by ann: enough"]
    assert [note["message"] for note in document["notes"]] == [*notes[:3], *end_notes]


async def test_run_without_a_worker_is_steered_by_signal(commands: CommandLine, write_plan: WritePlan) -> None:
    plan = write_plan({"id": "check", "human": {"type": "APPROVAL", "prompt": "Continue?", "assignee": "ann"}})
    run_process = await commands.start("run", plan, "--id", "unserved-run")
    await read_line_with(run_process, "check waits for ann")
    await kill_process(run_process)

    limits_result = await commands("limits", "unserved-run", "--deadline", "none", "--by", "ann")
    cancel_result = await commands("cancel", "unserved-run", "--reason", "enough", "--by", "ann")
    second_result = await commands("cancel", "unserved-run")
    watch_result = await commands("watch", "unserved-run", "--json")

    message = (
        "no worker responded within 3 s, so the command was sent as a signal; it is applied as soon as a worker serves "
        "the run; `dagwright watch unserved-run` starts a worker"
    )
    for each in (limits_result, cancel_result):
        assert (each.code, each.stdout) == (0, f"unserved-run: {message}\n")
    assert (second_result.code, second_result.stderr) == (2, "the run is being stopped already\n")
    assert (watch_result.code, watch_result.document["status"]) == (3, "cancelled")
    expected = ["no deadline set by ann", "cancelled by ann: enough"]
    assert [note["message"] for note in watch_result.document["notes"]] == expected
