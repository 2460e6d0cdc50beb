"""Calls that wait for a worker: wait marks, notes, queue names, and tools published to other workers.

Wait marks show running nodes as waiting.
"""

import asyncio
import re
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs
from temporalio.api.enums.v1 import TaskQueueType

from dagwright.core.boundary.wire import PAUSED_FOR_MISSING_TOOL, PAUSED_FOR_TOOL
from dagwright.core.model.tools import ToolDeclaration
from dagwright.history.queues import OpenCall, Queue, WaitMarks, no_worker_notes, paused_call_notes, waiting_reason
from dagwright.plans.preparation import check_plan, prepare_plan
from dagwright.settings import Settings
from dagwright.tools import ToolLoadError
from dagwright.tools.queue_names import queue_name, queue_of_plan
from dagwright.toolset.tool_directory import find_published_card, find_published_tools, publish_cards, publish_tools
from dagwright.toolset.toolset import Toolset, load_toolset, references_of
from tests.support.agent_harness import card_of
from tests.support.memory_store import MemoryStore
from tests.support.plan_building import node, plan_of, started_run

_ACTIVITIES = TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY
_WORKFLOWS = TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW


def _call(task: str, tool: str = "mark", *, queue: str = "q", is_foreign: bool = False) -> OpenCall:
    call_queue = Queue(queue, _ACTIVITIES)
    return OpenCall(call_queue, is_started=False, scheduled_at=1.0, task=task, tool=tool, is_foreign=is_foreign)


def _messages(*calls: OpenCall, tools: tuple[str, ...] = ()) -> list[object]:
    return [note["message"] for note in no_worker_notes(calls, run_id="it's", tools=tools)]


START_HINT = "start one with `dagwright worker --tools"


def test_no_worker_note_has_the_queue_the_tools_and_a_command() -> None:
    tool_options = "'/my tools.py' --tools more --tools-queue q`"
    assert _messages(_call("a"), _call("b"), _call("c", "other"), tools=("/my tools.py", "more")) == [
        f"no worker serves the queue 'q' of mark, other; {START_HINT} {tool_options}"
    ]
    placeholder_options = "FILE --tools-queue q`, where FILE is the file or module of the tool"
    assert _messages(_call("a")) == [f"no worker serves the queue 'q' of mark; {START_HINT} {placeholder_options}"]
    workflow_call = OpenCall(Queue("mine", _WORKFLOWS), is_started=False, scheduled_at=1.0)
    assert _messages(workflow_call) == [
        "no worker serves the queue 'mine', so the run cannot continue; "
        "start one with `dagwright watch 'it'\"'\"'s'` or `dagwright worker --task-queue mine`"
    ]
    message = "no worker serves the queue 'q' of mark; start your own worker for this queue"
    notes = no_worker_notes([_call("a", is_foreign=True)], run_id="x", tools=())
    assert notes == [{"code": "no_worker", "node_id": "a", "message": message}]


def test_note_of_a_queue_of_a_file_names_the_file() -> None:
    queues = [queue_name("/my tools.py", task_queue=task_queue) for task_queue in ("dagwright", "team")]
    watch = "`dagwright watch 'it'\"'\"'s'`"
    command = "dagwright worker --tools '/my tools.py' --agents /a.yaml"
    calls = [_call("a", queue=queue) for queue in queues]
    assert _messages(*calls, tools=("/my tools.py", "agents:/a.yaml")) == [
        f"no worker serves the queue {queues[0]!r} of mark; start one with {watch} or `{command}`",
        f"no worker serves the queue {queues[1]!r} of mark; start one with {watch} or `{command} --task-queue team`",
    ]
    assert _messages(_call("a", queue="shop"), tools=("/my tools.py", "queue:shop")) == [
        f"no worker serves the queue 'shop' of mark; start one with {watch} or "
        "`dagwright worker --tools '/my tools.py' --tools-queue shop`"
    ]


def test_note_of_a_queue_of_another_file_does_not_name_the_files_of_the_run() -> None:
    main_queue, module_queue = (queue_name(file, task_queue="dagwright") for file in ("/main.py", "shop.tools"))
    main_hint = f"{START_HINT} FILE --tools-queue {main_queue}`, where FILE is the file or module of the tool"
    assert _messages(_call("a", queue=main_queue), _call("b", queue=module_queue), tools=("/my tools.py",)) == [
        f"no worker serves the queue {main_queue!r} of mark; {main_hint}",
        f"no worker serves the queue {module_queue!r} of mark; {START_HINT} shop.tools`",
    ]
    workflow_call = OpenCall(Queue(main_queue, _WORKFLOWS), is_started=False, scheduled_at=1.0)
    message = f"no worker serves the queue {main_queue!r}, so the run cannot continue; {main_hint}"
    assert _messages(workflow_call) == [message]


