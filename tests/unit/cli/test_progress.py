"""What is shown of a run: the tree, what fits, lines of changes."""

from dataclasses import replace
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from dagwright.core.model.errors import NodeError
from dagwright.core.model.requests import Feedback
from dagwright.core.model.states import Attempt, NodeStatus
from dagwright.core.model.times import format_time
from dagwright.core.scheduler.map_batches import ChunkEnd
from dagwright.core.scheduler.scheduler import Scheduler
from dagwright.history.pending_activities import PendingCall
from dagwright.history.run_reader import RunView
from dagwright.interfaces.cli.lines import LineWriter
from dagwright.interfaces.cli.progress import LOST, LOST_FOR_GOOD, RunProgress, format_duration, progress_of, tree_of
from dagwright.interfaces.cli.rendering import LivePicture, Picture
from dagwright.protocol.messages import RunInput
from tests.unit.cli.questions import asked
from tests.unit.cli.views import START, node, start_ready, view_of


def _progress(view: RunView, *, room: int = 40, after_s: float = 2.0) -> RunProgress:
    assert view.scheduler is not None
    return progress_of(view, tree_of(view.scheduler.plan), now=START + after_s, room=room)


def test_each_node_stands_under_its_deepest_dependency() -> None:
    view = view_of(node("a"), node("b", "a"), node("late"), node("c", "a", "b"), node("d", "late"))

    rows = _progress(view).rows
    assert [(row.indent, row.name) for row in rows] == [(0, "a"), (1, "b"), (2, "c"), (0, "late"), (1, "d")]


def test_rows_that_do_not_fit_are_counted_by_state() -> None:
    def complete_most(scheduler: Scheduler) -> None:
        for number in range(90):
            scheduler.complete(f"n{number}", None, at=START + 1)
        scheduler.fail("n95", NodeError("failed", "broke"), at=START + 1)

    view = view_of(*(node(f"n{number}") for number in range(100)), step=complete_most)

    progress = _progress(view, room=12)
    assert [row.name for row in progress.rows] == ["n90", "n91", "n92", "n93", "n94", "n95", "n96"]
    assert [(row.name, row.detail) for row in progress.groups] == [("3 more", "running"), ("90 more", "completed")]
    assert (progress.done, progress.total) == (91, 100)
    assert progress.eta_s == pytest.approx(2.0 / 91 * 9)


def test_items_are_a_bar_with_time_to_go_and_failures_are_named() -> None:
    def complete_half(scheduler: Scheduler) -> None:
        for number in range(19):
            scheduler.complete(f"fan[{number}]", None, at=START + 1)
        scheduler.fail("fan[19]", NodeError("failed", "broke"), at=START + 1)

    view = view_of(node("fan", for_each=list(range(40))), step=complete_half)

    progress = _progress(view, room=4)
    first, *items = progress.rows
    assert (first.name, first.done, first.total) == ("fan", 20, 40)
    assert first.eta_s == pytest.approx(2.0)
    assert [(row.name, row.detail) for row in items] == [("fan[19]", "broke"), ("fan[20]", ""), ("fan[21]", "")]


def test_items_of_a_large_map_are_counted_by_chunks() -> None:
    def end_some(scheduler: Scheduler) -> None:
        counts = {"completed": 100, "skipped": 20, "failed": 6}
        scheduler.end_chunk(
            "fan[0-125]", ChunkEnd(NodeStatus.FAILED, counts, error=NodeError("odd", "no")), at=START + 1
        )

    view = view_of(node("fan", for_each=list(range(501))), step=end_some)

    (row,) = _progress(view).rows
    assert (row.name, row.done, row.total) == ("fan", 126, 501)


