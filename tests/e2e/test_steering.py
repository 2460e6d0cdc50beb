"""An operator steers a run with commands: `pause`, `limits`, `policy`, `cancel`, `retry`, `set-result`, `add-nodes`."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from dagwright.interfaces.cli.command_arguments import account_name
from tests.e2e.command import CommandLine, line_with, wait_for_exit
from tests.e2e.conftest import Plans, calculation, pause
from tests.support.eventually import eventually

pytestmark = pytest.mark.server


async def _nodes(command_line: CommandLine, run: str) -> dict[str, Any]:
    status = await command_line("status", run, "--json")
    found: dict[str, Any] = status.document.get("nodes", {})
    return found


async def _is(command_line: CommandLine, run: str, **states: str) -> None:
    async def has_states() -> bool:
        nodes = await _nodes(command_line, run)
        return all(name in nodes and nodes[name]["status"] == state for name, state in states.items())

    await eventually(has_states)


async def test_run_is_repaired_while_it_continues(command_line: CommandLine, write_plan: Plans, tmp_path: Path) -> None:
    plan = write_plan(
        calculation("sum", "1 / 0"),
        calculation("after", "{{sum.result}} + 1"),
        pause("long", "1h"),
        calculation("last", "2", depends_on=["long"]),
    )
    run = await command_line.start("run", plan, "--id", "repaired")
    await _is(command_line, "repaired", after="blocked", long="running")

    invalid_result = await command_line("retry", "repaired", "--node", "som", "--json")
    running = await command_line("set-result", "repaired", "5", "--node", "long", "--json")
    no_json = await command_line("set-result", "repaired", "five", "--node", "sum", "--json")
    other = ("--arguments", '{"expression": "2 * 3"}', "--by", "ann")
    retried = await command_line("retry", "repaired", "--node", "sum", *other)
    await _is(command_line, "repaired", after="completed")

    more = tmp_path / "more.json"
    more.write_text(json.dumps([calculation("more", "{{sum.result}} * 10"), {"id": "bad", "tool": "calculater"}]))
    rejected_result = await command_line("add-nodes", "repaired", str(more), "--json")
    more.write_text(json.dumps({"plan": 1, "nodes": [calculation("more", "{{sum.result}} * 10")]}))
    added = await command_line("add-nodes", "repaired", str(more), "--by", "ann", "--json")
    await _is(command_line, "repaired", more="completed")

    branch = ("--node", "long", "--branch", "--reason", "enough", "--by", "ann", "--json")
    cancelled = await command_line("cancel", "repaired", *branch)
    result = await wait_for_exit(run)
    late = await command_line("retry", "repaired", "--node", "long", "--json")

    expected = (2, {"run_id": "repaired", "ok": False, "message": "the run has no node 'som'; did you mean 'sum'?"})
    assert (invalid_result.code, invalid_result.document) == expected
    assert (running.code, running.document["message"]) == (2, "'long' is running; cancel it first")
    assert (no_json.code, no_json.document["status"]) == (2, "bad_usage")
    assert (retried.code, retried.stdout) == (0, "repaired: 'sum' is retried with these arguments, as a new node\n")
    assert rejected_result.code == 2
    problems = [(error["code"], error["pointer"]) for error in rejected_result.document["errors"]]
    assert problems == [("unknown_tool", "/nodes/1/tool")]
    assert (added.code, added.document) == (0, {"run_id": "repaired", "ok": True, "message": "one node was added"})
    assert (cancelled.code, cancelled.document["ok"]) == (0, True)
    assert result.code == 1
    message = "the run 'repaired' has ended; `fork` starts a new run that reuses its results"
    assert (late.code, late.document) == (2, {"run_id": "repaired", "ok": False, "message": message})
    table = (await command_line("status", "repaired")).stdout
    (row,) = [line for line in table.splitlines() if " more " in line]
    assert row.rstrip().endswith("added to the plan by ann")
    assert "\nmanual: add nodes by ann at " in (await command_line("node", "repaired", "more")).stdout
    nodes = await _nodes(command_line, "repaired")
    assert {name: (node["status"], node["result"]) for name, node in nodes.items()} == {
        **{"sum": ("superseded", None), "sum#2": ("completed", 6), "after": ("completed", 7)},
        **{"long": ("cancelled", None), "last": ("cancelled", None), "more": ("completed", 60)},
    }
    assert nodes["sum#2"]["supersedes"] == "sum"
    assert [step["by"] for name in ("sum#2", "long", "more") for step in nodes[name]["lineage"]["overrides"]] == [
        "ann"
    ] * 3


async def test_json_that_no_history_could_hold_and_empty_ids_are_refused(command_line: CommandLine) -> None:
    deep = "[" * 9_000 + "]" * 9_000
    ends = [
        await command_line(*words, "--json")
        for words in (
            *(("set-result", "nowhere", value, "--node", "sum") for value in ('"\\ud800"', deep, "1e999")),
            ("pause", ""),
            ("feedback", "", "check", "--approve"),
        )
    ]
    messages = [end.document["message"] for end in ends]
    assert [end.code for end in ends] == [2] * 5
    assert all(message.startswith("set-result must be JSON, not '") for message in messages[:3])
    assert all(message.startswith("there is no run ''") for message in messages[3:])


async def test_node_of_a_sub_plan_is_steered_by_its_path(command_line: CommandLine, write_plan: Plans) -> None:
    nodes = [calculation("sum", "1 / 0"), calculation("double", "{{sum.result}} * 2"), pause("long", "1h")]
    below = {"plan": 1, "nodes": nodes}
    plan = write_plan({"id": "archive", "plan": {**below, "output": "{{double.result}}"}})
    run = await command_line.start("run", plan, "--id", "mended_above")
    await _is(command_line, "mended_above/archive", double="blocked", long="running")
    given = await command_line("set-result", "mended_above", "4", "--node", "archive/sum", "--json")
    await _is(command_line, "mended_above/archive", double="completed")
    stopped = await command_line("cancel", "mended_above", "--node", "archive/long", "--json")
    end = await wait_for_exit(run)
    assert given.document["message"] == "the result of 'sum' is set"
    assert (stopped.document["ok"], end.code) == (True, 0)
    assert (await _nodes(command_line, "mended_above"))["archive"]["result"] == 8
    shown = await command_line("node", "mended_above", "archive/sum", "--json")
    result = await command_line("node", "mended_above", "archive/sum")
    table = await command_line("status", "mended_above/archive")
    missing = await command_line("node", "mended_above", "archive/som", "--json")
    assert (shown.document["node_id"], shown.document["run_id"]) == ("archive/sum", "mended_above/archive")
    assert (shown.document["result"], result.stdout.splitlines()[0]) == (4, "archive/sum: completed")
    assert f"\nmanual: set result by {account_name()} at " in result.stdout
    (line,) = [line for line in table.stdout.splitlines() if " sum " in line]
    assert line.rstrip().endswith(f"result set manually by {account_name()}")
    message = "the run 'mended_above/archive' has no node 'som'; did you mean 'sum'?"
    assert (missing.code, missing.document) == (2, {"status": "not_found", "message": message})


async def test_running_run_is_steered(command_line: CommandLine, write_plan: Plans, tmp_path: Path) -> None:
    plan = write_plan(pause("long", "1h"), calculation("last", "2", depends_on=["long"]))
    run = await command_line.start("run", plan, "--id", "governed", "--deadline", "2h")
    await _is(command_line, "governed", long="running")

    paused = await command_line("pause", "governed", "--reason", "too early", "--by", "ann")
    twice = await command_line("pause", "governed", "--json")
    raised = await command_line("limits", "governed", "--max-parallel", "3", "--deadline", "4h", "--by", "ann")
    past = await command_line("limits", "governed", "--deadline", "1ms", "--json")
    odd = await command_line("limits", "governed", "--deadline", "soon")
    shown = await command_line("limits", "governed", "--json")
    (tmp_path / "policy.yaml").write_text("otherwise: ask\n")
    changed = await command_line("policy", "governed", str(tmp_path / "policy.yaml"), "--by", "ann")
    policy = await command_line("policy", "governed", "--json")
    under_way = await command_line("status", "governed", "--json")
    resumed = await command_line("resume", "governed", "--by", "bob")
    cancelled = await command_line("cancel", "governed", "--reason", "enough", "--by", "ann")
    result = await wait_for_exit(run)
    late = await command_line("limits", "governed", "--max-parallel", "3", "--json")
    document = (await command_line("result", "governed", "--json")).document

    assert [done.stdout for done in (paused, raised, changed, resumed, cancelled)] == [
        "governed: the run is paused; running nodes finish\n",
        "governed: the run now has max_parallel 3 and deadline 4h\n",
        "governed: the policy is changed\n",
        "governed: the run continues\n",
        "governed: the run is being stopped\n",
    ]
    assert [done.code for done in (paused, twice, past, odd, late, cancelled, result)] == [0, 2, 2, 2, 2, 0, 3]
    assert twice.document["message"] == "the run is paused already, paused by ann: too early"
    assert past.document["message"].startswith("the run started ")
    assert odd.stderr.startswith("--deadline must be a duration such as 4h, or none: ")
    assert (shown.document["max_parallel"], shown.document["deadline"] is None) == (3, False)
    assert policy.document == {"run_id": "governed", "policy": {"rules": [], "otherwise": "ask"}}
    notes = [
        "paused by ann: too early",
        "max_parallel 3 and deadline 4h set by ann",
        "policy changed by ann",
        "nothing new starts: paused by ann",
    ]
    assert [note["message"] for note in under_way.document["notes"]] == notes
    ends = ["resumed by bob", "cancelled by ann: enough"]
    assert [note["message"] for note in document["notes"]] == [*notes[:3], *ends]


async def test_run_without_a_worker_is_steered_by_signal(command_line: CommandLine, write_plan: Plans) -> None:
    plan = write_plan({"id": "check", "human": {"type": "APPROVAL", "prompt": "Go on?", "assignee": "ann"}})
    run = await command_line.start("run", plan, "--id", "nobody-serves")
    await line_with(run, "check waits for ann")
    run.send_signal(signal.SIGKILL)
    await wait_for_exit(run)

    limited = await command_line("limits", "nobody-serves", "--deadline", "none", "--by", "ann")
    left = await command_line("cancel", "nobody-serves", "--reason", "enough", "--by", "ann")
    second_result = await command_line("cancel", "nobody-serves")
    watched = await command_line("watch", "nobody-serves", "--json")

    message = (
        "no worker responded within 3 s, so the command was sent as a signal; it is applied as soon as a worker serves "
        "the run; `dagwright watch nobody-serves` starts a worker"
    )
    assert [(done.code, done.stdout) for done in (limited, left)] == [(0, f"nobody-serves: {message}\n")] * 2
    assert (second_result.code, second_result.stderr) == (2, "the run is being stopped already\n")
    assert (watched.code, watched.document["status"]) == (3, "cancelled")
    expected = ["no deadline set by ann", "cancelled by ann: enough"]
    assert [note["message"] for note in watched.document["notes"]] == expected