def test_note_of_a_queue_of_a_file_in_the_current_folder_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = str(tmp_path / "shop.py")
    queues = [queue_name(file, task_queue=task_queue) for task_queue in ("dagwright", "team")]
    assert _messages(*(_call("a", queue=queue) for queue in queues)) == [
        f"no worker serves the queue {queues[0]!r} of mark; {START_HINT} {file}`",
        f"no worker serves the queue {queues[1]!r} of mark; {START_HINT} {file} --task-queue team`",
    ]


def test_note_of_paused_calls_explains_how_to_resume_them() -> None:
    reason = f"{PAUSED_FOR_TOOL} by ann at noon"
    paused_calls = [replace(_call(task), pause_reason=reason) for task in ("a", "b")]
    missing_tool_reason = f"{PAUSED_FOR_MISSING_TOOL}: the worker w serves the queue 'q' and has no tool 'mark'"
    manually_paused_call = replace(_call("c"), pause_reason="paused by eve")
    reasons = [waiting_reason(call) for call in (*paused_calls, manually_paused_call)]
    assert reasons == [reason, reason, "paused by eve"]
    tool_message = "mark: tool paused by ann at noon; 2 calls wait; `dagwright tool resume mark` resumes them"
    call_message = "mark: paused by eve; its call waits; `temporal activity unpause` resumes it"
    assert paused_call_notes([*paused_calls, manually_paused_call]) == [
        {"code": "tool_paused", "node_id": None, "message": tool_message},
        {"code": "call_paused", "node_id": "c", "message": call_message},
    ]
    [note] = paused_call_notes([replace(_call("d"), pause_reason=missing_tool_reason)])
    assert (note["code"], note["node_id"]) == ("tool_missing", "d")
    assert note["message"] == (
        f"mark: {missing_tool_reason}; its call waits; start a worker of this queue that has the tool, or a tool that "
        "replaces it (`aliases=['mark']`): the call continues by itself"
    )
    missing_agent_reason = f"{PAUSED_FOR_MISSING_TOOL}: the worker w serves the queue 'q' and has no agent 'desk'"
    [note] = paused_call_notes([replace(_call("d"), tool="agent.desk", pause_reason=missing_agent_reason)])
    assert "its call waits; start a worker of this queue that has the agent: the call" in str(note["message"])


def test_wait_marks_are_shown_and_removed() -> None:
    scheduler = started_run(node("a"), node("each", for_each=[1, 2]), node("half", for_each=[1, 2]))

    def statuses() -> list[tuple[str, str | None]]:
        return [(record.status, record.reason) for record in scheduler.records]

    def item_statuses() -> list[tuple[str, str | None]]:
        return [(item.record.status, item.record.reason) for item in scheduler.records[2].items]

    statuses_before = statuses()
    marks = WaitMarks()
    reason = waiting_reason(_call("a"))
    marks.put(scheduler, dict.fromkeys(("a", "each[0]", "each[1]", "half[1]", "unknown"), reason))
    waiting_status, running_status = ("waiting", "no worker for mark"), ("running", None)
    assert statuses() == [waiting_status, waiting_status, running_status]
    assert item_statuses() == [running_status, waiting_status]
    marks.put(scheduler, {"half[1]": reason})
    assert scheduler.records[0].status == "running"
    marks.clear()
    scheduler.complete("half[1]", 1, at=1.0)
    assert (statuses(), item_statuses()[1]) == (statuses_before, ("completed", None))


_TOOL_SOURCE = "from dagwright.tools import tool\n\n\n@tool(effects='read')\ndef {name}() -> int:\n    return 1\n"


def _write_tools(folder: Path, *names: str) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "tools.py"
    file.write_text("".join(_TOOL_SOURCE.format(name=name) for name in names), encoding="utf-8")
    return str(file)


def _load_toolset(folder: Path, *references: str, **settings: Any) -> Toolset:
    return load_toolset(Settings(state_dir=folder / "state", **settings), references)