@pytest.mark.parametrize(
    ("call", "after_s", "detail"),
    [
        (PendingCall(1, "started"), 2.0, ""),
        (PendingCall(1, "scheduled"), 2.0, ""),
        (PendingCall(3, "backing_off", "no route", START + 6), 2.0, "again in 4.0 s: no route"),
        (PendingCall(1, "cancelling"), 2.0, "stopping"),
        (PendingCall(2, "started", "activity Heartbeat timeout"), 2.0, "its worker died or hung"),
        (
            PendingCall(1, LOST, next_attempt_at=START + 30),
            2.0,
            "was running when its worker died; it is tried again at the latest in 28.0 s",
        ),
    ],
)
def test_row_of_a_running_node_says_what_the_server_says(call: PendingCall, after_s: float, detail: str) -> None:
    row = _progress(view_of(node("a"), pending={"a": call}), after_s=after_s).rows[0]
    assert (row.attempts, row.detail, row.elapsed_s) == (call.attempt, detail, after_s)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.32, "320 ms"), (3.21, "3.2 s"), (245, "4 min 5 s"), (7_500, "2 h 5 min")],
)
def test_durations_are_read_at_a_glance(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("sent", "words"),
    [(None, "starting"), (RunInput(), "starting"), (RunInput(plan={}), "reading the plan")],
    ids=["not known", "compiled", "as written"],
)
def test_picture_without_a_plan_says_that_it_is_read_only_where_it_is(sent: RunInput | None, words: str) -> None:
    view = replace(view_of(node("a")), scheduler=None, run_input=sent)
    console = Console(width=100, no_color=True, force_terminal=False)
    with console.capture() as capture:
        console.print(Picture().draw(view, now=START + 2, height=40))
    assert capture.get().splitlines()[-1].strip() == words


def test_picture_shows_signs_and_words_of_any_state() -> None:
    def fail_first(scheduler: Scheduler) -> None:
        scheduler.fail("a", NodeError("failed", "[bold]broke\x1b[2J"), at=START + 1, attempt=Attempt(3))

    view = view_of(node("a"), node("b", "a"), node("c"), step=fail_first)
    console = Console(width=100, no_color=True, force_terminal=False)
    with console.capture() as capture:
        console.print(Picture().draw(view, now=START + 2, height=40))

    assert [" ".join(line.split()) for line in capture.get().splitlines()] == [
        "run-1 running 2.0 s",
        "✗ a t 1.0 s attempt 3 [bold]broke\\u001b[2J",
        "⊘ b t Waiting for dependency: a failed",
        "● c t 2.0 s",
        "2 of 3 nodes 1 running 1 failed 1 blocked",
    ]


def test_picture_ends_with_the_last_lines_of_an_answer_until_it_is_told_whole() -> None:
    console = Console(width=40, height=12, no_color=True, force_terminal=False)
    live = LivePicture(console)
    live.write("".join(f"line {number}\n" for number in range(50)) + f"{'long ' * 8}and the \x1b[2Jend")
    written = live._last_lines()
    assert [line.plain.rstrip() for line in written] == [
        "line 48",
        "line 49",
        "long long long long long long long long",
        "and the \\u001b[2Jend",
    ]
    open_run = view_of(node("a"))
    ended = view_of(node("a"), step=lambda scheduler: scheduler.complete("a", None, at=START + 1))
    told = []
    for view in (open_run, ended):
        with console.capture() as capture:
            console.print(Picture().draw(view, now=START + 2, height=40, written=written))
        told.append(capture.get().splitlines())
    assert [line.rstrip() for line in told[0][-4:]] == [line.plain.rstrip() for line in written]
    assert not any("line" in line for line in told[1])


@pytest.mark.parametrize("width", [60, 80, 100, 120])
def test_long_texts_are_cut_and_leave_sign_name_and_time_whole(width: int) -> None:
    def fail_first(scheduler: Scheduler) -> None:
        scheduler.fail("a", NodeError("failed", "broke " * 60), at=START + 1)

    title = "What the node is for " * 5
    view = view_of(
        node("a", title=title), node("with a name of forty letters and digits 1", title=title), step=fail_first
    )
    view = replace(view, title=title)
    console = Console(width=width, no_color=True, force_terminal=False)
    with console.capture() as capture:
        console.print(Picture().draw(view, now=START + 2, height=40))

    header, *rows, _ = capture.get().splitlines()
    assert (len(header) <= width, header.split()[-3:]) == (True, ["running", "2.0", "s"])
    assert [(row[:3], len(row) <= width) for row in rows] == [("✗ a", True), ("● w", True)]
    assert ["1.0 s" in rows[0], "2.0 s" in rows[1], "broke" in rows[0]] == [True, True, True]


