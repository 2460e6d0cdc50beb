"""What is told of a run that ended: how many steps came to what, and what failed, each thing once."""

import io
import sys

import pytest

from dagwright.core.model.tools import Effects, ToolDeclaration
from dagwright.core.scheduler.scheduler import Scheduler
from dagwright.features.explain.why import what_holds
from dagwright.history.explaining import Explanation
from dagwright.history.run_reader import RunView
from dagwright.interfaces.cli.endings import bound_lines, failure_lines, summary_line, tell_answer, tell_end
from dagwright.interfaces.cli.looking import _result_text
from dagwright.interfaces.cli.output import Output
from tests.unit.plan.building import broken, compiled, node, plan_of

_TOOLS = {
    "make": ToolDeclaration("make", Effects.IDEMPOTENT, undo="unmake"),
    "unmake": ToolDeclaration("unmake", Effects.IDEMPOTENT),
}


def _ended(scheduler: Scheduler) -> RunView:
    return RunView(
        workflow_id="run-1",
        run_id="r",
        status=scheduler.status().value,
        title=None,
        scheduler=scheduler,
        pending={},
        started_at=0.0,
        ended_at=2.0,
        is_closed=scheduler.is_finished,
    )


def test_steps_that_take_back_are_counted_apart() -> None:
    scheduler = Scheduler(compiled(plan_of(node("a", tool="make"), node("b", "a", tool="make")), tools=_TOOLS), {})
    scheduler.changes.all_or_nothing = True
    scheduler.changes.key_of = lambda scope, path: f"{scope}:{path}"
    scheduler.begin(0.0)
    while (task := scheduler.next_task(1.0)) is not None:
        if task.id == "b":
            scheduler.fail("b", broken("boom"), at=1.0)
        else:
            scheduler.complete(task.id, {}, at=1.0)
    view = _ended(scheduler)
    line = summary_line(view, view.unfilled_document())
    assert line == "run-1: failed in 2.0 s; nodes: 1 completed, 1 failed; taking back: 2 completed" + (
        " (1 of them to be sure: what failed may have done something)"
    )


def test_run_that_failed_by_its_nodes_has_the_same_error_in_its_document_and_in_why() -> None:
    scheduler = Scheduler(compiled(plan_of(node("a"))), {})
    scheduler.begin(0.0)
    scheduler.next_task(1.0)
    scheduler.fail("a", broken("boom"), at=1.0)
    view = _ended(scheduler)
    error = {"code": "node_failed", "message": "'a' failed: boom", "node": "a"}
    document = view.document()
    assert (document["status"], document["error"]) == ("failed", error)
    explanation = Explanation(view, "", what_holds(scheduler, calls={}))
    assert (explanation.to_json()["error"], explanation.ended_by()) == (error, None)
    # A person reads it once, with the node.
    assert [*failure_lines(document)] == ["failed: a: boom"]


def _cancelled_at_the_end(*, is_running: bool) -> RunView:
    scheduler = Scheduler(compiled(plan_of(node("a"))), {})
    scheduler.begin(0.0)
    scheduler.next_task(1.0)
    scheduler.cancel(2.0)
    if is_running:
        scheduler.task_cancelled("a", at=3.0)
    else:
        scheduler.complete("a", "# The answer\n\nIt is **3**.", at=3.0)
    return _ended(scheduler)


def test_cancel_that_found_nothing_to_stop_says_so() -> None:
    late, in_time = _cancelled_at_the_end(is_running=False), _cancelled_at_the_end(is_running=True)
    assert summary_line(late, late.unfilled_document()) == (
        "run-1: cancelled in 2.0 s, when all of it was done already; nodes: 1 completed"
    )
    assert summary_line(in_time, in_time.unfilled_document()) == "run-1: cancelled in 2.0 s; nodes: 1 cancelled"


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("kind", "is_drawn"), [(_Terminal, True), (io.StringIO, False)])
def test_answer_is_drawn_on_a_terminal_and_stands_as_it_is_elsewhere(
    monkeypatch: pytest.MonkeyPatch, kind: type[io.StringIO], is_drawn: bool
) -> None:
    scheduler = Scheduler(compiled(plan_of(node("a"), output="{{a.result}}")), {})
    scheduler.begin(0.0)
    scheduler.next_task(1.0)
    scheduler.complete("a", "It is **3**, see [here](https://example.org).\n\n| a | b |\n|---|---|\n| 1 | 2 |", at=2.0)
    written = kind()
    monkeypatch.setattr(sys, "stdout", written)
    view = _ended(scheduler)
    tell_answer(view, view.unfilled_document(), Output(has_color=False))
    told = written.getvalue()
    assert ("**3**" in told, "|---|" in told) == (not is_drawn, not is_drawn)
    assert "https://example.org" in told


def test_text_of_several_lines_in_a_result_stands_as_it_is() -> None:
    slots = {"formatted_results": "| a |\n|---|\n| 1 |", "hit_count": 3}
    assert _result_text(slots) == "formatted_results:\n| a |\n|---|\n| 1 |\nhit_count: 3"
    assert _result_text({"a": "b"}) == '{\n  "a": "b"\n}'


def test_run_that_was_not_sure_enough_is_told_with_the_command_that_shows_the_intents() -> None:
    error = {"code": "low_confidence", "message": "not sure enough"}
    found = {"workflow_id": "run-1", "error": error, "nodes": {}}
    nodes = {
        name: {"status": "completed", "error": None, "result": None} for name in ("plan", "read", "plan#2", "read#2")
    }
    assert [*failure_lines({**found, "nodes": nodes})] == [
        "error: low_confidence: not sure enough",
        "the intents: dagwright node run-1 read#2",
    ]


_JOHN = {"search_text": "John Smith", "entity_type": "person", "reason": "exact name", "created": False}
_JOHN["party"] = {"id": "person_1", "name": "John Smith", "kind": "person", "jurisdiction": "GB"}


def test_run_of_intents_tells_who_was_bound_and_what_it_made_that_the_output_leaves_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    scheduler = Scheduler(compiled(plan_of(node("@result_1"), node("@result_2", "@result_1"))), {})
    scheduler.begin(0.0)
    for result in ({"id": "fund_1"}, {"id": "role_1"}):
        task = scheduler.next_task(1.0)
        assert task is not None
        scheduler.complete(task.id, result, at=1.0)
    view = _ended(scheduler)
    document = {**view.unfilled_document(), "lookups": [_JOHN]}
    tell_end(view, document, Output())
    first, bound, made, *output = capsys.readouterr().out.splitlines()
    assert first.startswith("run-1: completed")
    assert bound == "'John Smith' is John Smith (person, GB, person_1): exact name"
    assert made == '@result_1 any: {"id": "fund_1"}'
    assert "role_1" in "".join(output)
    assert "fund_1" not in "".join(output)


def test_many_that_were_looked_up_are_counted() -> None:
    lines = [*bound_lines([_JOHN] * 43)]
    assert (len(lines), lines[-1]) == (41, "and 3 more that were looked up")
