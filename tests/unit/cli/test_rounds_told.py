"""What commands tell of a question in rounds, from the run itself: in which order, with which attempt, how drawn."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from dagwright.core.model.errors import NodeError
from dagwright.core.model.states import NodeStatus, Record
from dagwright.core.model.worker_results import error_words
from dagwright.features.explain.why import what_holds, why
from dagwright.history.explaining import Explanation
from dagwright.history.pending_activities import PendingCall
from dagwright.history.run_reader import RunView
from dagwright.interfaces.cli.drawing import mermaid
from dagwright.interfaces.cli.endings import failure_lines
from dagwright.interfaces.cli.explaining import lines_of
from dagwright.interfaces.cli.folding import is_folded, picture_of
from dagwright.interfaces.cli.lines import LineWriter
from dagwright.interfaces.cli.looking import _tell_node, _tell_status
from dagwright.interfaces.cli.output import Output
from dagwright.interfaces.cli.round_words import calls_of, round_lines, rounds_of
from dagwright.interfaces.cli.round_words import lines_of as lines_of_rounds
from dagwright.planner import RoundsAsked
from dagwright.planning.rounds.rounds import MAX_ROUNDS_LIMIT, RoundsLimits
from dagwright.protocol.documents import graph_document
from tests.support.rounds import done, goes_on, ref, sub_goal
from tests.unit.planner.test_rounds_pursuit import Question

PICK, OTHER = sub_goal(1, "pick", "Numbers of Maersk", name="Maersk"), sub_goal(2, "pick", name="Evergreen")
NOW = 100.0


def _view(question: Question, **changes: Any) -> RunView:
    scheduler = question.scheduler
    view = RunView(
        workflow_id="q", run_id="r", status=scheduler.status().value, title=None, scheduler=scheduler, pending={},
        started_at=0.0, ended_at=None, is_closed=scheduler.is_finished,
    )  # fmt: skip
    return replace(view, **changes)


def _begun(*, workers: Mapping[str, Any] | None = None) -> Question:
    """Returns a question in whose first round both sub-goals run."""
    question = Question(goes_on(PICK, OTHER, reasoning="Both."), done(a=ref(1, "numbers")), workers=workers)
    question.step()
    question.step()
    question.begin()
    return question


def test_reason_of_a_round_stands_before_what_it_begins() -> None:
    lines: list[str] = []
    # All at once, as of a run that is followed from its middle on.
    LineWriter(lines.append).show(_view(_begun()))
    assert [line[10:].split()[:2] for line in lines] == [
        ["completed", "intention"], ["meant", "intention"], ["completed", "plan"], ["round", "1"],
        ["running", "sg1"], ["running", "sg2"],
    ]  # fmt: skip


def test_what_was_replaced_is_told_when_that_is_seen() -> None:
    lines: list[str] = []
    writer, question = LineWriter(lines.append), _begun()
    question.scheduler.fail("sg1", NodeError("odd", "no"), at=NOW)
    writer.show(_view(question))
    question.scheduler.records[2].status = NodeStatus.SUPERSEDED
    writer.show(_view(question))
    assert [line[10:].split()[:2] for line in lines[-2:]] == [["failed", "sg1"], ["superseded", "sg1"]]
    assert lines[-1][:8] != lines[-2][:8]


def test_sub_goal_that_failed_and_was_left_behind_is_shown_as_failed(capsys: pytest.CaptureFixture[str]) -> None:
    question = Question(
        goes_on(PICK, sub_goal(3, "add_up", numbers=ref(1, "numbers")), sub_goal(9, "clarify", question="Which?")),
        done(all=ref(9, "clarification")),
        workers={"sg1": NodeError("tool_failed", "gone")},
    )  # fmt: skip
    question.run()
    view, lines = _view(question), list[str]()
    LineWriter(lines.append).show(view)
    _tell_status(view, view.document(), Output(), url=None)
    told = capsys.readouterr().out.splitlines()
    assert view.document()["nodes"]["sg1"]["status"] == "superseded"
    _tell_node("sg1", view.document()["nodes"]["sg1"], [], Output())
    node = capsys.readouterr().out.splitlines()
    drawn = mermaid(picture_of(question.scheduler)).splitlines()
    words = [line[10:].split()[:2] for line in lines]
    assert [each for each in words if each[1] in ("sg1", "sg3")] == [["failed", "sg1"], ["superseded", "sg3"]]
    # The one that never began, as it waited for the first, did not fail.
    rows = [line.split() for line in told]
    assert [row[1] for row in rows if row[2:3] in (["sg1"], ["sg3"])] == ["failed", "superseded"]
    assert "nodes: 4 completed, 1 superseded, 1 failed" in told[0]
    assert (node[0], "because: the run goes on without it" in node) == ("sg1 (Numbers of Maersk): failed", True)
    assert next(line for line in drawn if "sg1<br/>" in line).endswith('<br/>failed"]:::failed')
    (reason,) = why(question.scheduler, "sg1", calls={}).reasons[:1]
    assert (reason.message, reason.detail) == ("failed, and the run goes on without it", "tool_failed: gone")


def test_why_plans_were_not_taken_is_told_where_the_mending_ends_by_a_failed_call() -> None:
    question = Question("No.", "Still no.", NodeError("model_refused_request", "answered 400"))
    question.run()
    (line,) = (line for line in round_lines(_view(question).document()) if line.startswith("Round 1"))
    assert line.startswith("Round 1 (no plan): ")
    assert "no reason given" not in line


def test_sub_goal_that_is_begun_again_is_open_in_the_round_that_begins_it_alone() -> None:
    question = Question(
        goes_on(PICK), goes_on(PICK), done(a=ref(1, "numbers")), workers={"sg1": NodeError("tool_failed", "gone")}
    )
    for _ in range(4):
        question.step()
    question.begin()
    told = rounds_of(_view(question))
    assert told is not None
    assert [(line.name, line.status) for line in lines_of_rounds(told)][1:] == [
        ("Round 1", ""), ("sg1 pick", "failed"), ("Round 2", ""), ("sg1 pick", "running"),
    ]  # fmt: skip


def test_calls_are_told_with_attempt_and_reason_by_the_name_of_what_they_are_for() -> None:
    pending = {
        "sg1#2": PendingCall(3, "backing_off", "no server runs", NOW + 4),
        "plan#3": PendingCall(2, "started", "no route"),
        "sg2": PendingCall(1, "started"),
    }
    assert calls_of(_view(_begun(), pending=pending), now=NOW) == {
        "sg1": "attempt 3, again in 4.0 s: no server runs",
        "plan": "attempt 2, no route",
    }


def test_status_tells_rounds_and_the_attempts_of_calls_in_flight(capsys: pytest.CaptureFixture[str]) -> None:
    view = _view(_begun(), pending={"sg1": PendingCall(7, "backing_off", "no server runs")})
    _tell_status(view, view.document(), Output(), url=None)
    told = capsys.readouterr().out.splitlines()
    assert "round 1 of 10, executing: workers are at work" in told
    assert "Round 1 (continue): Both." in told
    (row,) = [line.split() for line in told if " sg1 " in line]
    assert "7" in row
    assert " ".join(row).endswith("no server runs")


def test_graph_names_workers_and_shows_what_is_partial() -> None:
    question = _begun()
    question.scheduler.complete("sg1", {"status": "partial", "outputs": {"numbers": [1]}}, at=NOW)
    picture = picture_of(question.scheduler)
    drawn = mermaid(picture)
    assert "sg1<br/>pick · Numbers of Maersk<br/>" in drawn
    assert next(line for line in drawn.splitlines() if "sg1<br/>" in line).endswith('<br/>partial"]:::partial')
    assert "classDef partial " in drawn
    assert "running" in next(line for line in drawn.splitlines() if "sg2<br/>" in line)
    assert not is_folded(picture)


def test_graph_has_a_group_for_each_round_and_edges_for_what_was_wired_alone() -> None:
    sums = [sub_goal(number + 2, "add_up", numbers=ref(number, "numbers")) for number in (1, 2)]
    both = sub_goal(5, "compare", total=[ref(3, "total"), ref(4, "total")])
    question = Question(
        goes_on(PICK, OTHER), goes_on(*sums), goes_on(both), done(a=ref(5, "comparison")),
        workers={"sg5": {"comparison": "7 and 11"}}, asked=RoundsAsked(limits=RoundsLimits(synthesis="model")),
    )  # fmt: skip
    question.run()
    picture = picture_of(question.scheduler)
    assert {node["id"]: node.get("group") for node in picture["nodes"]} == {
        "intention": None, "plan": "round 1", "sg1": "round 1", "sg2": "round 1",
        "plan#2": "round 2", "sg3": "round 2", "sg4": "round 2",
        "plan#3": "round 3", "sg5": "round 3", "plan#4": "round 4", "answer": None,
    }  # fmt: skip
    assert picture["edges"] == [
        ["intention", "plan"], ["plan", "plan#2"], ["sg1", "sg3"], ["sg2", "sg4"], ["plan#2", "plan#3"],
        ["sg3", "sg5"], ["sg4", "sg5"], ["plan#3", "plan#4"], ["sg5", "answer"], ["plan#4", "answer"],
    ]  # fmt: skip
    # Programs are told all edges, and the same groups.
    told = graph_document(question.scheduler)
    assert [node.get("group") for node in told["nodes"]] == [node.get("group") for node in picture["nodes"]]
    assert ["sg1", "plan#2"] in told["edges"]


def test_sub_goal_is_drawn_in_the_round_in_which_it_could_begin() -> None:
    waits = sub_goal(3, "add_up", numbers=ref(1, "numbers"))
    workers: dict[str, Any] = {"sg1": NodeError("tool_failed", "gone")}
    question = Question(goes_on(PICK, waits), goes_on(PICK), done(a=ref(3, "total")), workers=workers)
    for _ in range(6):
        question.step()
    groups = {node["id"]: node.get("group") for node in picture_of(question.scheduler)["nodes"]}
    assert (groups["sg1"], groups["sg1#2"], groups["sg3"]) == ("round 1", "round 2", "round 2")


def test_status_of_a_question_that_has_ended_tells_no_phase_that_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    question = Question(goes_on(sub_goal(1, "clarify", question="Which?")), done(a=ref(1, "clarification")))
    question.run()
    view = _view(question)
    _tell_status(view, view.document(), Output(), url=None)
    assert "round 2 of 10, done" in capsys.readouterr().out.splitlines()


def test_round_without_a_plan_says_what_was_wrong_with_it() -> None:
    question = Question(*[goes_on(sub_goal(1, "nobody"), reasoning="Again.")] * 4)
    question.run()
    told = rounds_of(_view(question))
    assert told is not None
    (line,) = [line for line in lines_of_rounds(told) if line.key == "round 1"]
    assert line.words.startswith("Again. — ")
    assert "nobody" in line.words
    assert "refused" not in rounds_of(_view(_begun()))["rounds"][0]  # type: ignore[index] # it is there


def test_what_was_wrong_with_a_plan_is_told_while_it_is_mended() -> None:
    lines: list[str] = []
    writer = LineWriter(lines.append)
    question = Question(goes_on(sub_goal(1, "nobody"), reasoning="Again."), goes_on(PICK, reasoning="Better."), done())
    question.step()
    question.step()
    mending = question.begin()
    for _ in range(2):
        writer.show(_view(question))
    (told,) = [line for line in lines if "round 1" in line and "not taken" in line]
    assert "nobody" in told
    assert told.startswith(next(line for line in lines if " plan " in line)[:8])
    question.end(mending)
    writer.show(_view(question))
    assert "Better." in lines[-1]


def test_why_tells_by_what_a_run_ended_besides_what_failed_in_it() -> None:
    question = _begun()
    question.scheduler.fail("sg1", NodeError("odd", "no numbers"), at=NOW)
    chain = what_holds(question.scheduler, calls={})
    error = {"code": "planner_repeats", "message": "the planner wants the same again"}
    ended = Explanation(_view(question, is_closed=True, status="failed", error=error), "", chain)
    assert [*lines_of(ended)][:2] == ["q is failed", "planner_repeats: the planner wants the same again"]
    assert "the run ended by planner_repeats: " in ended.words(str)
    same = {"code": "odd", "message": "no numbers"}
    chain = replace(chain, reasons=[replace(each, detail="odd: no numbers") for each in chain.reasons])
    assert Explanation(_view(question, is_closed=True, error=same), "", chain).ended_by() is None


def test_why_of_a_round_that_goes_on_tells_what_the_planner_said_last() -> None:
    question = _begun()
    told = Explanation(_view(question), "", what_holds(question.scheduler, calls={}))
    assert [*lines_of(told)][:2] == ["q is running", "Round 1 (continue): Both."]


def test_sub_goal_that_was_cancelled_says_so() -> None:
    assert error_words(Record(NodeStatus.CANCELLED)) == "it was cancelled"
    assert error_words(Record(NodeStatus.SKIPPED)) == "it was left out"


@pytest.mark.parametrize(("most", "advice"), [(2, ["more rounds: --rounds N, at most 50"]), (MAX_ROUNDS_LIMIT, [])])
def test_question_that_used_its_rounds_says_how_to_have_more_where_there_are_more(most: int, advice: list[str]) -> None:
    names = [sub_goal(number, "pick", name=f"Carrier {number}") for number in range(1, most + 1)]
    question = Question(*map(goes_on, names), max_rounds=most)
    question.run()
    document = _view(question).unfilled_document()
    told = "used, and the planner has not said that it is done; to say so is a round too"
    # Nobody else than a command has that option.
    assert document["error"]["message"] == f"all {most} rounds are {told}"
    assert [*failure_lines(document)] == [f"error: max_rounds: all {most} rounds are {told}", *advice]
