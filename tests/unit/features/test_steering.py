"""Commands of people for a running plan, without a server: their effects, and the notes about them."""

import math
from collections.abc import Callable
from typing import Any

import pytest

from dagwright.client.node_view import arguments_for_display
from dagwright.core.boundary import wire
from dagwright.core.model.actor import Actor
from dagwright.core.model.requests import MessageSource
from dagwright.core.model.states import NodeError, RunStatus
from dagwright.core.scheduler.readiness import MAX_IN_FLIGHT
from dagwright.core.scheduler.rebuild import Rebuild
from dagwright.features.commands.steering import Cancel, Pause, Resume, SetLimits, apply_command, current_notes
from dagwright.features.deadline import Deadline
from dagwright.features.feedback.feedback_state import MAX_EARLY_ANSWERS
from dagwright.features.run_scheduler import RunScheduler
from dagwright.protocol import commands
from dagwright.protocol.commands import (
    CommandHandler,
    CommandResult,
    accept_sub_plan_report,
    note_unknown_signal,
    read_sub_plan_report,
)
from dagwright.protocol.messages import MessageInvalid
from dagwright.protocol.notes import Notes
from tests.support.plan_building import (
    compiled_plan,
    ids_of,
    node,
    plan_of,
    record_of,
    restored_scheduler,
    scheduler_of,
    start_ready_tasks,
    started_scheduler,
)

ANN = Actor("ann", "too early")
_DEADLINE = {"deadline": Deadline(10.0, 60.0)}


def test_paused_run_starts_nothing_new_until_it_is_resumed() -> None:
    scheduler = scheduler_of(node("a"), node("b", "a"))
    assert ids_of(start_ready_tasks(scheduler)) == ["a"]
    assert apply_command(Pause(ANN), scheduler, at=1.0) is None
    assert scheduler.status() is RunStatus.RUNNING
    scheduler.complete("a", 1, at=2.0)
    scheduler = restored_scheduler(scheduler, max_in_flight=MAX_IN_FLIGHT)
    assert (ids_of(start_ready_tasks(scheduler)), scheduler.status()) == ([], RunStatus.WAITING)
    message = "nothing new starts: paused by ann"
    assert current_notes(scheduler) == [{"code": "paused", "node_id": None, "message": message}]
    assert apply_command(Pause(), scheduler, at=3.0) == "the run is paused already, paused by ann: too early"
    assert apply_command(Resume(), scheduler, at=4.0) is None
    assert apply_command(Resume(), scheduler, at=4.0) == "the run is not paused"
    assert (ids_of(start_ready_tasks(scheduler)), current_notes(scheduler)) == (["b"], [])
    assert apply_command(Pause(), scheduler, at=5.0) is None
    assert apply_command(Pause(), scheduler, at=5.0) == "the run is paused already"
    scheduler.cancel(6.0)
    assert apply_command(Pause(ANN), scheduler, at=7.0) == "the run is being stopped"
    scheduler.task_cancelled("b", at=7.0)
    assert scheduler.status() is RunStatus.CANCELLED


def _limited_scheduler(max_in_flight: int) -> RunScheduler:
    plan = compiled_plan(plan_of(*map(node, "abcd")))
    return started_scheduler(plan, setup=_DEADLINE, at=10.0, max_in_flight=max_in_flight)


def test_raised_limit_starts_more_nodes_and_lowered_limit_fewer() -> None:
    scheduler = _limited_scheduler(1)
    assert ids_of(start_ready_tasks(scheduler)) == ["a"]
    assert apply_command(SetLimits(2), scheduler, at=11.0) is None
    assert ids_of(start_ready_tasks(scheduler)) == ["b"]
    assert apply_command(SetLimits(1), scheduler, at=12.0) is None
    scheduler.complete("a", 1, at=13.0)
    assert (ids_of(start_ready_tasks(scheduler)), scheduler.in_flight) == ([], 1)
    scheduler.complete("b", 1, at=14.0)
    assert ids_of(start_ready_tasks(scheduler)) == ["c"]
    assert apply_command(SetLimits(MAX_IN_FLIGHT), scheduler, at=15.0) is None
    assert ids_of(start_ready_tasks(scheduler)) == ["d"]


