"""New versions of a tools file while runs are in flight, and tools that other workers publish."""

import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client

from dagwright.history.run_reader import RunReader
from dagwright.history.run_view import RunView
from dagwright.settings import Settings
from dagwright.store import open_store
from dagwright.toolset.tool_directory import find_published_tools
from dagwright.toolset.toolset import Toolset, load_toolset
from dagwright.worker import missing_tools
from dagwright.worker import serving as worker
from dagwright.worker.serving import serving
from tests.support.eventually import eventually
from tests.support.runs import Handle, Runs, assert_clean, assert_replays, document_of, histories_of

pytestmark = pytest.mark.server

_HEAD = "from dagwright.tools import tool\n\n"
_BEGIN = '@tool(effects="read")\ndef begin(name: str) -> str:\n    return f"{name} began"\n\n\n'
_GREET = '@tool(effects="write")\ndef greet(name: str) -> str:\n    return f"hello {name}"\n\n\n'
_GATE = {"id": "gate", "tool": "wait", "arguments": {"duration": "1s"}, "depends_on": ["first"]}


class Deployment:
    """A file of tools whose versions are served one after the other, on queues that no other test has."""

    def __init__(self, client: Client, folder: Path) -> None:
        self._client = client
        self._file = folder / "shop_tools.py"
        self._settings = Settings(state_dir=folder / "state", task_queue=f"deploys-{uuid4().hex}")
        self._toolset: Toolset | None = None

    def load(self, *parts: str) -> Toolset:
        """Load the file as a new process would, with these parts in it."""
        self._file.write_text(_HEAD + "".join(parts), encoding="utf-8")
        for name in [name for name in sys.modules if name.startswith("dagwright_tools_")]:
            del sys.modules[name]
        return load_toolset(self._settings, [str(self._file)])

    @asynccontextmanager
    async def serving(self, *parts: str) -> AsyncIterator[Runs]:
        toolset = self.load(*parts)
        async with worker.serving(self._client, toolset, task_queue=self._settings.task_queue):
            yield Runs(
                self._client, task_queue=toolset.user_queues[0], tools=toolset.declarations(), store=toolset.store
            )

    async def view(self, handle: Handle) -> RunView:
        """Return the run as a command shows it."""
        return await RunReader(self._client, handle.id).read()

    async def start_run(self, *nodes: dict[str, Any], parts: Sequence[str] = (_BEGIN, _GREET)) -> Handle:
        """Start a run with a first version of the file, and stop the worker after its first node."""
        async with self.serving(*parts) as runs:
            first_node = {"id": "first", "tool": "begin", "arguments": {"name": "it"}}
            handle = await runs.start({"nodes": [first_node, _GATE, *nodes]})

            async def has_started() -> bool:
                return (await self.view(handle)).nodes_done > 0

            await eventually(has_started)
        return handle

    async def checked_document(self, handle: Handle) -> dict[str, Any]:
        """Return the document of a run, whose histories replay."""
        document = await document_of(handle)
        for history in await histories_of(self._client, handle):
            assert_clean(history)
            await assert_replays(history)
        return document


