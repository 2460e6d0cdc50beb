"""`/v1/responses`: the same answers in the form of OpenAI's newer API, in the background too, and fetched later."""

import asyncio
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse, Response

from dagwright.answer_pieces import Piece
from dagwright.contracts.conversation import TurnSummary
from dagwright.feed import RunClosed, RunView
from dagwright.gateway import direct, examples
from dagwright.gateway.answer_models import ResponseAnswer
from dagwright.gateway.answering import AnswerTold, moments_and_pieces
from dagwright.gateway.bodies import OWN_HEADERS, RoutingMode, Wishes, passed_on, wishes_of
from dagwright.gateway.callers import Scope, known_as
from dagwright.gateway.calls import (
    Beginning,
    Call,
    answered_whole,
    beginning_of,
    begun_in_background,
    call_for,
    end_of,
    left,
    routed,
)
from dagwright.gateway.conversation import Conversation, conversation_of
from dagwright.gateway.desk import Desk, TheDesk, needs, refuse_without
from dagwright.gateway.errors import CLIENT_GONE, ApiError, told_as
from dagwright.gateway.feedback_calls import question_words
from dagwright.gateway.following import RUN_FAILED, Moment, about_run, ended, outcome_of
from dagwright.gateway.headers import OF_ANSWERS
from dagwright.gateway.jobs import refuse_rounds
from dagwright.gateway.progress import Progress
from dagwright.gateway.response_items import (
    ResponseBody,
    answered,
    begin_message,
    chat_of,
    failed,
    item_events,
    message_item,
    of_completion,
    response_object,
    run_of_response,
    text_delta,
)
from dagwright.gateway.run_models import answered as described
from dagwright.gateway.streams import Events, event, stream_response
from dagwright.gateway.targets import target_of
from dagwright.people import AnswerRefused

router = APIRouter(tags=["responses"])
CANCEL_S = 5.0
"""How long a run may take to stop before the answer says that it is still at it."""
PROGRESS = "dagwright.event"
"""Type of the events that tell progress; clients look at the types they know."""
_EVENTS_OF_RUN = "/v1/runs/{run_id}/events, with the run_id in its `dagwright`"
_RESPONSE = described(ResponseAnswer, examples.RESPONSE)


@router.post(
    "/v1/responses",
    summary="An answer of a model or of a run",
    dependencies=[OWN_HEADERS],
    responses=described(ResponseAnswer, examples.RESPONSE, events=examples.RESPONSE_EVENTS, headers=OF_ANSWERS),
)
async def respond(body: ResponseBody, request: Request, desk: TheDesk) -> Response:
    """Answers as chat completions do; with `background` at once, and the response is fetched by its id."""
    written = body.model_dump(exclude_unset=True)
    wishes = wishes_of(written, request.headers)
    if body.stream:
        # Before anything is started.
        desk.refuse_full_streams()
    chat = chat_of(body)
    target = target_of(desk, body.model)
    refuse_rounds(target, wishes)
    before = None if body.previous_response_id is None else run_of_response(body.previous_response_id)[0]
    said = conversation_of(chat.messages, run=before)
    if await routed(desk, chat, target, said, wishes=wishes) is RoutingMode.DIRECT:
        return await _direct(desk, body, {**passed_on(chat.model_dump(exclude_unset=True)), "model": target.id})
    if before is not None and not said.answers:
        wishes, said = await _after(desk, before, wishes, said)
    call = await call_for(desk, chat, target, said, wishes=wishes)
    told = response_object(written, run=call.run, model=call.model, status="in_progress")
    if body.stream:
        beginning = await beginning_of(desk, call)
        events = _events(desk, call, told, beginning)
        # What is to go on in the background goes on whoever leaves.
        gone = (lambda: None) if body.background else (lambda: left(desk, call, beginning))
        return stream_response(events, desk=desk, headers=call.headers, gone=gone)
    if body.background:
        await begun_in_background(desk, call)
        about = {"run_id": call.run, "session_id": call.called, "status": "running"}
        return JSONResponse({**told, "dagwright": about}, headers=call.headers)
    return await _whole(desk, call, told, request)


@router.get("/v1/responses/{response_id}", summary="A response that a run gives", responses=_RESPONSE)
async def fetch(
    response_id: str,
    desk: TheDesk,
    *,
    stream: Annotated[bool, Query(description="Refused: a response that was begun is fetched as it is now.")] = False,
) -> Response:
    """Tells how the response is doing, with its answer as soon as there is one."""
    if stream:
        words = f"a response is fetched without stream: ask again until its status is another, or read {_EVENTS_OF_RUN}"
        raise ApiError(400, words, param="stream", code="unsupported_parameter")
    run, model = run_of_response(response_id)
    return JSONResponse(await _now(desk, await desk.own(run), model))


@router.post(
    "/v1/responses/{response_id}/cancel",
    summary="Stop the run behind a response",
    responses=_RESPONSE,
    dependencies=[needs(Scope.OPERATE)],
)
async def cancel(response_id: str, desk: TheDesk) -> Response:
    """Asks the run to stop; what has ended stays as it is."""
    run, model = run_of_response(response_id)
    await desk.own(run)
    try:
        await desk.steering.cancel(run, message={"reason": "cancelled through the API", "by": desk.caller.owner})
        await asyncio.wait_for(ended(desk, run), CANCEL_S)
    except (RunClosed, AnswerRefused, TimeoutError):
        pass
    return JSONResponse(await _now(desk, run, model))


