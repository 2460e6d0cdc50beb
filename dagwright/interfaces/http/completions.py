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

from dagwright.client.following import RunMoment
from dagwright.history.text_stream import Piece
from dagwright.interfaces.http import direct, examples
from dagwright.interfaces.http.answer_models import Completion
from dagwright.interfaces.http.bodies import OWN_HEADERS, ChatBody, RoutingMode, TheShown, Wishes, passed_on, wishes_of
from dagwright.interfaces.http.callers import Scope
from dagwright.interfaces.http.calls import (
    Beginning,
    Call,
    answered_whole,
    beginning_of,
    call_for,
    end_of,
    joined,
    left,
    routed,
)
from dagwright.interfaces.http.conversation import UNSUPPORTED, conversation_of
from dagwright.interfaces.http.desk import Desk, PlansDesk, TheDesk, needs, refuse_without
from dagwright.interfaces.http.errors import CLIENT_GONE, ApiError, told_as
from dagwright.interfaces.http.event_models import CompletionChunk
from dagwright.interfaces.http.feedback_calls import call_of
from dagwright.interfaces.http.following import Outcome
from dagwright.interfaces.http.headers import OF_ANSWERS
from dagwright.interfaces.http.jobs import refuse_rounds
from dagwright.interfaces.http.places import HEADER, Kind, place_in, refuse_place_of_other
from dagwright.interfaces.http.request_bodies import JsonRoute
from dagwright.interfaces.http.run_models import answered as described
from dagwright.interfaces.http.run_models import streamed
from dagwright.interfaces.http.run_routes import LastEventId
from dagwright.interfaces.http.streams import DONE, NOTHING_MORE, Events, event, stream_response
from dagwright.interfaces.http.targets import Target, target_of
from dagwright.interfaces.http.telling import Telling, unless_over

router = APIRouter(tags=["completions"], route_class=JsonRoute)
RUN = "run"
"""The `model` in the answer of a run that is requested by its ID: the model ID it was started with is not stored."""


@router.post(
    "/v1/chat/completions",
    summary="Create a chat completion",
    dependencies=[OWN_HEADERS, needs(Scope.RUN, Scope.ANSWER, unless=HEADER)],
    responses=described(Completion, examples.COMPLETION, events=(examples.CHUNKS, CompletionChunk), headers=OF_ANSWERS),
)
async def complete(
    body: ChatBody,
    request: Request,
    desk: PlansDesk,
    _: LastEventId = None,
) -> Response:
    """Answer with the model or with a durable run, depending on `routing_mode` and the model.

    A run continues if the connection drops. Send the same `Idempotency-Key`, or the ID of an event of its stream as
    `Last-Event-ID`, to resume the answer.
    """
    written = body.model_dump(exclude_unset=True)
    wishes, seen = wishes_of(written, request.headers), place_in(request.headers, Kind.CHAT)
    if body.stream:
        # Before a run is started.
        desk.hold_stream()
    target = target_of(desk, body.model)
    refuse_rounds(target, wishes)
    if seen is None and _is_direct(wishes, target, body):
        return await _direct(desk, {**passed_on(written), "model": target.id})
    try:
        said = conversation_of(body.messages)
    except ApiError as error:
        # For content such as images there is nothing to decide: no run accepts it.
        if seen or target.is_ours or wishes.mode is not RoutingMode.AUTO or error.code != UNSUPPORTED:
            raise
        return await _direct(desk, {**passed_on(written), "model": target.id})
    # The route was decided when the run of the cursor was started.
    if seen is None and await routed(desk, body, target, said, wishes=wishes) is RoutingMode.DIRECT:
        return await _direct(desk, {**passed_on(written), "model": target.id})
    call = await call_for(desk, body, target, said, wishes=wishes, seen=seen)
    if not body.stream:
        return await _whole(desk, call, request)
    with_usage = body.stream_options is not None and body.stream_options.include_usage
    return await _streamed(desk, call, with_usage=with_usage)


@router.get(
    "/v1/runs/{run_id}/answer",
    summary="Stream the answer of a run",
    tags=["runs"],
    response_class=StreamingResponse,
    responses={
        200: {
            "description": "The chunks of a chat completion that the run answers.",
            "content": streamed(examples.CHUNKS, data=CompletionChunk),
        },
        204: {"description": "The client has received the whole stream."},
    },
)
async def answer(
    run_id: str,
    request: Request,
    desk: TheDesk,
    _: LastEventId = None,
    *,
    shown: TheShown,
) -> Response:
    """Stream the answer from where the client stopped, until the run ends or asks for feedback."""
    desk.hold_stream()
    seen = place_in(request.headers, Kind.CHAT)
    refuse_place_of_other(seen, run_id)
    call = await joined(desk, run_id, RUN, wishes=Wishes(shown=shown), seen=seen)
    return await _streamed(desk, call, with_usage=True)


def _is_direct(wishes: Wishes, target: Target, body: ChatBody) -> bool:
    """Return whether a request is passed on unread: it may have content that no run accepts, such as images."""
    if target.is_ours or wishes.mode not in (None, RoutingMode.DIRECT):
        return False
    return wishes.mode is RoutingMode.DIRECT or body.messages[-1].role != "tool"


# Answers of the model.


