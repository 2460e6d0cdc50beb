"""`POST /v1/chat/completions`: answered by the model, or by a run that is followed until it ends or asks for feedback.

`GET /v1/runs/{run_id}/answer` streams the same events for an existing run.
"""

import asyncio
import time
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

from dagwright.client.run_follower import RunMoment
from dagwright.history.text_stream import TextPart
from dagwright.interfaces.http import direct, examples
from dagwright.interfaces.http.answer_models import ChatCompletion
from dagwright.interfaces.http.answer_stream import AnswerStream, events_unless_finished
from dagwright.interfaces.http.callers import KeyScope
from dagwright.interfaces.http.context import (
    ContextDep,
    GatewayContext,
    PlansContextDep,
    require_scope,
    scope_dependency,
)
from dagwright.interfaces.http.conversation import conversation_of
from dagwright.interfaces.http.error_codes import ErrorCode
from dagwright.interfaces.http.errors import CLIENT_CLOSED_REQUEST_STATUS, ApiError, api_error
from dagwright.interfaces.http.event_models import CompletionChunk
from dagwright.interfaces.http.feedback_calls import question_call
from dagwright.interfaces.http.headers import ANSWER_HEADERS
from dagwright.interfaces.http.json_route import JsonRoute
from dagwright.interfaces.http.request_fields import (
    GATEWAY_HEADERS,
    ChatBody,
    GatewayOptions,
    RoutingMode,
    StreamProgressDep,
    gateway_options,
    service_body,
)
from dagwright.interfaces.http.run_documents import LastEventId
from dagwright.interfaces.http.run_models import response_docs, stream_docs
from dagwright.interfaces.http.run_outcome import RunOutcome
from dagwright.interfaces.http.run_preparation import reject_unsupported_rounds_options
from dagwright.interfaces.http.run_requests import (
    RunBackedRequest,
    StartTask,
    handle_disconnect,
    outcome_for_client,
    request_for_existing_run,
    route_request,
    run_backed_request,
    start_for_stream,
    wait_for_outcome,
)
from dagwright.interfaces.http.sse import DONE, NO_MORE_EVENTS_STATUS, Events, serialize_event, stream_response
from dagwright.interfaces.http.stream_cursor import (
    LAST_EVENT_ID_HEADER,
    StreamKind,
    cursor_of_headers,
    reject_cursor_of_other_run,
)
from dagwright.interfaces.http.targets import Target, target_of

router = APIRouter(tags=["completions"], route_class=JsonRoute)
UNKNOWN_MODEL = "run"
"""The `model` of answers that are requested by run ID. The model ID that the run was started with is not stored."""


@router.post(
    "/v1/chat/completions",
    summary="Create a chat completion",
    dependencies=[
        GATEWAY_HEADERS,
        scope_dependency(KeyScope.RUN, KeyScope.ANSWER, read_only_header=LAST_EVENT_ID_HEADER),
    ],
    responses=response_docs(
        ChatCompletion, examples.COMPLETION, events=(examples.CHUNKS, CompletionChunk), headers=ANSWER_HEADERS
    ),
)
async def complete(
    body: ChatBody,
    request: Request,
    context: PlansContextDep,
    _: LastEventId = None,
) -> Response:
    """Answer with the model or with a durable run, depending on `routing_mode` and the model.

    A run continues if the connection drops. Send the same `Idempotency-Key`, or the ID of an event of the stream as
    `Last-Event-ID`, to resume the answer.
    """
    fields = body.model_dump(exclude_unset=True)
    options, cursor = gateway_options(fields, request.headers), cursor_of_headers(request.headers, StreamKind.CHAT)
    if body.stream:
        # A caller with too many open streams is rejected here, before a run is started.
        context.reserve_stream()
    target = target_of(context, body.model)
    reject_unsupported_rounds_options(target, options)
    if cursor is None and _is_answered_by_model(options, target, body):
        return await _respond_with_model(context, {**service_body(fields), "model": target.id})
    try:
        conversation = conversation_of(body.messages)
    except ApiError as error:
        # With content such as images, `auto` means the model: no run accepts such content.
        if (
            cursor
            or target.needs_run
            or options.routing_mode is not RoutingMode.AUTO
            or error.code != ErrorCode.UNSUPPORTED_CONTENT
        ):
            raise
        return await _respond_with_model(context, {**service_body(fields), "model": target.id})
    # The route was decided when the run of the cursor was started.
    if (
        cursor is None
        and await route_request(context, body, target, conversation, options=options) is RoutingMode.DIRECT
    ):
        return await _respond_with_model(context, {**service_body(fields), "model": target.id})
    run_request = await run_backed_request(context, body, target, conversation, options=options, cursor=cursor)
    if not body.stream:
        return await _respond_at_end(context, run_request, request)
    with_usage = body.stream_options is not None and body.stream_options.include_usage
    return await _respond_with_stream(context, run_request, with_usage=with_usage)


