"""The output of `list`, `status`, `result`, `graph` and `node` for a run, and for an unknown run or node."""

import xml.etree.ElementTree as ET
from asyncio import gather
from pathlib import Path

import pytest

from tests.e2e.command import CommandLine
from tests.e2e.conftest import WritePlan, calculation
from tests.support.server import LiveServer

pytestmark = pytest.mark.server


async def test_commands_that_read_a_run_report_the_same_run(commands: CommandLine, write_plan: WritePlan) -> None:
    plan = write_plan(
        calculation("a <1>", "1 + 1"),
        calculation("b", "1 / 0", depends_on=["a <1>"]),
        calculation("c", "3", depends_on=["a <1>"]),
        title="Read",
    )
    run_result = await commands("run", plan, "--id", "read-run", "--json")
    list_result, status_result, text_result, graph_result, svg_result = await gather(
        commands("list", "--json"),
        commands("status", "read-run", "--json"),
        commands("result", "read-run"),
        commands("graph", "read-run", "--json"),
        commands("graph", "read-run", "--format", "svg"),
    )

    assert [each.code for each in (run_result, status_result, text_result)] == [1, 1, 1]
    assert [each.code for each in (list_result, graph_result, svg_result)] == [0, 0, 0]
    assert status_result.document == run_result.document
    listed_run = next(run for run in list_result.check_success().document["runs"] if run["run_id"] == "read-run")
    assert list(listed_run) == [
        *("run_id", "status", "title", "started_at", "ended_at", "nodes_done", "nodes_total", "session_id"),
        *("error", "tags"),
    ]
    fields = ("status", "title", "nodes_done", "nodes_total")
    assert [listed_run[name] for name in fields] == ["completed_with_failures", "Read", 3, 3]
    assert text_result.stdout.endswith('{\n  "c": 3\n}\n')
    nodes = [
        {"node_id": name, "title": None, "status": status, "tool": "calculator"}
        for name, status in (("a <1>", "completed"), ("b", "failed"), ("c", "completed"))
    ]
    assert graph_result.document == {"nodes": nodes, "edges": [["a <1>", "b"], ["a <1>", "c"]]}
    texts = [element.text for element in ET.fromstring(svg_result.stdout).iter() if element.tag.endswith("}text")]
    assert texts[:3] == ["✓", "a <1>", "calculator"]


async def test_unknown_run_is_reported_in_one_sentence(commands: CommandLine) -> None:
    result = await commands("status", "nowhere", "--json")

    assert result.code == 2
    message = result.document["message"]
    assert result.document == {"code": "not_found", "message": message}
    assert message.startswith("there is no run 'nowhere' on the server of /")
    assert result.stderr == f"{message}\n"


async def test_runs_link_to_a_configured_ui(server: LiveServer, tmp_path: Path, write_plan: WritePlan) -> None:
    variables = {"DAGWRIGHT_STATE_DIR": str(tmp_path / "none"), "DAGWRIGHT_TASK_QUEUE": "linked"}
    environment = {**server.environment(), "TEMPORAL_ADDRESS": server.address, **variables}
    commands_with_link = CommandLine(tmp_path, {**environment, "DAGWRIGHT_UI_URL": "https://temporal.example.com/ui/"})
    run_result = await commands_with_link("run", write_plan(calculation("a", "1 + 1")), "--id", "linked")
    status_result = await commands_with_link("status", "linked")
    list_result = await commands_with_link("list")
    result_without_link = await CommandLine(tmp_path, environment)("status", "linked")

    runs_link = "Temporal UI: https://temporal.example.com/ui/namespaces/default/workflows"
    assert [line.startswith(f"{runs_link}/linked/") for line in run_result.stdout.splitlines()[:2]] == [False, True]
    assert status_result.stdout.splitlines()[1] == run_result.stdout.splitlines()[1]
    assert list_result.stdout.splitlines()[-1] == runs_link
    results = (run_result, status_result, list_result, result_without_link)
    assert [each.stdout.count("Temporal UI") for each in results] == [1, 1, 1, 0]


