"""`tool pause` and `tool resume`: the messages, and a pause that survives kills of the worker and the server."""

import asyncio
from pathlib import Path
from uuid import uuid4

import pytest

from tests.e2e.command import CommandLine, kill_process, wait_for_exit, wait_for_run_status
from tests.e2e.conftest import WritePlan, calculation
from tests.support.server import live_server

pytestmark = pytest.mark.server

_TOOLS = '''
from pathlib import Path
from dagwright.tools import tool

@tool(effects="write")
def {name}(text: str) -> str:
    """Writes a line."""
    with (Path(__file__).parent / "sent").open("a") as sent:
        print(text, file=sent)
    return text

@tool(effects="pure")
def double_{name}(text: str) -> str:
    """Repeats the text."""
    return text * 2
'''


_PAUSED_BY_ANN = "tool paused by ann at 20"
"""Start of the text about a pause; it ends in the middle of a date such as `2026-01-05`."""


def _write_tools(folder: Path) -> tuple[str, str]:
    name = f"send_{uuid4().hex[:8]}"
    path = folder / "user_tools.py"
    path.write_text(_TOOLS.format(name=name), encoding="utf-8")
    return str(path), name


async def test_commands_show_the_paused_tool(commands: CommandLine, write_plan: WritePlan, tmp_path: Path) -> None:
    tools_file, tool_name = _write_tools(tmp_path)
    plan = write_plan(
        {"id": "send", "tool": tool_name, "arguments": {"text": "hello"}},
        calculation("independent", "1 + 1"),
        calculation("after", "2 + 2", depends_on=["send"]),
    )
    options = ("--tools", tools_file, "--by", "ann", "--reason", "it loses mail", "--json")
    pause_result = await commands("tool", "pause", tool_name, *options)
    hint = f"`dagwright tool resume {tool_name}` resumes it"
    message = f"{tool_name} is paused: running calls finish, no new calls start; {hint}"
    assert pause_result.document == {"tool": tool_name, "ok": True, "message": message}
    run_process = await commands.start("run", plan, "--id", f"r-{tool_name}", "--tools", tools_file, "--json")
    await wait_for_run_status(commands, f"r-{tool_name}", "waiting")
    status_result, node_result, explain_result, list_result, second_pause_result, pause_list = await asyncio.gather(
        commands("status", f"r-{tool_name}"),
        commands("node", f"r-{tool_name}", "send"),
        commands("explain", f"r-{tool_name}"),
        commands("list"),
        commands("tool", "pause", tool_name, "--json"),
        commands("tool", "list", "--json"),
    )
    for text in (status_result.stdout, node_result.stdout, explain_result.stdout):
        assert _PAUSED_BY_ANN in text
        assert "it loses mail" in text
        assert hint in text
    assert f"{tool_name} paused by ann since " in list_result.stdout
    assert f"`dagwright tool resume {tool_name}`" in list_result.stdout
    # The second `tool pause` needs no `--tools`, because the worker of the run has published its tools.
    assert second_pause_result.document["message"].startswith(f"{tool_name} is already paused: {_PAUSED_BY_ANN}")
    pauses = [(each["by"], each["reason"]) for each in pause_list.document if each["tool"] == tool_name]
    assert pauses == [("ann", "it loses mail")]
    assert not (tmp_path / "sent").exists()

    resume_result = await commands("tool", "resume", tool_name, "--ramp", "500ms", "--json")
    message = f"{tool_name} is resumed; 1 call of 1 run starts within 500 ms"
    assert resume_result.document == {"tool": tool_name, "ok": True, "message": message}
    result = await wait_for_exit(run_process)
    assert (result.code, result.document["output"]) == (0, {"independent": 2, "after": 4})
    assert (tmp_path / "sent").read_text() == "hello\n"
    second_resume_result = await commands("tool", "resume", tool_name, "--json")
    message = f"{tool_name} is not paused, and none of its calls waits"
    assert second_resume_result.code == 2
    assert second_resume_result.document == {
        "tool": tool_name,
        "ok": False,
        "code": "command_rejected",
        "message": message,
    }


async def test_invalid_pause_or_ramp_is_rejected(commands: CommandLine, tmp_path: Path) -> None:
    tools_file, tool_name = _write_tools(tmp_path)
    pure_tool_result, unknown_tool_result, invalid_ramp_result = await asyncio.gather(
        commands("tool", "pause", f"double_{tool_name}", "--tools", tools_file, "--json"),
        commands("tool", "pause", "http_reqest", "--json"),
        commands("tool", "resume", tool_name, "--ramp", "soon", "--json"),
    )
    assert [each.code for each in (pure_tool_result, unknown_tool_result, invalid_ramp_result)] == [2, 2, 2]
    assert pure_tool_result.document["message"].startswith(f"'double_{tool_name}' cannot be paused: it is pure, so ")
    assert unknown_tool_result.document["message"] == "there is no tool 'http_reqest'; did you mean 'http_request'?"
    assert invalid_ramp_result.document["message"].startswith("--ramp must be a duration such as 2m: ")


async def test_tool_stays_paused_after_worker_and_server_are_killed(write_plan: WritePlan, tmp_path: Path) -> None:
    tools_file, tool_name = _write_tools(tmp_path)
    plan = write_plan({"id": "send", "tool": tool_name, "arguments": {"text": "hello"}})
    async with live_server(tmp_path / "state") as server:
        commands = CommandLine(tmp_path, server.environment())
        await commands("tool", "pause", tool_name, "--tools", tools_file, "--by", "ann")
        run_process = await commands.start("run", plan, "--id", "paused-killed", "--tools", tools_file)
        await wait_for_run_status(commands, "paused-killed", "waiting")
        await kill_process(run_process)
        await server.kill()
        await server.start()
        document = (await commands("status", "paused-killed", "--json")).document
        assert (document["status"], document["nodes"]["send"]["status"]) == ("waiting", "waiting")
        assert document["nodes"]["send"]["reason"].startswith(_PAUSED_BY_ANN)
        watch_process = await commands.start("watch", "paused-killed", "--json")
        (await commands("run", plan, "--id", "other", "--tools", tools_file, "--detach")).check_success()
        await wait_for_run_status(commands, "other", "waiting")
        assert not (tmp_path / "sent").exists()
        resume_result = await commands("tool", "resume", tool_name, "--ramp", "100ms", "--json")
        assert "; 2 calls of 2 runs start within " in resume_result.document["message"]
        result = await wait_for_exit(watch_process)
        assert (result.code, result.document["status"]) == (0, "completed")
        await wait_for_run_status(commands, "other", "completed")
        assert (tmp_path / "sent").read_text() == "hello\n" * 2
        await commands("down")
