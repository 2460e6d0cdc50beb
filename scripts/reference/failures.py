"""The table of the failures of nodes and runs.

The texts are here. Whether a failure is retryable comes from the code: from `retry_decision`, which decides about the
errors of tool calls, and from the `NodeError`s that the engine makes itself.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping, Set
from datetime import timedelta

import httpx

from activities import errors as call_errors
from dagwright.core.model.tools import Effects
from dagwright.tools.errors import (
    ArgumentNotLoaded,
    AskPerson,
    GiveUp,
    InvalidArguments,
    InvalidResult,
    MissingPart,
    MissingSecret,
    NotStarted,
    ResultNotStored,
    ResultTooLarge,
    RetryLater,
    SecretRefused,
    ToolChanged,
    ValueLost,
)
from scripts.reference.markdown import code, table
from scripts.reference.sources import calls_of, texts_of

FAILURES: Mapping[str, tuple[str, str]] = {
    "agent_stopped": ("An agent was stopped before it had an answer.", "Retry the node."),
    "agent_unfinished": (
        "An agent has no answer within its limits.",
        "Raise its limits, or make the objective smaller.",
    ),
    "ask_person": (
        "A call asks a person where this is not possible.",
        "Ask in a node of the plan; `pure` tools cannot ask.",
    ),
    "asks_too_much": ("The answers to a call are over the limit.", "Ask in nodes of the plan."),
    "asks_too_often": ("A call makes more requests than it may.", "Ask in nodes of the plan."),
    "Bug": ("A defect of Dagwright.", "Report it with the log of the worker."),
    "budget_spent": (
        "The [budget](../guides/budgets.md) was used up before a round was planned.",
        "Raise the budget.",
    ),
    "compensated": ("The parent run compensates this run.", "See the error of the parent run."),
    "deadline_exceeded": ("The run or a question was over its deadline.", "Start it with a longer deadline."),
    "dependency_failed": ("A node that this one needs has failed or was cancelled.", "Correct that node."),
    "duplicate_key": ("Two items of a `for_each` have the same key.", "Choose another `key`."),
    "fail_fast": ("Another node failed in a plan with `on_failure: fail_fast`.", "Correct that node."),
    "failed": ("A run ended without a document.", "See the execution in the Temporal UI."),
    "invalid": ("A value that is known only while the run proceeds is invalid.", "Correct the node that made it."),
    "invalid_arguments": (
        "Resolved arguments do not match the schema of the tool.",
        "Correct the reference or the tool that made the value.",
    ),
    "invalid_condition": ("The `when` of the node cannot be evaluated.", "Correct the condition."),
    "invalid_field": ("A resolved field of the node has an invalid value.", "Correct the node that made it."),
    "invalid_for_each": ("The `for_each` is not a list.", "Refer to a list."),
    "invalid_key": ("The `key` of an item is not a text of 1 to 200 bytes.", "Choose another `key`."),
    "invalid_question": ("A request to a person is invalid.", "Correct the node or tool that makes it."),
    "invalid_result": ("A result does not match its schema, or is not JSON.", "Correct the tool."),
    "low_confidence": (
        "The model is less confident than `--confidence` requires, and no person may be asked.",
        "State the request more precisely.",
    ),
    "max_rounds": ("All rounds are used, and the planner has not ended.", "Raise `--max-rounds`."),
    "missing_data": ("A reference leads to a missing value.", "Correct the reference."),
    "missing_secret": (
        "The worker has no value for a secret.",
        "Set the variable of the [secret](../guides/secrets.md).",
    ),
    "needs_own_call": (
        "A `pure` node of a very large plan needs a model.",
        "Give the node a `heartbeat`, so that it has an activity of its own.",
    ),
    "no_answer": ("The request was not answered before its deadline.", "Set `on_timeout`, or retry the node."),
    "no_plan": ("The model wrote no plan.", "Ask again, or with another model."),
    "node_failed": ("A node failed, so the run failed.", "Correct the node that `node_id` names."),
    "not_compensated": ("Calls remain that could not be undone.", "See `not_compensated` of the document."),
    "not_completed": ("A plan ended without completing.", "Correct its failed nodes."),
    "not_started": ("The tool was not called, or had not started its change.", "Retry the node."),
    "nothing_completed": ("No node that the plan is for has completed.", "See the states of the nodes."),
    "outcome_unknown": (
        "The worker died in a `write` call, so its effect is unknown.",
        "Check the effect, then `retry` or `set-result`.",
    ),
    "plan_invalid": ("No plan that the model wrote can be run.", "Ask again, or with another model."),
    "planner_failed": ("The planner gave up; the message has its reason.", "Ask with more information."),
    "planner_invalid": ("The planner gave no valid answer.", "Ask again, or with another model."),
    "planner_repeats": ("The planner repeats finished sub-goals.", "Ask again, or with another model."),
    "planner_stopped": ("The planner was stopped or skipped.", "Ask again."),
    "precondition_missing": ("A required slot of a worker tool is null.", "Correct the node that makes it."),
    "refused": ("The policy refuses the call, or an answer is not allowed.", "Change the policy."),
    "region_failed": (
        "A group of `pure` nodes made no progress.",
        "Retry the node; report it if it fails again.",
    ),
    "rejected": ("A person rejected the call or the plan.", "Change the plan."),
    "secret_refused": (
        "A secret is not bound to the tool or host.",
        "[Bind it](../guides/secrets.md#bind-a-secret).",
    ),
    "store_refused": (
        "The payload store refuses the state or the results of a run.",
        "Correct the [store](../deploy/storage.md), then `fork` the run.",
    ),
    "store_unavailable": (
        "The payload store does not respond.",
        "Repair the [store](../deploy/store-outages.md), then retry the node.",
    ),
    "sub_plan_failed": ("The run of a sub-plan failed.", "Correct the node of the sub-plan."),
    "terminated": ("The execution was terminated.", "Start the run again with `fork`."),
    "timed_out": ("The execution exceeded its own timeout.", "Start the run again with `fork`."),
    "timeout": ("An attempt took longer than its `timeout`.", "Raise the `timeout`."),
    "too_large": ("A value is over a limit.", "See [limits](limits.md)."),
    "tool_changed": (
        "A tool or agent differs from the one that the plan was checked against.",
        "Check the plan again, then `fork` the run.",
    ),
    "tool_failed": (
        "The tool raised an error.",
        "Correct the tool or its arguments; the [exception](../guides/tools.md#failing) decides about retries.",
    ),
    "value_lost": (
        "A value is no longer in the payload store.",
        "[Restore it](../deploy/store-outages.md), or `fork` the run.",
    ),
    "worker_failed": ("A worker tool reported a failure.", "Correct the tool."),
    "worker_stopped": (
        "The worker stopped while the tool ran.",
        "Check the effect of a `write`, then retry the node.",
    ),
}
"""Code -> meaning and remedy. Model calls have codes of their own."""

INTERNAL = frozenset({"store_retry", "tool_paused"})
"""Codes of attempts that the run repeats; no node fails with them."""

_RAISED: tuple[BaseException, ...] = (
    AskPerson("?"),
    GiveUp("?"),
    InvalidArguments("?"),
    InvalidResult("?"),
    MissingPart("?"),
    MissingSecret("?"),
    NotStarted("?"),
    ResultNotStored("?"),
    ResultTooLarge("?"),
    RetryLater("?", after=timedelta(seconds=1)),
    SecretRefused("?"),
    ToolChanged("?"),
    ValueLost("?"),
    ArgumentNotLoaded("?"),
    RuntimeError("?"),
    httpx.ConnectError("?"),
    call_errors.OutcomeUnknown("?"),
    call_errors.WorkerStopped("?"),
)


def failures_table() -> str:
    """Return a row for each code: meaning, whether the failure is retryable, and the remedy."""
    known = _retryable_values()
    answers = {frozenset({True}): "yes", frozenset({True, False}): "depends on the cause"}
    rows = [
        (code(name), meaning, answers.get(frozenset(known.get(name, set())), "no"), remedy)
        for name, (meaning, remedy) in sorted(FAILURES.items(), key=lambda row: row[0].lower())
    ]
    return table(("Code", "Meaning", "Retryable", "Remedy"), rows)


def used_failure_codes() -> set[str]:
    """Return the codes that nodes and runs can fail with, without those of model calls."""
    return set(_retryable_values()) - INTERNAL


def _retryable_values() -> Mapping[str, Set[bool]]:
    known: dict[str, set[bool]] = defaultdict(set)
    for name, value in [*_decided(), *_of_engine()]:
        known[name].add(value)
    return known


def _decided() -> Iterator[tuple[str, bool]]:
    for error in _RAISED:
        for effects in (Effects.READ, Effects.WRITE):
            decision = call_errors.retry_decision(error, effects)
            yield decision.code, not decision.is_final


def _of_engine() -> Iterator[tuple[str, bool]]:
    for call in calls_of("NodeError"):
        given = [each.value for each in call.keywords if each.arg == "retryable"] or call.args[2:3]
        values = given[0] if given else ast.Constant(False)
        constant = values.value if isinstance(values, ast.Constant) else None
        for name in texts_of(call.args[0]) if call.args else ():
            yield from ((name, value) for value in ((True, False) if constant is None else (bool(constant),)))