async def _direct(desk: Desk, body: Mapping[str, Any]) -> Response:
    refuse_without(desk, Scope.RUN)
    headers = {"X-Routing-Mode": RoutingMode.DIRECT.value}
    if body.get("stream"):
        return stream_response(await direct.opened_stream(desk, body), desk=desk, headers=headers)
    return JSONResponse(await direct.answered(desk, body), headers=headers)


# Answers of a run.


async def _whole(desk: Desk, call: Call, request: Request) -> Response:
    """Respond when the run has ended or asks for feedback."""
    outcome = await answered_whole(desk, call, request)
    if outcome is None:
        return Response(status_code=CLIENT_GONE)
    return JSONResponse(_completion(call, outcome), headers=call.headers)


def _completion(call: Call, outcome: Outcome) -> dict[str, Any]:
    calls = _calls_of(call, outcome)
    message = {
        "role": "assistant",
        "content": None if outcome.is_call else outcome.text,
        "refusal": None,
        **({"tool_calls": calls} if calls else {}),
    }
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _reason(outcome)}
    return {
        "id": f"chatcmpl-{call.run}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": call.model,
        "choices": [choice],
        "usage": outcome.usage,
        "dagwright": outcome.about,
    }


def _calls_of(call: Call, outcome: Outcome) -> list[dict[str, Any]]:
    """Return the tool calls of an answer: one per question, or the call of the function that receives the output."""
    if outcome.output is not None and outcome.output.function is not None:
        return [outcome.output.call(outcome.text, run=call.run)]
    return [call_of(request, run=call.run) for request in outcome.calls]


def _reason(outcome: Outcome) -> str:
    is_required = outcome.output is not None and outcome.is_call and not outcome.output.is_named
    return "tool_calls" if outcome.calls or is_required else "stop"


# Streamed answers of a run.


async def _streamed(desk: Desk, call: Call, *, with_usage: bool) -> Response:
    beginning = await beginning_of(desk, call)
    events = await unless_over(desk, _events(desk, call, beginning, with_usage=with_usage), seen=call.seen)
    if events is None:
        return Response(status_code=NOTHING_MORE, headers=call.headers)
    return stream_response(events, desk=desk, headers=call.headers, gone=lambda: left(desk, call, beginning))


async def _events(desk: Desk, call: Call, beginning: Beginning, *, with_usage: bool) -> Events:
    """Yield the role, progress, and the answer as it is written, without the events that the client has received."""
    telling = Telling(Kind.CHAT, call.run, seen=call.seen, shown=call.wishes.shown, is_whole=call.output is not None)
    chunks = _Chunks(call, telling, with_usage=with_usage)
    for role in telling.beginning([{"role": "assistant", "content": ""}]):
        yield chunks.delta(role)
    try:
        answered = await asyncio.shield(beginning)
        last: RunMoment | None = None
        async with aclosing(telling.coming(desk, answered=answered)) as coming:
            async for came in coming:
                if isinstance(came, Piece):
                    yield chunks.delta({"content": telling.words(came)})
                    continue
                last = came
                if happened := telling.happened(last):
                    yield chunks.delta({}, dagwright={"events": happened})
        assert last is not None
        outcome = await end_of(desk, call, last)
    # The status of the response is sent, so errors from here on are events of the stream.
    except Exception as error:
        wrong = told_as(error)
        if wrong is None:
            raise
        if closing := telling.closing(wrong):
            yield chunks.delta({}, dagwright={"events": closing})
        for each in telling.broken(wrong, [wrong.body(), None]):
            yield event(each, id=str(telling.place)) if each is not None else f"id: {telling.place}\n{DONE}"
        return
    if (rest := telling.rest(outcome)) and not outcome.is_call:
        yield chunks.delta({"content": rest})
    if closing := telling.closing():
        yield chunks.delta({}, dagwright={"events": closing})
    for told in telling.end([*_end_of(call, outcome, with_usage=with_usage), None]):
        yield chunks.event(told) if told is not None else f"id: {telling.place}\n{DONE}"


def _end_of(call: Call, outcome: Outcome, *, with_usage: bool) -> list[dict[str, Any]]:
    """Return the chunks after the text: questions, the finish reason, and the usage."""
    calls = _calls_of(call, outcome)
    asked = [_choice({"tool_calls": [{"index": index, **each}]}) for index, each in enumerate(calls)]
    found: list[dict[str, Any]] = [{"choices": [each]} for each in asked]
    found.append({"choices": [_choice({}, _reason(outcome))], "dagwright": outcome.about})
    return [*found, {"choices": [], "usage": outcome.usage}] if with_usage else found


def _choice(delta: Mapping[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}


class _Chunks:
    """Builds the chunks of one stream.

    Progress is sent in the field `dagwright` with an empty delta, which every client ignores.
    """

    def __init__(self, call: Call, telling: Telling, *, with_usage: bool) -> None:
        self._call = call
        self._telling = telling
        self._with_usage = with_usage
        self._created = int(time.time())

    def delta(self, delta: Mapping[str, Any], **more: Any) -> str:
        """Return an event with a part of the answer."""
        return self.event({"choices": [_choice(delta)], **more})

    def event(self, parts: Mapping[str, Any]) -> str:
        """Return an event; its ID is the client's cursor after it."""
        call, usage = self._call, {"usage": None} if self._with_usage else {}
        head = {"id": f"chatcmpl-{call.run}", "object": "chat.completion.chunk", "created": self._created}
        return event({**head, "model": call.model, **usage, **parts}, id=str(self._telling.place))