def test_changed_deadline_counts_from_the_start_and_names_its_actor() -> None:
    scheduler = _limited_scheduler(1)
    rejection = "the run started 10 s ago, and a deadline counts from the start: set a longer one"
    assert apply_command(SetLimits(deadline_s=10.0), scheduler, at=20.0) == rejection
    assert apply_command(SetLimits(deadline_s=15.0, actor=ANN), scheduler, at=20.0) is None
    scheduler.features.deadline.expire(24.9)
    assert not scheduler.is_stopped
    successor = restored_scheduler(scheduler, setup=_DEADLINE)
    successor.features.deadline.expire(25.0)
    expected = NodeError("deadline_exceeded", "the run exceeded its deadline of 15 s, set by ann")
    assert (successor.state.error, successor.state.max_in_flight) == (expected, 1)
    assert apply_command(SetLimits(deadline_s=math.inf), scheduler, at=21.0) is None
    scheduler.features.deadline.expire(1e9)
    assert (scheduler.is_stopped, scheduler.features.deadline.deadline.at) == (False, None)
    scheduler.cancel(30.0)
    assert apply_command(SetLimits(2), scheduler, at=31.0) == "the run is being stopped"


def test_ended_run_rejects_commands_and_stopped_run_rejects_a_second_cancellation() -> None:
    scheduler = _limited_scheduler(500)
    for name in ids_of(start_ready_tasks(scheduler)):
        scheduler.complete(name, 1, at=11.0)
    rejections = [apply_command(command, scheduler, at=12.0) for command in (Cancel(), Pause(), SetLimits(2))]
    assert rejections == ["the run has ended"] * 3
    assert scheduler.status() is RunStatus.COMPLETED
    scheduler = _limited_scheduler(500)
    assert apply_command(Cancel(ANN), scheduler, at=12.0) is None
    assert apply_command(Cancel(), scheduler, at=12.0) == "the run is being stopped already"


def test_displayed_arguments_have_the_known_values_but_no_secrets() -> None:
    scheduler = scheduler_of(
        node("a", arguments={"x": "{{PLACEHOLDER_n}}", "key": "{{secret.KEY}}"}),
        node("b", arguments={"x": "{{a.result}}"}),
        node("each", for_each=[1, 2], arguments={"x": "{{item}}"}),
        inputs={"n": 1},
    )
    arguments_before = arguments_for_display(scheduler.state, "b")
    task_ids = {task.id for task in start_ready_tasks(scheduler)}
    scheduler.complete("a", {"y": 2}, at=1.0)
    assert task_ids == {"a", "each[0]", "each[1]"}
    assert arguments_before is None
    assert arguments_for_display(scheduler.state, "a") == {"x": 1, "key": "{{secret.KEY}}"}
    assert arguments_for_display(scheduler.state, "b") == {"x": {"y": 2}}
    expected = [None, {"x": 2}, None]
    assert [arguments_for_display(scheduler.state, name) for name in ("each", "each[1]", "none")] == expected


class _FakeRun:
    """Run that receives messages and records notes."""

    def __init__(self) -> None:
        self.notes = Notes()
        self.commands = CommandHandler(self.notes)
        self.scheduler: RunScheduler | None = None

    @classmethod
    def create_started(cls, *nodes: dict[str, Any]) -> "_FakeRun":
        run = cls()
        run.start(*nodes)
        return run

    def send(self, name: str, message: Any = None, *, source: MessageSource = "signal") -> CommandResult:
        return self.handle(name, lambda: message, source=source)

    def handle(self, name: str, read_message: Callable[[], Any], *, source: MessageSource = "signal") -> CommandResult:
        return self.commands.handle(name, read_message, source=source, scheduler=self.scheduler, at=2.0)

    def start(self, *nodes: dict[str, Any]) -> RunScheduler:
        self.scheduler = scheduler_of(*(nodes or (node("a"), node("b"))))
        self.commands.apply_stored_commands(self.scheduler, at=1.0)
        return self.scheduler

    @property
    def reported_notes(self) -> list[tuple[str, str]]:
        return [(note["code"], note["message"]) for note in self.notes.to_json()]


_STORED = CommandResult(confirmation="stored until the run has loaded its plan")


def _raise_message_invalid() -> Any:
    raise MessageInvalid("the payload is not JSON: x")


def _raise_key_error(*_: Any, **__: Any) -> Any:
    raise KeyError("x")


