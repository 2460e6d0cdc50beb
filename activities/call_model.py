"""The activity `call_model`: one durable model call.

It takes a request (`dagwright.planning.model_calls.model_requests`) whose messages may contain bindings to stored
values, and returns the response, by reference if it is large. The client's own retries are off: each attempt makes one
call, and Temporal's retry policy decides on the next attempt, with the delay that the service requested.

A response that is in the history is never requested again. If a worker dies after the model responded and
before the server recorded the response, the next attempt calls the model again, like a tool with the effects `read`. If
the payload store does not accept a response, the attempt sends the response to the store again and again, and fails
only at the end of its timeout.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeVar

import pydantic_core
import structlog
from temporalio import activity
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from dagwright.activities.call_headers import (
    attempt_details,
    attempt_metadata,
    bindings_of_call,
    model_config_of_run,
    requested_projections,
)
from dagwright.activities.call_limits import CallLimits
from dagwright.activities.deferral import Deferrals, backoff_of_counted_attempts
from dagwright.activities.errors import CallDeferred, RetryDecision, WorkerStopped, activity_failure_of, retry_decision
from dagwright.activities.heartbeats import Heartbeats
from dagwright.activities.model_caller import ModelCaller, failure_details
from dagwright.activities.plan_stream import PlanStream
from dagwright.activities.service_waits import deferral_of, requested_wait
from dagwright.activities.store_retry import STORE_MARGIN_S, StoreRetry
from dagwright.activities.text_heartbeats import HeartbeatPace, TextHeartbeats
from dagwright.activities.values import LargeValues
from dagwright.core.boundary.limits import MAX_INLINE_VALUE_BYTES, STORED_VALUE_LIMIT_BYTES
from dagwright.core.boundary.wire import (
    ACTIVITY_CALL_MODEL,
    DETAIL_UNSTORED_BYTES,
    ERROR_RATE_LIMITED,
    ERROR_STORE_RETRY,
    METADATA_STORED,
)
from dagwright.core.expressions.stored_values import stored_to_json
from dagwright.core.model.tools import Effects
from dagwright.llm.client import ModelClients
from dagwright.planner.prompts import interrupted_message
from dagwright.planner.rounds_parser import parse_round
from dagwright.planning.agent_loop.feedback_markers import find_marker
from dagwright.planning.model_calls.message_preparation import sendable_messages
from dagwright.planning.model_calls.model_failure import ModelError, ModelFailure
from dagwright.planning.model_calls.model_requests import (
    ModelRequest,
    ModelResponse,
    messages_from_json,
    messages_to_json,
    request_from_json,
    response_to_json,
    user,
)
from dagwright.planning.model_calls.response_summary import MARKER_PROJECTION, SUMMARY_PROJECTIONS, TOOL_CALLS_BYTES
from dagwright.tools.context import Cancellation
from dagwright.tools.errors import ArgumentNotLoaded, InvalidArguments, ResultNotStored, ResultTooLarge, ValueLost
from dagwright.tools.redaction import Redaction
from dagwright.tools.result_json import encode_plain_json, plain_json

T = TypeVar("T")

CallModel = Callable[..., Awaitable[RawValue]]


def model_activity(
    clients: ModelClients,
    values: LargeValues,
    *,
    limits: CallLimits | None = None,
    deferrals: Deferrals | None = None,
) -> CallModel:
    """Return the activity `call_model`.

    Args:
        limits: limits of calls across all runs; `None` if calls have no limits.
        deferrals: records deferred attempts, which do not count; `None` if every attempt counts.
    """
    pace = HeartbeatPace()

    # The activity accepts any number of arguments, so that a malformed call fails here with a reason instead of being
    # retried forever.
    @activity.defn(name=ACTIVITY_CALL_MODEL)
    async def call_model(*arguments: Any) -> RawValue:
        heartbeats = Heartbeats(activity.info())
        models = ModelCaller(clients, activity.info(), heartbeats, limits=limits)
        return await _Attempt(models, values, heartbeats, pace=pace, deferrals=deferrals).run(arguments)

    return call_model


class _Attempt:
    """One attempt of one model call."""

    def __init__(
        self,
        models: ModelCaller,
        values: LargeValues,
        heartbeats: Heartbeats,
        *,
        pace: HeartbeatPace,
        deferrals: Deferrals | None,
    ) -> None:
        self._pace = pace
        self._heartbeats = heartbeats
        self._models = models
        self._values = values
        self._deferrals = deferrals
        # Temporal's attempt number, which includes deferred attempts: the streamed text of an attempt replaces the
        # text of every attempt with a lower number.
        self._info = info = activity.info()
        timeout = info.start_to_close_timeout
        self._ends_at = time.monotonic() + (float("inf") if timeout is None else timeout.total_seconds())

    async def run(self, arguments: tuple[Any, ...]) -> RawValue:
        with self._heartbeats.running():
            try:
                request = await self._prepare_request(arguments)
                return await self._encode_response(await self._admit_and_call(request))
            except asyncio.CancelledError:
                details = activity.cancellation_details()
                if details is None or not details.worker_shutdown:
                    raise
                stop_error = WorkerStopped("The worker was stopped during the model call")
                raise await self._failure(stop_error) from None
            # Any error, for example of the model or the payload store, becomes a failure.
            except Exception as error:
                raise await self._failure(error) from None

    async def _admit_and_call(self, request: ModelRequest) -> ModelResponse:
        admission = await self._models.admit(request.call, request.endpoint)
        try:
            return await self._get_response(request)
        finally:
            admission.release()

    async def _get_response(self, request: ModelRequest) -> ModelResponse:
        if request.planning is None:
            response = await self._check_and_store(request, await self._call(request))
            if request.round_context is None:
                return response
            # This runs in a thread, because validation against a long schema would delay the heartbeats of the worker.
            return replace(
                response,
                parsed_round=await asyncio.to_thread(
                    parse_round, response.output, response.text, request.round_context
                ),
            )
        node_id = request.call.labels.node_id or self._info.activity_id
        plan_stream = PlanStream(request.planning, node_id=node_id, info=self._info)
        if sent_nodes := await plan_stream.resume():
            call = request.call
            messages = (*call.messages, user(interrupted_message(sent_nodes)))
            request = replace(request, call=replace(call, messages=messages))
        async with plan_stream:
            response = await self._models.stream_call(request.call, request.endpoint, feed=plan_stream.feed)
        return replace(await self._check_and_store(request, response), accepted_nodes=plan_stream.accepted_nodes)

    async def _call(self, request: ModelRequest) -> ModelResponse:
        if request.streamed_field is None:
            return await self._models.call(request.call, request.endpoint)
        with TextHeartbeats(
            request.streamed_field, heartbeats=self._heartbeats, attempt=self._info.attempt, pace=self._pace
        ) as text_heartbeats:
            return await self._models.stream_call(request.call, request.endpoint, feed=text_heartbeats.feed)

    async def _prepare_request(self, arguments: tuple[Any, ...]) -> ModelRequest:
        """Load the stored values and the earlier conversation of the request, and return the complete request."""
        hydrated_input = await self._values.hydrate_input(
            arguments,
            bindings_of_call(),
            shape_error=f"{ACTIVITY_CALL_MODEL} takes one request",
            secrets_error="a secret must not be sent to a model",
        )
        try:
            request = request_from_json(hydrated_input)
            messages = [*await self._earlier_messages(request), *sendable_messages(request)]
        except ValueError as error:
            raise InvalidArguments(f"Invalid arguments: {error}") from None
        if not messages:
            raise InvalidArguments("Invalid arguments: the request has no messages")
        config = request.call.config.with_defaults(model_config_of_run())
        return replace(request, call=replace(request.call, messages=tuple(messages), config=config))

    async def _earlier_messages(self, request: ModelRequest) -> tuple[Any, ...]:
        if request.previous_conversation is None:
            return ()
        loaded_values = await self._values.load([request.previous_conversation])
        try:
            return messages_from_json(loaded_values[request.previous_conversation].copy_part((), "the conversation"))
        except (ValueError, TypeError) as error:
            raise ValueLost(f"the stored conversation is invalid: {error}") from None

    async def _check_and_store(self, request: ModelRequest, response: ModelResponse) -> ModelResponse:
        """Check the size of the tool calls, and store the conversation if the request has `stores_conversation`."""
        encoded_calls = pydantic_core.to_json([tool_call.model_dump() for tool_call in response.message.tool_calls])
        if len(encoded_calls) > TOOL_CALLS_BYTES:
            raise ModelFailure(
                ModelError.OUTPUT_INVALID,
                f"the tool calls of the model have {len(encoded_calls):,} bytes, over the limit of "
                f"{TOOL_CALLS_BYTES:,}",
            )
        if not request.stores_conversation:
            return response
        # An empty response is omitted from the conversation: some services reject empty messages.
        new_messages = [response.message] if response.message.content or response.message.tool_calls else []
        messages = messages_to_json([*request.call.messages, *new_messages])
        encoded = pydantic_core.to_json(messages)
        ref = await self._store_part(lambda: self._values.store_conversation(encoded))
        return replace(response, conversation=ref)

    async def _encode_response(self, response: ModelResponse) -> RawValue:
        """Return the response for the history; a large response is stored and returned as a reference."""
        plain = plain_json(response_to_json(response))
        encoded = encode_plain_json(plain)
        metadata = attempt_metadata(self._heartbeats.info, self._models.usage)
        if len(encoded) <= MAX_INLINE_VALUE_BYTES:
            return RawValue(Payload(metadata=metadata, data=encoded))
        if len(encoded) > STORED_VALUE_LIMIT_BYTES:
            raise ResultTooLarge(f"the response has {len(encoded):,} bytes as JSON")
        projections = [
            *SUMMARY_PROJECTIONS,
            *(projection for projection in requested_projections() if projection not in SUMMARY_PROJECTIONS),
        ]
        if (marker := find_marker(response.message.content or "")) is not None:
            # Copy the marker, because the run does not load the text that contains it.
            plain = {**plain, "marker": marker}
            encoded, projections = encode_plain_json(plain), [*projections, MARKER_PROJECTION]
        name = f"{self._info.activity_id}.result"
        stored_value = await self._store_part(
            lambda: self._values.store_result(plain, encoded, projections=projections, name=name)
        )
        data = pydantic_core.to_json(stored_to_json(stored_value))
        return RawValue(Payload(metadata={**metadata, METADATA_STORED: b"1"}, data=data))

    async def _store_part(self, store: Callable[[], Awaitable[T]]) -> T:
        """Store a part of the response; wait for the payload store, because the response has been paid for.

        Raises:
            ResultNotStored: the store did not accept the part before the end of the attempt.
        """
        store_retry = StoreRetry(self._heartbeats, Cancellation())
        return await store_retry.retry_until(
            self._ends_at - STORE_MARGIN_S, store, should_continue=lambda: not activity.is_cancelled()
        )

    def _requested_deferral(self, error: Exception) -> CallDeferred | None:
        """Return the deferral of the attempt, if the model asked to wait and the total wait is not too long."""
        wait = requested_wait(error)
        if wait is None or self._deferrals is None:
            return None
        name = error.model if isinstance(error, ModelFailure) else self._info.activity_id
        return deferral_of(wait, name=name, earlier_state=self._heartbeats.deferred_state, now_s=time.time())

    async def _failure(self, error: Exception) -> ApplicationError:
        details = attempt_details(self._heartbeats.info, self._models.usage)
        if isinstance(error, ModelFailure):
            details |= failure_details(error)
        error = self._requested_deferral(error) or error
        decision = retry_decision(error, Effects.READ)
        if isinstance(error, ArgumentNotLoaded | ResultNotStored):
            # The run waits for the store and makes the call again: an outage uses up no attempt.
            decision = RetryDecision(ERROR_STORE_RETRY, is_final=True)
            details[DETAIL_UNSTORED_BYTES] = error.size_bytes if isinstance(error, ResultNotStored) else 0
        if isinstance(error, CallDeferred) and self._deferrals is not None:
            await self._deferrals.record(error, self._heartbeats)
        elif not decision.is_final and decision.delay is None:
            decision = replace(decision, delay=backoff_of_counted_attempts(self._heartbeats))
        failure = activity_failure_of(error, decision, details=details, redaction=Redaction())
        if decision.code == ERROR_RATE_LIMITED:
            return failure
        structlog.get_logger("dagwright.activities").warning(
            "model call failed",
            node=self._info.activity_id,
            code=str(decision.code),
            is_final=decision.is_final,
            message=failure.message,
        )
        return failure
