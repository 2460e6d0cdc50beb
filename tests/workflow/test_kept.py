"""What tools keep from call to call: made once by a worker process, and closed when it ends."""

from pathlib import Path

import pytest
from temporalio.client import Client

from dagwright.settings import Settings
from dagwright.toolset.toolset import load_toolset
from worker import serving

pytestmark = pytest.mark.server

_TOOLS = '''
from pathlib import Path
from dagwright.tools import context, tool

class Desk:
    """Tells a file what becomes of it."""

    def __init__(self) -> None:
        self.tell("opened")

    def tell(self, word: str) -> None:
        with (Path(__file__).parent / "told.txt").open("a") as file:
            file.write(f"{word}\\n")

    async def close(self) -> None:
        self.tell("closed")

@tool(effects="read")
async def ask_desk(name: str) -> str:
    """Asks."""
    context().environment.kept.get(Desk).tell(name)
    return name
'''
_PLAN = {
    "nodes": [
        {"id": "a", "tool": "ask_desk", "arguments": {"name": "Ann"}},
        {"id": "b", "tool": "ask_desk", "arguments": {"name": "{{a.result}} again"}},
    ],
    "output": "{{b.result}}",
}


async def test_what_is_kept_is_opened_once_and_closed_when_the_worker_ends(
    client: Client, tmp_path: Path, unique: str
) -> None:
    tools = tmp_path / "keeping.py"
    tools.write_text(_TOOLS, encoding="utf-8")
    toolset = load_toolset(Settings(state_dir=tmp_path / "state"), [str(tools)])
    async with serving(client, toolset, task_queue=unique):
        document = await (
            await client.start_workflow("RunPlan", {"plan": _PLAN}, id=unique, task_queue=unique)
        ).result()
        assert document["output"] == "Ann again"
    assert (tmp_path / "told.txt").read_text(encoding="utf-8").split("\n") == [
        "opened",
        "Ann",
        "Ann again",
        "closed",
        "",
    ]
