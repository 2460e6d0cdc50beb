"""Workers of one queue tell each other of their tools, so any of them compiles a plan that was started from outside."""

from pathlib import Path

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client

from dagwright.settings import Settings
from dagwright.store import open_store
from dagwright.toolset.tool_directory import told_tools
from dagwright.toolset.toolset import load_toolset
from tests.support.eventually import eventually
from worker import serving

pytestmark = pytest.mark.server

_TOOLS = '''
from dagwright.tools import tool

@tool(effects="read")
def told_greeting(name: str) -> str:
    """Greets."""
    return f"hello {name}"
'''
_PLAN = {"nodes": [{"id": "a", "tool": "told_greeting", "arguments": {"name": "Ann"}}], "output": "{{a.result}}"}


async def test_plan_with_tools_of_another_worker_is_compiled_by_any(
    client: Client, tmp_path: Path, unique: str
) -> None:
    tools = tmp_path / "told.py"
    tools.write_text(_TOOLS, encoding="utf-8")
    settings = Settings(state_dir=tmp_path / "state")
    with_tools, without = load_toolset(settings, [str(tools)]), load_toolset(settings)
    async with serving(client, with_tools, task_queue=unique):
        pass
    async with serving(client, without, task_queue=unique):
        handle = await client.start_workflow("RunPlan", {"plan": _PLAN}, id=unique, task_queue=unique)

        async def is_waiting_for_its_worker() -> bool:
            events = (await handle.fetch_history()).events
            scheduled = [each for each in events if each.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED]
            return [each.activity_task_scheduled_event_attributes.activity_type.name for each in scheduled] == [
                "compile_plan",
                "told_greeting",
            ]

        await eventually(is_waiting_for_its_worker)
        # The SDK lets no client have two workers of one queue.
        other = await Client.connect(client.service_client.config.target_host, data_converter=client.data_converter)
        async with serving(other, with_tools, task_queue=unique):
            document = await handle.result()
    assert document["output"] == "hello Ann"


async def test_tool_that_nobody_told_of_is_not_known(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    assert await told_tools(store, ["nobody"], task_queue="a queue") == {}
