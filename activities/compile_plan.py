"""The activity that compiles a plan document, for clients that start a run without the command line.

The activity reads its input and the tools of its worker, and stores each page of a large plan under the hash of the
page, so Temporal may retry the activity. This module must not import workflows.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError

from dagwright.activities.heartbeats import heartbeating
from dagwright.activities.store_retry import retry_store_request
from dagwright.core.boundary.limits import MAX_FAILURE_MESSAGE_BYTES
from dagwright.core.boundary.wire import ACTIVITY_COMPILE_PLAN, RESULT_HAS_SEARCH_ATTRIBUTES, RESULT_HAS_WEBHOOK
from dagwright.core.compiler.node_columns import plan_to_columns
from dagwright.core.errors import PlanInvalid
from dagwright.core.model.compiled import CompiledPlan
from dagwright.core.model.dialect import TEXT_DIALECTS
from dagwright.core.model.policy import default_policy, policy_from_json
from dagwright.core.model.tools import ToolDeclaration
from dagwright.core.text import cut_bytes
from dagwright.dialects.reading import parse_plan_text
from dagwright.planner.goal_start import goal_from_document, is_goal
from dagwright.planner.rounds_start import is_rounds, rounds_from_document
from dagwright.planning.rounds.rounds_spec import RoundsLimits
from dagwright.plans.pages import PlanForTransfer, split_for_transfer
from dagwright.plans.preparation import check_plan, policy_problems, prepare_plan_with_missing_inputs
from dagwright.store import PayloadStore
from dagwright.toolset.tool_directory import has_unknown_tools, published_tools_of_plan

ERROR_PLAN_INVALID = "invalid"
"""`ApplicationError.type`; the first detail is the list of problems."""

_MAX_PROBLEMS_SHOWN = 200
"""Maximum number of problems in the failure details, whose size is limited."""

CompileActivity = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class CompileScope:
    """Tools, store and limits that a worker uses to compile a plan.

    Args:
        tools: the worker's tools.
        store: stores the pages of large plans, and contains the tools that other workers published.
        task_queue: the workflow task queue of this worker, for which other workers published their tools.
        rounds_limits: default limits of goals that are planned in rounds.
        load_stored_agents: returns the agents added since the worker started, for plans that name an unknown agent.
    """

    tools: Mapping[str, ToolDeclaration]
    store: PayloadStore
    task_queue: str
    rounds_limits: RoundsLimits = field(default_factory=RoundsLimits)
    load_stored_agents: Callable[[], Mapping[str, ToolDeclaration]] = dict


def compile_activity(
    scope: CompileScope, *, check_search_attributes: Callable[[], Awaitable[bool]], has_webhook: bool = False
) -> CompileActivity:
    """Return the activity `compile_plan`, which compiles against the worker's tools and stores large plans.

    Args:
        check_search_attributes: returns whether the namespace has all search attributes of runs. External clients do
            not set these attributes; the run sets them only if the namespace has all of them.
        has_webhook: whether the worker has a webhook. External clients cannot know this.
    """

    webhook_flags = {RESULT_HAS_WEBHOOK: True} if has_webhook else {}

    @activity.defn(name=ACTIVITY_COMPILE_PLAN)
    async def compile_plan(message: dict[str, Any]) -> dict[str, Any]:
        """Compile the plan of a message.

        Args:
            message: `{"plan", "inputs", "context", "dialect", "policy", "written_by_model"}`; only `plan` is required.

        Returns:
            `compiled`: the plan as JSON, or its pages; `RESULT_HAS_SEARCH_ATTRIBUTES`: whether the namespace has all
            search attributes; `RESULT_HAS_WEBHOOK`: true, or absent if the worker has no webhook.
        """
        search_attribute_flags = {RESULT_HAS_SEARCH_ATTRIBUTES: False}

        async def compile_for_transfer() -> PlanForTransfer:
            # This runs in a thread, because compiling a large plan would delay all heartbeats of this worker.
            compiled_plan = await _compile(message, scope)
            return await split_for_transfer(compiled_plan, scope.store)

        try:
            message = {**message, "plan": _read_plan(message)}
            with heartbeating():
                search_attribute_flags[RESULT_HAS_SEARCH_ATTRIBUTES] = await check_search_attributes()
            transfer = await retry_store_request(compile_for_transfer)
        except PlanInvalid as error:
            problems = [problem.to_json() for problem in error.problems[:_MAX_PROBLEMS_SHOWN]]
            text = cut_bytes(str(error), max_bytes=MAX_FAILURE_MESSAGE_BYTES)
            raise ApplicationError(
                text, problems, search_attribute_flags, type=ERROR_PLAN_INVALID, non_retryable=True
            ) from None
        return {
            "compiled": {"pages": list(transfer.pages)} if transfer.pages else plan_to_columns(transfer.plan),
            **search_attribute_flags,
            **webhook_flags,
        }

    return compile_plan


def _read_plan(message: Mapping[str, Any]) -> Any:
    """Return the document of a plan that is YAML or JSON text; return any other plan unchanged."""
    plan = message["plan"]
    is_yaml_or_json_text = isinstance(plan, str) and message.get("dialect") not in TEXT_DIALECTS
    return parse_plan_text(plan, name="plan") if is_yaml_or_json_text else plan


async def _compile(message: Mapping[str, Any], scope: CompileScope) -> CompiledPlan:
    tools = scope.tools
    if is_goal(message["plan"]) and is_rounds(message["plan"]):
        return await asyncio.to_thread(rounds_from_document, message["plan"], tools, limits=scope.rounds_limits)
    try:
        return await asyncio.to_thread(_compile_with_tools, message, tools)
    except PlanInvalid as error:
        if not has_unknown_tools(error):
            raise
        tools = {**await asyncio.to_thread(scope.load_stored_agents), **tools}
        try:
            # Another worker may have the tools.
            published_tools = await published_tools_of_plan(
                message["plan"],
                tools,
                scope.store,
                task_queue=scope.task_queue,
                context=message.get("context"),
                dialect=message.get("dialect"),
            )
        except PlanInvalid:
            raise error from None
    return await asyncio.to_thread(_compile_with_tools, message, {**tools, **published_tools})


def _compile_with_tools(message: Mapping[str, Any], tools: Mapping[str, ToolDeclaration]) -> CompiledPlan:
    policy = policy_from_json(message["policy"]) if message.get("policy") is not None else None
    if is_goal(message["plan"]):
        return goal_from_document(message["plan"], tools, policy=policy, context=message.get("context"))
    checked_plan = check_plan(
        message["plan"], tools, dialect=message.get("dialect"), context=message.get("context") or {}
    )
    if problems := policy_problems(
        checked_plan, policy or default_policy("model" if message.get("written_by_model") else "person")
    ):
        raise PlanInvalid(problems)
    return prepare_plan_with_missing_inputs(checked_plan, message.get("inputs") or {})
