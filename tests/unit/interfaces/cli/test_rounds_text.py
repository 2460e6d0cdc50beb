"""Output of commands about a run of the profile `rounds`: order, attempts, drawing."""

from dataclasses import replace
from typing import Any

import pytest

from dagwright.client.graph_folding import graph_of_boxes, is_folded
from dagwright.core.model.states import NodeError, NodeStatus, Record
from dagwright.core.model.worker_results import reason_for_missing_outputs
from dagwright.features.explain.why import blocking_chain, why
from dagwright.history.pending_activities import PendingCall
from dagwright.history.run_explainer import RunExplanation
from dagwright.history.run_view import RunView
from dagwright.interfaces.cli.explain_command import explanation_lines
from dagwright.interfaces.cli.graph_drawing import mermaid
from dagwright.interfaces.cli.output import Output
from dagwright.interfaces.cli.progress_lines import LineWriter
from dagwright.interfaces.cli.round_text import call_texts_of, decode_rounds, final_round_lines, rounds_of
from dagwright.interfaces.cli.run_summary import failure_lines
from dagwright.interfaces.cli.show_commands import _print_node, _print_status
from dagwright.planner import RoundsOptions
from dagwright.planning.rounds.rounds_spec import ROUNDS_LIMIT, RoundsLimits
from dagwright.protocol.documents import graph_document
from tests.support.rounds import continue_response, done_response, ref, sub_goal
from tests.unit.planner.test_rounds_extender import RoundsRun

PICK_MAERSK = sub_goal(1, "pick", "Numbers of Maersk", name="Maersk")
PICK_EVERGREEN = sub_goal(2, "pick", name="Evergreen")
NOW = 100.0


def _view(run: RoundsRun, **changes: Any) -> RunView:
    scheduler = run.scheduler
    status, is_closed = scheduler.status().value, scheduler.is_finished
    view = RunView("q", "r", status, None, scheduler, {}, 0.0, None, is_closed=is_closed)
    return replace(view, **changes)


def _line_kinds_and_names(run: RoundsRun) -> list[list[str]]:
    """Return the kind and name of each line that a new writer shows for a run in progress."""
    lines: list[str] = []
    LineWriter(lines.append).show(_view(run))
    return [line[10:].split()[:2] for line in lines]


def _status_lines(run: RoundsRun, capsys: pytest.CaptureFixture[str], **changes: Any) -> list[str]:
    view = _view(run, **changes)
    _print_status(view, view.document(), Output(), url=None)
    return capsys.readouterr().out.splitlines()


def _document_of(run: RoundsRun) -> Any:
    document = rounds_of(_view(run))
    assert document is not None
    return document


def _started_run() -> RoundsRun:
    response = continue_response(PICK_MAERSK, PICK_EVERGREEN, reasoning="Both.")
    run = RoundsRun(response, done_response(a=ref(1, "numbers")))
    run.step()
    run.step()
    run.start()
    return run


def test_reason_of_a_round_precedes_its_nodes() -> None:
    assert _line_kinds_and_names(_started_run()) == [
        *(["completed", "intention"], ["question", "intention"], ["completed", "plan"], ["round", "1"]),
        *(["running", "sg1"], ["running", "sg2"]),
    ]


def test_superseded_sub_goal_is_reported_with_the_current_time() -> None:
    lines: list[str] = []
    writer, run = LineWriter(lines.append), _started_run()
    run.scheduler.fail("sg1", NodeError("odd", "no"), at=NOW)
    writer.show(_view(run))
    run.scheduler.records[2].status = NodeStatus.SUPERSEDED
    writer.show(_view(run))
    assert [line[10:].split()[:2] for line in lines[-2:]] == [["failed", "sg1"], ["superseded", "sg1"]]
    assert lines[-1][:8] != lines[-2][:8]