async def _now(desk: Desk, run: str, model: str) -> dict[str, Any]:
    """Returns a response as it is now."""
    view = await desk.runs.feed(run).read()
    session = await desk.runs.session_of(run)
    told = response_object({"background": True}, run=run, model=model, status="in_progress")
    told["created_at"] = int(view.started_at or told["created_at"])
    requests = [] if view.is_closed else [each.document for each in await desk.runs.people.requests_of(run)]
    if not (view.is_closed or requests):
        return {**told, "dagwright": about_run(view, session=known_as(desk.caller, session))}
    moment = Moment(view, (), requests)
    try:
        outcome = await outcome_of(desk, moment, session=session, words=question_words(requests))
    except ApiError as error:
        return {**failed(told, error), "dagwright": about_run(view, session=known_as(desk.caller, session))}
    return answered(told, outcome, run=run)


async def _after(desk: Desk, before: str, wishes: Wishes, said: Conversation) -> tuple[Wishes, Conversation]:
    """Returns a request that follows a response: a turn of the same session, or one that is told what was said."""
    session = known_as(desk.caller, await desk.runs.session_of(await desk.own(before)))
    if session is not None:
        return (wishes if wishes.session is not None else replace(wishes, session=session)), said
    view = await desk.runs.feed(before).read()
    answer = await _answer_in(desk, view)
    turn = TurnSummary(1, view.title or "(a plan)", answer or f"({view.status})")
    return wishes, replace(said, said_before=[turn, *said.said_before])


async def _answer_in(desk: Desk, view: RunView) -> str | None:
    if not view.is_closed:
        return None
    try:
        return (await outcome_of(desk, Moment(view, (), ()), session=None, words="")).text
    except ApiError:
        return None


async def _direct(desk: Desk, body: ResponseBody, chat: Mapping[str, Any]) -> Response:
    refuse_without(desk, Scope.RUN)
    if body.background:
        words = "the model itself answers only as long as it is waited for: leave background out, or ask for a run"
        raise ApiError(400, words, param="background", code="routing_mode_unfit")
    if body.previous_response_id:
        words = "the model itself keeps nothing: send the messages before in input, or ask for a run"
        raise ApiError(400, words, param="previous_response_id", code="routing_mode_unfit")
    headers = {"X-Routing-Mode": RoutingMode.DIRECT.value}
    completion = await direct.answered(desk, chat)
    told = of_completion(body.model_dump(exclude_unset=True), completion, model=str(chat["model"]))
    if not body.stream:
        return JSONResponse(told, headers=headers)
    return stream_response(_told_at_once(told), desk=desk, headers=headers)


async def _told_at_once(told: Mapping[str, Any]) -> Events:
    tell = _Telling("direct")
    yield tell("response.created", response={**told, "status": "in_progress", "output": [], "usage": None})
    for each in item_events(told["output"]):
        yield tell(**each)
    yield tell("response.completed", response=told)


async def _whole(desk: Desk, call: Call, told: Mapping[str, Any], request: Request) -> Response:
    try:
        outcome = await answered_whole(desk, call, request)
    except ApiError as error:
        if error.status != RUN_FAILED:
            raise
        return JSONResponse(failed(told, error), headers=call.headers)
    if outcome is None:
        return Response(status_code=CLIENT_GONE)
    return JSONResponse(answered(told, outcome, run=call.run), headers=call.headers)


async def _events(desk: Desk, call: Call, told: Mapping[str, Any], beginning: Beginning) -> Events:
    tell, answer = _Telling(call.run), AnswerTold()
    item, has_begun = message_item("", run=call.run), False
    yield tell("response.created", response=told)
    yield tell("response.in_progress", response=told)
    try:
        given = await asyncio.shield(beginning)
        progress = Progress(call.run, call.wishes.shown)
        last: Moment | None = None
        async with aclosing(moments_and_pieces(desk, call.run, answer, answered=given)) as coming:
            async for each in coming:
                if isinstance(each, Piece):
                    for begun in [] if has_begun else begin_message(item):
                        yield tell(**begun)
                    has_begun = True
                    yield tell(**text_delta(item, answer.words_of(each)))
                    continue
                last = each
                tell.offset = str(last.view.offset)
                for happened in progress.events(last):
                    yield tell(PROGRESS, event=happened)
        assert last is not None
        outcome = await end_of(desk, call, last)
    # The status of the answer is out, so what goes wrong now is told in the stream.
    except Exception as error:
        wrong = told_as(error)
        if wrong is None:
            raise
        yield tell("response.failed", response=failed(told, wrong))
        return
    done = answered(told, outcome, run=call.run)
    rest = answer.rest_of(outcome)
    for brought in item_events(done["output"], rest=rest if has_begun else None):
        yield tell(**brought)
    yield tell("response.completed", response=done)


class _Telling:
    """Makes the events of one stream, in order."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._number = -1
        self.offset = "1-0"
        """Place in the history of the run that has been told."""

    def __call__(self, type: str, **parts: Any) -> str:
        self._number += 1
        content = {"type": type, "sequence_number": self._number, **parts}
        return event(content, id=f"{self._run}/{self.offset}/{self._number}", name=type)
