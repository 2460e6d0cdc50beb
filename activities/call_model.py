"""The activity `call_model`: one question to a model, durable as a tool call is.

It takes a request (`dagwright.planning.model_calls.calls`) whose messages may have bindings for stored values, and
returns the answer, a large one by reference. The client's own retries are off: each attempt asks once, and Temporal's
policy decides on the next, with the delay that the service asked for.

Attempts: an answer that history has is never asked for again. A worker that dies after the model answered and before
the server has recorded it, is asked for the answer again by the next attempt, as for a `read`. An answer that the
payload store does not take waits for it within its attempt; only at the end of that is the model asked again. This
module must not import workflows.
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
    given_bindings,
    given_model,
    wanted_parts,
)
from dagwright.activities.errors import Posture, WorkerStopped, activity_failure_of, posture_of
from dagwright.activities.heartbeats import Heartbeats
from dagwright.activities.model_asks import ModelAsks, failure_details
from dagwright.activities.plan_sent import PlanSent
from dagwright.activities.store_waits import STORE_MARGIN_S, StoreWaits
from dagwright.activities.telling import Pace, TextTold
from dagwright.activities.values import Values
from dagwright.core.boundary.limits import INLINE_VALUE_BYTES, STORED_VALUE_LIMIT_BYTES
from dagwright.core.boundary.wire import ACTIVITY_CALL_MODEL, DETAIL_UNSTORED_BYTES, ERROR_STORE_RETRY, METADATA_STORED
from dagwright.core.expressions.stored_values import stored_to_json
from dagwright.core.model.tools import Effects
from dagwright.llm.clients import ModelClients
from dagwright.planner.prompts import broken_off_words
from dagwright.planner.rounds_reading import read_round
from dagwright.planning.agent_loop.asking import marker_in
from dagwright.planning.model_calls.calls import (
    ModelAnswer,
    ModelError,
    ModelRequest,
    answer_to_json,
    messages_from_json,
    messages_to_json,
    request_from_json,
    user,
)
from dagwright.planning.model_calls.failures import ModelFailure
from dagwright.planning.model_calls.messages import fitting
from dagwright.planning.model_calls.responses import MARKER, TOLD, TOOL_CALLS_BYTES
from dagwright.tools.context import Cancellation
from dagwright.tools.errors import InvalidArguments, ResultNotKept, ResultTooLarge, ValueLost, ValueNotLoaded
from dagwright.tools.redaction import Redaction
from dagwright.tools.results import encoded_json, plain_json

T = TypeVar("T")

CallModel = Callable[..., Awaitable[RawValue]]


def model_activity(clients: ModelClients, values: Values) -> CallModel:
    """Returns the activity `call_model`."""
    pace = Pace()

    # Any number of arguments: a wrong call is answered here, with a reason, and not retried for ever.
    @activity.defn(name=ACTIVITY_CALL_MODEL)
    async def call_model(*arguments: Any) -> RawValue:
        return await _Asking(clients, values, activity.info(), pace=pace).answer(arguments)

    return call_model


class _Asking:
    """One attempt of one call."""

    def __init__(self, clients: ModelClients, values: Values, info: activity.Info, *, pace: Pace) -> None:
        self._pace = pace
        self._heartbeats = Heartbeats(info)
        self._models = ModelAsks(clients, info, self._heartbeats)
        self._values = values
        self._info = info
        timeout = info.start_to_close_timeout
        self._ends_at = time.monotonic() + (float("inf") if timeout is None else timeout.total_seconds())

    async def answer(self, arguments: tuple[Any, ...]) -> RawValue:
        with self._heartbeats.sent():
            try:
                request = await self._request(arguments)
                return await self._kept(await self._answered(request))
            except asyncio.CancelledError:
                details = activity.cancellation_details()
                if details is None or not details.worker_shutdown:
                    raise
                raise self._failure(WorkerStopped("The worker was stopped while the model was asked")) from None
            # The model, and what stands around the call: the payload store, a value that is gone.
            except Exception as error:
                raise self._failure(error) from None

    async def _answered(self, request: ModelRequest) -> ModelAnswer:
        if request.planning is None:
            answer = await self._with_conversation(request, await self._asked(request))
            if request.round is None:
                return answer
            # In a thread: a schema may be long, and nothing of this worker could heartbeat meanwhile.
            return replace(answer, read=await asyncio.to_thread(read_round, answer.output, answer.text, request.round))
        node = request.call.labels.node or self._info.activity_id
        plan = PlanSent(request.planning, node=node, info=self._info)
        if told := await plan.begin():
            call = request.call
            request = replace(request, call=replace(call, messages=(*call.messages, user(broken_off_words(told)))))
        async with plan:
            answer = await self._models.ask_streamed(request.call, request.endpoint, take=plan.take)
        return replace(await self._with_conversation(request, answer), accepted=plan.accepted)

    async def _asked(self, request: ModelRequest) -> ModelAnswer:
        if request.tells is None:
            return await self._models.ask(request.call, request.endpoint)
        with TextTold(request.tells, heartbeats=self._heartbeats, attempt=self._info.attempt, pace=self._pace) as told:
            return await self._models.ask_streamed(request.call, request.endpoint, take=told.take)

    async def _request(self, arguments: tuple[Any, ...]) -> ModelRequest:
        """Returns the request with all that it leaves out: stored values and what was said before."""
        given = await self._values.filled(
            arguments,
            given_bindings(),
            expected=f"{ACTIVITY_CALL_MODEL} takes one request",
            no_secrets="a secret must not be told to a model",
        )
        try:
            request = request_from_json(given)
            messages = [*await self._before(request), *fitting(request)]
        except ValueError as error:
            raise InvalidArguments(f"Invalid arguments: {error}") from None
        if not messages:
            raise InvalidArguments("Invalid arguments: nothing is said to the model")
        config = request.call.config.over(given_model())
        return replace(request, call=replace(request.call, messages=tuple(messages), config=config))

    async def _before(self, request: ModelRequest) -> tuple[Any, ...]:
        if request.before is None:
            return ()
        loaded = await self._values.load([request.before])
        try:
            return messages_from_json(loaded[request.before].take((), "the conversation"))
        except (ValueError, TypeError) as error:
            raise ValueLost(f"what was said before is no conversation: {error}") from None

    async def _with_conversation(self, request: ModelRequest, answer: ModelAnswer) -> ModelAnswer:
        calls = pydantic_core.to_json([call.model_dump() for call in answer.message.tool_calls])
        if len(calls) > TOOL_CALLS_BYTES:
            raise ModelFailure(
                ModelError.OUTPUT_INVALID,
                f"the model calls tools with {len(calls):,} bytes of arguments, over the limit of {TOOL_CALLS_BYTES:,}",
            )
        if not request.is_continued:
            return answer
        # An answer of nothing is not said again: some services refuse it.
        newest = [answer.message] if answer.message.content or answer.message.tool_calls else []
        said = messages_to_json([*request.call.messages, *newest])
        encoded = pydantic_core.to_json(said)
        ref = await self._stored(lambda: self._values.put(encoded))
        return replace(answer, conversation=ref)

    async def _kept(self, answer: ModelAnswer) -> RawValue:
        """Returns an answer as history has it; a large one is in the payload store then."""
        plain = plain_json(answer_to_json(answer))
        encoded = encoded_json(plain)
        metadata = attempt_metadata(self._info, self._models.usage)
        if len(encoded) <= INLINE_VALUE_BYTES:
            return RawValue(Payload(metadata=metadata, data=encoded))
        if len(encoded) > STORED_VALUE_LIMIT_BYTES:
            raise ResultTooLarge(f"the answer has {len(encoded):,} bytes as JSON")
        wanted = [*TOLD, *(want for want in wanted_parts() if want not in TOLD)]
        if (marker := marker_in(answer.message.content or "")) is not None:
            # The run does not see the text that it stands in.
            plain = {**plain, "marker": marker}
            encoded, wanted = encoded_json(plain), [*wanted, MARKER]
        name = f"{self._info.activity_id}.result"
        told = await self._stored(lambda: self._values.keep(plain, encoded, wanted=wanted, name=name))
        data = pydantic_core.to_json(stored_to_json(told))
        return RawValue(Payload(metadata={**metadata, METADATA_STORED: b"1"}, data=data))

    async def _stored(self, store: Callable[[], Awaitable[T]]) -> T:
        """Store a part of the answer, and wait for the payload store meanwhile: the answer has been paid for.

        Raises:
            ResultNotKept: the store did not take it before the end of the attempt.
        """
        waits = StoreWaits(self._heartbeats, Cancellation())
        return await waits.until(self._ends_at - STORE_MARGIN_S, store, is_wanted=lambda: not activity.is_cancelled())

    def _failure(self, error: BaseException) -> ApplicationError:
        details = attempt_details(self._info, self._models.usage)
        if isinstance(error, ModelFailure):
            details |= failure_details(error)
        posture = posture_of(error, Effects.READ)
        if isinstance(error, ValueNotLoaded | ResultNotKept):
            # The run waits for the store and asks again: an outage costs it no attempt.
            posture = Posture(ERROR_STORE_RETRY, is_final=True)
            details[DETAIL_UNSTORED_BYTES] = error.size_bytes if isinstance(error, ResultNotKept) else 0
        failure = activity_failure_of(error, posture, details=details, redaction=Redaction())
        structlog.get_logger("dagwright.activities").warning(
            "model call failed",
            node=self._info.activity_id,
            code=str(posture.code),
            is_final=posture.is_final,
            message=failure.message,
        )
        return failure
