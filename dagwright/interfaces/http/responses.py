"""`/v1/responses`: OpenAI's Responses API, with background responses."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse, Response

from dagwright.client.errors import CommandRejected, RunIdInvalid
from dagwright.client.run_follower import RunMoment, wait_for_end
from dagwright.client.steering import CommandAuthor
from dagwright.history.executions import RunClosed, RunNotFound
from dagwright.history.run_view import RunView
from dagwright.history.text_stream import TextPart
from dagwright.interfaces.http import direct, examples
from dagwright.interfaces.http.answer_models import ResponseObject
from dagwright.interfaces.http.answer_stream import AnswerStream, events_unless_finished
from dagwright.interfaces.http.callers import KeyScope, public_session_id
from dagwright.interfaces.http.context import (
    ContextDep,
    GatewayContext,
    PlansContextDep,
    require_scope,
    scope_dependency,
)
from dagwright.interfaces.http.conversation import Conversation, conversation_of
from dagwright.interfaces.http.error_codes import ErrorCode
from dagwright.interfaces.http.errors import CLIENT_CLOSED_REQUEST_STATUS, ApiError, api_error
from dagwright.interfaces.http.event_models import ResponseEvent
from dagwright.interfaces.http.headers import ANSWER_HEADERS
from dagwright.interfaces.http.json_route import JsonRoute
from dagwright.interfaces.http.progress_events import Event
from dagwright.interfaces.http.request_fields import (
    GATEWAY_HEADERS,
    GatewayOptions,
    RoutingMode,
    StreamProgressDep,
    gateway_options,
    service_body,
)
from dagwright.interfaces.http.response_items import (
    NO_REFERENCES,
    CreateResponseBody,
    ResponseRef,
    completed_response,
    failed_response,
    item_events,
    item_events_after_text,
    message_item,
    message_start_events,
    parse_response_id,
    referenced_runs,
    response_object,
    response_of_completion,
    run_of_referenced_question,
    text_delta,
    to_chat_body,
    unknown_reference_error,
)
from dagwright.interfaces.http.run_documents import LastEventId
from dagwright.interfaces.http.run_models import response_docs
from dagwright.interfaces.http.run_outcome import AnswerForm, outcome_of, run_fields_of
from dagwright.interfaces.http.run_preparation import active_starts_of, is_abandoned, reject_unsupported_rounds_options
from dagwright.interfaces.http.run_requests import (
    RunBackedRequest,
    StartTask,
    handle_disconnect,
    outcome_for_client,
    request_for_existing_run,
    route_request,
    run_backed_request,
    start_for_stream,
    start_in_background,
    wait_for_outcome,
)
from dagwright.interfaces.http.sse import NO_MORE_EVENTS_STATUS, Events, serialize_event, stream_response
from dagwright.interfaces.http.stream_cursor import (
    LAST_EVENT_ID_HEADER,
    StreamCursor,
    StreamKind,
    cursor_of_headers,
    reject_cursor_of_other_run,
)
from dagwright.interfaces.http.structured_output import output_form_of
from dagwright.interfaces.http.targets import target_of
from dagwright.planning.conversation import MAX_TURNS_IN_PROMPT, TurnSummary
from dagwright.planning.model_calls.model_failure import ModelFailure

router = APIRouter(tags=["responses"], route_class=JsonRoute)
CANCEL_TIMEOUT_S = 5.0
"""Maximum time that a cancellation waits for the end of the run before the endpoint responds."""
_CREATED, _IN_PROGRESS, _ERROR = "response.created", "response.in_progress", "error"
"""Event types. Progress has no event type of its own, because some clients raise an error for unknown types. Progress
is sent in `response.in_progress` or, once the message item has started, in an empty text delta."""
_RESPONSE_DOCS = response_docs(ResponseObject, examples.RESPONSE)


@router.post(
    "/v1/responses",
    summary="Create a response",
    dependencies=[
        GATEWAY_HEADERS,
        scope_dependency(KeyScope.RUN, KeyScope.ANSWER, read_only_header=LAST_EVENT_ID_HEADER),
    ],
    responses=response_docs(
        ResponseObject, examples.RESPONSE, events=(examples.RESPONSE_EVENTS, ResponseEvent), headers=ANSWER_HEADERS
    ),
)
async def create_response(
    body: CreateResponseBody,
    request: Request,
    context: PlansContextDep,
    _: LastEventId = None,
) -> Response:
    """Answer with the model or a run, as chat completions do.

    With `background`, the response is returned at once, and can be fetched by its ID.
    """
    fields = body.model_dump(exclude_unset=True)
    options, cursor = gateway_options(fields, request.headers), cursor_of_headers(request.headers, StreamKind.RESPONSE)
    if body.stream:
        # A caller with too many open streams is rejected here, before a run is started.
        context.reserve_stream()
    # The stored turns of a session replace the referenced messages.
    answers = await _referenced_answers(context, body) if options.session_id is None else NO_REFERENCES
    chat_body = to_chat_body(body, answers)
    target = target_of(context, body.model)
    reject_unsupported_rounds_options(target, options)
    previous_run = None if body.previous_response_id is None else parse_response_id(body.previous_response_id).run_id
    conversation = conversation_of(chat_body.messages, run_id=previous_run or run_of_referenced_question(body))
    # The route was decided when the run of the cursor was started.
    if (
        cursor is None
        and await route_request(context, chat_body, target, conversation, options=options) is RoutingMode.DIRECT
    ):
        return await _respond_with_model(
            context, body, {**service_body(chat_body.model_dump(exclude_unset=True)), "model": target.id}
        )
    if previous_run is not None and not conversation.answers:
        options, conversation = await _with_previous_run(context, previous_run, options, conversation)
    if body.background and output_form_of(chat_body) is not None:
        message = (
            "background: an answer with a schema is only returned by the request that asks for it; omit background"
        )
        raise ApiError(ErrorCode.UNSUPPORTED_PARAMETER, message, param="background")
    run_request = await run_backed_request(context, chat_body, target, conversation, options=options, cursor=cursor)
    response = response_object(fields, _response_ref(run_request), status="in_progress")
    if body.stream:
        start_task = await start_for_stream(context, run_request)
        # A background run continues if the client disconnects.
        on_disconnect = (
            (lambda: None) if body.background else (lambda: handle_disconnect(context, run_request, start_task))
        )
        return await _respond_with_stream(
            context,
            run_request,
            _events(context, run_request, response, start_task),
            cursor=cursor,
            on_disconnect=on_disconnect,
        )
    if body.background:
        await start_in_background(context, run_request)
        return JSONResponse(
            _in_progress_response(response, run_request.run_id, run_request.session_id), headers=run_request.headers
        )
    return await _respond_at_end(context, run_request, response, request)


@router.get(
    "/v1/responses/{response_id}",
    summary="Get a response of a run",
    responses=response_docs(ResponseObject, examples.RESPONSE, events=(examples.RESPONSE_EVENTS, ResponseEvent)),
)
async def get_response(
    response_id: str,
    request: Request,
    context: ContextDep,
    _: LastEventId = None,
    *,
    stream_progress: StreamProgressDep,
    stream: Annotated[bool, Query(description="Stream the events of the response.")] = False,
    starting_after: Annotated[
        int | None,
        Query(ge=0, lt=2**53, description="With `stream`: the sequence_number of the last received event."),
    ] = None,
) -> Response:
    """Return the current state of a response, or stream its events.

    The events of an ended response can be streamed, too.
    """
    ref = parse_response_id(response_id)
    run_id = ref.run_id
    if not stream:
        return JSONResponse(await _current_response(context, ref))
    context.reserve_stream()
    header_cursor = cursor_of_headers(request.headers, StreamKind.RESPONSE)
    reject_cursor_of_other_run(header_cursor, run_id)
    cursor = header_cursor
    if cursor is None and starting_after is not None:
        cursor = StreamCursor.from_sequence_number(starting_after, run_id)
    options = GatewayOptions(stream_progress=stream_progress)
    existing_run_request = await request_for_existing_run(context, run_id, ref.model, options=options, cursor=cursor)
    run_request = replace(existing_run_request, allows_calls=ref.allows_calls)
    response = response_object({"background": True}, ref, status="in_progress")
    events = _events(context, run_request, response, await start_for_stream(context, run_request))
    # Only clients that send `Last-Event-ID` get status 204. Some other clients cannot read a response without a body.
    return await _respond_with_stream(context, run_request, events, cursor=header_cursor)


@router.post(
    "/v1/responses/{response_id}/cancel",
    summary="Cancel the run of a response",
    responses=_RESPONSE_DOCS,
    dependencies=[scope_dependency(KeyScope.OPERATE)],
)
async def cancel_response(response_id: str, context: ContextDep) -> Response:
    """Request cancellation of the run. A run that has ended is not changed."""
    ref = parse_response_id(response_id)
    run_id = ref.run_id
    if active_starts := active_starts_of(context, run_id):
        for active_start in active_starts:
            active_start.run_start.abandon_event.set()
        await asyncio.wait(tasks := [active_start.task for active_start in active_starts], timeout=CANCEL_TIMEOUT_S)
        # If a task has any other result, its run may have been started.
        if all(task.done() and is_abandoned(task.exception()) for task in tasks):
            message = f"the turn {run_id!r} was cancelled while it waited for its session"
            response = response_object({"background": True}, ref, status="cancelled")
            return JSONResponse(failed_response(response, ApiError(ErrorCode.RUN_CANCELLED, message)))
    await context.visible_run(run_id)
    try:
        await context.steering.cancel(run_id, CommandAuthor(context.caller.actor_name, "cancelled through the API"))
        await asyncio.wait_for(wait_for_end(context.runs, run_id), CANCEL_TIMEOUT_S)
    except (RunClosed, CommandRejected, TimeoutError):
        pass
    return JSONResponse(await _current_response(context, ref))


def _response_ref(run_request: RunBackedRequest) -> ResponseRef:
    return ResponseRef(run_request.run_id, run_request.model, run_request.allows_calls)


def _in_progress_response(response: Mapping[str, Any], run_id: str, session_id: str | None) -> dict[str, Any]:
    return {**response, "dagwright": {"run_id": run_id, "session_id": session_id, "status": "running"}}


async def _current_response(context: GatewayContext, ref: ResponseRef) -> dict[str, Any]:
    """Return the current state of a response. Raises the same errors as `GatewayContext.visible_run`."""
    run_id = ref.run_id
    response = response_object({"background": True}, ref, status="in_progress")
    if active_starts := active_starts_of(context, run_id):
        return _in_progress_response(
            response, run_id, public_session_id(context.caller, active_starts[0].run_start.session_name)
        )
    await context.visible_run(run_id)
    view = await context.runs.reader(run_id).read()
    session_name = await context.runs.session_name_of(run_id)
    response["created_at"] = int(view.started_at or response["created_at"])
    requests = (
        [] if view.is_closed else [request.document for request in await context.runs.feedback.requests_of(run_id)]
    )
    if not (view.is_closed or requests):
        return {
            **response,
            "dagwright": run_fields_of(view, session_id=public_session_id(context.caller, session_name)),
        }
    moment = RunMoment(view, (), requests)
    try:
        outcome = await outcome_of(context, moment, session_name=session_name, form=AnswerForm(ref.allows_calls))
    except ApiError as error:
        return {
            **failed_response(response, error),
            "dagwright": run_fields_of(view, session_id=public_session_id(context.caller, session_name)),
        }
    return completed_response(response, outcome, run_id=run_id)


async def _with_previous_run(
    context: GatewayContext, run_id: str, options: GatewayOptions, conversation: Conversation
) -> tuple[GatewayOptions, Conversation]:
    """Return the options and conversation of a request that follows an earlier run.

    The request becomes a turn of the run's session. If the run has no session, the run becomes an earlier turn of the
    conversation.
    """
    session_id = public_session_id(
        context.caller, await context.runs.session_name_of(await context.visible_run(run_id))
    )
    if session_id is not None:
        return (options if options.session_id is not None else replace(options, session_id=session_id)), conversation
    view = await context.runs.reader(run_id).read()
    answer = await _final_answer(context, view)
    turn = TurnSummary(1, view.title or "(a plan)", answer or f"({view.status})")
    return options, replace(conversation, earlier_turns=[turn, *conversation.earlier_turns])


async def _referenced_answers(context: GatewayContext, body: CreateResponseBody) -> dict[str, str | None]:
    """Return the answers that a request references by message IDs: run -> answer; `None` for a run without an answer.

    Raises:
        ApiError: there is no such run.
    """

    async def answer_of(run_id: str, index: int) -> str | None:
        try:
            return await _final_answer(context, await context.runs.reader(await context.visible_run(run_id)).read())
        except (RunNotFound, RunIdInvalid):
            raise unknown_reference_error(index) from None

    # Only the last answers are read, because the planner ignores older answers.
    last_runs = list(referenced_runs(body).items())[-MAX_TURNS_IN_PROMPT:]
    answers = await asyncio.gather(*(answer_of(run_id, index) for run_id, index in last_runs))
    return {run_id: answer for (run_id, _), answer in zip(last_runs, answers, strict=True)}


async def _final_answer(context: GatewayContext, view: RunView) -> str | None:
    if not view.is_closed:
        return None
    try:
        return (await outcome_of(context, RunMoment(view, (), ()), session_name=None)).text
    except ApiError:
        return None


async def _respond_with_model(
    context: GatewayContext, body: CreateResponseBody, chat_body: Mapping[str, Any]
) -> Response:
    require_scope(context, KeyScope.RUN)
    if body.background:
        message = "answers without a run are not stored: omit background, or use a run"
        raise ApiError(ErrorCode.ROUTING_MODE_UNFIT, message, param="background")
    if body.previous_response_id:
        message = "answers without a run are not stored: send the earlier messages in input, or use a run"
        raise ApiError(ErrorCode.ROUTING_MODE_UNFIT, message, param="previous_response_id")
    headers = {"X-Routing-Mode": RoutingMode.DIRECT.value}
    model_call = _model_response(context, body, chat_body)
    if not body.stream:
        return JSONResponse(await model_call, headers=headers)
    return stream_response(
        _model_response_events(await direct.start_call(model_call)), context=context, headers=headers
    )


async def _model_response(
    context: GatewayContext, body: CreateResponseBody, chat_body: Mapping[str, Any]
) -> dict[str, Any]:
    completion = await direct.completion(context, chat_body)
    return response_of_completion(body.model_dump(exclude_unset=True), completion, model=str(chat_body["model"]))


async def _model_response_events(model_task: "asyncio.Task[dict[str, Any]]") -> Events:
    try:
        # If the client disconnects, the task is cancelled.
        response = await model_task
    except ModelFailure as failure:
        api_failure = api_error(failure)
        assert api_failure is not None
        error_fields = {"code": api_failure.code, "message": api_failure.message, "param": api_failure.param}
        yield serialize_event({"type": _ERROR, **error_fields, "sequence_number": 0}, id="0", name=_ERROR)
        return
    created_response = {**response, "status": "in_progress", "output": [], "usage": None}
    completed_event = {"type": "response.completed", "response": response}
    for number, response_event in enumerate(
        [{"type": _CREATED, "response": created_response}, *item_events(response["output"]), completed_event]
    ):
        yield serialize_event(
            {**response_event, "sequence_number": number}, id=str(number), name=str(response_event["type"])
        )


async def _respond_at_end(
    context: GatewayContext, run_request: RunBackedRequest, response: Mapping[str, Any], request: Request
) -> Response:
    # A run without an answer is an HTTP error here: clients read a failed response with status 200 as an empty answer.
    outcome = await wait_for_outcome(context, run_request, request)
    if outcome is None:
        return Response(status_code=CLIENT_CLOSED_REQUEST_STATUS)
    return JSONResponse(completed_response(response, outcome, run_id=run_request.run_id), headers=run_request.headers)


async def _respond_with_stream(
    context: GatewayContext,
    run_request: RunBackedRequest,
    events: Events,
    *,
    cursor: StreamCursor | None,
    on_disconnect: Callable[[], object] = lambda: None,
) -> Response:
    """Respond with events, or with status 204 if the client has received all of them."""
    remaining_events = await events_unless_finished(context, events, cursor=cursor)
    if remaining_events is None:
        return Response(status_code=NO_MORE_EVENTS_STATUS, headers=run_request.headers)
    return stream_response(remaining_events, context=context, headers=run_request.headers, on_disconnect=on_disconnect)


async def _events(
    context: GatewayContext, run_request: RunBackedRequest, response: Mapping[str, Any], start_task: StartTask
) -> Events:
    """Yield progress and the answer as it is written, without the events that the client has received."""
    stream = AnswerStream(
        StreamKind.RESPONSE,
        run_request.run_id,
        cursor=run_request.cursor,
        progress=run_request.options.stream_progress,
        is_buffered=run_request.output_form is not None,
    )
    first_events = [{"type": event_type, "response": response} for event_type in (_CREATED, _IN_PROGRESS)]
    item = message_item("", answer_id=run_request.run_id)
    all_opening_events = [*first_events, *message_start_events(item)]

    def serialize(content: Mapping[str, Any]) -> str:
        cursor = stream.cursor
        return serialize_event(
            {**content, "sequence_number": cursor.sequence_number}, id=str(cursor), name=str(content["type"])
        )

    def progress_event(progress_events: Sequence[Event]) -> Mapping[str, Any]:
        progress_field = {"dagwright": {"events": progress_events}}
        if stream.cursor.opening_count > len(first_events):
            # A `response.in_progress` event has no output, so client libraries would drop the started message item.
            return {**text_delta(item, ""), **progress_field}
        # The instructions may be long, and are already in the first event.
        return {"type": _IN_PROGRESS, "response": {**response, "instructions": None}, **progress_field}

    def text_and_final_progress(text: str, api_failure: ApiError | None = None) -> Iterator[str]:
        if text:
            yield serialize(text_delta(item, text))
        if progress_events := stream.final_progress(api_failure):
            yield serialize(progress_event(progress_events))

    for opening_event in stream.opening_events(first_events):
        yield serialize(opening_event)
    try:
        answered_requests = await asyncio.shield(start_task)
        last_moment: RunMoment | None = None
        async with aclosing(stream.follow(context, answered_requests=answered_requests)) as items:
            async for next_item in items:
                if isinstance(next_item, TextPart):
                    for opening_event in stream.opening_events(all_opening_events):
                        yield serialize(opening_event)
                    yield serialize(text_delta(item, stream.text_for(next_item)))
                    continue
                last_moment = next_item
                if progress_events := stream.progress_of(last_moment):
                    yield serialize(progress_event(progress_events))
        assert last_moment is not None
        outcome = await outcome_for_client(context, run_request, last_moment)
    # The status of the response has been sent, so errors from here on are events of the stream.
    except Exception as error:
        api_failure = api_error(error)
        if api_failure is None:
            raise
        for text_event in text_and_final_progress("", api_failure):
            yield text_event
        for error_event in stream.error_events(
            api_failure, [{"type": "response.failed", "response": failed_response(response, api_failure)}]
        ):
            yield serialize(error_event)
        return
    # An answer that is a function call has no message.
    for opening_event in stream.opening_events([] if outcome.has_answer_as_call else all_opening_events):
        yield serialize(opening_event)
    text = stream.remaining_text(outcome)
    for text_event in text_and_final_progress("" if outcome.has_answer_as_call else text):
        yield text_event
    complete_response = completed_response(response, outcome, run_id=run_request.run_id)
    for closing_event in stream.closing_events(
        [
            *item_events_after_text(complete_response["output"]),
            {"type": "response.completed", "response": complete_response},
        ]
    ):
        yield serialize(closing_event)
