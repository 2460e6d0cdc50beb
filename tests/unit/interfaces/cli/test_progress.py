"""Progress display of a run: the tree, the rows that fit, and a line for each change."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from dagwright.core.model.requests import Feedback
from dagwright.core.model.states import Attempt, NodeError, NodeStatus
from dagwright.core.model.times import format_elapsed_time
from dagwright.core.scheduler.map_items import MapBatchEnd
from dagwright.features.run_scheduler import RunScheduler
from dagwright.history.pending_activities import PendingCall
from dagwright.history.run_view import RunView
from dagwright.interfaces.cli.live_display import LiveDisplay, RunDisplay
from dagwright.interfaces.cli.progress_lines import LineWriter
from dagwright.interfaces.cli.progress_tree import LOST, LOST_WITHOUT_RETRY, RunRows, progress_of, tree_of
from dagwright.protocol.run_input import RunInput
from tests.support.plan_building import node
from tests.unit.interfaces.cli.open_requests import open_request
from tests.unit.interfaces.cli.views import START, scheduler_of, start_all_ready_tasks, view_of

Step = Callable[[RunScheduler], None]


def _progress(view: RunView, *, max_rows: int = 40) -> RunRows:
    return progress_of(view, tree_of(scheduler_of(view).plan), now=START + 2, max_rows=max_rows)


def _complete(*names: str) -> Step:
    def step(scheduler: RunScheduler) -> None:
        for name in names:
            scheduler.complete(name, None, at=START + 1)

    return step


def _fail(name: str, message: str = "broke", *, completed_names: Sequence[str] = (), attempt: int = 1) -> Step:
    """Return a step that completes tasks and then fails a task."""

    def step(scheduler: RunScheduler) -> None:
        _complete(*completed_names)(scheduler)
        scheduler.fail(name, NodeError("failed", message), at=START + 1, attempt=Attempt(attempt))

    return step


def _draw(view: RunView, *requests: Any, width: int = 100, height: int = 40, **options: Any) -> list[str]:
    console = Console(width=width, record=True, file=StringIO(), no_color=True, force_terminal=False)
    console.print(RunDisplay().draw(view, requests, now=START + 2, height=height, width=width, **options))
    return [line.rstrip() for line in console.export_text().splitlines()]


class WrittenLines(list[str]):
    """Lines that `writer` writes, without their times."""

    def __init__(self) -> None:
        super().__init__()
        self.writer = LineWriter(lambda line: self.append(line[10:]))


def test_each_node_is_under_its_deepest_dependency() -> None:
    view = view_of(node("a"), node("b", "a"), node("late"), node("c", "a", "b"), node("d", "late"))
    rows = _progress(view).rows
    assert [(row.indent, row.name) for row in rows] == [(0, "a"), (1, "b"), (2, "c"), (0, "late"), (1, "d")]


def test_rows_that_do_not_fit_are_counted_by_state() -> None:
    step = _fail("n95", completed_names=[f"n{number}" for number in range(90)])
    progress = _progress(view_of(*(node(f"n{number}") for number in range(100)), step=step), max_rows=12)
    assert [row.name for row in progress.rows] == ["n90", "n91", "n92", "n93", "n94", "n95", "n96"]
    assert [(row.name, row.detail) for row in progress.groups] == [("3 more", "running"), ("90 more", "completed")]
    assert (progress.done, progress.total) == (91, 100)
    assert progress.eta_s == pytest.approx(2.0 / 91 * 9)


def test_items_of_a_map_are_shown_as_a_bar_with_remaining_time_and_failures() -> None:
    step = _fail("fan[19]", completed_names=[f"fan[{number}]" for number in range(19)])
    map_row, *item_rows = _progress(view_of(node("fan", for_each=list(range(40))), step=step), max_rows=4).rows
    assert (map_row.name, map_row.done, map_row.total) == ("fan", 20, 40)
    assert map_row.eta_s == pytest.approx(2.0)
    assert [(row.name, row.detail) for row in item_rows] == [("fan[19]", "broke"), ("fan[20]", ""), ("fan[21]", "")]


def test_items_of_a_large_map_are_counted_when_their_batch_ends() -> None:
    end = MapBatchEnd(NodeStatus.FAILED, {"completed": 100, "skipped": 20, "failed": 6}, error=NodeError("odd", "no"))
    view = view_of(node("fan", for_each=list(range(501))))
    scheduler_of(view).end_map_batch("fan[0-125]", end, at=START + 1)
    assert [(row.name, row.done, row.total) for row in _progress(view).rows] == [("fan", 126, 501)]


LOST_DETAIL = "was running when its worker died; it is retried at the latest in 28.0 s"


@pytest.mark.parametrize(
    ("call", "detail"),
    [
        (PendingCall(1, "started"), ""),
        (PendingCall(1, "scheduled"), ""),
        (PendingCall(3, "backing_off", "no route", START + 6), "again in 4.0 s: no route"),
        (PendingCall(1, "cancelling"), "stopping"),
        (PendingCall(2, "started", "activity Heartbeat timeout"), "its worker died or hung"),
        (PendingCall(1, LOST, next_attempt_at=START + 30), LOST_DETAIL),
    ],
)
def test_row_of_a_running_node_shows_its_pending_call(call: PendingCall, detail: str) -> None:
    row = _progress(view_of(node("a"), pending_calls={"a": call})).rows[0]
    assert (row.attempts, row.detail, row.elapsed_s) == (call.attempt, detail, 2.0)


def test_durations_have_at_most_two_units() -> None:
    texts = {0.32: "320 ms", 3.21: "3.2 s", 245: "4 min 5 s", 7_500: "2 h 5 min"}
    assert {seconds: format_elapsed_time(seconds) for seconds in texts} == texts


@pytest.mark.parametrize(
    ("run_input", "text"), [(None, "starting"), (RunInput(), "starting"), (RunInput(plan={}), "reading the plan")]
)
def test_display_without_a_plan_shows_the_state(run_input: RunInput | None, text: str) -> None:
    assert _draw(replace(view_of(node("a")), scheduler=None, run_input=run_input))[-1].strip() == text


def test_display_shows_the_sign_of_each_state_and_escapes_texts() -> None:
    view = view_of(node("a"), node("b", "a"), node("c"), step=_fail("a", "[bold]broke\x1b[2J", attempt=3))
    assert [" ".join(line.split()) for line in _draw(view)] == [
        "run-1 running 2.0 s",
        "✗ a any 1.0 s attempt 3 [bold]broke\\u001b[2J",
        "⊘ b any Waiting for dependency: a failed",
        "● c any 2.0 s",
        "2 of 3 nodes 1 running 1 failed 1 blocked",
    ]


def test_display_ends_with_the_last_lines_of_the_text_that_a_model_is_writing() -> None:
    live_display = LiveDisplay(Console(width=40, height=12, no_color=True, force_terminal=False))
    live_display.show_answer("".join(f"line {number}\n" for number in range(50)) + f"{'long ' * 8}and the \x1b[2Jend")
    answer_lines = live_display._last_answer_lines()
    expected = ["line 48", "line 49", "long long long long long long long long", "and the \\u001b[2Jend"]
    assert [line.plain.rstrip() for line in answer_lines] == expected
    assert _draw(view_of(node("a")), width=40, answer_lines=answer_lines)[-4:] == expected
    final_lines = _draw(view_of(node("a"), step=_complete("a")), width=40, answer_lines=answer_lines)
    assert not any("line" in line for line in final_lines)


@pytest.mark.parametrize("width", [60, 120])
def test_long_texts_are_truncated_but_not_the_sign_name_and_time(width: int) -> None:
    title = "What the node is for " * 5
    nodes = [node(name, title=title) for name in ("a", "with a name of forty letters and digits 1")]
    view = replace(view_of(*nodes, step=_fail("a", "broke " * 60)), title=title)
    header, *rows, _ = _draw(view, width=width)
    assert (len(header) <= width, header.split()[-3:]) == (True, ["running", "2.0", "s"])
    assert [(row[:3], len(row) <= width) for row in rows] == [("✗ a", True), ("● w", True)]
    assert ["1.0 s" in rows[0], "2.0 s" in rows[1], "broke" in rows[0]] == [True, True, True]


def test_line_writer_writes_each_change_once() -> None:
    lines = WrittenLines()
    first_node = node("a", title="What for")
    view = view_of(first_node, node("b", "a"), pending_calls={"a": PendingCall(1, "started")})
    lines.writer.show(view)
    lines.writer.show(view)
    assert lines == ["running    a  any · What for"]
    lines.writer.show(view_of(first_node, node("b", "a"), pending_calls={"a": PendingCall(2, "started", "no route")}))
    assert lines[1:] == ["running    a (attempt 2: no route)"]

    def finish(scheduler: RunScheduler) -> None:
        scheduler.complete("a", 1, at=START + 1, attempt=Attempt(2))
        start_all_ready_tasks(scheduler)
        scheduler.fail("b", NodeError("failed", "broke"), at=START + 3)

    lines.writer.show(view_of(first_node, node("b", "a"), step=finish))
    assert lines[2:] == ["completed  a  1.0 s, attempt 2", "failed     b  any  3.0 s  broke"]


def test_line_writer_reports_a_lost_worker_once() -> None:
    lines, nodes = WrittenLines(), (node("a"), node("b"))
    view = view_of(*nodes, pending_calls={"a": PendingCall(1, LOST), "b": PendingCall(1, LOST_WITHOUT_RETRY)})
    lines.writer.show(view)
    lines.writer.show(view)
    lines.writer.show(view_of(*nodes, pending_calls={"a": PendingCall(2, "started", "activity Heartbeat timeout")}))
    assert lines == [
        "running    a  any",
        "running    b  any",
        "waiting    a was running when its worker died; it is retried when the server detects this",
        "waiting    b was running when its worker died; it fails when the server detects this",
        "running    a (attempt 2: its worker died or hung)",
    ]


def test_line_writer_reports_escalations_and_the_person_who_answered() -> None:
    question = {"type": "APPROVAL", "prompt": "Go?", "assignee": "ann", "deadline": "10s"}
    human_node = node("q", human={**question, "on_timeout": {"escalate": "boss"}})
    lines = WrittenLines()

    def escalate(scheduler: RunScheduler) -> None:
        scheduler.advance(START + 10)

    def answer(scheduler: RunScheduler) -> None:
        escalate(scheduler)
        scheduler.features.feedback.answer(Feedback("q", {"approved": True}, by="eve"), START + 11)

    for step in (escalate, escalate, answer):
        view = view_of(human_node, step=step)
        open_requests = scheduler_of(view).features.feedback.requests.open.values()
        lines.writer.show(view, [request.to_json("run-1") for request in open_requests])
    escalation_line, answer_line = [line for line in lines if line.startswith(("escalated", "answered"))]
    assert escalation_line == "escalated  q from ann to boss"
    assert answer_line.startswith("answered   q: approved by eve at ")
    assert ["; requested from ann at " in answer_line, ", escalated to boss at " in answer_line] == [True, True]


def test_failed_node_that_continued_with_its_default_shows_its_error() -> None:
    view, lines = view_of(node("a", on_error={"value": 7}), step=_fail("a")), WrittenLines()
    lines.writer.show(view)
    assert lines == ["completed  a  any  1.0 s  failed, continued with the default: broke"]
    assert _progress(view).rows[0].detail == "failed, continued with the default: broke"


def test_cancelled_items_and_nodes_are_not_counted_as_done() -> None:
    def cancel(scheduler: RunScheduler) -> None:
        scheduler.complete("fan[0]", None, at=START + 1)
        scheduler.cancel(START + 1)
        for number in range(1, 10):
            scheduler.task_cancelled(f"fan[{number}]", at=START + 1)

    progress = _progress(view_of(node("fan", for_each=list(range(10))), node("b", "fan"), step=cancel))
    assert (progress.rows[0].done, progress.rows[0].total) == (1, 10)
    assert (progress.done, progress.total) == (0, 2)


def test_request_has_a_line_with_the_command_that_answers_it() -> None:
    lines, view = WrittenLines(), view_of(node("a"))
    choice_request = open_request("choose", type="SELECTION", options=["x"], assignee=None)
    requests = [open_request(), choice_request, _selection_request("Ann", 2)]
    for count in range(4):
        lines.writer.show(view, requests[:count])
    assert lines == [
        "running    a  any",
        "asked      check waits for ann: Publish?",
        "answer     dagwright feedback run-1 check --approve  (or --reject)",
        "asked      choose waits for anyone: Publish?",
        "answer     dagwright feedback run-1 choose --select x",
        "asked      Ann waits for ann: Which?",
        "option     p_0: Ann (person, no. 0)",
        "option     p_1: Ann (person, no. 1)",
        "answer     dagwright feedback run-1 Ann --select p_0  (or another id; or --text TEXT)",
    ]


def test_display_shows_the_oldest_requests_with_their_commands() -> None:
    requests = [open_request("check", prompt="Is this so? " * 19), *(open_request(f"n{number}") for number in range(9))]
    assert _draw(view_of(node("a")), *requests, height=24, width=72)[3:] == [
        "check waits for ann: Is this so? Is this so? Is this so? Is this so? Is",
        "this so? Is this so? Is this so? Is this so? Is this so? Is this so? Is…",
        "  dagwright feedback run-1 check --approve  (or --reject)",
        "n0 waits for ann: Publish?",
        "  dagwright feedback run-1 n0 --approve  (or --reject)",
        "n1 waits for ann: Publish?",
        "  dagwright feedback run-1 n1 --approve  (or --reject)",
        "and 7 more requests: dagwright inbox",
    ]


def _selection_request(name: str, count: int) -> dict[str, Any]:
    options = [{"id": f"p_{number}", "label": f"{name} (person, no. {number})"} for number in range(count)]
    return open_request(name, prompt="Which?", type="SELECTION", options=options, allow_text=True)


def test_display_shows_each_option_on_a_separate_line() -> None:
    requests = [_selection_request("Ann", 2), _selection_request("Bob", 9)]
    assert _draw(view_of(node("a")), *requests, height=20, width=72)[3:] == [
        "Ann waits for ann: Which?",
        "  p_0: Ann (person, no. 0)",
        "  p_1: Ann (person, no. 1)",
        "  dagwright feedback run-1 Ann --select p_0  (or another id; or --text",
        "TEXT)",
        "Bob waits for ann: Which?",
        "  p_0: Bob (person, no. 0)",
        "  and 8 more: dagwright inbox",
        "  dagwright feedback run-1 Bob --select p_0  (or another id; or --text",
        "TEXT)",
    ]


def test_display_wraps_a_long_question_and_long_options() -> None:
    names = "; ".join(f"Maria Garcia{number} (person, ES, born 1972-06-21, person_{number})" for number in range(4))
    unclear_request = open_request("n", prompt=f"No party found for 'Mia Gracia'; near: {names}. Write another name.")
    label = "DIRECTOR of Apex Fund, " * 3
    options = [{"id": f"p_{n}", "label": f"Ann Lee (person, GB, {label}LEI {n})"} for n in (1, 2)]
    selection_request = open_request("w", prompt="Which Ann?", type="SELECTION", options=options)
    for request, expected_text in ((unclear_request, "person_2"), (selection_request, "LEI 2")):
        drawn_lines = _draw(view_of(node("a")), request, height=24, width=80)
        assert (expected_text in "\n".join(drawn_lines), len(drawn_lines) <= 24) == (True, True)