def test_abandoned_sub_goal_is_superseded_in_json_and_shown_as_failed(capsys: pytest.CaptureFixture[str]) -> None:
    dependents = sub_goal(3, "add_up", numbers=ref(1, "numbers")), sub_goal(9, "clarify", question="Which?")
    responses = continue_response(PICK_MAERSK, *dependents), done_response(all=ref(9, "clarification"))
    run = RoundsRun(*responses, worker_results={"sg1": NodeError("tool_failed", "gone")})
    run.run_to_end()
    # JSON has the status of the scheduler; all other output shows the failure.
    sg1 = _view(run).document()["nodes"]["sg1"]
    assert sg1["status"] == "superseded"
    status_lines = _status_lines(run, capsys)
    _print_node("sg1", sg1, [], Output())
    node_lines = capsys.readouterr().out.splitlines()
    mermaid_lines = mermaid(graph_of_boxes(run.scheduler)).splitlines()
    kinds_and_names = [line for line in _line_kinds_and_names(run) if line[1] in ("sg1", "sg3")]
    assert kinds_and_names == [["failed", "sg1"], ["superseded", "sg3"]]
    # `sg3` waited for `sg1` and never started. It is superseded, and not failed.
    rows = [line.split() for line in status_lines]
    assert [row[1] for row in rows if row[2:3] in (["sg1"], ["sg3"])] == ["failed", "superseded"]
    assert "nodes: 4 completed, 1 superseded, 1 failed" in status_lines[0]
    assert node_lines[0] == "sg1 (Numbers of Maersk): failed"
    assert "because: the run continues without it" in node_lines
    assert next(line for line in mermaid_lines if "sg1<br/>" in line).endswith('<br/>failed"]:::failed')
    (reason,) = why(run.scheduler, "sg1", calls={}).reasons[:1]
    assert (reason.message, reason.detail) == ("failed, and the run continues without it", "tool_failed: gone")


def test_round_keeps_its_reason_when_the_repair_fails() -> None:
    run = RoundsRun("No.", "Still no.", NodeError("model_refused_request", "answered 400"))
    run.run_to_end()
    (line,) = (line for line in final_round_lines(_view(run).document()) if line.startswith("Round 1"))
    assert (line[:19], "no reason given" in line) == ("Round 1 (no plan): ", False)


def test_calls_are_listed_with_attempt_and_reason() -> None:
    pending_calls = {
        "sg1#2": PendingCall(3, "backing_off", "no server runs", NOW + 4),
        "plan#3": PendingCall(2, "started", "no route"),
        "sg2": PendingCall(1, "started"),
    }
    expected = {"sg1": "attempt 3, again in 4.0 s: no server runs", "plan": "attempt 2, no route"}
    assert call_texts_of(_view(_started_run(), pending_calls=pending_calls), now=NOW) == expected


def test_status_shows_rounds_phase_and_attempts(capsys: pytest.CaptureFixture[str]) -> None:
    pending_calls = {"sg1": PendingCall(7, "backing_off", "no server runs")}
    status_lines = _status_lines(_started_run(), capsys, pending_calls=pending_calls)
    assert {"round 1 of 10, executing: worker tools are running", "Round 1 (continue): Both."} <= {*status_lines}
    (row,) = [line.split() for line in status_lines if " sg1 " in line]
    assert ("7" in row, row[-3:]) == (True, ["no", "server", "runs"])
    clarify = sub_goal(1, "clarify", question="Which?")
    run = RoundsRun(continue_response(clarify), done_response(a=ref(1, "clarification")))
    run.run_to_end()
    assert "round 2 of 10, done" in _status_lines(run, capsys)


def test_graph_names_worker_tools_and_marks_partial_results() -> None:
    run = _started_run()
    run.scheduler.complete("sg1", {"status": "partial", "outputs": {"numbers": [1]}}, at=NOW)
    graph = graph_of_boxes(run.scheduler)
    mermaid_text = mermaid(graph)
    assert "sg1<br/>pick · Numbers of Maersk<br/>" in mermaid_text
    assert next(line for line in mermaid_text.splitlines() if "sg1<br/>" in line).endswith('<br/>partial"]:::partial')
    assert "classDef partial " in mermaid_text
    assert "running" in next(line for line in mermaid_text.splitlines() if "sg2<br/>" in line)
    assert not is_folded(graph)


def test_graph_has_a_group_for_each_round() -> None:
    sums = [sub_goal(number + 2, "add_up", numbers=ref(number, "numbers")) for number in (1, 2)]
    comparison = sub_goal(5, "compare", total=[ref(3, "total"), ref(4, "total")])
    rounds = [PICK_MAERSK, PICK_EVERGREEN], sums, [comparison]
    responses = [*(continue_response(*sub_goals) for sub_goals in rounds), done_response(a=ref(5, "comparison"))]
    options = RoundsOptions(limits=RoundsLimits(synthesis="model"))
    run = RoundsRun(*responses, worker_results={"sg5": {"comparison": "7 and 11"}}, options=options)
    run.run_to_end()
    graph = graph_of_boxes(run.scheduler)
    assert {node["node_id"]: node.get("group") for node in graph["nodes"]} == {
        **{"intention": None, "plan": "round 1", "sg1": "round 1", "sg2": "round 1", "plan#2": "round 2"},
        **{"sg3": "round 2", "sg4": "round 2", "plan#3": "round 3", "sg5": "round 3"},
        **{"plan#4": "round 4", "answer": None},
    }
    assert graph["edges"] == [
        *(["intention", "plan"], ["plan", "plan#2"], ["sg1", "sg3"], ["sg2", "sg4"], ["plan#2", "plan#3"]),
        *(["sg3", "sg5"], ["sg4", "sg5"], ["plan#3", "plan#4"], ["sg5", "answer"], ["plan#4", "answer"]),
    ]
    # JSON output has all edges and the groups of the drawn graph.
    document = graph_document(run.scheduler)
    assert [node.get("group") for node in document["nodes"]] == [node.get("group") for node in graph["nodes"]]
    assert ["sg1", "plan#2"] in document["edges"]