def test_early_commands_are_applied_in_order_when_the_run_has_its_plan() -> None:
    run = _FakeRun()
    first_result = run.send(wire.PAUSE, {"by": "ann"}, source="update")
    run.send(wire.SET_LIMITS, {"max_parallel": 1, "by": "ann"})
    run.send(wire.PAUSE, {"by": "bob"}, source="update")
    run.send(wire.RESUME)
    assert (first_result, run.reported_notes) == (_STORED, [])
    scheduler = run.start()
    assert ids_of(start_ready_tasks(scheduler)) == ["a"]
    assert run.reported_notes == [
        ("pause", "paused by ann"),
        ("set_limits", "max_parallel 1 set by ann"),
        ("message_rejected", "pause: the run is paused already, paused by ann"),
        ("resume", "resumed"),
    ]


@pytest.mark.parametrize("is_early", [True, False])
def test_command_that_comes_as_update_and_as_signal_is_applied_once(is_early: bool) -> None:
    run = _FakeRun()
    if not is_early:
        run.start()
    pause = (wire.PAUSE, {"by": "ann", "command_id": "1"})
    limits = (wire.SET_LIMITS, {"max_parallel": 1, "by": "ann", "command_id": "2"})
    cancel = (wire.CANCEL, {"by": "ann", "command_id": "3"})
    # A slow worker gets several updates before the signals with the same commands.
    for name, message in (pause, limits, cancel):
        run.send(name, message, source="update")
    for name, message in (pause, limits, cancel):
        assert run.commands.rejection_of(name, lambda: message, scheduler=run.scheduler, at=2.0) is None  # noqa: B023
    results = [run.send(name, message) for name, message in (pause, limits, cancel)]
    if is_early:
        run.start()
    assert [result.rejection for result in results] == [None] * 3
    expected = [("pause", "paused by ann"), ("set_limits", "max_parallel 1 set by ann"), ("cancel", "cancelled by ann")]
    assert run.reported_notes == expected


def test_equal_commands_with_different_or_no_ids_are_all_applied() -> None:
    run = _FakeRun.create_started()
    for command_id in ({"command_id": "1"}, {"command_id": "2"}, {}, {"command_id": 3}):
        run.send(wire.PAUSE, {"by": "ann", **command_id})
        run.send(wire.RESUME, {"by": "ann"})
    assert [code for code, _ in run.reported_notes] == ["pause", "resume"] * 4


def test_rejected_messages_leave_one_note_each() -> None:
    run = _FakeRun.create_started()
    run.send(wire.CANCEL, {"by": "ann"}, source="update")
    run.send(wire.CANCEL, {"by": "bob"})
    run.send(wire.CANCEL, {"by": "bob"})
    rejection_note = ("message_rejected", "cancel: the run is being stopped already")
    assert run.reported_notes == [("cancel", "cancelled by ann"), rejection_note, rejection_note]
    run = _FakeRun()
    for number in range(MAX_EARLY_ANSWERS + 1):
        run.send(wire.SIGNAL_FEEDBACK, {"request_id": f"r{number}", "answer": {}})
    rejection = "feedback: the run has not loaded its plan, and stores at most 1,000 messages"
    assert run.reported_notes[-1][1].startswith(rejection)
    assert run.send(wire.CANCEL).rejection is None
    assert run.start().status() is RunStatus.CANCELLED


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (wire.RETRY_NODE, {"node_id": "a"}),
        (wire.ADD_NODES, {"nodes": [{"id": "more", "tool": "no_op"}]}),
        (wire.SET_POLICY, {"policy": {"otherwise": "run"}}),
        (wire.CANCEL, None),
    ],
)
def test_run_that_reports_its_end_rejects_commands(name: str, message: Any) -> None:
    run = _FakeRun()
    scheduler = run.start()
    for task in start_ready_tasks(scheduler):
        scheduler.fail(task.id, NodeError("odd", "x"), at=2.0)
    run.commands.reject_further_commands()
    rejection = run.commands.rejection_of(name, lambda: message, scheduler=scheduler, at=2.0)
    results = [run.send(name, message, source="update"), run.send(name, message)]
    assert (rejection, results) == ("the run has ended", [CommandResult("the run has ended")] * 2)
    assert (scheduler.is_finished, run.reported_notes) == (True, [("message_rejected", f"{name}: the run has ended")])


