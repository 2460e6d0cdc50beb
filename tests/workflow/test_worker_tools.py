"""Worker tools with slots and messages, and resources that the calls in a worker process share."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from dagwright.settings import Settings
from dagwright.tools import RetryLater, SubGoal, ToolRegistry, WorkerResult, context, worker_tool
from dagwright.toolset.toolset import load_toolset
from dagwright.worker.serving import serving
from tests.support.goals import call_node
from tests.support.plan_building import plan_of
from tests.support.runs import Runs, checked_runs, document_of

pytestmark = pytest.mark.server

_STORED_CHARACTERS = 20_000
"""Length of a text that goes to the payload store."""


@worker_tool(outputs=["found", "size"], goal_type="support")
def find(outcome: str, sub_goal: SubGoal) -> WorkerResult:
    """Find something."""
    if outcome == "busy" and context().attempt < 2:
        raise RetryLater("busy")
    text = "x" * _STORED_CHARACTERS if outcome == "large" else f"{sub_goal.id}: {sub_goal.description}"
    return WorkerResult(outputs={"found": text, "size": len(text)}, message="as it is")


@worker_tool(requires=["found"], outputs=["shown"], goal_type="deliverable")
async def show(found: str | list[str]) -> dict[str, str]:
    """Show the found values."""
    return {"shown": "+".join(text[:20] for text in (found if isinstance(found, list) else [found]))}


@pytest.fixture
async def worker_runs(client: Client, tmp_path: Any) -> AsyncIterator[Runs]:
    settings = Settings(state_dir=tmp_path)
    async with checked_runs(client, ToolRegistry.of(find, show), settings=settings) as runs:
        yield runs


def sub_goal(number: int, worker: str, *, params: Any = None, inputs: Any = None) -> dict[str, Any]:
    outputs = {"find": ["found", "size"], "show": ["shown"]}[worker]
    arguments = {"params": params or {}, "inputs": inputs or {}}
    return {"id": number, "worker": worker, "description": f"Do {number}", "outputs": outputs, **arguments}


def found_slot_ref(number: int) -> dict[str, Any]:
    return {"from_sub_goal": number, "slot": "found"}


async def test_worker_tool_receives_slots_and_its_message_is_in_the_document(worker_runs: Runs) -> None:
    sub_goals = [
        sub_goal(1, "find", params={"outcome": "busy"}),
        sub_goal(2, "find", params={"outcome": "large"}),
        sub_goal(3, "show", inputs={"found": [found_slot_ref(1), found_slot_ref(2)]}),
    ]
    document = await document_of(await worker_runs.start({"sub_goals": sub_goals}, dialect="subgoals"))
    nodes = document["nodes"]
    assert document["status"] == "completed"
    expected = ({"found": "1: Do 1", "size": 7}, "as it is", 2)
    assert (nodes["sg1"]["result"], nodes["sg1"]["message"], nodes["sg1"]["attempts"]) == expected
    assert nodes["sg2"]["message"] == "as it is"
    assert nodes["sg3"]["result"] == {"shown": "1: Do 1+" + "x" * 20}


_TOOLS_FILE_TEXT = '''
from pathlib import Path
from dagwright.tools import context, tool

class CallLog:
    """A resource that writes its opening, its calls and its closing to a file."""

    def __init__(self) -> None:
        self.record("opened")

    def record(self, event: str) -> None:
        with (Path(__file__).parent / "calls.txt").open("a") as file:
            file.write(f"{event}\\n")

    async def close(self) -> None:
        self.record("closed")

@tool(effects="read")
async def log_call(name: str) -> str:
    """Log a call."""
    context().environment.resources.get(CallLog).record(name)
    return name
'''
_PLAN = plan_of(
    call_node("a", "log_call", name="Ann"), call_node("b", "log_call", name="{{a.result}} again"), output="{{b.result}}"
)


async def test_resource_is_opened_once_and_closed_with_the_worker(
    client: Client, tmp_path: Path, unique_name: str
) -> None:
    tools_file = tmp_path / "call_log.py"
    tools_file.write_text(_TOOLS_FILE_TEXT, encoding="utf-8")
    toolset = load_toolset(Settings(state_dir=tmp_path / "state"), [str(tools_file)])
    async with serving(client, toolset, task_queue=unique_name):
        document = await client.execute_workflow("RunPlan", {"plan": _PLAN}, id=unique_name, task_queue=unique_name)
        assert document["output"] == "Ann again"
    expected = ["opened", "Ann", "Ann again", "closed"]
    assert (tmp_path / "calls.txt").read_text(encoding="utf-8").splitlines() == expected