def test_line_writer_tells_each_change_once() -> None:
    lines: list[str] = []
    writer = LineWriter(lambda line: lines.append(line[10:]))
    first = node("a", title="What for")
    view = view_of(first, node("b", "a"), pending={"a": PendingCall(1, "started")})
    writer.show(view)
    writer.show(view)
    assert lines == ["running    a  t · What for"]

    retried = view_of(first, node("b", "a"), pending={"a": PendingCall(2, "started", "no route")})
    writer.show(retried)
    assert lines[1:] == ["running    a (attempt 2: no route)"]

    def finish(scheduler: Scheduler) -> None:
        scheduler.complete("a", 1, at=START + 1, attempt=Attempt(2))
        start_ready(scheduler)
        scheduler.fail("b", NodeError("failed", "broke"), at=START + 3)

    writer.show(view_of(first, node("b", "a"), step=finish))
    assert lines[2:] == ["completed  a  1.0 s, attempt 2", "failed     b  t  3.0 s  broke"]


def test_line_writer_tells_once_that_a_worker_died_and_what_becomes_of_its_calls() -> None:
    lines: list[str] = []
    writer = LineWriter(lambda line: lines.append(line[10:]))
    lost = {"a": PendingCall(1, LOST), "b": PendingCall(1, LOST_FOR_GOOD)}
    view = view_of(node("a"), node("b"), pending=lost)
    writer.show(view)
    writer.show(view)
    writer.show(view_of(node("a"), node("b"), pending={"a": PendingCall(2, "started", "activity Heartbeat timeout")}))

    assert lines == [
        "running    a  t",
        "running    b  t",
        "waiting    a was running when its worker died; it is tried again when the server notices",
        "waiting    b was running when its worker died; it fails when the server notices",
        "running    a (attempt 2: its worker died or hung)",
    ]


def test_line_writer_reports_escalations_and_who_answered() -> None:
    question = {"type": "APPROVAL", "prompt": "Go?", "assignee": "ann", "deadline": "10s"}
    asking = node("q", tool=None, human={**question, "on_timeout": {"escalate": "boss"}})
    lines: list[str] = []
    writer = LineWriter(lambda line: lines.append(line[10:]))

    def escalate(scheduler: Scheduler) -> None:
        scheduler.advance(START + 10)

    def answer(scheduler: Scheduler) -> None:
        escalate(scheduler)
        scheduler.answer(Feedback("q", {"approved": True}, by="eve"), START + 11)

    for step in (escalate, escalate, answer):
        view = view_of(asking, step=step)
        assert view.scheduler is not None
        writer.show(view, [each.to_json("run-1") for each in view.scheduler.requests.open.values()])
    told = [line for line in lines if line.startswith(("escalated", "answered"))]
    assert told[0] == "escalated  q from ann to boss"
    assert told[1].startswith("answered   q: approved by eve at ")
    assert "; requested from ann at " in told[1]
    assert ", escalated to boss at " in told[1]
    assert len(told) == 2


def test_line_writer_tells_the_oldest_first_and_when_it_was() -> None:
    def finish(scheduler: Scheduler) -> None:
        scheduler.complete("b", 1, at=START + 1)
        scheduler.complete("a", 1, at=START + 2)

    lines: list[str] = []
    view = view_of(node("a"), node("b"), node("c", "b"), step=finish)
    early = {**asked("q", prompt="Go on?"), "opened_at": format_time(START + 1.5)}
    LineWriter(lines.append).show(view, [early])
    assert [line[10:].split()[:2] for line in lines] == [
        ["completed", "b"], ["asked", "q"], ["answer", "dagwright"], ["completed", "a"]
    ]  # fmt: skip


def test_step_that_went_on_with_a_given_value_says_so() -> None:
    def fail(scheduler: Scheduler) -> None:
        scheduler.fail("a", NodeError("failed", "broke"), at=START + 1)

    view = view_of(node("a", on_error={"value": 7}), step=fail)
    lines: list[str] = []
    LineWriter(lambda line: lines.append(line[10:])).show(view)

    assert lines == ["completed  a  t  1.0 s  failed, went on with the given value: broke"]
    assert _progress(view).rows[0].detail == "failed, went on with the given value: broke"


