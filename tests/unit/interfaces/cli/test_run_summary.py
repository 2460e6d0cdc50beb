"""Output about an ended run: counts of nodes, failures, the answer."""

import io
import sys
from typing import Any

import pytest

from dagwright.core.model.tools import Effects, ToolDeclaration
from dagwright.features.explain.why import blocking_chain
from dagwright.features.run_scheduler import RunScheduler
from dagwright.history.run_explainer import RunExplanation
from dagwright.history.run_view import RunView
from dagwright.interfaces.cli.output import Output
from dagwright.interfaces.cli.run_and_watch import FollowedRun
from dagwright.interfaces.cli.run_summary import (
    failure_lines,
    found_entity_lines,
    print_answer,
    print_end,
    print_result,
    summary_line,
)
from dagwright.interfaces.cli.show_commands import _exit_code_of_result, _result_text
from tests.support.plan_building import compiled_plan, node, plan_of, scheduler_of, started_scheduler, tool_error

_TOOLS = {
    "make": ToolDeclaration("make", Effects.IDEMPOTENT, undo="unmake"),
    "unmake": ToolDeclaration("unmake", Effects.IDEMPOTENT),
}


def _final_view(scheduler: RunScheduler) -> RunView:
    status, is_closed = scheduler.status().value, scheduler.is_finished
    return RunView("run-1", "r", status, None, scheduler, {}, 0.0, 2.0, is_closed=is_closed)


def _scheduler_of_started_run(*nodes: dict[str, Any], **fields: Any) -> RunScheduler:
    """Return the scheduler of a run whose first node is running."""
    scheduler = scheduler_of(*nodes, **fields)
    scheduler.next_task(1.0)
    return scheduler


def test_compensation_is_counted_separately() -> None:
    plan = compiled_plan(plan_of(node("a", tool="make"), node("b", "a", tool="make")), tools=_TOOLS)
    setup = {"compensate": True, "key_of": lambda scope, path: f"{scope}:{path}"}
    scheduler = started_scheduler(plan, setup=setup)
    while (task := scheduler.next_task(1.0)) is not None:
        if task.id == "b":
            scheduler.fail("b", tool_error("boom"), at=1.0)
        else:
            scheduler.complete(task.id, {}, at=1.0)
    view = _final_view(scheduler)
    assert summary_line(view, view.document_with_refs()) == (
        "run-1: failed in 2.0 s; nodes: 1 completed, 1 failed; "
        "compensation: 2 completed (1 for failed calls that may have had an effect)"
    )


def test_failed_run_has_the_same_error_in_its_document_and_in_its_explanation() -> None:
    scheduler = _scheduler_of_started_run(node("a"))
    scheduler.fail("a", tool_error("boom"), at=1.0)
    view = _final_view(scheduler)
    error = {"code": "node_failed", "message": "'a' failed: boom", "node_id": "a"}
    document = view.document()
    assert (document["status"], document["error"]) == ("failed", error)
    explanation = RunExplanation(view, "", blocking_chain(scheduler, calls={}))
    assert (explanation.to_json()["error"], explanation.unexplained_error()) == (error, None)
    # The command line prints the error once, with its node.
    assert [*failure_lines(document)] == ["failed: a: boom"]


@pytest.mark.parametrize(
    ("is_running", "expected_line"),
    [
        (True, "run-1: cancelled in 2.0 s; nodes: 1 cancelled"),
        (False, "run-1: cancelled in 2.0 s, after all nodes had completed; nodes: 1 completed"),
    ],
)
def test_cancelled_run_reports_whether_all_nodes_had_completed(is_running: bool, expected_line: str) -> None:
    scheduler = _scheduler_of_started_run(node("a"))
    scheduler.cancel(2.0)
    if is_running:
        scheduler.task_cancelled("a", at=3.0)
    else:
        scheduler.complete("a", "# The answer\n\nIt is **3**.", at=3.0)
    view = _final_view(scheduler)
    assert summary_line(view, view.document_with_refs()) == expected_line


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("stdout_type", "is_rendered"), [(_Terminal, True), (io.StringIO, False)])
def test_answer_is_rendered_only_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, stdout_type: Any, is_rendered: bool
) -> None:
    scheduler = _scheduler_of_started_run(node("a"), output="{{a.result}}")
    scheduler.complete("a", "It is **3**, see [here](https://example.org).\n\n| a | b |\n|---|---|\n| 1 | 2 |", at=2.0)
    stdout = stdout_type()
    monkeypatch.setattr(sys, "stdout", stdout)
    view = _final_view(scheduler)
    print_answer(view, view.document_with_refs(), Output(has_color=False))
    result = stdout.getvalue()
    assert ("**3**" in result, "|---|" in result) == (not is_rendered, not is_rendered)
    assert "https://example.org" in result


