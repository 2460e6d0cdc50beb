"""The budget of a run on the wire: in its options, and between a run and its sub-plans.

The run above all keeps the budget. A sub-plan tells by signal which calls wait and how others ended, and is told by
signal which may start; a run between hands both on. The workflow and the feed take them by the same functions.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dagwright.core.boundary import wire
from dagwright.core.boundary.usage import MAX_USAGE_VALUE, usage_from_json
from dagwright.features.budgets.budget import Budget, BudgetReport, budget_from_json
from dagwright.features.run_scheduler import RunScheduler
from dagwright.protocol.command_handler import ReadMessage, bug_message
from dagwright.protocol.messages import MessageInvalid, RunInput
from dagwright.protocol.notes import Notes
from dagwright.protocol.outcomes import sub_plan_task

SIGNALS = frozenset({wire.SIGNAL_BUDGET_REPORT, wire.SIGNAL_BUDGET_GRANT})
_MOST_CALLS = 10_000
"""Of which one message tells: a run below asks for 250 at a time, and tells how those ended that were in flight."""
_CALL_BYTES = 20_000
"""Name of a call, with the path to it."""
_REASON = 300
"""Characters of why a run finishes with what it has."""


@dataclass(frozen=True, slots=True)
class BudgetTold:
    """What a sub-plan tells the run above.

    Args:
        task: id of the call that started it.
        grown: nodes that it, and those below it, have added.
    """

    task: str
    up: BudgetReport
    grown: int = 0


@dataclass(frozen=True, slots=True)
class BudgetGiven:
    """What a run tells its sub-plan: which calls may start, or why it has to finish with what it has."""

    calls: list[str] = field(default_factory=list)
    finishing: str | None = None


BudgetNews = BudgetTold | BudgetGiven
ABOVE_LOST = BudgetGiven(finishing="the run above, which has the budget, is gone")
"""What stands for news of a run above that cannot be told anything."""


def first_budget(run_input: RunInput) -> Budget | None:
    """Returns the budget that a run begins with; `None` if nothing is limited."""
    if run_input.parent is not None and run_input.shared_budget is not None:
        finishing = run_input.shared_budget.get("finishing")
        is_timed = run_input.shared_budget.get("timed") is True
        return Budget(is_child=True, finishing=None if finishing is None else str(finishing), is_timed=is_timed)
    return budget_from_json(run_input.budget) if run_input.budget is not None else None


def shared_budget(scheduler: RunScheduler) -> Mapping[str, Any] | None:
    """Returns what the input of a sub-plan says of the budget that it shares."""
    budget = scheduler.features.budget.budget
    if budget is None:
        return None
    timed = {"timed": True} if budget.is_timed or "time" in budget.limits else {}
    return timed if budget.finishing is None else {**timed, "finishing": budget.finishing}


def told_to_json(up: BudgetReport, *, task: str, grown: int) -> dict[str, Any]:
    """Returns what a sub-plan tells, as it travels."""
    settled = {name: None if usage is None else usage.to_json() for name, usage in up.settled.items()}
    rests = {} if up.rests is None else {"is_idle": up.rests}
    return {"task": task, "reservations": up.claims, "settled": settled, "added_nodes": grown, **rests}


def given_to_json(given: BudgetGiven) -> dict[str, Any]:
    """Returns what a sub-plan is told, as it travels."""
    return {"calls": given.calls} if given.finishing is None else {"finishing": given.finishing}


def news_of(name: str, read: ReadMessage, notes: Notes) -> BudgetNews | None:
    """Returns what a signal of a run or a sub-plan tells; what is none becomes a note.

    Args:
        name: of the signal.
    """
    try:
        return _read(name, read())
    except MessageInvalid as error:
        notes.refuse(name, str(error))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        notes.refuse(name, f"this tells nothing of a budget: {error!r:.200}")
    # The process edge: a defect in reading one message never ends the run, nor any look at it.
    except Exception as error:
        notes.refuse(name, bug_message(error))
    return None


def _read(name: str, message: Any) -> BudgetNews:
    if name == wire.SIGNAL_BUDGET_GRANT:
        finishing = message.get("finishing")
        return BudgetGiven([str(call) for call in message.get("calls", ())], finishing and str(finishing)[:_REASON])
    claims, settled = message["reservations"], message["settled"]
    if len(claims) + len(settled) > _MOST_CALLS or any(len(str(key)) > _CALL_BYTES for key in (*claims, *settled)):
        raise ValueError(f"it tells of over {_MOST_CALLS:,} calls, or of one whose name has over {_CALL_BYTES:,} bytes")
    up = BudgetReport(
        {str(key): min(max(int(tokens), 1), MAX_USAGE_VALUE) for key, tokens in claims.items()},
        {str(key): None if usage is None else usage_from_json(usage) for key, usage in settled.items()},
        rests if isinstance(rests := message.get("is_idle"), bool) else None,
    )
    return BudgetTold(str(message["task"]), up, min(max(int(message.get("added_nodes", 0)), 0), MAX_USAGE_VALUE))


def take_news(scheduler: RunScheduler, news: BudgetNews, *, at: float) -> None:
    """Takes what a run or a sub-plan tells; one that has ended meanwhile tells nothing any more."""
    if isinstance(news, BudgetGiven):
        scheduler.features.budget.take_grant(news.calls, finishing=news.finishing, at=at)
        return
    task_id = sub_plan_task(scheduler, news.task)
    record = scheduler.record_of(task_id) if task_id is not None else None
    if record is not None and not record.status.is_final:
        scheduler.features.budget.take_report(news.task, news.up, grown=news.grown, at=at)
