"""The time that a whole run may take: which limit counts at its start, and how the run above names it.

The workflow and the feed both use it, so what the feed shows is what the run says.
"""

import math
from dataclasses import replace

from dagwright.core.model.compiled import CompiledPlan
from dagwright.core.scheduler.deadline import Deadline
from dagwright.core.scheduler.scheduler import Scheduler
from dagwright.protocol.messages import RunInput


def deadline_of(plan: CompiledPlan | None, run_input: RunInput) -> float | None:
    """Returns the seconds that a run may take: the shorter of what its plan and what its starter say.

    In a later execution it is what counted at the end of the one before, which people may have changed.

    Args:
        plan: `None` while the run has not read it.
    """
    carried_s = run_input.carry.deadline_s if run_input.carry is not None else None
    if carried_s is not None:
        return None if math.isinf(carried_s) else carried_s
    limits = (plan.deadline_s if plan is not None else None, run_input.deadline_s)
    return min((limit for limit in limits if limit is not None), default=None)


def changed_deadline(scheduler: Scheduler, run_input: RunInput) -> float | None:
    """Returns the seconds that people have given a run instead of what plan and starter say, as a carry holds it."""
    limit_s = scheduler.deadline.limit_s
    if limit_s == deadline_of(scheduler.plan, replace(run_input, carry=None)):
        return None
    return math.inf if limit_s is None else limit_s


def first_deadline(plan: CompiledPlan, run_input: RunInput, *, began_at: float) -> Deadline:
    """Returns the deadline that a run begins with; a sub-plan is named as in the run above.

    Args:
        began_at: when its first execution started, in seconds since the epoch.
    """
    limit_s = deadline_of(plan, run_input)
    if run_input.parent is None:
        return Deadline(began_at, limit_s)
    whose = repr(run_input.parent.task)
    if limit_s is None:
        return Deadline(began_at, None, whose)
    if limit_s == run_input.deadline_s:
        return Deadline(began_at, limit_s, whose, f"its timeout of {limit_s:g} s")
    return Deadline(began_at, limit_s, whose, f"the deadline of its plan, {limit_s:g} s")