@pytest.fixture
def deployment(client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Deployment:
    monkeypatch.setattr(missing_tools, "SEARCH_INTERVAL_S", 0.2)
    return Deployment(client, tmp_path)


def _greeting(**more: Any) -> dict[str, Any]:
    return {"id": "second", "tool": "greet", "arguments": {"name": "ann"}, "depends_on": ["gate"], **more}


async def test_new_version_with_another_tool_and_changed_code_serves_the_run(deployment: Deployment) -> None:
    handle = await deployment.start_run(_greeting())
    old = deployment.load(_BEGIN, _GREET).declarations()["greet"].version
    added = _GREET.replace("greet", "wave")
    changed = _GREET.replace("hello", "good day")
    async with deployment.serving(_BEGIN, changed, added) as runs:
        document = await deployment.checked_document(handle)
        assert document["nodes"]["second"]["result"] == "good day ann"
        lineage = document["nodes"]["second"]["lineage"]
        assert lineage["tool_version"] == runs.versions["greet"] != old


async def test_removed_tool_holds_its_call_with_the_fix_until_a_version_has_it(deployment: Deployment) -> None:
    handle = await deployment.start_run(_greeting())
    actual: dict[str, Any] = {}

    async def is_held() -> bool:
        view = await deployment.view(handle)
        actual.update(view.document())
        return any(note["code"] == "tool_missing" for note in view.notes)

    async with deployment.serving(_BEGIN):
        await eventually(is_held)
        assert (actual["status"], actual["nodes"]["second"]["status"]) == ("waiting", "waiting")
        [note] = [note for note in actual["notes"] if note["code"] == "tool_missing"]
        assert (
            "has no tool 'greet'; its call waits; start a worker of this queue that has the tool, or" in note["message"]
        )
        assert note["node_id"] == "second"
    async with deployment.serving(_BEGIN, _GREET):
        document = await deployment.checked_document(handle)
    assert (document["nodes"]["second"]["result"], document["nodes"]["second"]["attempts"]) == ("hello ann", 1)


async def test_renamed_tool_serves_the_run_by_its_alias(deployment: Deployment) -> None:
    pure = _GREET.replace('"write"', '"pure"').replace("greet", "shout")
    handle = await deployment.start_run(_greeting(), _greeting(id="third", tool="shout"), parts=[_BEGIN, _GREET, pure])
    renamed = _GREET.replace("def greet", "def welcome").replace('"write"', '"write", aliases=["greet"]')
    pure = pure.replace("def shout", "def call_out").replace('"pure"', '"pure", aliases=["shout"]')
    async with deployment.serving(_BEGIN, renamed, pure):
        document = await deployment.checked_document(handle)
    assert [document["nodes"][node]["result"] for node in ("second", "third")] == ["hello ann", "hello ann"]


async def test_call_that_no_longer_fits_fails_with_its_reason(deployment: Deployment) -> None:
    handle = await deployment.start_run(_greeting())
    other = _GREET.replace("name: str", "person: str").replace("{name}", "{person}")
    async with deployment.serving(_BEGIN, other):
        document = await deployment.checked_document(handle)
    assert document["nodes"]["second"]["error"]["code"] == "invalid_arguments"
    assert "person" in document["nodes"]["second"]["error"]["message"]


async def test_removed_pure_tools_of_a_region_hold_their_calls(deployment: Deployment) -> None:
    pure = _GREET.replace('"write"', '"pure"')
    chain = [_greeting(), _greeting(id="third", depends_on=["second"])]
    handle = await deployment.start_run(*chain, parts=[_BEGIN, pure])

    async def is_held() -> bool:
        return any(note["code"] == "tool_missing" for note in (await deployment.view(handle)).notes)

    async with deployment.serving(_BEGIN):
        await eventually(is_held)
    async with deployment.serving(_BEGIN, pure):
        document = await deployment.checked_document(handle)
    assert [document["nodes"][node]["result"] for node in ("second", "third")] == ["hello ann", "hello ann"]


_TOOLS = '''
from dagwright.tools import tool

@tool(effects="read")
def later_greeting(name: str) -> str:
    """Greets."""
    return f"hello {name}"
'''
_PLAN = {"nodes": [{"id": "a", "tool": "later_greeting", "arguments": {"name": "Ann"}}], "output": "{{a.result}}"}


async def test_plan_with_tools_of_a_worker_is_compiled_by_any(client: Client, tmp_path: Path, unique: str) -> None:
    tools = tmp_path / "greetings.py"
    tools.write_text(_TOOLS, encoding="utf-8")
    settings = Settings(state_dir=tmp_path / "state")
    with_tools, without = load_toolset(settings, [str(tools)]), load_toolset(settings)
    async with serving(client, with_tools, task_queue=unique):
        pass
    async with serving(client, without, task_queue=unique):
        handle = await client.start_workflow("RunPlan", {"plan": _PLAN}, id=unique, task_queue=unique)

        async def is_waiting_for_its_worker() -> bool:
            events = (await handle.fetch_history()).events
            scheduled = [event for event in events if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED]
            return [each.activity_task_scheduled_event_attributes.activity_type.name for each in scheduled] == [
                "compile_plan",
                "later_greeting",
            ]

        await eventually(is_waiting_for_its_worker)
        # The SDK lets no client have two workers of one queue.
        other = await Client.connect(client.service_client.config.target_host, data_converter=client.data_converter)
        async with serving(other, with_tools, task_queue=unique):
            document = await handle.result()
    assert document["output"] == "hello Ann"


async def test_unannounced_tool_is_unknown(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    assert await find_published_tools(store, ["nobody"], task_queue="a queue") == {}
