"""Runs outlive the command that started them: watched, cancelled, interrupted, killed, left to the background."""

import signal
from pathlib import Path
from typing import Any

import pytest

from dagwright.server import Daemon
from tests.e2e.command import CommandLine, line_with, wait_for_exit
from tests.e2e.conftest import Plans, calculation, pause
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


async def test_one_terminal_runs_another_watches_a_third_cancels(command_line: CommandLine, write_plan: Plans) -> None:
    plan = write_plan(calculation("first", "1 + 1"), pause("long", "10m", depends_on=["first"]))
    running = await command_line.start("run", plan, "--id", "steered")
    await line_with(running, "running    long")
    watching = await command_line.start("watch", "steered", "--no-worker")
    await line_with(watching, "completed  first")

    cancelled = await command_line("cancel", "steered", "--reason", "changed my mind", "--by", "ann", "--json")
    ends = [await wait_for_exit(running), await wait_for_exit(watching)]
    document = (await command_line("result", "steered", "--json")).document

    assert (cancelled.code, cancelled.document["ok"]) == (0, True)
    assert [end.code for end in ends] == [3, 3]
    states = {name: node["status"] for name, node in document["nodes"].items()}
    assert states == {"first": "completed", "long": "cancelled"}
    assert [note["message"] for note in document["notes"]] == ["cancelled by ann: changed my mind"]

    repeated_result = await command_line("cancel", "steered", "--json")
    message = "the run 'steered' has ended"
    assert (repeated_result.code, repeated_result.stderr) == (2, f"{message}\n")
    assert repeated_result.document == {"run_id": "steered", "ok": False, "message": message}


async def test_same_command_finishes_an_interrupted_run(command_line: CommandLine, write_plan: Plans) -> None:
    plan = write_plan(calculation("first", "1 + 1"), pause("long", "3s", depends_on=["first"]))
    running = await command_line.start("run", plan, "--id", "interrupted")
    await line_with(running, "completed  first")
    running.send_signal(signal.SIGINT)
    result = await wait_for_exit(running)
    status = await command_line("status", "interrupted", "--json")

    assert result.code == 130
    assert result.stderr.startswith("the run interrupted is not ended: `dagwright watch interrupted` continues it")
    assert "Traceback" not in result.stderr
    assert (status.code, status.document["nodes"]["first"]["status"]) == (0, "completed")

    repeated_result = await command_line("run", plan, "--id", "interrupted", "--json")
    assert (repeated_result.code, repeated_result.document["status"]) == (0, "completed")


async def test_renamed_tool_keeps_its_runs(command_line: CommandLine, write_plan: Plans, tmp_path: Path) -> None:
    (tmp_path / "marking.py").write_text(_TOOLS, encoding="utf-8")
    plan = write_plan(_mark("only"))
    first_result = await command_line("run", plan, "--id", "renamed", "--tools", "marking.py")
    renamed = _TOOLS.replace("def mark", "def record").replace('"idempotent"', '"idempotent", aliases=["mark"]')
    (tmp_path / "marking.py").write_text(renamed, encoding="utf-8")

    repeated_result = await command_line("run", plan, "--id", "renamed", "--tools", "marking.py", "--json")
    other = await command_line("run", plan, "--id", "not-renamed", "--tools", "marking.py")

    assert (first_result.code, repeated_result.code, repeated_result.document["nodes"]["only"]["result"]) == (
        0,
        0,
        "only",
    )
    assert (other.code, "there is no tool 'mark'" in other.stderr) == (2, True)
    assert (tmp_path / "marks.txt").read_text(encoding="utf-8") == "only\n"


@pytest.mark.fresh
async def test_detached_run_ends_before_down(
    own_commands_without_server: CommandLine, write_plan: Plans, tmp_path: Path
) -> None:
    (tmp_path / "marking.py").write_text(_TOOLS, encoding="utf-8")
    plan = write_plan(_mark("only"))
    left = await own_commands_without_server("run", plan, "--id", "left", "--detach", "--tools", "marking.py", "--json")
    assert (left.code, left.document["run_id"], left.document["ok"]) == (0, "left", True)

    # The first command and the worker that it starts are new interpreters; these need not be.
    forked = CommandLine(tmp_path, own_commands_without_server.environment)
    await eventually((tmp_path / "marks.txt").exists)
    watched = await forked("watch", "left", "--no-worker", "--json")
    assert (watched.code, watched.document["output"], watched.stderr) == (0, {"only": "only"}, "")

    # Any process can be the search server here; the tests with a real server check its requests.
    search = Daemon(own_commands_without_server.folder / "state", "search")
    await search.start(["sleep", "600"])
    down = await forked("down", "--json")
    down.check_success()
    assert [name.partition("-")[0] for name in down.document["ended"]] == ["worker", "server", "search"]
    assert not search.is_running()
    again = await forked("down")
    assert (again.code, again.stdout) == (0, "nothing was running here\n")


async def test_up_is_idempotent_and_down_ends_it(own_commands_without_server: CommandLine, write_plan: Plans) -> None:
    first_result = await own_commands_without_server("up", "--json")
    second_result = await own_commands_without_server("up", "--json")
    assert (first_result.code, first_result.document["status"]) == (0, "up")
    assert second_result.document == first_result.document

    run = await own_commands_without_server("run", write_plan(calculation("a", "2 + 2")), "--json")
    assert (run.code, run.document["output"]) == (0, {"a": 4})

    # The worker would do it on its own database.
    elsewhere = f"sqlite:///{own_commands_without_server.folder / 'other.db'}"
    other = CommandLine(
        own_commands_without_server.folder,
        {**own_commands_without_server.environment, "DAGWRIGHT_DATABASE_URL": elsewhere},
    )
    for command in (["run", write_plan(calculation("a", "1"))], ["up"]):
        rejected_result = await other(*command, "--json")
        assert (rejected_result.code, rejected_result.document["status"]) == (2, "other_settings")
        assert "another value of DAGWRIGHT_DATABASE_URL" in rejected_result.document["message"]
    # There is nothing to serve.
    assert (await other("watch", run.document["run_id"], "--json")).document["output"] == {"a": 4}

    await own_commands_without_server("down")
    result = await own_commands_without_server("list", "--json")
    assert [item["run_id"] for item in result.document["runs"]] == [run.document["run_id"]]
    assert result.stderr == "no server was running, so one was started for this command; it ends with the command\n"


async def test_step_of_a_killed_worker_is_retried(command_line: CommandLine, write_plan: Plans) -> None:
    plan = write_plan(pause("long", "4s", title="Take a while", heartbeat="6s"), title="Killed in a step")
    running = await command_line.start("run", plan, "--id", "lost")
    await line_with(running, "running    long  wait · Take a while")
    running.send_signal(signal.SIGKILL)
    await wait_for_exit(running)

    repeated_result = await command_line("run", plan, "--id", "lost")

    repeated_result.check_success()
    assert repeated_result.stdout.startswith("run lost already exists with the same plan; continuing it\n")
    words = "waiting    long was running when its worker died; it is retried at the latest in "
    assert words in repeated_result.stdout
    assert "running    long (attempt 2: its worker died or hung)\n" in repeated_result.stdout
    assert "Heartbeat timeout" not in repeated_result.stdout

    once_more = await command_line("run", plan, "--id", "lost")
    assert once_more.stdout.startswith("run lost has already ended\nlost (Killed in a step): completed in ")
