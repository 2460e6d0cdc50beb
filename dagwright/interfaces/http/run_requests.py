"""Handle HTTP requests that a run answers: start the run or deliver the client's answers, and return the outcome.

A `request` is an HTTP request. Requests of the run for feedback are called feedback requests or questions.
"""

import asyncio
from dataclasses import dataclass, replace
from typing import TypeVar

from fastapi import Request

from dagwright.client.errors import RunIdInUse
from dagwright.client.run_follower import RequestKey, RunMoment
from dagwright.client.steering import CommandAuthor
from dagwright.core.model.resolvers import callable_tools
from dagwright.history.executions import RunNotFound
from dagwright.interfaces.http.callers import KeyScope, public_session_id
from dagwright.interfaces.http.context import GatewayContext, require_scope
from dagwright.interfaces.http.conversation import Conversation
from dagwright.interfaces.http.disconnects import await_unless_disconnected
from dagwright.interfaces.http.error_codes import ErrorCode
from dagwright.interfaces.http.errors import ApiError
from dagwright.interfaces.http.feedback_calls import allows_answer_calls, is_call_id_of, reject_undeclared_function
from dagwright.interfaces.http.request_fields import ChatBody, GatewayOptions, RoutingMode
from dagwright.interfaces.http.routing import route_by_model, route_by_rules, unknown_call_error
from dagwright.interfaces.http.run_outcome import (
    AnswerForm,
    RunOutcome,
    deliver_answers,
    outcome_of,
    wait_for_last_moment,
)
from dagwright.interfaces.http.run_preparation import (
    AnswerSettings,
    active_starts_of,
    model_config_of,
    prepare_run_start,
    run_id_of_key,
    start_run,
)
from dagwright.interfaces.http.run_starts import START_WAIT_S, RunStart, headers_of_run
from dagwright.interfaces.http.stream_cursor import LAST_EVENT_ID_HEADER, StreamCursor, reject_cursor_of_other_run
from dagwright.interfaces.http.structured_output import OutputForm, output_form_of
from dagwright.interfaces.http.targets import Target

T = TypeVar("T")

StartTask = asyncio.Task[set[RequestKey]]
"""Task that starts a run or delivers answers. It returns the keys of the answered feedback requests."""


@dataclass(frozen=True, slots=True)
class RunBackedRequest:
    """A request that a run answers.

    Args:
        model: model ID as the client sent it.
        run_id: ID of the run that answers the request: a new run, or the run whose questions the client answers.
        start: start of the run; `None` for a run that exists.
        session_name: session that the run is a turn of.
        session_id: the same session, as the client knows it.
        by: name recorded with answers to questions.
        cursor: where the client resumes the stream; `None` for the whole stream.
        allows_calls: whether questions may be sent as calls of `answer_feedback`.
        output_form: required form of the answer; `None` for text.
    """

    model: str
    run_id: str
    conversation: Conversation
    options: GatewayOptions
    start: RunStart | None = None
    session_name: str | None = None
    session_id: str | None = None
    by: str | None = None
    cursor: StreamCursor | None = None
    allows_calls: bool = True
    output_form: OutputForm | None = None

    @property
    def headers(self) -> dict[str, str]:
        """Headers of the response."""
        return {**headers_of_run(self.run_id, self.session_id), "X-Routing-Mode": RoutingMode.ORCHESTRATION.value}


async def route_request(
    context: GatewayContext, body: ChatBody, target: Target, conversation: Conversation, *, options: GatewayOptions
) -> RoutingMode:
    """Return the route of a request: `direct` or `orchestration`.

    Raises:
        ApiError: the options of the request conflict, or the caller lacks the scope to call a model.
        ModelFailure: the model that chooses the route cannot be called.
    """
    mode = route_by_rules(options.routing_mode, target, conversation, has_functions=bool(body.tools))
    if mode is not RoutingMode.AUTO:
        return mode
    # The model that chooses the route needs the same scope as any other model call.
    require_scope(context, KeyScope.RUN)
    tools = list(callable_tools(context.toolset.declarations()).values())
    return await route_by_model(context.model, model_config_of(body, target, options), conversation, tools=tools)


