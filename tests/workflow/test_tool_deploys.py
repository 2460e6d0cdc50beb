"""A file of tools that changes while runs are open, and tools that the first worker of a run does not have."""

import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from temporalio.client import Client

from dagwright.history.run_view import RunView
from dagwright.settings import Settings
from dagwright.store import open_store
from dagwright.toolset.tool_directory import find_published_tools
from dagwright.toolset.toolset import Toolset, load_toolset
from dagwright.worker import missing_tools
from dagwright.worker import serving as worker
from dagwright.worker.serving import serving
from tests.support.eventually import eventually
from tests.support.goals import call_node
from tests.support.people import tool_node
from tests.support.run_views import wait_for_note, wait_for_view
from tests.support.runs import Handle, Runs, check_histories, document_of, scheduled_calls

pytestmark = pytest.mark.server

_IMPORT_LINES = "from dagwright.tools import tool\n\n"
_BEGIN_TOOL = '@tool(effects="read")\ndef begin(name: str) -> str:\n    return f"{name} began"\n\n\n'
_GREET_TOOL = '@tool(effects="write")\ndef greet(name: str) -> str:\n    return f"hello {name}"\n\n\n'
_GATE_NODE = tool_node("gate", "wait", "first", arguments={"duration": "1s"})


class Deployment:
    """A file of tools whose versions are served one after the other on one task queue."""

    def __init__(self, client: Client, folder: Path) -> None:
        self._client = client
        self._file = folder / "shop_tools.py"
        self._settings = Settings(state_dir=folder / "state", task_queue=f"deploys-{uuid4().hex}")
        self._toolset: Toolset | None = None

    def load(self, *parts: str) -> Toolset:
        """Write the file with these parts, and load it as a new process would."""
        self._file.write_text(_IMPORT_LINES + "".join(parts), encoding="utf-8")
        for name in [name for name in sys.modules if name.startswith("dagwright_tools_")]:
            del sys.modules[name]
        return load_toolset(self._settings, [str(self._file)])

    @asynccontextmanager
    async def serve(self, *parts: str) -> AsyncIterator[Runs]:
        toolset = self.load(*parts)
        async with worker.serving(self._client, toolset, task_queue=self._settings.task_queue):
            yield Runs(
                self._client, task_queue=toolset.user_queues[0], tools=toolset.declarations(), store=toolset.store
            )

    async def wait_for_missing_tool(self, handle: Handle) -> RunView:
        """Wait until a run has a note about a missing tool."""
        return await wait_for_note(self._client, handle.id, "tool_missing")

    async def start_run(self, *nodes: dict[str, Any], parts: Sequence[str] = (_BEGIN_TOOL, _GREET_TOOL)) -> Handle:
        """Start a run with the first version of the file, and stop the worker after the first node."""
        async with self.serve(*parts) as runs:
            handle = await runs.start({"nodes": [call_node("first", "begin", name="it"), _GATE_NODE, *nodes]})
            await wait_for_view(self._client, handle.id, lambda view: view.nodes_done > 0)
        return handle

    async def checked_document(self, handle: Handle) -> dict[str, Any]:
        """Return the document of a run, after a check that its histories replay."""
        document = await document_of(handle)
        await check_histories(self._client, handle)
        return document


