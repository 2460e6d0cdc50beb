"""`/v1/responses`: the same answers in the form of OpenAI's Responses API, also in the background."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse, Response

from dagwright.client.following import RunMoment, wait_for_end
from dagwright.client.starts import IdInvalid
from dagwright.client.steering import Actor, CommandRejected
from dagwright.history.run_reader import RunClosed, RunNotFound, RunView
from dagwright.history.text_stream import Piece
from dagwright.interfaces.http import direct, examples
from dagwright.interfaces.http.answer_models import ResponseAnswer
from dagwright.interfaces.http.bodies import OWN_HEADERS, RoutingMode, TheShown, Wishes, passed_on, wishes_of
from dagwright.interfaces.http.callers import Scope, known_as
from dagwright.interfaces.http.calls import (
    Beginning,
    Call,
    answered_whole,
    beginning_of,
    begun_in_background,
    call_for,
    end_of,
    joined,
    left,
    routed,
)
from dagwright.interfaces.http.conversation import Conversation, conversation_of
from dagwright.interfaces.http.desk import Desk, PlansDesk, TheDesk, needs, refuse_without
from dagwright.interfaces.http.errors import CLIENT_GONE, ApiError, told_as
from dagwright.interfaces.http.event_models import ResponseEvent
from dagwright.interfaces.http.following import RUN_FAILED, AnswerForm, about_run, outcome_of
from dagwright.interfaces.http.headers import OF_ANSWERS
from dagwright.interfaces.http.jobs import is_given_up, refuse_rounds, starting_here
from dagwright.interfaces.http.places import HEADER, Kind, Place, place_in, refuse_place_of_other
from dagwright.interfaces.http.progress import Event
from dagwright.interfaces.http.request_bodies import JsonRoute
from dagwright.interfaces.http.response_items import (
    NOTHING_REFERRED,
    ResponseBody,
    ResponseRef,
    answered,
    begin_message,
    chat_of,
    ended_items,
    failed,
    item_events,
    message_item,
    of_completion,
    response_object,
    run_asked_by_reference,
    run_of_response,
    runs_referred_to,
    text_delta,
    unknown_reference,
)
from dagwright.interfaces.http.run_models import answered as described
from dagwright.interfaces.http.run_routes import LastEventId
from dagwright.interfaces.http.streams import NOTHING_MORE, Events, event, stream_response
from dagwright.interfaces.http.structured_output import output_form_of
from dagwright.interfaces.http.targets import target_of
from dagwright.interfaces.http.telling import Telling, unless_over
from dagwright.planning.conversation import TURNS_TOLD, TurnSummary
from dagwright.planning.model_calls.failures import ModelFailure

router = APIRouter(tags=["responses"], route_class=JsonRoute)
CANCEL_S = 5.0
"""How long a cancellation waits for the run to stop before it responds."""
_CREATED, _GOES_ON, _ERROR = "response.created", "response.in_progress", "error"
"""Event types. Progress is sent with the second type and, once the message item has started, with an empty delta,
because some clients raise an error for unknown event types."""
_RESPONSE = described(ResponseAnswer, examples.RESPONSE)


@router.post(
    "/v1/responses",
    summary="Create a response",
    dependencies=[OWN_HEADERS, needs(Scope.RUN, Scope.ANSWER, unless=HEADER)],
    responses=described(
        ResponseAnswer, examples.RESPONSE, events=(examples.RESPONSE_EVENTS, ResponseEvent), headers=OF_ANSWERS
    ),
)
async def respond(
    body: ResponseBody,
    request: Request,
    desk: PlansDesk,
    _: LastEventId = None,
) -> Response:
    """Answer as chat completions do. With `background`, respond at once; the response can be fetched by its ID."""
    written = body.model_dump(exclude_unset=True)
    wishes, seen = wishes_of(written, request.headers), place_in(request.headers, Kind.RESPONSE)
    if body.stream:
        # Before a run is started.
        desk.hold_stream()
    # A session has its own turns.
    referred = await _answers_referred_to(desk, body) if wishes.session is None else NOTHING_REFERRED
    chat = chat_of(body, referred)
    target = target_of(desk, body.model)
    refuse_rounds(target, wishes)
    before = None if body.previous_response_id is None else run_of_response(body.previous_response_id).run
    said = conversation_of(chat.messages, run=before or run_asked_by_reference(body))
    # The route was decided when the run of the cursor was started.
    if seen is None and await routed(desk, chat, target, said, wishes=wishes) is RoutingMode.DIRECT:
        return await _direct(desk, body, {**passed_on(chat.model_dump(exclude_unset=True)), "model": target.id})
    if before is not None and not said.answers:
        wishes, said = await _after(desk, before, wishes, said)
    if body.background and output_form_of(chat) is not None:
        words = "background: an answer with a schema is only returned by the request that asks for it; omit background"
        raise ApiError(400, words, param="background", code="unsupported_parameter")
    call = await call_for(desk, chat, target, said, wishes=wishes, seen=seen)
    response = response_object(written, _ref(call), status="in_progress")
    if body.stream:
        beginning = await beginning_of(desk, call)
        # A background run continues if the client disconnects.
        gone = (lambda: None) if body.background else (lambda: left(desk, call, beginning))
        return await _streamed(desk, call, _events(desk, call, response, beginning), seen=seen, gone=gone)
    if body.background:
        await begun_in_background(desk, call)
        return JSONResponse(_goes_on(response, call.run, call.called), headers=call.headers)
    return await _whole(desk, call, response, request)


@router.get(
    "/v1/responses/{response_id}",
    summary="Get a response of a run",
    responses=described(ResponseAnswer, examples.RESPONSE, events=(examples.RESPONSE_EVENTS, ResponseEvent)),
)
async def fetch(
    response_id: str,
    request: Request,
    desk: TheDesk,
    _: LastEventId = None,
    *,
    shown: TheShown,
    stream: Annotated[bool, Query(description="Stream its events from the first one to its end.")] = False,
    starting_after: Annotated[
        int | None,
        Query(ge=0, lt=2**53, description="With `stream`: the sequence_number of the last received event."),
    ] = None,
) -> Response:
    """Return the current state of a response, with its answer if there is one; or stream it, also after its end."""
    of = run_of_response(response_id)
    run = of.run
    if not stream:
        return JSONResponse(await _now(desk, of))
    desk.hold_stream()
    named = place_in(request.headers, Kind.RESPONSE)
    refuse_place_of_other(named, run)
    seen = Place.numbered(starting_after, run) if named is None and starting_after is not None else named
    call = replace(
        await joined(desk, run, of.model, wishes=Wishes(shown=shown), seen=seen), allows_calls=of.allows_calls
    )
    response = response_object({"background": True}, of, status="in_progress")
    # A client that sends a number does not reconnect by itself, and some clients cannot read a response without a body.
    return await _streamed(desk, call, _events(desk, call, response, await beginning_of(desk, call)), seen=named)


@router.post(
    "/v1/responses/{response_id}/cancel",
    summary="Cancel the run of a response",
    responses=_RESPONSE,
    dependencies=[needs(Scope.OPERATE)],
)
async def cancel(response_id: str, desk: TheDesk) -> Response:
    """Request cancellation of the run. A run that has ended is not changed."""
    of = run_of_response(response_id)
    run = of.run
    if here := starting_here(desk, run):
        for each in here:
            each.job.unwanted.set()
        await asyncio.wait(works := [each.work for each in here], timeout=CANCEL_S)
        # For any other result it is unknown whether the run was started.
        if all(work.done() and is_given_up(work.exception()) for work in works):
            words = f"the turn {run!r} was cancelled while it waited for its session"
            response = response_object({"background": True}, of, status="cancelled")
            return JSONResponse(failed(response, ApiError(RUN_FAILED, words, code="run_cancelled")))
    await desk.own(run)
    try:
        await desk.steering.cancel(run, Actor(desk.caller.acts_as, "cancelled through the API"))
        await asyncio.wait_for(wait_for_end(desk.runs, run), CANCEL_S)
    except (RunClosed, CommandRejected, TimeoutError):
        pass
    return JSONResponse(await _now(desk, of))


def _ref(call: Call) -> ResponseRef:
    return ResponseRef(call.run, call.model, call.allows_calls)


def _goes_on(response: Mapping[str, Any], run: str, session: str | None) -> dict[str, Any]:
    return {**response, "dagwright": {"run_id": run, "session_id": session, "status": "running"}}


async def _now(desk: Desk, of: ResponseRef) -> dict[str, Any]:
    """Return the current state of a response; raises as `Desk.own`."""
    run = of.run
    response = response_object({"background": True}, of, status="in_progress")
    if here := starting_here(desk, run):
        return _goes_on(response, run, known_as(desk.caller, here[0].job.session))
    await desk.own(run)
    view = await desk.runs.feed(run).read()
    session = await desk.runs.session_of(run)
    response["created_at"] = int(view.started_at or response["created_at"])
    requests = [] if view.is_closed else [each.document for each in await desk.runs.people.requests_of(run)]
    if not (view.is_closed or requests):
        return {**response, "dagwright": about_run(view, session=known_as(desk.caller, session))}
    moment = RunMoment(view, (), requests)
    try:
        outcome = await outcome_of(desk, moment, session=session, form=AnswerForm(of.allows_calls))
    except ApiError as error:
        return {**failed(response, error), "dagwright": about_run(view, session=known_as(desk.caller, session))}
    return answered(response, outcome, run=run)


async def _after(desk: Desk, before: str, wishes: Wishes, said: Conversation) -> tuple[Wishes, Conversation]:
    """Return a request that follows a response: a turn of the same session, or one with the earlier messages."""
    session = known_as(desk.caller, await desk.runs.session_of(await desk.own(before)))
    if session is not None:
        return (wishes if wishes.session is not None else replace(wishes, session=session)), said
    view = await desk.runs.feed(before).read()
    answer = await _answer_in(desk, view)
    turn = TurnSummary(1, view.title or "(a plan)", answer or f"({view.status})")
    return wishes, replace(said, said_before=[turn, *said.said_before])


async def _answers_referred_to(desk: Desk, body: ResponseBody) -> dict[str, str | None]:
    """Return the answers that a request references by the IDs of their messages: run -> answer, `None` if it has none
    yet.

    Raises:
        ApiError: there is no such answer.
    """

    async def answer(run: str, place: int) -> str | None:
        try:
            return await _answer_in(desk, await desk.runs.feed(await desk.own(run)).read())
        except (RunNotFound, IdInvalid):
            raise unknown_reference(place) from None

    # The planner ignores earlier turns.
    last = list(runs_referred_to(body).items())[-TURNS_TOLD:]
    answers = await asyncio.gather(*(answer(run, place) for run, place in last))
    return {run: said for (run, _), said in zip(last, answers, strict=True)}


async def _answer_in(desk: Desk, view: RunView) -> str | None:
    if not view.is_closed:
        return None
    try:
        return (await outcome_of(desk, RunMoment(view, (), ()), session=None)).text
    except ApiError:
        return None


async def _direct(desk: Desk, body: ResponseBody, chat: Mapping[str, Any]) -> Response:
    refuse_without(desk, Scope.RUN)
    if body.background:
        words = "answers without a run are not stored: omit background, or use a run"
        raise ApiError(400, words, param="background", code="routing_mode_unfit")
    if body.previous_response_id:
        words = "answers without a run are not stored: send the earlier messages in input, or use a run"
        raise ApiError(400, words, param="previous_response_id", code="routing_mode_unfit")
    headers = {"X-Routing-Mode": RoutingMode.DIRECT.value}
    asking = _answered(desk, body, chat)
    if not body.stream:
        return JSONResponse(await asking, headers=headers)
    return stream_response(_told_at_once(await direct.soon(asking)), desk=desk, headers=headers)


async def _answered(desk: Desk, body: ResponseBody, chat: Mapping[str, Any]) -> dict[str, Any]:
    completion = await direct.answered(desk, chat)
    return of_completion(body.model_dump(exclude_unset=True), completion, model=str(chat["model"]))


async def _told_at_once(answering: "asyncio.Task[dict[str, Any]]") -> Events:
    try:
        # A disconnect cancels it.
        response = await answering
    except ModelFailure as failure:
        wrong = told_as(failure)
        assert wrong is not None
        about = {"code": wrong.code, "message": wrong.message, "param": wrong.param}
        yield event({"type": _ERROR, **about, "sequence_number": 0}, id="0", name=_ERROR)
        return
    created = {**response, "status": "in_progress", "output": [], "usage": None}
    last = {"type": "response.completed", "response": response}
    for number, each in enumerate([{"type": _CREATED, "response": created}, *item_events(response["output"]), last]):
        yield event({**each, "sequence_number": number}, id=str(number), name=str(each["type"]))


async def _whole(desk: Desk, call: Call, response: Mapping[str, Any], request: Request) -> Response:
    # A run without an answer is an HTTP error here: clients read a failed response with status 200 as an empty answer.
    outcome = await answered_whole(desk, call, request)
    if outcome is None:
        return Response(status_code=CLIENT_GONE)
    return JSONResponse(answered(response, outcome, run=call.run), headers=call.headers)


async def _streamed(
    desk: Desk, call: Call, events: Events, *, seen: Place | None, gone: Callable[[], object] = lambda: None
) -> Response:
    """Respond with events, or with a status if the client has received all of them."""
    left_over = await unless_over(desk, events, seen=seen)
    if left_over is None:
        return Response(status_code=NOTHING_MORE, headers=call.headers)
    return stream_response(left_over, desk=desk, headers=call.headers, gone=gone)


async def _events(desk: Desk, call: Call, response: Mapping[str, Any], beginning: Beginning) -> Events:
    """Yield progress and the answer as it is written, without the events that the client has received."""
    telling = Telling(
        Kind.RESPONSE, call.run, seen=call.seen, shown=call.wishes.shown, is_whole=call.output is not None
    )
    first_events = [{"type": kind, "response": response} for kind in (_CREATED, _GOES_ON)]
    message = [*first_events, *begin_message(item := message_item("", run=call.run))]

    def tell(parts: Mapping[str, Any]) -> str:
        place = telling.place
        return event({**parts, "sequence_number": place.number}, id=str(place), name=str(parts["type"]))

    def progress(events: Sequence[Event]) -> Mapping[str, Any]:
        beside = {"dagwright": {"events": events}}
        if telling.place.begun > len(first_events):
            # For a response without output, client libraries would drop the item that has started.
            return {**text_delta(item, ""), **beside}
        # The instructions may be long, and the first event had them.
        return {"type": _GOES_ON, "response": {**response, "instructions": None}, **beside}

    def behind(words: str, wrong: ApiError | None = None) -> Iterator[str]:
        if words:
            yield tell(text_delta(item, words))
        if closing := telling.closing(wrong):
            yield tell(progress(closing))

    for each in telling.beginning(first_events):
        yield tell(each)
    try:
        given = await asyncio.shield(beginning)
        last: RunMoment | None = None
        async with aclosing(telling.coming(desk, answered=given)) as coming:
            async for came in coming:
                if isinstance(came, Piece):
                    for each in telling.beginning(message):
                        yield tell(each)
                    yield tell(text_delta(item, telling.words(came)))
                    continue
                last = came
                if happened := telling.happened(last):
                    yield tell(progress(happened))
        assert last is not None
        outcome = await end_of(desk, call, last)
    # The status of the answer is out, so errors from here on are events of the stream.
    except Exception as error:
        wrong = told_as(error)
        if wrong is None:
            raise
        for closing in behind("", wrong):
            yield closing
        for each in telling.broken(wrong, [{"type": "response.failed", "response": failed(response, wrong)}]):
            yield tell(each)
        return
    # An answer that is a function call has no message.
    for each in telling.beginning([] if outcome.is_call else message):
        yield tell(each)
    words = telling.rest(outcome)
    for rest in behind("" if outcome.is_call else words):
        yield rest
    done = answered(response, outcome, run=call.run)
    for each in telling.end([*ended_items(done["output"]), {"type": "response.completed", "response": done}]):
        yield tell(each)
