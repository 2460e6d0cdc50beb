"""Views of runs with a real scheduler, in the state that a test needs."""

from collections.abc import Callable
from typing import Any

from dagwright.features.run_scheduler import RunScheduler, create_scheduler
from dagwright.history.pending_activities import PendingCall
from dagwright.history.run_view import RunView
from dagwright.plans.preparation import check_plan, prepare_plan

START = 1_700_000_000.0


def view_of(
    *nodes: dict[str, Any],
    step: Callable[[RunScheduler], None] = lambda _: None,
    pending_calls: dict[str, PendingCall] | None = None,
) -> RunView:
    """Return the view of a run of these nodes after its ready tasks were started and `step` was applied."""
    checked_plan = check_plan({"plan": 1, "nodes": list(nodes)}, {}, allow_unknown_tools=True)
    scheduler = create_scheduler(prepare_plan(checked_plan, {}), {})
    scheduler.start(START)
    start_all_ready_tasks(scheduler)
    step(scheduler)
    return RunView(
        run_id="run-1",
        execution_id="r",
        status=scheduler.status().value,
        title=None,
        scheduler=scheduler,
        pending_calls=pending_calls or {},
        started_at=START,
        ended_at=None,
        is_closed=scheduler.is_finished,
    )


def scheduler_of(view: RunView) -> RunScheduler:
    assert view.scheduler is not None
    return view.scheduler


def start_all_ready_tasks(scheduler: RunScheduler) -> None:
    while scheduler.next_task(START) is not None:
        pass
