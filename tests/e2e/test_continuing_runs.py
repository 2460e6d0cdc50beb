"""A run outlives the command that started it: other commands watch, cancel, continue and finish the run."""

import signal
from pathlib import Path
from typing import Any

import pytest

from dagwright.server import Daemon
from tests.e2e.command import CommandLine, kill_process, read_line_with, wait_for_exit
from tests.e2e.conftest import WritePlan, calculation, wait_node
from tests.support.eventually import eventually

pytestmark = pytest.mark.server

_TOOLS = '''
from pathlib import Path
from dagwright.tools import tool

@tool(effects="idempotent")
def mark(name: str) -> str:
    """Writes a line, so that a test can count the calls."""
    with (Path(__file__).parent / "marks.txt").open("a") as marks:
        marks.write(f"{name}\\n")
    return name
'''


def _mark(name: str, **fields: Any) -> dict[str, Any]:
    return {"id": name, "tool": "mark", "arguments": {"name": name}, **fields}


async def test_run_is_watched_and_cancelled_from_other_terminals(commands: CommandLine, write_plan: WritePlan) -> None:
    plan = write_plan(calculation("first", "1 + 1"), wait_node("long", "10m", depends_on=["first"]))
    run_process = await commands.start("run", plan, "--id", "steered")
    await read_line_with(run_process, "running    long")
    watch_process = await commands.start("watch", "steered", "--no-worker")
    await read_line_with(watch_process, "completed  first")

    cancel_result = await commands("cancel", "steered", "--reason", "changed my mind", "--by", "ann", "--json")
    results = [await wait_for_exit(run_process), await wait_for_exit(watch_process)]
    document = (await commands("result", "steered", "--json")).document

    assert (cancel_result.code, cancel_result.document["ok"]) == (0, True)
    assert [each.code for each in results] == [3, 3]
    states = {name: node["status"] for name, node in document["nodes"].items()}
    assert states == {"first": "completed", "long": "cancelled"}
    assert [note["message"] for note in document["notes"]] == ["cancelled by ann: changed my mind"]

    repeated_result = await commands("cancel", "steered", "--json")
    message = "the run 'steered' has ended"
    assert (repeated_result.code, repeated_result.stderr) == (2, f"{message}\n")
    assert repeated_result.document == {"run_id": "steered", "ok": False, "code": "run_ended", "message": message}


async def test_same_command_finishes_an_interrupted_run(commands: CommandLine, write_plan: WritePlan) -> None:
    plan = write_plan(calculation("first", "1 + 1"), wait_node("long", "3s", depends_on=["first"]))
    run_process = await commands.start("run", plan, "--id", "interrupted")
    await read_line_with(run_process, "completed  first")
    run_process.send_signal(signal.SIGINT)
    result = await wait_for_exit(run_process)
    status_result = await commands("status", "interrupted", "--json")

    assert result.code == 130
    assert result.stderr.startswith("the run interrupted has not ended: `dagwright watch interrupted` continues it")
    assert "Traceback" not in result.stderr
    assert (status_result.code, status_result.document["nodes"]["first"]["status"]) == (0, "completed")

    repeated_result = await commands("run", plan, "--id", "interrupted", "--json")
    assert (repeated_result.code, repeated_result.document["status"]) == (0, "completed")


async def test_ended_run_of_a_renamed_tool_is_found_and_a_new_run_needs_the_new_name(
    commands: CommandLine, write_plan: WritePlan, tmp_path: Path
) -> None:
    (tmp_path / "marking.py").write_text(_TOOLS, encoding="utf-8")
    plan = write_plan(_mark("only"))
    first_result = await commands("run", plan, "--id", "renamed", "--tools", "marking.py")
    renamed_tools = _TOOLS.replace("def mark", "def record").replace('"idempotent"', '"idempotent", aliases=["mark"]')
    (tmp_path / "marking.py").write_text(renamed_tools, encoding="utf-8")

    repeated_result = await commands("run", plan, "--id", "renamed", "--tools", "marking.py", "--json")
    new_run_result = await commands("run", plan, "--id", "not-renamed", "--tools", "marking.py")

    assert first_result.code == 0
    assert repeated_result.code == 0
    assert repeated_result.document["nodes"]["only"]["result"] == "only"
    assert (new_run_result.code, "there is no tool 'mark'" in new_run_result.stderr) == (2, True)
    assert (tmp_path / "marks.txt").read_text(encoding="utf-8") == "only\n"