async def run_backed_request(
    context: GatewayContext,
    body: ChatBody,
    target: Target,
    conversation: Conversation,
    *,
    options: GatewayOptions,
    cursor: StreamCursor | None = None,
) -> RunBackedRequest:
    """Validate a request and prepare its run.

    Args:
        cursor: where the client resumes the stream. If the run of the cursor exists, no run is started.

    Raises:
        ApiError, GoalRejected, PlanInvalid, SessionIdInvalid: no run can answer the request, or a scope is missing.
        RunNotFound: the run whose questions the request answers, or the run of the cursor, does not exist.
    """
    output_form = output_form_of(body)
    if cursor is not None:
        if (
            route_by_rules(options.routing_mode, target, conversation, has_functions=bool(body.tools))
            is RoutingMode.DIRECT
        ):
            message = (
                f"{LAST_EVENT_ID_HEADER} is an event id of the run {cursor.run_id!r:.200}, "
                f"and {target.id!r:.120} needs no run"
            )
            raise ApiError(ErrorCode.INVALID_VALUE, message, param=LAST_EVENT_ID_HEADER)
        _reject_cursor_of_other_request(context, conversation, options=options, cursor=cursor)
    if options.cancel_on_disconnect:
        require_scope(context, KeyScope.OPERATE)
    if conversation.answers:
        run_request = await _request_with_answers(context, body, target, conversation, options=options)
    # A cursor may belong to a run that has not started because the gateway crashed while the run waited for its
    # session. A request with the idempotency key then starts the run.
    elif cursor is not None and (options.idempotency_key is None or await _run_exists(context, cursor.run_id)):
        run_request = await request_for_existing_run(context, cursor.run_id, target.id, options=options, cursor=cursor)
    else:
        settings = AnswerSettings(model_config_of(body, target, options), output_form)
        run_request = _request_starting_run(context, body, target, conversation, options=options, settings=settings)
    return replace(
        run_request,
        by=context.caller.actor_name or body.user,
        cursor=cursor,
        allows_calls=allows_answer_calls(body, is_structured=output_form is not None),
        output_form=output_form,
    )


async def _request_with_answers(
    context: GatewayContext, body: ChatBody, target: Target, conversation: Conversation, *, options: GatewayOptions
) -> RunBackedRequest:
    """Return the request of a client that answers a run's questions. Raises the same errors as `run_backed_request`."""
    reject_undeclared_function(body)
    runs = list(dict.fromkeys(answer.run_id for answer in conversation.answers))
    if len(runs) > 1:
        message = "one request can answer questions of one run only"
        raise ApiError(ErrorCode.INVALID_VALUE, message, param="messages")
    require_scope(context, KeyScope.ANSWER)
    if not all(is_call_id_of(answer.call, run_id=answer.run_id) for answer in conversation.answers):
        raise unknown_call_error()
    session_name = await context.runs.session_name_of(await context.visible_run(runs[0]))
    session_id = public_session_id(context.caller, session_name)
    return RunBackedRequest(target.id, runs[0], conversation, options, session_name=session_name, session_id=session_id)


def _request_starting_run(
    context: GatewayContext,
    body: ChatBody,
    target: Target,
    conversation: Conversation,
    *,
    options: GatewayOptions,
    settings: AnswerSettings,
) -> RunBackedRequest:
    """Return the request of a client that starts a run. Raises the same errors as `run_backed_request`."""
    require_scope(context, KeyScope.RUN)
    answer_count = (body.model_extra or {}).get("n")
    # `True == 1` in Python.
    if answer_count not in (None, 1) or isinstance(answer_count, bool):
        raise ApiError(ErrorCode.UNSUPPORTED_PARAMETER, "n: a run returns one answer", param="n")
    start = prepare_run_start(context, target, conversation, options=options, settings=settings)
    session_id = public_session_id(context.caller, start.session_name)
    return RunBackedRequest(
        target.id, start.run_id, conversation, options, start, session_name=start.session_name, session_id=session_id
    )


async def request_for_existing_run(
    context: GatewayContext, run_id: str, model: str, *, options: GatewayOptions, cursor: StreamCursor | None
) -> RunBackedRequest:
    """Return the request of a client that follows an existing run, or a run that waits for its session.

    Raises:
        RunNotFound: there is no such run.
        RunIdInvalid: the ID is not valid for a run.
    """
    active_starts = active_starts_of(context, run_id)
    start = active_starts[0].run_start if active_starts else None
    session_name = (
        start.session_name
        if start is not None
        else await context.runs.session_name_of(await context.visible_run(run_id))
    )
    session_id = public_session_id(context.caller, session_name)
    return RunBackedRequest(
        model, run_id, Conversation(""), options, start, session_name=session_name, session_id=session_id, cursor=cursor
    )