def test_round_without_a_plan_names_the_problem() -> None:
    run = RoundsRun(*[continue_response(sub_goal(1, "absent"), reasoning="Again.")] * 4)
    run.run_to_end()
    (line,) = [line for line in decode_rounds(_document_of(run)) if line.key == "round 1"]
    assert (line.text.startswith("Again. — "), "absent" in line.text) == (True, True)
    assert "plan_problems" not in _document_of(_started_run())["rounds"][0]


def test_problem_of_a_plan_is_shown_during_its_repair() -> None:
    lines: list[str] = []
    writer = LineWriter(lines.append)
    run = RoundsRun(
        continue_response(sub_goal(1, "absent"), reasoning="Again."),
        continue_response(PICK_MAERSK, reasoning="Better."),
        done_response(),
    )
    run.step()
    run.step()
    repair_task = run.start()
    for _ in range(2):
        writer.show(_view(run))
    (rejected_line,) = [line for line in lines if "round 1" in line and "rejected" in line]
    assert "absent" in rejected_line
    assert rejected_line.startswith(next(line for line in lines if " plan " in line)[:8])
    run.end(repair_task)
    writer.show(_view(run))
    assert "Better." in lines[-1]


def test_why_reports_the_end_of_a_run_and_its_failures() -> None:
    run = _started_run()
    run.scheduler.fail("sg1", NodeError("odd", "no numbers"), at=NOW)
    chain = blocking_chain(run.scheduler, calls={})
    error = {"code": "planner_repeats", "message": "the planner wants the same again"}
    explanation = RunExplanation(_view(run, is_closed=True, status="failed", error=error), "", chain)
    first_lines = ["q has failed", "planner_repeats: the planner wants the same again"]
    assert [*explanation_lines(explanation)][:2] == first_lines
    assert "the run ended with the error planner_repeats: " in explanation.describe(str)
    explained_error = {"code": "odd", "message": "no numbers"}
    chain = replace(chain, reasons=[replace(reason, detail="odd: no numbers") for reason in chain.reasons])
    assert RunExplanation(_view(run, is_closed=True, error=explained_error), "", chain).unexplained_error() is None


def test_why_of_a_continuing_round_has_the_last_reasoning_of_the_planner() -> None:
    run = _started_run()
    explanation = RunExplanation(_view(run), "", blocking_chain(run.scheduler, calls={}))
    assert [*explanation_lines(explanation)][:2] == ["q is running", "Round 1 (continue): Both."]


def test_cancelled_or_skipped_sub_goal_without_error_reports_its_state() -> None:
    assert reason_for_missing_outputs(Record(NodeStatus.CANCELLED)) == "it was cancelled"
    assert reason_for_missing_outputs(Record(NodeStatus.SKIPPED)) == "it was skipped"


@pytest.mark.parametrize(("max_rounds", "hint"), [(2, ["more rounds: --max-rounds N, at most 50"]), (ROUNDS_LIMIT, [])])
def test_run_that_used_all_rounds_explains_how_to_allow_more(max_rounds: int, hint: list[str]) -> None:
    sub_goals = [sub_goal(number, "pick", name=f"Carrier {number}") for number in range(1, max_rounds + 1)]
    run = RoundsRun(*map(continue_response, sub_goals), max_rounds=max_rounds)
    run.run_to_end()
    document = _view(run).document_with_refs()
    message = "used, but the planner needs at least one more round to finish"
    # The error does not name the option, which only the command line has.
    assert document["error"]["message"] == f"all {max_rounds} rounds are {message}"
    assert [*failure_lines(document)] == [f"error: max_rounds: all {max_rounds} rounds are {message}", *hint]
