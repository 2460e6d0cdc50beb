"""A workflow that calls models one after another with the activity `call_model`, without a plan."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pydantic_core
from temporalio import workflow
from temporalio.common import RawValue, RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError

from dagwright.core.boundary import limits, wire
from dagwright.core.boundary.usage_reports import reported_usage
from dagwright.core.expressions.stored_values import StoredValue
from dagwright.planning.model_calls.model_requests import (
    MODEL_HEARTBEAT_S,
    MODEL_TIMEOUT_S,
    ModelRequest,
    request_from_json,
    request_to_json,
)
from dagwright.planning.model_calls.response_summary import ResponseSummary, summarize_response
from dagwright.protocol.outcomes import is_cancellation, read_result
from dagwright.workflows.activity_calls import EncodedCall, json_payload

ASK_MODELS = "AskModels"


@workflow.defn(name=ASK_MODELS, sandboxed=False)
class AskModelsWorkflow:
    """Make the model calls of a message `{"requests", "bindings", "task_queue"}`, and return the outcomes."""

    @workflow.run
    async def run(self, message: dict[str, Any]) -> list[Any]:
        """Call the models one after the other."""
        return [await self._call_model(message, index) for index in range(len(message["requests"]))]

    async def _call_model(self, message: dict[str, Any], index: int) -> Any:
        activity_id = f"ask{index}"
        retry = RetryPolicy(initial_interval=timedelta(milliseconds=100), maximum_attempts=5)
        try:
            outcome = await _start_model_call(
                request_from_json(message["requests"][index]),
                activity_id,
                summary=f"question {index}",
                task_queue=message.get("task_queue"),
                bindings=message.get("bindings", ()),
                retry=retry,
            )
            value, _ = read_result(outcome.payload, name=activity_id)
            return response_facts(summarize_response(value))
        except RequestTooLarge as error:
            return {"refused": str(error)}
        except ActivityError as error:
            if is_cancellation(error):
                raise
            cause = error.__cause__
            assert isinstance(cause, ApplicationError)
            return {
                "code": cause.type,
                "action": cause.details[0]["action"],
                "message": cause.message,
                "calls": reported_usage(cause.details[0]).calls,
            }


def response_facts(response: ResponseSummary) -> dict[str, Any]:
    """Return a response as the workflow receives it, with references in place of stored parts."""
    return {
        **{"text": _value_to_json(response.text), "output": _value_to_json(response.output)},
        **{"tools": [call.name for call in response.tool_calls], "model": response.model},
        **{"calls": response.usage.calls, "conversation": response.conversation},
    }


def _value_to_json(value: Any) -> Any:
    if not isinstance(value, StoredValue):
        return value
    return {"ref": value.ref, "paths": [list(path) for path in value.paths]}


class RequestTooLarge(ValueError):
    """The messages to a model are too large for history; the error message has a remedy."""


def _start_model_call(
    request: ModelRequest,
    activity_id: str,
    *,
    summary: str,
    task_queue: str | None = None,
    bindings: Sequence[Any] = (),
    retry: RetryPolicy,
) -> workflow.ActivityHandle[RawValue]:
    """Start a model call. `bindings` are the stored parts of the request, as in `wire.HEADER_BINDINGS`."""
    encoded_request = pydantic_core.to_json(request_to_json(request))
    if len(encoded_request) > limits.ARGUMENTS_LIMIT_BYTES:
        raise RequestTooLarge(
            f"the messages to the model have {len(encoded_request):,} bytes; "
            f"history allows {limits.ARGUMENTS_LIMIT_BYTES:,}: pass large values by reference"
        )
    headers = {wire.HEADER_BINDINGS: json_payload(pydantic_core.to_json(list(bindings)))} if bindings else {}
    return workflow.start_activity(
        wire.ACTIVITY_CALL_MODEL,
        EncodedCall(json_payload(encoded_request), headers),
        activity_id=limits.activity_id(activity_id),
        task_queue=task_queue,
        result_type=RawValue,
        start_to_close_timeout=timedelta(seconds=MODEL_TIMEOUT_S),
        heartbeat_timeout=timedelta(seconds=MODEL_HEARTBEAT_S),
        retry_policy=retry,
        cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        summary=limits.summary_of(summary),
    )
