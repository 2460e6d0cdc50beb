"""The activity `read_model_plan`: what a model wrote becomes nodes that a run can take, or all that is wrong with it.

It only reads, so Temporal may repeat it. A plan that cannot be run is a result and no failure: the model is shown what
is wrong with it. This module must not import workflows.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from temporalio import activity
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue

from dagwright.activities.call_headers import attempt_details, attempt_metadata, given_bindings
from dagwright.activities.errors import Posture, activity_failure_of, posture_of
from dagwright.activities.heartbeats import kept_alive
from dagwright.activities.values import Values
from dagwright.core.boundary.wire import ACTIVITY_READ_MODEL_PLAN, DETAIL_UNSTORED_BYTES, ERROR_STORE_RETRY
from dagwright.core.model.errors import PlanInvalid
from dagwright.core.model.tools import Effects, ToolDeclaration
from dagwright.planner.intents_reading import read_intents_answer
from dagwright.planner.reading import read_plan, refused_plan
from dagwright.planning.plan_and_execute.goals import Profile, context_from_json, tools_read
from dagwright.planning.plan_and_execute.replan_context import REPLAN_CONTEXTS
from dagwright.tools.errors import InvalidArguments, ValueNotLoaded
from dagwright.tools.redaction import Redaction
from dagwright.tools.results import encoded_json

ReadModelPlan = Callable[..., Awaitable[RawValue]]


def read_plan_activity(tools: Mapping[str, ToolDeclaration], values: Values) -> ReadModelPlan:
    """Returns the activity.

    Args:
        tools: those of the worker, for a plan that comes without a list of what it may use.
    """

    # Any number of arguments: a wrong call is answered here, with a reason, and not retried for ever.
    @activity.defn(name=ACTIVITY_READ_MODEL_PLAN)
    async def read_model_plan(*arguments: Any) -> RawValue:
        info = activity.info()
        with kept_alive():
            try:
                given = await values.filled(
                    arguments,
                    given_bindings(),
                    expected=f"{ACTIVITY_READ_MODEL_PLAN} takes one object",
                    no_secrets="a plan holds no secrets",
                )
                encoded = await asyncio.to_thread(_read, given, tools)
            # What stands around the reading: the payload store, a value that is gone.
            except Exception as error:
                posture, details = posture_of(error, Effects.READ), attempt_details(info)
                if isinstance(error, ValueNotLoaded):
                    # The run waits for the store and makes the call again: an outage costs it no attempt.
                    posture, details[DETAIL_UNSTORED_BYTES] = Posture(ERROR_STORE_RETRY, is_final=True), 0
                raise activity_failure_of(error, posture, details=details, redaction=Redaction()) from None
        return RawValue(Payload(metadata=attempt_metadata(info), data=encoded))

    return read_model_plan


def _read(given: Mapping[str, Any], known: Mapping[str, ToolDeclaration]) -> bytes:
    try:
        tools = tools_read(given["tools"]) if given.get("tools") is not None else known
        so_far = REPLAN_CONTEXTS.decode(given.get("so_far"))
        context = context_from_json(given.get("context", {}))
    except ValueError as error:
        raise InvalidArguments(f"Invalid arguments: {error}") from None
    text, accepted = given.get("text"), given.get("accepted") or ()
    text = text if isinstance(text, str) else ""
    profile: Profile = "intents" if given.get("profile") == "intents" else "plan"
    plan, inline_agents = given.get("plan"), given.get("inline_agents") is True
    try:
        if profile == "intents":
            read = read_intents_answer(plan, text, tools, context=context)
        else:
            read = read_plan(plan, text, tools, accepted=accepted, so_far=so_far, inline_agents=inline_agents)
    except PlanInvalid as invalid:
        return encoded_json(refused_plan(invalid, accepted=accepted, profile=profile))
    return encoded_json(read.to_json())