def test_multiline_text_of_a_slot_is_printed_with_its_line_breaks() -> None:
    slots = {"formatted_results": "| a |\n|---|\n| 1 |", "hit_count": 3}
    assert _result_text(slots) == "formatted_results:\n| a |\n|---|\n| 1 |\nhit_count: 3"
    assert _result_text({"a": "b"}) == '{\n  "a": "b"\n}'


def test_failure_for_low_confidence_names_the_command_that_shows_the_intents() -> None:
    error = {"code": "low_confidence", "message": "not sure enough"}
    completed_node = {"status": "completed", "error": None, "result": None}
    nodes = dict.fromkeys(("plan", "read", "plan#2", "read#2"), completed_node)
    lines = [*failure_lines({"run_id": "run-1", "error": error, "nodes": nodes})]
    assert lines == ["error: low_confidence: not sure enough", "the intents: dagwright node run-1 read#2"]


_JOHN_LOOKUP = {"search_text": "John Smith", "entity_type": "person", "reason": "exact name", "created": False}
_JOHN_LOOKUP["entity"] = {"id": "person_1", "name": "John Smith", "kind": "person", "jurisdiction": "GB"}


def test_run_of_intents_lists_bindings_and_other_results(capsys: pytest.CaptureFixture[str]) -> None:
    scheduler = _scheduler_of_started_run(node("@result_1"), node("@result_2", "@result_1"))
    scheduler.complete("@result_1", {"id": "fund_1"}, at=1.0)
    scheduler.next_task(1.0)
    scheduler.complete("@result_2", {"id": "role_1"}, at=1.0)
    view = _final_view(scheduler)
    print_end(view, {**view.document_with_refs(), "lookups": [_JOHN_LOOKUP]}, Output())
    summary, binding_line, first_result, *other_lines = capsys.readouterr().out.splitlines()
    assert summary.startswith("run-1: completed")
    assert binding_line == "'John Smith' is John Smith (person, GB, person_1): exact name"
    assert first_result == '@result_1 any: {"id": "fund_1"}'
    assert ["role_1" in "".join(other_lines), "fund_1" in "".join(other_lines)] == [True, False]
    lines = [*found_entity_lines([_JOHN_LOOKUP] * 43)]
    assert (len(lines), lines[-1]) == (41, "and 3 more lookups")


@pytest.mark.parametrize(
    ("followed_run", "line_of_open_run", "line_of_closed_run"),
    [
        # A worker in the background may end the run before it is first read.
        (FollowedRun("r", is_new=True), "run r", "run r"),
        (FollowedRun("r", " in the session s", is_new=True), "run r in the session s", "run r in the session s"),
        (FollowedRun("r", " already exists"), "run r already exists", "run r has already ended"),
        (FollowedRun("r"), "run r", "run r has already ended"),
    ],
)
def test_first_line_of_a_followed_run_reports_whether_it_has_ended(
    followed_run: FollowedRun, line_of_open_run: str, line_of_closed_run: str
) -> None:
    assert followed_run.first_line(has_ended=False) == line_of_open_run
    assert followed_run.first_line(has_ended=True) == line_of_closed_run


@pytest.mark.parametrize(
    ("node_id", "exit_code", "message"),
    [("a", 0, ""), (None, 1, "error: the output is not loaded: the payload x is not in the store\n")],
)
def test_lost_output_is_a_failure_but_a_lost_result_of_a_node_is_not(
    node_id: str | None, exit_code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    scheduler = _scheduler_of_started_run(node("a"))
    scheduler.complete("a", 1, at=1.0)
    view = _final_view(scheduler)
    note_message = f"{node_id or 'output'}: the payload x is not in the store"
    note = {"code": "value_lost", "node_id": node_id, "message": note_message}
    print_result(view, {**view.document_with_refs(), "notes": [note]}, Output())
    assert (capsys.readouterr().err, _exit_code_of_result(view, [note])) == (message, exit_code)