def _reject_cursor_of_other_request(
    context: GatewayContext, conversation: Conversation, *, options: GatewayOptions, cursor: StreamCursor
) -> None:
    """Raise `ApiError` if the cursor belongs to another run than the request."""
    run_ids = {answer.run_id for answer in conversation.answers}
    if options.idempotency_key is not None and not conversation.answers:
        run_ids = {run_id_of_key(options.idempotency_key, owner=context.caller.owner)}
    for run_id in run_ids:
        reject_cursor_of_other_run(cursor, run_id)


async def _run_exists(context: GatewayContext, run_id: str) -> bool:
    try:
        return await context.runs.exists(await context.visible_run(run_id))
    except RunNotFound:
        return False


async def start_or_answer(context: GatewayContext, run_request: RunBackedRequest) -> set[RequestKey]:
    """Start the run of a request, or deliver its answers; return the feedback requests that were answered."""
    if run_request.start is not None:
        await start_run(context, run_request.start)
        return set()
    return await deliver_answers(context, run_request.conversation.answers, by=run_request.by)


async def wait_for_outcome(
    context: GatewayContext, run_request: RunBackedRequest, request: Request
) -> RunOutcome | None:
    """Return the outcome when the run has ended or asks for feedback; `None` if the client disconnects first.

    The run continues without the client unless `cancel_on_disconnect` is set. Raises the same errors as
    `start_or_answer` and `outcome_of`.
    """
    start_task = context.run_in_background(start_or_answer(context, run_request))

    async def start_and_wait() -> RunOutcome:
        answered_requests = await asyncio.shield(start_task)
        return await outcome_for_client(
            context,
            run_request,
            await wait_for_last_moment(context, run_request.run_id, answered_requests=answered_requests),
        )

    outcome = await await_unless_disconnected(start_and_wait(), request)
    if outcome is None:
        handle_disconnect(context, run_request, start_task)
    return outcome


def handle_disconnect(context: GatewayContext, run_request: RunBackedRequest, start_task: StartTask) -> None:
    """Cancel the run of a disconnected client that sent `cancel_on_disconnect`; the run may not have started yet."""
    if not run_request.options.cancel_on_disconnect:
        return
    if run_request.start is not None:
        run_request.start.abandon_event.set()
    context.run_in_background(_cancel(context, run_request, start_task))


async def _cancel(context: GatewayContext, run_request: RunBackedRequest, start_task: StartTask) -> None:
    # Before the start has ended, there may be no run to cancel.
    await asyncio.wait({start_task})
    error = start_task.exception()
    # Do not cancel a run that belongs to another request with the same key, or that did not accept the answer. After
    # any other error of a start, the run may have started.
    if not (isinstance(error, RunIdInUse) or (run_request.start is None and error is not None)):
        await context.steering.cancel(run_request.run_id, CommandAuthor(run_request.by, "the client disconnected"))


async def outcome_for_client(context: GatewayContext, run_request: RunBackedRequest, moment: RunMoment) -> RunOutcome:
    """Return the outcome of a run at its last moment. Raises the same errors as `outcome_of`."""
    form = AnswerForm(run_request.allows_calls, run_request.output_form)
    return await outcome_of(context, moment, session_name=run_request.session_name, form=form)


async def start_for_stream(context: GatewayContext, run_request: RunBackedRequest) -> StartTask:
    """Start the run of a stream, or deliver the answers of its request.

    A start in a session and the delivery of answers may take long. After `START_WAIT_S`, both continue in the returned
    task.
    Raises the same errors as `start_or_answer`.
    """
    start_task = context.run_in_background(start_or_answer(context, run_request))
    is_fast = run_request.start is not None and run_request.start.session_name is None
    await asyncio.wait({start_task}, timeout=None if is_fast else START_WAIT_S)
    if start_task.done():
        await start_task
    return start_task


async def start_in_background(context: GatewayContext, run_request: RunBackedRequest) -> None:
    """Start the run of a background request; return when the run has started or waits for its session.

    Errors after that cannot be reported. Raises the same errors as `start_or_answer`.
    """
    start_task = context.run_in_background(start_or_answer(context, run_request))
    if run_request.start is None:
        await asyncio.shield(start_task)
        return
    waiting_task = asyncio.create_task(run_request.start.waiting_event.wait())
    try:
        await asyncio.wait({start_task, waiting_task}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting_task.cancel()
    if start_task.done():
        await start_task
