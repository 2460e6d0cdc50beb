"""Make plans, compiled plans and schedulers from nodes, for tests without a server."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dagwright.core.compiler.compilation import compile_plan
from dagwright.core.errors import PlanInvalid, Problem
from dagwright.core.expressions.compute_budget import MAX_WORK
from dagwright.core.model.compiled import CompiledPlan, plan_from_json, plan_to_json
from dagwright.core.model.document import Document
from dagwright.core.model.lineage import RunLineage
from dagwright.core.model.requests import Feedback, RaisedQuestion, Request
from dagwright.core.model.states import ONE_ATTEMPT, Attempt, NodeError, Record, Task
from dagwright.core.model.tools import Effects, ToolDeclaration
from dagwright.core.scheduler.extension import Extension
from dagwright.core.scheduler.run_state import RunState
from dagwright.core.validation.checked_plan import CheckedPlan
from dagwright.core.validation.validation import check_document
from dagwright.features.budgets.budget import Budget
from dagwright.features.plan_extension.extender import PlanExtender
from dagwright.features.run_scheduler import RunScheduler, create_scheduler
from dagwright.protocol.scheduler_snapshot import restore_state, state_to_json

_ARGUMENTS = {
    "name": {"type": "string", "minLength": 2},
    "count": {"type": "integer", "minimum": 1},
    "tags": {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
    "cbu_id": {"type": "string"},
    "mode": {"enum": ["fast", "slow"]},
}
_SCHEMA = {"type": "object", "properties": _ARGUMENTS, "required": ["name"], "additionalProperties": False}
TOOLS: Mapping[str, ToolDeclaration] = {
    "any": ToolDeclaration("any", Effects.READ),
    "single": ToolDeclaration("single", Effects.READ, max_parallel=1),
    "pair": ToolDeclaration("pair", Effects.READ, max_parallel=2),
    "typed": ToolDeclaration("typed", Effects.PURE, _SCHEMA),
}


def node(node_id: str, *needs: str, **fields: Any) -> dict[str, Any]:
    """Return a node that depends on `needs`. Its tool is `any` unless `fields` has a tool, agent, request or plan."""
    document: dict[str, Any] = {"id": node_id}
    if not fields.keys() & {"tool", "agent", "human", "plan"}:
        document["tool"] = "any"
    if needs:
        document["depends_on"] = list(needs)
    return document | fields


def plan_of(*nodes: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    return {"plan": 1, "nodes": list(nodes), **fields}


def check(
    plan: Mapping[str, Any],
    *,
    tools: Mapping[str, ToolDeclaration] = TOOLS,
    allow_unknown_tools: bool = False,
    worker_tool_nodes: Collection[int] = (),
) -> CheckedPlan:
    return check_document(
        Document(dict(plan), worker_tool_nodes=worker_tool_nodes), tools=tools, allow_unknown_tools=allow_unknown_tools
    )


def problems_of(plan: Mapping[str, Any], *, tools: Mapping[str, ToolDeclaration] = TOOLS) -> Sequence[Problem]:
    """Return all problems of a plan; an empty sequence if the plan is valid."""
    try:
        check(plan, tools=tools)
    except PlanInvalid as invalid:
        return invalid.problems
    return ()


def compiled_plan(
    plan: Mapping[str, Any], *, tools: Mapping[str, ToolDeclaration] = TOOLS, worker_tool_nodes: Collection[int] = ()
) -> CompiledPlan:
    """Compile a plan, and encode and decode the compiled plan as JSON."""
    return plan_from_json(
        json.loads(
            json.dumps(plan_to_json(compile_plan(check(plan, tools=tools, worker_tool_nodes=worker_tool_nodes))))
        )
    )


def scheduler_of(
    *nodes: Mapping[str, Any],
    inputs: Mapping[str, Any] | None = None,
    tools: Mapping[str, ToolDeclaration] = TOOLS,
    **fields: Any,
) -> RunScheduler:
    """Return the scheduler of a started run of these nodes. No task has started yet."""
    return started_scheduler(compiled_plan(plan_of(*nodes, **fields), tools=tools), inputs)


def started_scheduler(
    plan: CompiledPlan,
    inputs: Mapping[str, Any] | None = None,
    *,
    setup: Mapping[str, Any] | None = None,
    at: float = 0.0,
    **options: Any,
) -> RunScheduler:
    """Return the scheduler of a started run.

    Args:
        setup: settings from the input of the run: `budget`, `deadline`, `reuse` and fields of `RunOptions`.
    """
    scheduler = configure(create_scheduler(plan, inputs or {}, **options), **(setup or {}))
    scheduler.start(at)
    return scheduler


def configure(scheduler: RunScheduler, **setup: Any) -> RunScheduler:
    """Apply settings from the input of a run, and return the scheduler."""
    features = scheduler.features
    features.budget.set_budget(setup.pop("budget", None))
    features.reuse.set_table(setup.pop("reuse", None))
    features.deadline.deadline = setup.pop("deadline", features.deadline.deadline)
    scheduler.set_options(replace(scheduler.state.options, **setup))
    return scheduler


def with_extender(scheduler: RunScheduler, extender: PlanExtender | None) -> RunScheduler:
    """Let an extender extend the plan, and return the scheduler."""
    scheduler.features.extension.set_extender(extender)
    return scheduler


class NoExtension:
    """An extender that adds no nodes and reserves no IDs."""

    def next_extension(self, state: RunState) -> Extension | None:
        return None

    def goal_error(self, state: RunState) -> NodeError | None:
        return None

    def is_reserved(self, node_id: str) -> bool:
        return False

    def rejection_of_result(self, node_id: str, result: Any) -> str | None:
        return None


def budget_of(scheduler: RunScheduler) -> Budget:
    budget = scheduler.features.budget.budget
    assert budget is not None
    return budget


def lineage_of(scheduler: RunScheduler) -> RunLineage:
    return scheduler.state.totals.lineage


def store_waits_of(scheduler: RunScheduler) -> Mapping[str, Any]:
    return scheduler.state.store_waits


def has_new_limits(scheduler: RunScheduler) -> bool:
    return scheduler.state.limits_changed


def overrides_of(scheduler: RunScheduler, task_id: str) -> list[dict[str, Any]]:
    """Return the commands with which people overrode a node or item, in order."""
    override = scheduler.state.overrides.get(task_id)
    return override.commands if override is not None else []


def work_of(scheduler: RunScheduler) -> int:
    """Return the work that the last activation of the run has done."""
    return MAX_WORK - scheduler.state.compute_budget.remaining


def restored_scheduler(
    scheduler: RunScheduler,
    plan: CompiledPlan | None = None,
    *,
    inputs: Mapping[str, Any] | None = None,
    setup: Mapping[str, Any] | None = None,
    extender: PlanExtender | None = None,
    **options: Any,
) -> RunScheduler:
    """Return the scheduler of the next execution, with the state restored from JSON."""
    next_scheduler = configure(create_scheduler(plan or scheduler.plan, inputs or {}, **options), **(setup or {}))
    next_scheduler.features.extension.set_extender(extender)
    restore_state(next_scheduler, json.loads(json.dumps(state_to_json(scheduler))))
    return next_scheduler


def record_of(scheduler: RunScheduler, task_id: str) -> Record:
    record = scheduler.record_of(task_id)
    assert record is not None
    return record


def error_of(scheduler: RunScheduler, task_id: str) -> tuple[str, str]:
    error = record_of(scheduler, task_id).error
    assert error is not None
    return error.code, error.message


def start_ready_tasks(scheduler: RunScheduler, *, at: float = 0.0) -> list[Task]:
    """Start all tasks that may start now, and return them in order."""
    tasks: list[Task] = []
    while (task := scheduler.next_task(at)) is not None:
        tasks.append(task)
    return tasks


def end_task(scheduler: RunScheduler, task: Task, result: Any, *, at: float, attempt: Attempt = ONE_ATTEMPT) -> None:
    """End a task with a result, or with an error if `result` is a `NodeError`."""
    if isinstance(result, NodeError):
        scheduler.fail(task.id, result, at=at, attempt=attempt)
    else:
        scheduler.complete(task.id, result, at=at, attempt=attempt)


def started_run(*nodes: Mapping[str, Any], **fields: Any) -> RunScheduler:
    """Return the scheduler of a started run of these nodes. All ready tasks have started."""
    scheduler = scheduler_of(*nodes, **fields)
    start_ready_tasks(scheduler)
    return scheduler


def ids_of(tasks: Sequence[Task]) -> list[str]:
    return [task.id for task in tasks]


def statuses_of(scheduler: RunScheduler) -> dict[str, str]:
    return {node.id: record.status.value for node, record in zip(scheduler.plan.nodes, scheduler.records, strict=True)}


def answer_request(
    scheduler: RunScheduler, request_id: str, content: Any, by: str = "", *, at: float, **fields: Any
) -> str | None:
    """Answer a request, and return the rejection, or `None` if the answer was accepted."""
    return scheduler.features.feedback.answer(Feedback(request_id, content, by, **fields), at)


def raise_question(
    scheduler: RunScheduler, task_id: str, question: RaisedQuestion, *, at: float, attempt: Attempt = ONE_ATTEMPT
) -> str | None:
    """Let a running task ask a person, and return the error if no request could be opened."""
    return scheduler.features.feedback.ask(task_id, question, at=at, attempt=attempt)


def take_rejections(scheduler: RunScheduler) -> list[str]:
    """Return the rejections of early answers since the last call."""
    return [*scheduler.features.feedback.requests.take_rejections()]


def early_answers(scheduler: RunScheduler) -> Mapping[str, Feedback]:
    return scheduler.features.feedback.requests.early_answers


def open_requests(scheduler: RunScheduler) -> dict[str, Request]:
    return scheduler.features.feedback.requests.open


def tool_error(message: str = "broken") -> NodeError:
    return NodeError("tool_failed", message)
