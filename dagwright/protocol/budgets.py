"""Budget of a run in its input, and budget signals between parent and child runs.

The root run has the budget. A child run sends reports to its parent: the calls that wait for the budget, the usage of
calls that ended, and, if the budget limits time, whether the child run is idle. The parent sends grants to the child:
the calls that may start. An intermediate run forwards reports and grants. The workflow and the history reader apply the
signals with the same functions.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dagwright.core.boundary import wire
from dagwright.core.boundary.usage_reports import MAX_USAGE_VALUE, usage_from_json
from dagwright.features.budgets.budget import Budget, BudgetReport, budget_from_json
from dagwright.protocol.messages import MessageInvalid
from dagwright.protocol.node_paths import sub_plan_task
from dagwright.protocol.notes import Notes, ReadMessage, bug_message
from dagwright.protocol.run_input import RunInput

if TYPE_CHECKING:
    from dagwright.features.run_scheduler import RunScheduler

SIGNALS = frozenset({wire.SIGNAL_BUDGET_REPORT, wire.SIGNAL_BUDGET_GRANT})
_MAX_CALLS = 10_000
"""Maximum number of calls in one message. A child run requests 250 at a time, and reports the calls that ended."""
_MAX_CALL_ID_BYTES = 20_000
"""Maximum size of the id of a call. The id of a call of a child run also names the child run."""
_MAX_REASON_CHARACTERS = 300
"""Maximum length of the reason for which a run finishes early; a longer reason is cut."""


@dataclass(frozen=True, slots=True)
class ChildBudgetReport:
    """Budget report of a child run.

    Args:
        task: ID of the call in the parent run that started the child run.
        added_nodes: nodes that the child run and its own child runs have added.
    """

    task: str
    report: BudgetReport
    added_nodes: int = 0


@dataclass(frozen=True, slots=True)
class BudgetGrant:
    """Budget grant of the parent run: the calls that may start, or the reason for which the child run must finish
    early.
    """

    calls: list[str] = field(default_factory=list)
    finish_reason: str | None = None


BudgetMessage = ChildBudgetReport | BudgetGrant
PARENT_LOST = BudgetGrant(finish_reason="the parent run, which holds the budget, no longer exists")
"""Grant that a child run applies if its parent run no longer exists, and so cannot send grants."""


def initial_budget(run_input: RunInput) -> Budget | None:
    """Return the budget at the start of a run; `None` if nothing is limited."""
    if run_input.parent is not None and run_input.shared_budget is not None:
        finish_reason = run_input.shared_budget.get("finish_reason")
        is_timed = run_input.shared_budget.get("is_timed") is True
        return Budget(
            is_child=True, finish_reason=None if finish_reason is None else str(finish_reason), is_timed=is_timed
        )
    return budget_from_json(run_input.budget) if run_input.budget is not None else None


def shared_budget(scheduler: "RunScheduler") -> Mapping[str, Any] | None:
    """Return the part of the budget that the input of a child run contains; `None` if the run has no budget.

    This part has no limits. Its field `is_timed` is true if the budget of the root run limits time. Its field
    `finish_reason` is the reason for which the run finishes early.
    """
    budget = scheduler.features.budget.budget
    if budget is None:
        return None
    shared_fields = {"is_timed": True} if budget.is_timed or "time" in budget.limits else {}
    return shared_fields if budget.finish_reason is None else {**shared_fields, "finish_reason": budget.finish_reason}


def budget_report_to_json(report: BudgetReport, *, task: str, added_nodes: int) -> dict[str, Any]:
    """Encode a budget report."""
    usage_of_ended_calls = {name: None if usage is None else usage.to_json() for name, usage in report.settled.items()}
    idle_field = {} if report.is_idle is None else {"is_idle": report.is_idle}
    return {
        "task": task,
        "reservations": report.requested_tokens,
        "settled": usage_of_ended_calls,
        "added_nodes": added_nodes,
        **idle_field,
    }


def budget_grant_to_json(grant: BudgetGrant) -> dict[str, Any]:
    """Encode a budget grant."""
    return {"calls": grant.calls} if grant.finish_reason is None else {"finish_reason": grant.finish_reason}


def read_budget_message(name: str, read_message: ReadMessage, notes: Notes) -> BudgetMessage | None:
    """Decode a budget signal. An invalid signal becomes a note.

    Args:
        name: name of the signal.
    """
    try:
        return _decode(name, read_message())
    except MessageInvalid as error:
        notes.add_rejection(name, str(error))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        notes.add_rejection(name, f"invalid budget message: {error!r:.200}")
    # Catch all exceptions: an unexpected error in one message never ends the run or stops a history reader.
    except Exception as error:
        notes.add_rejection(name, bug_message(error))
    return None


def _decode(name: str, message: Any) -> BudgetMessage:
    if name == wire.SIGNAL_BUDGET_GRANT:
        finish_reason = message.get("finish_reason")
        return BudgetGrant(
            [str(call) for call in message.get("calls", ())],
            finish_reason and str(finish_reason)[:_MAX_REASON_CHARACTERS],
        )
    reservations, settled = message["reservations"], message["settled"]
    if len(reservations) + len(settled) > _MAX_CALLS or any(
        len(str(key)) > _MAX_CALL_ID_BYTES for key in (*reservations, *settled)
    ):
        raise ValueError(f"more than {_MAX_CALLS:,} calls, or a call id of more than {_MAX_CALL_ID_BYTES:,} bytes")
    report = BudgetReport(
        {str(key): min(max(int(tokens), 1), MAX_USAGE_VALUE) for key, tokens in reservations.items()},
        {str(key): None if usage is None else usage_from_json(usage) for key, usage in settled.items()},
        is_idle if isinstance(is_idle := message.get("is_idle"), bool) else None,
    )
    return ChildBudgetReport(
        str(message["task"]), report, min(max(int(message.get("added_nodes", 0)), 0), MAX_USAGE_VALUE)
    )


def apply_budget_message(scheduler: "RunScheduler", message: BudgetMessage, *, at: float) -> None:
    """Apply a budget message. The report of a child run that has ended has no effect."""
    if isinstance(message, BudgetGrant):
        scheduler.features.budget.handle_grant(message.calls, finish_reason=message.finish_reason, at=at)
        return
    task_id = sub_plan_task(scheduler, message.task)
    record = scheduler.record_of(task_id) if task_id is not None else None
    if record is not None and not record.status.is_final:
        scheduler.features.budget.handle_report(message.task, message.report, added_count=message.added_nodes, at=at)