@router.get(
    "/v1/runs/{run_id}/answer",
    summary="Stream the answer of a run",
    tags=["runs"],
    response_class=StreamingResponse,
    responses={
        200: {
            "description": "Chunks of a chat completion with the answer of the run.",
            "content": stream_docs(examples.CHUNKS, data=CompletionChunk),
        },
        204: {"description": "The client has received the whole stream."},
    },
)
async def stream_answer(
    run_id: str,
    request: Request,
    context: ContextDep,
    _: LastEventId = None,
    *,
    stream_progress: StreamProgressDep,
) -> Response:
    """Stream the answer from where the client stopped, until the run ends or asks for feedback."""
    context.reserve_stream()
    cursor = cursor_of_headers(request.headers, StreamKind.CHAT)
    reject_cursor_of_other_run(cursor, run_id)
    run_request = await request_for_existing_run(
        context, run_id, UNKNOWN_MODEL, options=GatewayOptions(stream_progress=stream_progress), cursor=cursor
    )
    return await _respond_with_stream(context, run_request, with_usage=True)


def _is_answered_by_model(options: GatewayOptions, target: Target, body: ChatBody) -> bool:
    """Return whether the model answers a request regardless of the text of its messages."""
    if target.needs_run or options.routing_mode not in (None, RoutingMode.DIRECT):
        return False
    return options.routing_mode is RoutingMode.DIRECT or body.messages[-1].role != "tool"


# Answers of the model.


async def _respond_with_model(context: GatewayContext, body: Mapping[str, Any]) -> Response:
    require_scope(context, KeyScope.RUN)
    headers = {"X-Routing-Mode": RoutingMode.DIRECT.value}
    if body.get("stream"):
        return stream_response(await direct.stream_events(context, body), context=context, headers=headers)
    return JSONResponse(await direct.completion(context, body), headers=headers)


# Answers of a run.


async def _respond_at_end(context: GatewayContext, run_request: RunBackedRequest, request: Request) -> Response:
    """Respond when the run has ended or asks for feedback."""
    outcome = await wait_for_outcome(context, run_request, request)
    if outcome is None:
        return Response(status_code=CLIENT_CLOSED_REQUEST_STATUS)
    return JSONResponse(_completion(run_request, outcome), headers=run_request.headers)


def _completion(run_request: RunBackedRequest, outcome: RunOutcome) -> dict[str, Any]:
    calls = _calls_of(run_request, outcome)
    message = {
        "role": "assistant",
        "content": None if outcome.has_answer_as_call else outcome.text,
        "refusal": None,
        **({"tool_calls": calls} if calls else {}),
    }
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish_reason(outcome)}
    return {
        "id": f"chatcmpl-{run_request.run_id}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": run_request.model,
        "choices": [choice],
        "usage": outcome.usage,
        "dagwright": outcome.run_fields,
    }


def _calls_of(run_request: RunBackedRequest, outcome: RunOutcome) -> list[dict[str, Any]]:
    """Return the tool calls of an answer: one per question, or the call of the function that receives the output."""
    if outcome.output_form is not None and outcome.output_form.function is not None:
        return [outcome.output_form.function_call(outcome.text, run_id=run_request.run_id)]
    return [question_call(request, run_id=run_request.run_id) for request in outcome.requests_as_tool_calls]


def _finish_reason(outcome: RunOutcome) -> str:
    # If `tool_choice` names the function, the finish reason is `stop`, as in OpenAI's API.
    is_call_chosen_by_model = (
        outcome.output_form is not None and outcome.has_answer_as_call and not outcome.output_form.is_named
    )
    return "tool_calls" if outcome.requests_as_tool_calls or is_call_chosen_by_model else "stop"


# Streamed answers of a run.


