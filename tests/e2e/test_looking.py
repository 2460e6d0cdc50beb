"""`list`, `status`, `result`, `graph`: their output for an existing run, and for an unknown one."""

import asyncio
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.e2e.command import CommandLine
from tests.e2e.conftest import Plans, calculation
from tests.support.server import LiveServer

pytestmark = pytest.mark.server


async def test_commands_that_look_report_the_same_run(command_line: CommandLine, write_plan: Plans) -> None:
    plan = write_plan(
        calculation("a <1>", "1 + 1"),
        calculation("b", "1 / 0", depends_on=["a <1>"]),
        calculation("c", "3", depends_on=["a <1>"]),
        title="Looked at",
    )
    ran = await command_line("run", plan, "--id", "looked-at", "--json")
    listed, status, shown, graph, drawn = await asyncio.gather(
        command_line("list", "--json"),
        command_line("status", "looked-at", "--json"),
        command_line("result", "looked-at"),
        command_line("graph", "looked-at", "--json"),
        command_line("graph", "looked-at", "--format", "svg"),
    )

    assert [end.code for end in (ran, listed, status, shown, graph, drawn)] == [1, 0, 1, 1, 0, 0]
    assert status.document == ran.document
    mine = next(run for run in listed.check_success().document["runs"] if run["run_id"] == "looked-at")
    assert list(mine) == [
        *("run_id", "status", "title", "started_at", "ended_at", "nodes_done", "nodes_total", "session_id"),
        *("error", "tags"),
    ]
    fields = ("status", "title", "nodes_done", "nodes_total")
    assert [mine[name] for name in fields] == ["completed_with_failures", "Looked at", 3, 3]
    assert shown.stdout.endswith('{\n  "c": 3\n}\n')
    assert graph.document == {
        "nodes": [
            {"node_id": "a <1>", "title": None, "status": "completed", "tool": "calculator"},
            {"node_id": "b", "title": None, "status": "failed", "tool": "calculator"},
            {"node_id": "c", "title": None, "status": "completed", "tool": "calculator"},
        ],
        "edges": [["a <1>", "b"], ["a <1>", "c"]],
    }
    texts = [element.text for element in ET.fromstring(drawn.stdout).iter() if element.tag.endswith("}text")]
    assert texts[:3] == ["✓", "a <1>", "calculator"]


async def test_unknown_run_is_reported_in_one_sentence(command_line: CommandLine) -> None:
    result = await command_line("status", "nowhere", "--json")

    assert result.code == 2
    message = result.document["message"]
    assert result.document == {"status": "not_found", "message": message}
    assert message.startswith("there is no run 'nowhere' on the server of /")
    assert result.stderr == f"{message}\n"


async def test_runs_link_to_a_configured_ui(server: LiveServer, tmp_path: Path, write_plan: Plans) -> None:
    own = {"DAGWRIGHT_STATE_DIR": str(tmp_path / "none"), "DAGWRIGHT_TASK_QUEUE": "linked"}
    named = {**server.environment(), "TEMPORAL_ADDRESS": server.address, **own}
    with_link = CommandLine(tmp_path, {**named, "DAGWRIGHT_UI_URL": "https://temporal.example.com/ui/"})
    ran = await with_link("run", write_plan(calculation("a", "1 + 1")), "--id", "linked")
    status = await with_link("status", "linked")
    listed = await with_link("list")
    without_link = await CommandLine(tmp_path, named)("status", "linked")

    runs = "Temporal UI: https://temporal.example.com/ui/namespaces/default/workflows"
    assert [line.startswith(f"{runs}/linked/") for line in ran.stdout.splitlines()[:2]] == [False, True]
    assert status.stdout.splitlines()[1] == ran.stdout.splitlines()[1]
    assert listed.stdout.splitlines()[-1] == runs
    assert [end.stdout.count("Temporal UI") for end in (ran, status, listed, without_link)] == [1, 1, 1, 0]