async def test_list_counts_executed_nodes_and_the_command_node_shows_a_node(
    commands: CommandLine, write_plan: WritePlan
) -> None:
    plan = write_plan(
        calculation("a", "2", title="Two"),
        calculation("bad", "1 / 0", depends_on=["a"]),
        calculation("blocked", "3", depends_on=["bad"]),
        calculation("skipped", "3", when="a.result > 5"),
        calculation("each", "{{item}}", for_each=[1, 2]),
    )
    await commands("run", plan, "--id", "counted", "--json")
    list_result, status_result, node_result, item_result, blocked_result, unknown_node_result = await gather(
        commands("list", "--json"),
        commands("status", "counted", "--json"),
        commands("node", "counted", "a"),
        commands("node", "counted", "each[1]", "--json"),
        commands("node", "counted", "blocked"),
        commands("node", "counted", "blokced", "--json"),
    )

    listed_run = next(run for run in list_result.check_success().document["runs"] if run["run_id"] == "counted")
    assert listed_run["status"] == "completed_with_failures"
    # `nodes_done` counts completed and failed nodes, but no skipped or blocked nodes.
    assert listed_run["nodes_done"] == 3
    assert listed_run["nodes_total"] == 5
    arguments = {"arguments": {"expression": 2}}
    assert item_result.document == {"node_id": "each[1]", **status_result.document["nodes"]["each[1]"], **arguments}
    lines = [line for line in node_result.stdout.splitlines() if not line.startswith(("started: ", "ended: "))]
    assert lines == ["a (Two): completed", "tool: calculator", "attempts: 1", "2"]
    assert blocked_result.stdout.splitlines()[0] == "blocked: blocked"
    error = "dependency_failed: Waiting for dependency: bad failed"
    assert blocked_result.stdout.endswith(f"needs: bad\nerror: {error}\nblocked by: bad\n")
    message = "the run 'counted' has no node 'blokced'; did you mean 'blocked'?"
    assert (unknown_node_result.code, unknown_node_result.document) == (2, {"code": "not_found", "message": message})


async def test_items_of_a_large_map_are_shown_by_batch(commands: CommandLine, write_plan: WritePlan) -> None:
    map_fields = {"for_each": list(range(501)), "when": "item in [0, 300, 500]", "retry": {"max_attempts": 1}}
    plan = write_plan(calculation("each", "100 / {{item}}", **map_fields))
    run_result = await commands("run", plan, "--id", "batches")
    node_result, node_json_result, status_result, failed_item_result, item_result, unknown_item_result = await gather(
        commands("node", "batches", "each"),
        commands("node", "batches", "each", "--json"),
        commands("status", "batches", "--json"),
        commands("node", "batches", "each[0]"),
        commands("node", "batches", "each[300]", "--json"),
        commands("node", "batches", "each[501]"),
    )

    assert [each.code for each in (run_result, status_result, unknown_item_result)] == [1, 1, 2]
    assert [each.code for each in (node_result, node_json_result, failed_item_result, item_result)] == [0, 0, 0, 0]
    assert list(status_result.document["nodes"]) == ["each"]
    assert status_result.document["nodes"]["each"]["items"] == {"completed": 2, "failed": 1, "skipped": 498}
    assert "items: 2 completed, 1 failed, 498 skipped\n" in node_result.stdout
    assert "1 of 501 items failed; the first: each[0]" in node_result.stdout
    error = node_json_result.document["failed_items"][0]["error"]
    assert node_json_result.document["failed_items"] == [
        {"batch": "each[0-125]", "run_id": "batches/each[0-125]", "failed": 1, "first": "each[0]", "error": error}
    ]
    assert f"1 failed in the run batches/each[0-125], the first each[0]: {error['message']}\n" in node_result.stdout
    assert failed_item_result.stdout.startswith("each[0]: failed\nrun: batches/each[0-125]\ntool: calculator\n")
    assert (item_result.document["node_id"], item_result.document["run_id"]) == ("each[300]", "batches/each[251-375]")
    assert (item_result.document["status"], item_result.document["result"]) == ("completed", 0.333333333333333)
    assert unknown_item_result.stderr == "the run 'batches' has no node 'each[501]'; did you mean 'each'?\n"


async def test_untitled_plan_is_listed_by_its_file_name(commands: CommandLine, write_plan: WritePlan) -> None:
    plan = write_plan(calculation("a", "1 + 1"), name="adding.json")
    run_result = await commands("run", plan, "--id", "untitled", "--json")
    list_result = await commands("list", "--json")

    assert run_result.document["title"] is None
    runs = list_result.check_success().document["runs"]
    assert [run["title"] for run in runs if run["run_id"] == "untitled"] == ["adding.json"]
