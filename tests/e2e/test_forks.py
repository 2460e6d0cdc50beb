"""`fork` shows a preview, and starts the fork once even if a first command is killed."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.command import CommandLine, kill_process
from tests.e2e.conftest import WritePlan, calculation

pytestmark = pytest.mark.server

_TOOLS = '''
from pathlib import Path
from dagwright.tools import context, tool

_MARKS = Path(__file__).parent / "marks.txt"

@tool(effects="write")
def mark(name: str, works: bool = True) -> str:
    """Writes a line with the idempotency key of the call, so that a test can count the calls."""
    with _MARKS.open("a") as marks:
        marks.write(f"{name} {context().idempotency_key}\\n")
    if not works:
        raise ValueError("no")
    return name
'''


def _mark(name: str, **fields: Any) -> dict[str, Any]:
    return {"id": name, "tool": "mark", "arguments": {"name": name}, **fields}


def _keys_by_mark(folder: Path) -> dict[str, list[str]]:
    keys_by_name: dict[str, list[str]] = {}
    for line in (folder / "marks.txt").read_text().splitlines():
        keys_by_name.setdefault(line.split()[0], []).append(line.split()[1])
    return keys_by_name


async def test_fork_shows_its_difference_and_starts_once(
    commands: CommandLine, write_plan: WritePlan, tmp_path: Path
) -> None:
    (tmp_path / "marks.py").write_text(_TOOLS)
    second_arguments = {"name": "second", "works": "{{PLACEHOLDER_works}}"}
    plan = write_plan(
        _mark("first"),
        _mark("second", arguments=second_arguments, depends_on=["first"]),
        _mark("third", depends_on=["second"]),
        inputs={"works": {"type": "boolean"}},
    )
    run_result = await commands("run", plan, "--tools", "marks.py", "--input", "works=false", "--id", "forked")
    preview_result = await commands("fork", "forked", "--input", "works=true", "--json")
    assert (run_result.code, preview_result.code) == (1, 2)
    assert preview_result.document == {
        "run_id": "forked",
        "fork_run_id": preview_result.document["fork_run_id"],
        "started": False,
        "ok": False,
        "code": "not_confirmed",
        "message": "nothing was started; --yes starts the fork",
        "difference": {
            "reused": ["first"],
            "executed": [{"node_id": "second", "reason": "had failed", "effects": "write"}],
            "reused_if_unchanged": [],
            "decided_later": ["third"],
            "planned_again": [],
        },
    }

    fork_process = await commands.start("fork", "forked", "--input", "works=true", "--yes")
    await kill_process(fork_process)
    arguments = ("fork", "forked", "--input", "works=true", "--yes", "--json")
    fork_results = await asyncio.gather(*(commands(*arguments) for _ in range(2)))
    fork_id = fork_results[0].document["fork_run_id"]
    for each in fork_results:
        assert (each.code, each.document["ok"], each.document["started"]) == (0, True, True)
        assert each.document["fork_run_id"] == preview_result.document["fork_run_id"]
    watch_result = await commands("watch", fork_id, "--json")
    statuses = {node: each["status"] for node, each in watch_result.document["nodes"].items()}
    assert (watch_result.code, statuses) == (0, dict.fromkeys(("first", "second", "third"), "completed"))
    marks = _keys_by_mark(tmp_path)
    assert {mark: len(keys) for mark, keys in marks.items()} == {"first": 1, "second": 2, "third": 1}
    node_result = await commands("node", fork_id, "first")
    assert "reused from: first of the run forked" in node_result.stdout
    explain_result = await commands("explain", fork_id, "--node", "first", "--json")
    assert explain_result.document["chain"][0]["reused"] == {"run_id": "forked", "node_id": "first"}


async def test_impossible_fork_is_reported(commands: CommandLine, write_plan: WritePlan) -> None:
    plan = write_plan(calculation("a", "{{PLACEHOLDER_x}} + 1"))
    await commands("run", plan, "--input", "x=1", "--id", "unforked")
    unknown_input_result, unknown_node_result, unknown_run_result, terminal_result = await asyncio.gather(
        commands("fork", "unforked", "--input", "y=1", "--yes", "--json"),
        commands("fork", "unforked", "--rerun", "b", "--yes", "--json"),
        commands("fork", "nowhere", "--yes", "--json"),
        commands.run_on_terminal("fork", "unforked", "--input", "x=2", answers="n\n"),
    )
    assert [each.code for each in (unknown_input_result, unknown_node_result, unknown_run_result)] == [2, 2, 2]
    assert unknown_input_result.document["errors"][0]["message"] == "the plan has no input 'y'"
    message = "rerun 'b': the fork has no such node or item"
    assert unknown_node_result.document == {"code": "fork_rejected", "message": message}
    assert unknown_run_result.document["message"].startswith("there is no run 'nowhere'")
    assert terminal_result[0] == 2
    assert "Start the fork? [y/N]" in terminal_result[1]