def test_first_valid_early_answer_is_applied_and_other_answers_are_rejected_with_reasons() -> None:
    run = _FakeRun()
    for by, answer in (("eve", 17), ("ann", {"approved": True}), ("bob", {"approved": False})):
        message = {"request_id": "check", "answer": answer, "by": by}
        assert run.commands.rejection_of(wire.SIGNAL_FEEDBACK, lambda: message, scheduler=None, at=0.5) is None  # noqa: B023
        assert run.send(wire.SIGNAL_FEEDBACK, message) == _STORED
    scheduler = run.start(node("check", human={"type": "APPROVAL", "prompt": "May it?"}))
    assert record_of(scheduler, "check").result == {"approved": True, "reason": None}
    closed_request = scheduler.features.feedback.requests.closed["check"]
    rejection = '\'check\': expected an object such as {"approved": true, "reason": "…"}, not 17'
    assert run.reported_notes == [
        ("message_rejected", f"feedback: {rejection}"),
        ("message_rejected", f"feedback: {closed_request.reason('check')}"),
    ]
    assert closed_request.by == "ann"


@pytest.mark.parametrize("name", [wire.PAUSE, wire.CANCEL])
def test_unreadable_message_is_rejected_unless_it_pauses_or_cancels(name: str) -> None:
    run = _FakeRun.create_started()
    assert run.handle(name, _raise_message_invalid).rejection is None
    run = _FakeRun.create_started()
    reason = "the payload is not JSON: x"
    results = [run.handle(wire.SET_LIMITS, _raise_message_invalid, source=source) for source in ("signal", "update")]
    assert results[0].rejection == results[1].rejection
    assert run.commands.rejection_of(wire.SET_LIMITS, _raise_message_invalid, scheduler=run.scheduler, at=2.0) == reason
    assert run.reported_notes == [("message_rejected", f"set_limits: {reason}")]


def test_defect_in_decoding_rejects_messages_but_the_run_can_still_be_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = _FakeRun()
    scheduler = run.start()
    monkeypatch.setattr(commands, "decode_command", _raise_key_error)
    rejection = "InternalError: KeyError: 'x'"
    result = run.send(wire.RETRY_NODE, {"node_id": "a"})
    assert (result.rejection, type(result.error)) == (rejection, KeyError)
    assert run.commands.rejection_of(wire.PAUSE, dict, scheduler=scheduler, at=2.0) == rejection
    cancel_result = CommandResult(confirmation="the run is being stopped", note=("cancel", "cancelled"))
    assert run.send(wire.CANCEL, {"by": "ann"}) == cancel_result
    assert run.reported_notes == [
        ("message_rejected", f"retry_node: {rejection}"),
        ("message_rejected", f"cancel: {rejection}"),
        ("cancel", "cancelled"),
    ]
    assert scheduler.status() is RunStatus.CANCELLED


def test_defect_of_an_early_command_does_not_affect_the_next_command(monkeypatch: pytest.MonkeyPatch) -> None:
    run = _FakeRun()
    run.send(wire.SET_LIMITS, {"max_parallel": 1})
    run.send(wire.PAUSE, {"by": "ann"})
    monkeypatch.setattr(Rebuild, "set_max_in_flight", _raise_key_error)
    assert ids_of(start_ready_tasks(run.start())) == []
    assert run.reported_notes == [
        ("message_rejected", "set_limits: InternalError: KeyError: 'x'"),
        ("pause", "paused by ann"),
    ]


def test_unexpected_reports_and_unknown_signals_are_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    run = _FakeRun()
    scheduler = run.start()
    report = read_sub_plan_report(lambda: {"task": "a", "status": "completed"}, run.notes)
    assert report is not None
    assert not accept_sub_plan_report(report, scheduler, run.notes)
    assert read_sub_plan_report(lambda: None, run.notes) is None
    note_unknown_signal("ring", run.notes)
    monkeypatch.setattr(commands, "sub_plan_end_from_json", _raise_key_error)
    assert read_sub_plan_report(lambda: None, run.notes) is None
    assert run.reported_notes == [
        ("message_rejected", "sub_plan_ended: 'a' is not a sub-plan of this run"),
        ("message_rejected", "sub_plan_ended: a report of a sub-plan must be an object with the id of its task"),
        ("message_rejected", "'ring' is not a signal of a run"),
        ("message_rejected", "sub_plan_ended: InternalError: KeyError: 'x'"),
    ]
