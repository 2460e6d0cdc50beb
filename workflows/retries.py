"""Retry policies of all activities that workflows start.

A policy without an interval or factor has the defaults of the SDK: 1 s, doubled after each attempt.
"""

from datetime import timedelta
from functools import lru_cache

from temporalio.common import RetryPolicy

from dagwright.core.model.compiled import RetryRule
from dagwright.core.model.states import Task
from dagwright.core.model.tools import Effects, ToolDeclaration
from dagwright.features.batch_followers import MAX_BATCH_ATTEMPTS

UNLIMITED_ATTEMPTS = RetryPolicy(maximum_interval=timedelta(minutes=1))
"""For activities whose failure must not end a run: a payload store or webhook that does not respond only delays the
run."""
FIVE_ATTEMPTS = RetryPolicy(maximum_attempts=5)
"""For activities that read a plan or arguments: a bug must not be retried without end."""
QUICK_FIVE_ATTEMPTS = RetryPolicy(initial_interval=timedelta(milliseconds=100), maximum_attempts=5)
REGION_BATCH_RETRIES = RetryPolicy(initial_interval=timedelta(milliseconds=100), maximum_attempts=3)
"""A batch fails because of its worker, not its nodes. After the last attempt, the nodes run one by one."""
CALL_BATCH_RETRIES = RetryPolicy(initial_interval=timedelta(milliseconds=100), maximum_attempts=MAX_BATCH_ATTEMPTS)
"""A batch fails because of its worker, not its calls. After the last attempt, each call gets a separate activity."""
PLAN_PAGE_RETRIES = RetryPolicy(initial_interval=timedelta(milliseconds=200), maximum_attempts=12)
JOIN_ITEMS_RETRIES = RetryPolicy(maximum_interval=timedelta(minutes=1), maximum_attempts=10)
FIND_ENDED_RETRIES = RetryPolicy(maximum_attempts=3)
"""For a poll for ended sub-plans. If all attempts of the poll fail, the next poll finds the ended sub-plans."""

_TIMED_OUT_ERROR = "TemporalTimeout:StartToClose"
"""The server's error type for a `write` call that takes too long: the outcome is unknown."""
_LOST_ATTEMPT_ERRORS = [_TIMED_OUT_ERROR, "TemporalTimeout:Heartbeat"]
"""Errors after which the outcome of a `write` call by a worker of another program is unknown: the call takes too long,
or the worker dies.
"""
_EXTRA_ATTEMPTS = 2
"""Attempts of a `write` call in addition to `max_attempts`: one that calls the tool if a worker died before calling it,
and one that only reports the unknown outcome if a worker died after calling it.
"""


def retry_policy_of(task: Task, tool: ToolDeclaration) -> RetryPolicy:
    """Return the retry policy of a tool call: the rule of its node, limited by the effects of the tool."""
    return _policy(task.node.retry, tool.effects, is_foreign=tool.is_foreign)


# Most calls of a run have the same policy, and creating it would take half of the time for scheduling an activity.
@lru_cache
def _policy(rule: RetryRule, effects: Effects, *, is_foreign: bool) -> RetryPolicy:
    # Temporal rejects a first delay that exceeds the longest delay; a run that sends such a policy is stuck without a
    # reason.
    first_delay_s = min(rule.first_delay_s, rule.max_delay_s or rule.first_delay_s)
    return RetryPolicy(
        initial_interval=timedelta(seconds=first_delay_s),
        backoff_coefficient=rule.factor,
        maximum_interval=timedelta(seconds=rule.max_delay_s) if rule.max_delay_s is not None else None,
        maximum_attempts=_maximum_attempts(rule, effects, is_foreign=is_foreign),
        non_retryable_error_types=_non_retryable_types(effects, is_foreign=is_foreign),
    )


def _maximum_attempts(rule: RetryRule, effects: Effects, *, is_foreign: bool) -> int:
    if effects is not Effects.WRITE:
        return rule.max_attempts
    # A failed foreign write may have made its change, so it is never retried.
    return 1 if is_foreign else rule.max_attempts + _EXTRA_ATTEMPTS


def _non_retryable_types(effects: Effects, *, is_foreign: bool) -> list[str] | None:
    if effects is not Effects.WRITE:
        return None
    return _LOST_ATTEMPT_ERRORS if is_foreign else [_TIMED_OUT_ERROR]