def test_cancelled_items_and_nodes_are_not_counted_as_done() -> None:
    def cancel(scheduler: Scheduler) -> None:
        scheduler.complete("fan[0]", None, at=START + 1)
        scheduler.cancel(START + 1)
        for number in range(1, 10):
            scheduler.task_cancelled(f"fan[{number}]", at=START + 1)

    progress = _progress(view_of(node("fan", for_each=list(range(10))), node("b", "fan"), step=cancel))

    assert (progress.rows[0].done, progress.rows[0].total) == (1, 10)
    assert (progress.done, progress.total) == (0, 2)


def test_what_is_asked_is_a_line_with_the_command_that_answers_it_and_told_once() -> None:
    lines: list[str] = []
    writer = LineWriter(lines.append)
    view = view_of(node("a"))
    for requests in ([], [asked()], [asked(), asked("choose", type="SELECTION", options=["x"], assignee=None)]):
        writer.show(view, requests)

    assert [line.partition("  ")[2] for line in lines] == [
        "running    a  t",
        "asked      check waits for ann: Publish?",
        "answer     dagwright feedback run-1 check --approve  (or --reject)",
        "asked      choose waits for anyone: Publish?",
        "answer     dagwright feedback run-1 choose --select x",
    ]


def test_picture_shows_the_oldest_requests_with_their_commands() -> None:
    console = Console(width=72, record=True, file=StringIO())
    requests = [asked("check", prompt="Is this so? " * 19), *(asked(f"n{number}") for number in range(9))]
    console.print(Picture().draw(view_of(node("a")), requests, now=START + 2, height=24, width=72))

    assert [line.rstrip() for line in console.export_text().splitlines()][3:] == [
        "check waits for ann: Is this so? Is this so? Is this so? Is this so? Is",
        "this so? Is this so? Is this so? Is this so? Is this so? Is this so? Is…",
        "  dagwright feedback run-1 check --approve  (or --reject)",
        "n0 waits for ann: Publish?",
        "  dagwright feedback run-1 n0 --approve  (or --reject)",
        "n1 waits for ann: Publish?",
        "  dagwright feedback run-1 n1 --approve  (or --reject)",
        "and 7 more requests: dagwright inbox",
    ]


def _which(name: str, count: int) -> dict[str, Any]:
    options = [{"id": f"p_{number}", "label": f"{name} (person, no. {number})"} for number in range(count)]
    return asked(name, prompt="Which?", type="SELECTION", options=options, takes_text=True)


def test_picture_shows_what_can_be_selected_each_on_a_line() -> None:
    console = Console(width=72, record=True, file=StringIO())
    console.print(
        Picture().draw(view_of(node("a")), [_which("Ann", 2), _which("Bob", 9)], now=START + 2, height=20, width=72)
    )

    assert [line.rstrip() for line in console.export_text().splitlines()][3:] == [
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


def test_picture_shows_a_long_question_and_what_tells_options_apart_on_several_lines() -> None:
    near = "; ".join(f"Maria Garcia{number} (person, ES, born 1972-06-21, person_{number})" for number in range(4))
    unclear = asked("n", prompt=f"No party found for person 'Mia Gracia'; near: {near}. Write another name.")
    options = [
        {"id": f"p_{n}", "label": f"Ann Lee (person, GB, {'DIRECTOR of Apex Fund, ' * 3}LEI {n})"} for n in (1, 2)
    ]
    which = asked("w", prompt="Which Ann?", type="SELECTION", options=options)
    for request, told in ((unclear, "person_2"), (which, "LEI 2")):
        console = Console(width=80, record=True, file=StringIO())
        console.print(Picture().draw(view_of(node("a")), [request], now=START + 2, height=24, width=80))
        text = console.export_text()
        assert told in text
        assert len(text.splitlines()) <= 24


def test_lines_tell_what_can_be_selected() -> None:
    lines: list[str] = []
    LineWriter(lines.append).show(view_of(node("a")), [_which("Ann", 2)])
    assert [line.partition("  ")[2] for line in lines][1:] == [
        "asked      Ann waits for ann: Which?",
        "option     p_0: Ann (person, no. 0)",
        "option     p_1: Ann (person, no. 1)",
        "answer     dagwright feedback run-1 Ann --select p_0  (or another id; or --text TEXT)",
    ]
