"""What is told of a run that ended: how many steps came to what, and what failed, each thing once."""

from dagwright.cli.endings import summary_line
from dagwright.feed import RunView
from dagwright.plan.scheduler import Scheduler
from dagwright.plan.tools import Effects, ToolDeclaration
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
    assert line == "run-1: failed in 2.0 s; nodes: 1 completed, 1 failed; taking back: 2 completed"
