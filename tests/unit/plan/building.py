"""Short ways to a plan for the tests of the plan core: from nodes to problems, compiled plans and schedulers."""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from dagwright.core.compiler.compilation import compile_plan
from dagwright.core.model.compiled import CompiledPlan, plan_from_json, plan_to_json
from dagwright.core.model.document import Document
from dagwright.core.model.errors import NodeError, PlanInvalid, Problem
from dagwright.core.model.states import Record
from dagwright.core.model.tasks import Task
from dagwright.core.model.tools import Effects, ToolDeclaration
from dagwright.core.validation.checked_plan import Checked
from dagwright.core.validation.validation import check_document
from dagwright.features.run_scheduler import RunScheduler, create_scheduler
from dagwright.protocol.scheduler_snapshot import carry_of, restore

TOOLS: Mapping[str, ToolDeclaration] = {
    tool.name: tool
    for tool in (
        ToolDeclaration("any", Effects.READ),
        ToolDeclaration("single", Effects.READ, max_parallel=1),
        ToolDeclaration("pair", Effects.READ, max_parallel=2),
        ToolDeclaration(
            "typed",
            Effects.PURE,
            {
                "type": "object",
                "properties": {
                    "name": {"type": "string", "minLength": 2},
                    "count": {"type": "integer", "minimum": 1},
                    "tags": {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
                    "cbu_id": {"type": "string"},
                    "mode": {"enum": ["fast", "slow"]},
                },
                "required": ["name"],
                "additionalProperties": False,
            },
        ),
    )
}


def node(node_id: str, *needs: str, **fields: Any) -> dict[str, Any]:
    """Returns a node of the tool `any` that waits for others."""
    made: dict[str, Any] = {"id": node_id}
    if not fields.keys() & {"tool", "agent", "human", "plan"}:
        made["tool"] = "any"
    if needs:
        made["depends_on"] = list(needs)
    return made | fields


def plan_of(*nodes: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    """Returns a plan as written."""
    return {"plan": 1, "nodes": list(nodes), **fields}


def check(
    raw: Mapping[str, Any],
    *,
    tools: Mapping[str, ToolDeclaration] = TOOLS,
    any_tool: bool = False,
    workers: Collection[int] = (),
) -> Checked:
    """Returns the checked plan of a plan as written; `workers` are the nodes that a dialect says are workers."""
    return check_document(Document(dict(raw), workers=workers), tools=tools, any_tool=any_tool)


def problems_of(raw: Mapping[str, Any], *, tools: Mapping[str, ToolDeclaration] = TOOLS) -> Sequence[Problem]:
    """Returns everything that is wrong with a plan as written; nothing if it is valid."""
    try:
        check(raw, tools=tools)
    except PlanInvalid as invalid:
        return invalid.problems
    return ()


def compiled(
    raw: Mapping[str, Any], *, tools: Mapping[str, ToolDeclaration] = TOOLS, workers: Collection[int] = ()
) -> CompiledPlan:
    """Returns the compiled plan of a plan as written, as it is after its way through JSON."""
    return plan_from_json(json.loads(json.dumps(plan_to_json(compile_plan(check(raw, tools=tools, workers=workers))))))


def scheduler_of(
    *nodes: Mapping[str, Any],
    inputs: Mapping[str, Any] | None = None,
    tools: Mapping[str, ToolDeclaration] = TOOLS,
    **fields: Any,
) -> RunScheduler:
    """Returns a scheduler of a plan of these nodes that has begun at time 0."""
    return begun(compiled(plan_of(*nodes, **fields), tools=tools), inputs)


def begun(plan: CompiledPlan, inputs: Mapping[str, Any] | None = None, **options: Any) -> RunScheduler:
    """Returns a scheduler that has begun at time 0."""
    scheduler = create_scheduler(plan, inputs or {}, **options)
    scheduler.begin(0.0)
    return scheduler


def resumed(scheduler: RunScheduler, plan: CompiledPlan | None = None, **options: Any) -> RunScheduler:
    """Returns the scheduler of the next execution, whose state came to it as JSON."""
    following = create_scheduler(plan or scheduler.plan, {}, **options)
    restore(following, json.loads(json.dumps(carry_of(scheduler))))
    return following


def record_of(scheduler: RunScheduler, task_id: str) -> Record:
    """Returns the record of a node or item that is there."""
    record = scheduler.record_of(task_id)
    assert record is not None
    return record


def error_of(scheduler: RunScheduler, task_id: str) -> tuple[str, str]:
    """Returns code and message of the error of a node or item."""
    error = record_of(scheduler, task_id).error
    assert error is not None
    return error.code, error.message


def started(scheduler: RunScheduler, *, at: float = 0.0) -> list[Task]:
    """Starts everything that may start now and returns it in order."""
    tasks: list[Task] = []
    while (task := scheduler.next_task(at)) is not None:
        tasks.append(task)
    return tasks


def started_run(*nodes: Mapping[str, Any], **fields: Any) -> RunScheduler:
    """Returns a scheduler as `scheduler_of` does, in which everything has started that may."""
    scheduler = scheduler_of(*nodes, **fields)
    started(scheduler)
    return scheduler


def ids_of(tasks: Sequence[Task]) -> list[str]:
    """Returns the ids of tasks."""
    return [task.id for task in tasks]


def states(scheduler: RunScheduler) -> dict[str, str]:
    """Returns node id -> state."""
    return {node.id: record.status.value for node, record in zip(scheduler.plan.nodes, scheduler.records, strict=True)}


def broken(message: str = "broken") -> NodeError:
    """Returns an error as a driver tells it."""
    return NodeError("tool_failed", message)
