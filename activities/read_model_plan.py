"""The activity `read_model_plan`: turn a model's response into plan nodes, or into a list of problems.

The activity only reads, so Temporal may repeat it. An invalid plan is a result and not a failure: the model gets the
list of problems. This module must not import workflows.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from temporalio import activity
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue

from dagwright.activities.call_headers import attempt_details, attempt_metadata, bindings_of_call
from dagwright.activities.errors import RetryDecision, activity_failure_of, retry_decision
from dagwright.activities.heartbeats import heartbeating
from dagwright.activities.values import LargeValues
from dagwright.core.boundary.wire import ACTIVITY_READ_MODEL_PLAN, DETAIL_UNSTORED_BYTES, ERROR_STORE_RETRY
from dagwright.core.errors import PlanInvalid
from dagwright.core.model.tools import Effects, ToolDeclaration
from dagwright.planner.intents_parser import parse_intents
from dagwright.planner.plan_parser import parse_plan, serialize_rejection
from dagwright.planning.plan_and_execute.goal_spec import Profile, context_from_json, decode_tools
from dagwright.planning.plan_and_execute.replan_context import REPLAN_CONTEXTS
from dagwright.tools.errors import ArgumentNotLoaded, InvalidArguments
from dagwright.tools.redaction import Redaction
from dagwright.tools.result_json import encode_plain_json

ReadModelPlan = Callable[..., Awaitable[RawValue]]


def read_plan_activity(tools: Mapping[str, ToolDeclaration], values: LargeValues) -> ReadModelPlan:
    """Return the activity `read_model_plan`.

    Args:
        tools: tools of the worker, for a plan without a list of permitted tools.
    """

    # The activity accepts any number of arguments, so that a malformed call fails here with a reason instead of being
    # retried forever.
    @activity.defn(name=ACTIVITY_READ_MODEL_PLAN)
    async def read_model_plan(*arguments: Any) -> RawValue:
        info = activity.info()
        with heartbeating():
            try:
                hydrated_input = await values.hydrate_input(
                    arguments,
                    bindings_of_call(),
                    shape_error=f"{ACTIVITY_READ_MODEL_PLAN} takes one object",
                    secrets_error="a plan must not contain secrets",
                )
                encoded = await asyncio.to_thread(_parse_response, hydrated_input, tools)
            # The payload store failed, or a value is lost.
            except Exception as error:
                decision, details = retry_decision(error, Effects.READ), attempt_details(info)
                if isinstance(error, ArgumentNotLoaded):
                    # The run waits for the store and makes the call again: an outage uses up no attempt.
                    decision, details[DETAIL_UNSTORED_BYTES] = RetryDecision(ERROR_STORE_RETRY, is_final=True), 0
                raise activity_failure_of(error, decision, details=details, redaction=Redaction()) from None
        return RawValue(Payload(metadata=attempt_metadata(info), data=encoded))

    return read_model_plan


def _parse_response(arguments: Mapping[str, Any], worker_tools: Mapping[str, ToolDeclaration]) -> bytes:
    try:
        tools = decode_tools(arguments["tools"]) if arguments.get("tools") is not None else worker_tools
        replan_context = REPLAN_CONTEXTS.decode(arguments.get("replan_context"))
        context = context_from_json(arguments.get("context", {}))
    except ValueError as error:
        raise InvalidArguments(f"Invalid arguments: {error}") from None
    text, accepted_nodes = arguments.get("text"), arguments.get("accepted_nodes") or ()
    text = text if isinstance(text, str) else ""
    profile: Profile = "intents" if arguments.get("profile") == "intents" else "plan"
    plan, allows_inline_agents = arguments.get("plan"), arguments.get("inline_agents") is True
    try:
        if profile == "intents":
            parsed_plan = parse_intents(plan, text, tools, context=context)
        else:
            parsed_plan = parse_plan(
                plan,
                text,
                tools,
                accepted_nodes=accepted_nodes,
                replan_context=replan_context,
                allows_inline_agents=allows_inline_agents,
            )
    except PlanInvalid as invalid:
        return encode_plain_json(serialize_rejection(invalid, accepted_nodes=accepted_nodes, profile=profile))
    return encode_plain_json(parsed_plan.to_json())
