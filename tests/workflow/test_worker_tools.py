"""Worker tools: slots and messages; objects that tools reuse from call to call."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from dagwright.settings import Settings
from dagwright.tools import RetryLater, SubGoal, ToolRegistry, WorkerResult, context, worker_tool
from dagwright.toolset.toolset import load_toolset
from dagwright.worker.serving import serving
from tests.support.runs import Runs, document_of, serving_runs

pytestmark = pytest.mark.server

LARGE = 20_000
"""Characters that go to the payload store."""


@worker_tool(outputs=["found", "size"], goal_type="support")
def find(outcome: str, sub_goal: SubGoal) -> WorkerResult:
    """Finds something."""
    if outcome == "busy" and context().attempt < 2:
        raise RetryLater("busy")
    text = "x" * LARGE if outcome == "large" else f"{sub_goal.id}: {sub_goal.description}"
    return WorkerResult(outputs={"found": text, "size": len(text)}, message="as it is")


@worker_tool(requires=["found"], outputs=["shown"], goal_type="deliverable")
async def show(found: str | list[str]) -> dict[str, str]:
    """Show the found values."""
    return {"shown": "+".join(each[:20] for each in (found if isinstance(found, list) else [found]))}


@pytest.fixture
async def workers(client: Client, tmp_path: Any) -> AsyncIterator[Runs]:
    settings = Settings(state_dir=tmp_path)
    async with serving_runs(client, ToolRegistry.of(find, show), settings=settings) as runs:
        yield runs
        await runs.check_runs()


def sub_goal(number: int, worker: str, *, params: Any = None, inputs: Any = None) -> dict[str, Any]:
    outputs = {"find": ["found", "size"], "show": ["shown"]}[worker]
    given = {"params": params or {}, "inputs": inputs or {}}
    return {"id": number, "worker": worker, "description": f"Do {number}", "outputs": outputs, **given}


def found_by(number: int) -> dict[str, Any]:
    return {"from_sub_goal": number, "slot": "found"}


async def test_slots_pass_from_worker_tool_to_worker_tool_with_their_messages(workers: Runs) -> None:
    sub_goals = [
        sub_goal(1, "find", params={"outcome": "busy"}),
        sub_goal(2, "find", params={"outcome": "large"}),
        sub_goal(3, "show", inputs={"found": [found_by(1), found_by(2)]}),
    ]
    document = await document_of(await workers.start({"sub_goals": sub_goals}, dialect="subgoals"))
    nodes = document["nodes"]
    assert document["status"] == "completed"
    expected = ({"found": "1: Do 1", "size": 7}, "as it is", 2)
    assert (nodes["sg1"]["result"], nodes["sg1"]["message"], nodes["sg1"]["attempts"]) == expected
    assert nodes["sg2"]["message"] == "as it is"
    assert nodes["sg3"]["result"] == {"shown": "1: Do 1+" + "x" * 20}


_TOOLS = '''
from pathlib import Path
from dagwright.tools import context, tool

class Desk:
    """Tells a file what becomes of it."""

    def __init__(self) -> None:
        self.record("opened")

    def record(self, word: str) -> None:
        with (Path(__file__).parent / "calls.txt").open("a") as file:
            file.write(f"{word}\\n")

    async def close(self) -> None:
        self.record("closed")

@tool(effects="read")
async def ask_desk(name: str) -> str:
    """Asks."""
    context().environment.resources.get(Desk).record(name)
    return name
'''
_PLAN = {
    "nodes": [
        {"id": "a", "tool": "ask_desk", "arguments": {"name": "Ann"}},
        {"id": "b", "tool": "ask_desk", "arguments": {"name": "{{a.result}} again"}},
    ],
    "output": "{{b.result}}",
}


async def test_resource_is_opened_once_and_closed_at_the_end(client: Client, tmp_path: Path, unique: str) -> None:
    tools = tmp_path / "keeping.py"
    tools.write_text(_TOOLS, encoding="utf-8")
    toolset = load_toolset(Settings(state_dir=tmp_path / "state"), [str(tools)])
    async with serving(client, toolset, task_queue=unique):
        document = await (
            await client.start_workflow("RunPlan", {"plan": _PLAN}, id=unique, task_queue=unique)
        ).result()
        assert document["output"] == "Ann again"
    expected = ["opened", "Ann", "Ann again", "closed", ""]
    assert (tmp_path / "calls.txt").read_text(encoding="utf-8").split("\n") == expected