def test_queue_name_depends_only_on_path_and_task_queue(tmp_path: Path) -> None:
    first_file, second_file = _write_tools(tmp_path / "first", "a"), _write_tools(tmp_path / "second", "b")
    [name] = _load_toolset(tmp_path, first_file).user_queues
    assert re.fullmatch(r"dagwright:tools-[a-z2-7]{6}", name)
    assert name == queue_name(f"{tmp_path}/second/../first/tools.py", task_queue="dagwright")
    second_name = queue_name(second_file, task_queue="dagwright")
    assert _load_toolset(tmp_path, first_file, second_file).user_queues == (name, second_name)
    assert queue_name(first_file, task_queue="team") == name.replace("dagwright:", "team:")
    assert queue_name("shop.tools", task_queue="dagwright") == "dagwright:shop.tools"
    assert queue_name(f"agents:{tmp_path}/my desk.yaml", task_queue="q").startswith("q:my_desk-")
    # The queue name of a link does not depend on its target.
    names = set()
    for release in ("first", "second"):
        (tmp_path / "current").unlink(missing_ok=True)
        (tmp_path / "current").symlink_to(tmp_path / release)
        names |= {*_load_toolset(tmp_path, str(tmp_path / "current" / "tools.py")).user_queues}
    assert len(names) == 1


def test_chosen_queue_serves_all_tools_and_is_in_the_references(tmp_path: Path) -> None:
    files = [_write_tools(tmp_path / "first", "a"), _write_tools(tmp_path / "second", "b")]
    toolset = _load_toolset(tmp_path, *references_of(files, [], "shop"))
    assert (toolset.user_queues, toolset.references) == (("shop",), (*files, "queue:shop"))
    assert _load_toolset(tmp_path, *files, tools_queue="shop").references == toolset.references
    with pytest.raises(ToolLoadError, match="'/_sys/x' cannot be the name of a task queue"):
        _load_toolset(tmp_path, *files, "queue:/_sys/x")


def _queue_of(*nodes: dict[str, Any]) -> str | None:
    declarations = {"a": ToolDeclaration("a", task_queue="qa"), "b": ToolDeclaration("b", task_queue="qb")}
    declarations["plain"] = ToolDeclaration("plain")
    declarations["foreign"] = ToolDeclaration("foreign", task_queue="elsewhere", is_foreign=True)
    return queue_of_plan(prepare_plan(check_plan(plan_of(*nodes), declarations), {}))


def test_queue_of_a_plan_is_the_queue_of_most_nodes() -> None:
    tools = ["b", "a", "foreign", "plain", "a"]
    assert _queue_of(*(node(f"n{number}", tool=tool) for number, tool in enumerate(tools))) == "qa"
    assert _queue_of(node("sub", plan=plan_of(node("x", tool="b")))) == "qb"
    assert _queue_of(node("p", tool="plain"), node("f", tool="foreign")) is None


_TOOLS = [ToolDeclaration(f"tool {number}") for number in range(20)]


class _BarrierStore(MemoryStore):
    """Store whose writes wait until all tools are being written."""

    def __init__(self) -> None:
        super().__init__()
        self._write_barrier = asyncio.Barrier(len(_TOOLS))

    async def put_cache_entry(self, key: str, content: bytes, *, expires_at: datetime) -> None:
        await self._write_barrier.wait()
        await super().put_cache_entry(key, content, expires_at=expires_at)


async def test_tools_are_published_concurrently_and_an_unavailable_store_is_logged() -> None:
    store = _BarrierStore()
    async with asyncio.timeout(30):
        await publish_tools(store, _TOOLS, task_queue="q")
    names = [tool.name for tool in _TOOLS]
    assert await find_published_tools(store, [*names, "other"], task_queue="q") == dict(zip(names, _TOOLS, strict=True))
    assert await find_published_tools(store, names, task_queue="another") == {}
    unavailable_store = MemoryStore()
    unavailable_store.is_down = True
    with capture_logs() as logs:
        await publish_tools(unavailable_store, _TOOLS, task_queue="q")
    (record,) = logs
    assert (record["event"], record["log_level"]) == ("the tools could not be published to other workers", "warning")
    assert unavailable_store.cached_contents == {}


async def test_agent_card_is_found_by_name_and_version() -> None:
    store = MemoryStore()
    cards = [card_of("llm", prompt="One"), card_of("llm", prompt="Two")]
    await publish_cards(store, cards)
    assert [await find_published_card(store, "helper", card.version) for card in cards] == cards
    assert await find_published_card(store, "other", cards[0].version) is None
    assert await find_published_card(store, "helper", "0123456789ab") is None