@pytest.fixture
def deployment(client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Deployment:
    monkeypatch.setattr(missing_tools, "SEARCH_INTERVAL_S", 0.2)
    return Deployment(client, tmp_path)


def _greet_node(**fields: Any) -> dict[str, Any]:
    return {"id": "second", "tool": "greet", "arguments": {"name": "ann"}, "depends_on": ["gate"], **fields}


async def test_new_version_with_changed_code_and_a_new_tool_serves_the_run(deployment: Deployment) -> None:
    handle = await deployment.start_run(_greet_node())
    old_version = deployment.load(_BEGIN_TOOL, _GREET_TOOL).declarations()["greet"].version
    new_tool = _GREET_TOOL.replace("greet", "wave")
    changed_tool = _GREET_TOOL.replace("hello", "good day")
    async with deployment.serve(_BEGIN_TOOL, changed_tool, new_tool) as runs:
        document = await deployment.checked_document(handle)
        assert document["nodes"]["second"]["result"] == "good day ann"
        assert document["nodes"]["second"]["lineage"]["tool_version"] == runs.versions["greet"] != old_version


async def test_call_of_a_removed_tool_waits_with_a_note_until_a_version_has_the_tool(deployment: Deployment) -> None:
    handle = await deployment.start_run(_greet_node())
    async with deployment.serve(_BEGIN_TOOL):
        waiting_document = (await deployment.wait_for_missing_tool(handle)).document()
        assert (waiting_document["status"], waiting_document["nodes"]["second"]["status"]) == ("waiting", "waiting")
        [note] = [note for note in waiting_document["notes"] if note["code"] == "tool_missing"]
        assert (
            "has no tool 'greet'; its call waits; start a worker of this queue that has the tool, or" in note["message"]
        )
        assert note["node_id"] == "second"
    async with deployment.serve(_BEGIN_TOOL, _GREET_TOOL):
        document = await deployment.checked_document(handle)
    assert (document["nodes"]["second"]["result"], document["nodes"]["second"]["attempts"]) == ("hello ann", 1)


async def test_renamed_tool_with_an_alias_serves_calls_of_the_old_name(deployment: Deployment) -> None:
    pure_tool = _GREET_TOOL.replace('"write"', '"pure"').replace("greet", "shout")
    handle = await deployment.start_run(
        _greet_node(), _greet_node(id="third", tool="shout"), parts=[_BEGIN_TOOL, _GREET_TOOL, pure_tool]
    )
    renamed_tool = _GREET_TOOL.replace("def greet", "def welcome").replace('"write"', '"write", aliases=["greet"]')
    renamed_pure_tool = pure_tool.replace("def shout", "def call_out").replace('"pure"', '"pure", aliases=["shout"]')
    async with deployment.serve(_BEGIN_TOOL, renamed_tool, renamed_pure_tool):
        document = await deployment.checked_document(handle)
    assert [document["nodes"][node_id]["result"] for node_id in ("second", "third")] == ["hello ann", "hello ann"]


async def test_call_with_a_renamed_parameter_fails_with_an_error_about_the_parameter(deployment: Deployment) -> None:
    handle = await deployment.start_run(_greet_node())
    changed_tool = _GREET_TOOL.replace("name: str", "person: str").replace("{name}", "{person}")
    async with deployment.serve(_BEGIN_TOOL, changed_tool):
        document = await deployment.checked_document(handle)
    assert document["nodes"]["second"]["error"]["code"] == "invalid_arguments"
    assert "person" in document["nodes"]["second"]["error"]["message"]


async def test_region_waits_until_a_version_has_its_removed_tool(deployment: Deployment) -> None:
    pure_tool = _GREET_TOOL.replace('"write"', '"pure"')
    chain = [_greet_node(), _greet_node(id="third", depends_on=["second"])]
    handle = await deployment.start_run(*chain, parts=[_BEGIN_TOOL, pure_tool])
    async with deployment.serve(_BEGIN_TOOL):
        await deployment.wait_for_missing_tool(handle)
    async with deployment.serve(_BEGIN_TOOL, pure_tool):
        document = await deployment.checked_document(handle)
    assert [document["nodes"][node_id]["result"] for node_id in ("second", "third")] == ["hello ann", "hello ann"]


_TOOLS_FILE_TEXT = '''
from dagwright.tools import tool

@tool(effects="read")
def later_greeting(name: str) -> str:
    """Greet a person."""
    return f"hello {name}"
'''
_PLAN = {"nodes": [call_node("a", "later_greeting", name="Ann")], "output": "{{a.result}}"}


async def test_worker_without_a_tool_compiles_plans_that_use_the_tool(
    client: Client, tmp_path: Path, unique_name: str
) -> None:
    tools_file = tmp_path / "greetings.py"
    tools_file.write_text(_TOOLS_FILE_TEXT, encoding="utf-8")
    settings = Settings(state_dir=tmp_path / "state")
    toolset, empty_toolset = load_toolset(settings, [str(tools_file)]), load_toolset(settings)
    async with serving(client, toolset, task_queue=unique_name):
        pass
    async with serving(client, empty_toolset, task_queue=unique_name):
        handle = await client.start_workflow("RunPlan", {"plan": _PLAN}, id=unique_name, task_queue=unique_name)

        async def has_scheduled_the_call() -> bool:
            scheduled_types = [each.activity_type.name for each in scheduled_calls(await handle.fetch_history())]
            return scheduled_types == ["compile_plan", "later_greeting"]

        await eventually(has_scheduled_the_call)
        # The SDK does not allow two workers of the same queue with one client.
        second_client = await Client.connect(
            client.service_client.config.target_host, data_converter=client.data_converter
        )
        async with serving(second_client, toolset, task_queue=unique_name):
            document = await handle.result()
    assert document["output"] == "hello Ann"


async def test_directory_has_no_unpublished_tools(tmp_path: Path) -> None:
    assert await find_published_tools(open_store(str(tmp_path)), ["unknown_tool"], task_queue="a queue") == {}