async def test_list_counts_ended_nodes_and_node_shows_one(command_line: CommandLine, write_plan: Plans) -> None:
    plan = write_plan(
        calculation("a", "2", title="Two"),
        calculation("bad", "1 / 0", depends_on=["a"]),
        calculation("blocked", "3", depends_on=["bad"]),
        calculation("left out", "3", when="a.result > 5"),
        calculation("each", "{{item}}", for_each=[1, 2]),
    )
    await command_line("run", plan, "--id", "counted", "--json")
    listed, whole, node, item, blocked, unknown = await asyncio.gather(
        command_line("list", "--json"),
        command_line("status", "counted", "--json"),
        command_line("node", "counted", "a"),
        command_line("node", "counted", "each[1]", "--json"),
        command_line("node", "counted", "blocked"),
        command_line("node", "counted", "blokced", "--json"),
    )

    mine = next(run for run in listed.check_success().document["runs"] if run["run_id"] == "counted")
    assert (mine["status"], mine["nodes_done"], mine["nodes_total"]) == ("completed_with_failures", 3, 5)
    arguments = {"arguments": {"expression": 2}}
    assert item.document == {"node_id": "each[1]", **whole.document["nodes"]["each[1]"], **arguments}
    lines = [line for line in node.stdout.splitlines() if not line.startswith(("started: ", "ended: "))]
    assert lines == ["a (Two): completed", "tool: calculator", "attempts: 1", "2"]
    assert blocked.stdout.splitlines()[0] == "blocked: blocked"
    error = "dependency_failed: Waiting for dependency: bad failed"
    assert blocked.stdout.endswith(f"needs: bad\nerror: {error}\nblocked by: bad\n")
    message = "the run 'counted' has no node 'blokced'; did you mean 'blocked'?"
    assert (unknown.code, unknown.document) == (2, {"status": "not_found", "message": message})


async def test_items_of_a_large_map_are_shown_by_batch(command_line: CommandLine, write_plan: Plans) -> None:
    plan = write_plan(
        calculation(
            "each", "100 / {{item}}", for_each=list(range(501)), when="item in [0, 300, 500]", retry={"max_attempts": 1}
        )
    )
    ran = await command_line("run", plan, "--id", "chunks")
    result, status, failed, item, counted, gone = await asyncio.gather(
        command_line("node", "chunks", "each"),
        command_line("status", "chunks", "--json"),
        command_line("node", "chunks", "each[0]"),
        command_line("node", "chunks", "each[300]", "--json"),
        command_line("node", "chunks", "each", "--json"),
        command_line("node", "chunks", "each[501]"),
    )

    assert [end.code for end in (ran, result, status, failed, item, counted, gone)] == [1, 0, 1, 0, 0, 0, 2]
    assert list(status.document["nodes"]) == ["each"]
    assert status.document["nodes"]["each"]["items"] == {"completed": 2, "failed": 1, "skipped": 498}
    assert "items: 2 completed, 1 failed, 498 skipped\n" in result.stdout
    assert "1 of 501 items failed; the first: each[0]" in result.stdout
    error = counted.document["failed_items"][0]["error"]
    assert counted.document["failed_items"] == [
        {"batch": "each[0-125]", "run_id": "chunks/each[0-125]", "failed": 1, "first": "each[0]", "error": error}
    ]
    assert f"1 failed in the run chunks/each[0-125], the first each[0]: {error['message']}\n" in result.stdout
    assert failed.stdout.startswith("each[0]: failed\nrun: chunks/each[0-125]\ntool: calculator\n")
    assert (item.document["node_id"], item.document["run_id"]) == ("each[300]", "chunks/each[251-375]")
    assert (item.document["status"], item.document["result"]) == ("completed", 0.333333333333333)
    assert gone.stderr == "the run 'chunks' has no node 'each[501]'; did you mean 'each'?\n"


async def test_untitled_plan_is_listed_by_its_file_name(command_line: CommandLine, write_plan: Plans) -> None:
    plan = write_plan(calculation("a", "1 + 1"), name="adding.json")
    ran = await command_line("run", plan, "--id", "untitled", "--json")
    result = await command_line("list", "--json")

    assert ran.document["title"] is None
    assert [run["title"] for run in result.check_success().document["runs"] if run["run_id"] == "untitled"] == [
        "adding.json"
    ]