async def _respond_with_stream(context: GatewayContext, run_request: RunBackedRequest, *, with_usage: bool) -> Response:
    start_task = await start_for_stream(context, run_request)
    events = await events_unless_finished(
        context, _events(context, run_request, start_task, with_usage=with_usage), cursor=run_request.cursor
    )
    if events is None:
        return Response(status_code=NO_MORE_EVENTS_STATUS, headers=run_request.headers)
    return stream_response(
        events,
        context=context,
        headers=run_request.headers,
        on_disconnect=lambda: handle_disconnect(context, run_request, start_task),
    )


async def _events(
    context: GatewayContext, run_request: RunBackedRequest, start_task: StartTask, *, with_usage: bool
) -> Events:
    """Yield the role, progress, and the answer as it is written, without the events that the client has received."""
    stream = AnswerStream(
        StreamKind.CHAT,
        run_request.run_id,
        cursor=run_request.cursor,
        progress=run_request.options.stream_progress,
        is_buffered=run_request.output_form is not None,
    )
    chunk_builder = _ChunkBuilder(run_request, stream, with_usage=with_usage)
    for first_delta in stream.opening_events([{"role": "assistant", "content": ""}]):
        yield chunk_builder.delta(first_delta)
    try:
        answered_requests = await asyncio.shield(start_task)
        last_moment: RunMoment | None = None
        async with aclosing(stream.follow(context, answered_requests=answered_requests)) as items:
            async for item in items:
                if isinstance(item, TextPart):
                    yield chunk_builder.delta({"content": stream.text_for(item)})
                    continue
                last_moment = item
                if progress_events := stream.progress_of(last_moment):
                    yield chunk_builder.delta({}, dagwright={"events": progress_events})
        assert last_moment is not None
        outcome = await outcome_for_client(context, run_request, last_moment)
    # The status of the response has been sent, so errors from here on are events of the stream.
    except Exception as error:
        failure = api_error(error)
        if failure is None:
            raise
        if progress_events := stream.final_progress(failure):
            yield chunk_builder.delta({}, dagwright={"events": progress_events})
        # `None` is serialized as [DONE].
        for body in stream.error_events(failure, [failure.body(), None]):
            yield serialize_event(body, id=str(stream.cursor)) if body is not None else f"id: {stream.cursor}\n{DONE}"
        return
    if (text := stream.remaining_text(outcome)) and not outcome.has_answer_as_call:
        yield chunk_builder.delta({"content": text})
    if progress_events := stream.final_progress():
        yield chunk_builder.delta({}, dagwright={"events": progress_events})
    for chunk in stream.closing_events([*_closing_chunks(run_request, outcome, with_usage=with_usage), None]):
        yield chunk_builder.event(chunk) if chunk is not None else f"id: {stream.cursor}\n{DONE}"


def _closing_chunks(run_request: RunBackedRequest, outcome: RunOutcome, *, with_usage: bool) -> list[dict[str, Any]]:
    """Return the chunks after the text: questions, the finish reason, and the usage."""
    calls = _calls_of(run_request, outcome)
    choices = [_choice({"tool_calls": [{"index": index, **call}]}) for index, call in enumerate(calls)]
    chunks: list[dict[str, Any]] = [{"choices": [choice]} for choice in choices]
    chunks.append({"choices": [_choice({}, _finish_reason(outcome))], "dagwright": outcome.run_fields})
    return [*chunks, {"choices": [], "usage": outcome.usage}] if with_usage else chunks


def _choice(delta: Mapping[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}


class _ChunkBuilder:
    """Builder of the chunks of one stream.

    Progress is sent in the field `dagwright` with an empty delta, which every client ignores.
    """

    def __init__(self, run_request: RunBackedRequest, stream: AnswerStream, *, with_usage: bool) -> None:
        self._run_request = run_request
        self._stream = stream
        self._with_usage = with_usage
        self._created_at = int(time.time())

    def delta(self, delta: Mapping[str, Any], **fields: Any) -> str:
        """Return an event with a part of the answer; `fields` are added to the chunk."""
        return self.event({"choices": [_choice(delta)], **fields})

    def event(self, parts: Mapping[str, Any]) -> str:
        """Return an event. The ID of the event is the client's cursor after the event."""
        run_request, usage = self._run_request, {"usage": None} if self._with_usage else {}
        head = {"id": f"chatcmpl-{run_request.run_id}", "object": "chat.completion.chunk", "created": self._created_at}
        return serialize_event({**head, "model": run_request.model, **usage, **parts}, id=str(self._stream.cursor))