@pytest.mark.fresh
async def test_detached_run_completes_and_down_ends_all_processes(
    commands_that_start_a_server: CommandLine, write_plan: WritePlan, tmp_path: Path
) -> None:
    (tmp_path / "marking.py").write_text(_TOOLS, encoding="utf-8")
    plan = write_plan(_mark("only"))
    options = ("--id", "detached", "--detach", "--tools", "marking.py", "--json")
    run_result = await commands_that_start_a_server("run", plan, *options)
    assert (run_result.code, run_result.document["run_id"], run_result.document["ok"]) == (0, "detached", True)

    # Only the first command and its worker have to run in new interpreters, so the next commands are forked.
    forked_commands = CommandLine(tmp_path, commands_that_start_a_server.environment)
    await eventually((tmp_path / "marks.txt").exists)
    watch_result = await forked_commands("watch", "detached", "--no-worker", "--json")
    assert (watch_result.code, watch_result.document["output"], watch_result.stderr) == (0, {"only": "only"}, "")

    # `down` sends the search server no requests, only a signal, so a `sleep` process can replace it.
    search = Daemon(commands_that_start_a_server.folder / "state", "search")
    await search.start(["sleep", "600"])
    down_result = await forked_commands("down", "--json")
    down_result.check_success()
    assert [name.partition("-")[0] for name in down_result.document["ended"]] == ["worker", "server", "search"]
    assert not search.is_running()
    second_down_result = await forked_commands("down")
    assert (second_down_result.code, second_down_result.stdout) == (0, "nothing was running here\n")


async def test_up_is_idempotent_and_down_stops_the_server(
    commands_that_start_a_server: CommandLine, write_plan: WritePlan
) -> None:
    first_result = await commands_that_start_a_server("up", "--json")
    second_result = await commands_that_start_a_server("up", "--json")
    assert (first_result.code, first_result.document["status"]) == (0, "up")
    assert second_result.document == first_result.document

    run_result = await commands_that_start_a_server("run", write_plan(calculation("a", "2 + 2")), "--json")
    assert (run_result.code, run_result.document["output"]) == (0, {"a": 4})

    # The worker that is already running would use the first database, not the database of the command.
    other_url = f"sqlite:///{commands_that_start_a_server.folder / 'other.db'}"
    commands_with_other_database = commands_that_start_a_server.with_variables(DAGWRIGHT_DATABASE_URL=other_url)
    for command in (["run", write_plan(calculation("a", "1"))], ["up"]):
        rejected_result = await commands_with_other_database(*command, "--json")
        assert (rejected_result.code, rejected_result.document["code"]) == (2, "settings_differ")
        assert "another value of DAGWRIGHT_DATABASE_URL" in rejected_result.document["message"]
    # An ended run needs no worker.
    watch_result = await commands_with_other_database("watch", run_result.document["run_id"], "--json")
    assert watch_result.document["output"] == {"a": 4}

    await commands_that_start_a_server("down")
    list_result = await commands_that_start_a_server("list", "--json")
    assert [item["run_id"] for item in list_result.document["runs"]] == [run_result.document["run_id"]]
    message = "no server was running, so one was started for this command; it ends with the command"
    assert list_result.stderr == f"{message}\n"


async def test_node_of_a_killed_worker_is_retried(commands: CommandLine, write_plan: WritePlan) -> None:
    plan = write_plan(wait_node("long", "4s", title="Take a while", heartbeat="6s"), title="Killed in a step")
    run_process = await commands.start("run", plan, "--id", "killed-worker")
    await read_line_with(run_process, "running    long  wait · Take a while")
    await kill_process(run_process)

    repeated_result = await commands("run", plan, "--id", "killed-worker")

    repeated_result.check_success()
    assert repeated_result.stdout.startswith("run killed-worker already exists with the same plan; continuing it\n")
    waiting_text = "waiting    long was running when its worker died; it is retried at the latest in "
    assert waiting_text in repeated_result.stdout
    assert "running    long (attempt 2: its worker died or hung)\n" in repeated_result.stdout
    assert "Heartbeat timeout" not in repeated_result.stdout

    final_result = await commands("run", plan, "--id", "killed-worker")
    summary = "killed-worker (Killed in a step): completed in "
    assert final_result.stdout.startswith(f"run killed-worker has already ended\n{summary}")
