"""What waits for a worker: how it is marked in a run, and what is said of it."""

from dataclasses import replace

from temporalio.api.enums.v1 import TaskQueueType

from dagwright.contracts.wire import PAUSED_AS_MISSING, PAUSED_AS_PARKED
from dagwright.plan.scheduler import Scheduler
from dagwright.preparation import check_plan, prepare_plan
from dagwright.queues import OpenCall, Queue, WaitMarks, held_notes, notes_of, reason_of
from dagwright.tool_queues import queue_name

_ACTIVITIES = TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY
_WORKFLOWS = TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW


def _call(task: str, tool: str = "mark", *, queue: str = "q", is_foreign: bool = False) -> OpenCall:
    call_queue = Queue(queue, _ACTIVITIES)
    return OpenCall(call_queue, is_taken=False, scheduled_at=1.0, task=task, tool=tool, is_foreign=is_foreign)


def _messages(*calls: OpenCall, tools: tuple[str, ...] = ()) -> list[object]:
    return [note["message"] for note in notes_of(calls, workflow_id="it's", tools=tools)]


def test_note_names_queue_tools_and_a_command_that_can_be_copied() -> None:
    assert _messages(_call("a"), _call("b"), _call("c", "other"), tools=("/my tools.py", "more")) == [
        "no worker serves the queue 'q' of mark, other; start one with "
        "`python worker.py --tools '/my tools.py' --tools more --tools-queue q`"
    ]


def test_note_of_a_queue_that_a_file_leads_to_names_the_file_alone() -> None:
    ours, theirs = (queue_name("/my tools.py", task_queue=home) for home in ("dagwright", "team"))
    watch = "`dagwright watch 'it'\"'\"'s'`"
    command = "python worker.py --tools '/my tools.py' --agents /a.yaml"
    assert _messages(_call("a", queue=ours), _call("b", queue=theirs), tools=("/my tools.py", "agents:/a.yaml")) == [
        f"no worker serves the queue {ours!r} of mark; start one with {watch} or `{command}`",
        f"no worker serves the queue {theirs!r} of mark; start one with {watch} or `{command} --task-queue team`",
    ]
    assert _messages(_call("a", queue="shop"), tools=("/my tools.py", "queue:shop")) == [
        f"no worker serves the queue 'shop' of mark; start one with {watch} or "
        "`python worker.py --tools '/my tools.py' --tools-queue shop`"
    ]


def test_note_without_a_known_file_says_that_one_is_needed() -> None:
    assert _messages(_call("a")) == [
        "no worker serves the queue 'q' of mark; start one with `python worker.py --tools FILE --tools-queue q`, where "
        "FILE is the file or module of the tool"
    ]


def test_queue_of_the_run_itself_is_told_apart() -> None:
    own = OpenCall(Queue("mine", _WORKFLOWS), is_taken=False, scheduled_at=1.0)
    assert _messages(own) == [
        "no worker serves the queue 'mine', so the run cannot go on; start one with `dagwright watch 'it'\"'\"'s'` or "
        "`python worker.py --task-queue mine`"
    ]


def test_calls_that_the_server_holds_back_are_told_with_what_lets_them_go() -> None:
    words = f"{PAUSED_AS_PARKED} by ann at noon"
    parked = [replace(_call(task), held=words) for task in ("a", "b")]
    missing = f"{PAUSED_AS_MISSING}: the worker w serves the queue 'q' and has no tool 'mark'"
    by_hand = replace(_call("c"), held="paused by eve")
    assert [reason_of(call) for call in (*parked, by_hand)] == [words, words, "paused by eve"]
    assert held_notes([*parked, by_hand]) == [
        {
            "code": "tool_parked",
            "node": None,
            "message": "mark: tool parked by ann at noon; 2 calls wait; `dagwright unpark mark` lets them go",
        },
        {
            "code": "call_paused",
            "node": "c",
            "message": "mark: paused by eve; its call waits; `temporal activity unpause` lets it go",
        },
    ]
    assert held_notes([replace(_call("d"), held=missing)]) == [
        {
            "code": "tool_missing",
            "node": "d",
            "message": f"mark: {missing}; its call waits; add the tool to the file again, or name it in the tool that "
            "replaces it (`aliases=['mark']`), and start the worker again: the call continues by itself",
        }
    ]


def test_held_call_of_an_agent_is_told_with_the_agent_as_its_fix() -> None:
    why = f"{PAUSED_AS_MISSING}: the worker w serves the queue 'q' and has no agent 'desk'"
    [note] = held_notes([replace(_call("d"), tool="agent.desk", held=why)])
    assert "its call waits; add the agent to the file again, and start the worker again" in str(note["message"])


def test_only_its_owner_can_start_a_foreign_worker() -> None:
    notes = notes_of([_call("a", is_foreign=True)], workflow_id="x", tools=())
    message = "no worker serves the queue 'q' of mark; start the worker of your own that serves it"
    assert notes == [{"code": "no_worker", "node": "a", "message": message}]


def test_marks_show_what_waits_and_leave_no_trace() -> None:
    nodes = [
        {"id": "a", "tool": "mark"},
        {"id": "each", "tool": "mark", "for_each": [1, 2]},
        {"id": "half", "tool": "mark", "for_each": [1, 2]},
    ]
    scheduler = Scheduler(prepare_plan(check_plan({"plan": 1, "nodes": nodes}, {}, any_tool=True), {}), {})
    scheduler.begin(0.0)
    while scheduler.next_task(0.0) is not None:
        pass
    before = [(record.status, record.reason) for record in scheduler.records]
    marks = WaitMarks()
    reason = reason_of(_call("a"))
    marks.put(scheduler, dict.fromkeys(("a", "each[0]", "each[1]", "half[1]", "nobody"), reason))

    waiting, running = ("waiting", "no worker for mark"), ("running", None)
    assert [(record.status, record.reason) for record in scheduler.records] == [waiting, waiting, running]
    assert [(item.record.status, item.record.reason) for item in scheduler.records[2].items] == [running, waiting]

    marks.put(scheduler, {"half[1]": reason})
    assert scheduler.records[0].status == "running"
    marks.clear()
    scheduler.complete("half[1]", 1, at=1.0)
    assert [(record.status, record.reason) for record in scheduler.records] == before
    assert (scheduler.records[2].items[1].record.status, scheduler.records[2].items[1].record.reason) == (
        "completed",
        None,
    )
