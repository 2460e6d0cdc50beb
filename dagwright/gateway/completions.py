"""`POST /v1/chat/completions`: the model itself, or a run that is followed to its end or to a question."""

import asyncio
import time
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from dagwright.gateway import direct
from dagwright.gateway.bodies import ChatBody, RoutingMode, Wishes, passed_on, wishes_of
from dagwright.gateway.conversation import Conversation, conversation_of
from dagwright.gateway.desk import Desk, TheDesk
from dagwright.gateway.errors import ApiError, told_as
from dagwright.gateway.feedback_calls import call_of, question_words
from dagwright.gateway.following import Moment, Outcome, give_answers, last_moment, moments, outcome_of
from dagwright.gateway.jobs import Job, config_of, job_of, start_job
from dagwright.gateway.progress import Progress
from dagwright.gateway.routing import decided, route_by_model
from dagwright.gateway.streams import DONE, Events, event, stream_response
from dagwright.gateway.targets import Target, target_of

router = APIRouter(tags=["completions"])
T = TypeVar("T")

START_S = 1.0
"""How long a stream waits for its run to start before it begins: what is refused until then has a status of its own."""
CLIENT_GONE = 499
"""What is answered to nobody: the log of the server shows it."""


@dataclass(frozen=True, slots=True)
class Call:
    """A request that a run answers.

    Args:
        model: as the client named it.
        run: the run; that of the answers if it brings some.
        job: starts it; `None` if it goes on.
        session: whose turn it is, as far as the client says.
        by: who answers questions.
    """

    model: str
    run: str
    said: Conversation
    wishes: Wishes
    job: Job | None = None
    by: str | None = None
    with_usage: bool = False

    @property
    def session(self) -> str | None:
        """Returns the name of the session."""
        return self.job.session if self.job is not None else self.wishes.session

    @property
    def headers(self) -> dict[str, str]:
        """Returns what the headers of the answer say."""
        told = {"X-Run-Id": self.run, "X-Routing-Mode": RoutingMode.ORCHESTRATION.value}
        # A header holds Latin letters; the body has the name as it is.
        if self.session is not None and self.session.isascii():
            told["X-Session-Id"] = self.session
        return told


@router.post("/v1/chat/completions", summary="An answer of a model or of a run", response_model=None)
async def complete(body: ChatBody, request: Request, desk: TheDesk) -> Response:
    """Answers by the model itself or by a durable run, as `routing_mode` and the model say.

    A run goes on if the connection ends; the same `Idempotency-Key` finds it again.
    """
    written = body.model_dump(exclude_unset=True)
    wishes = wishes_of(written, request.headers)
    target = target_of(desk, body.model)
    if _is_direct(wishes, target, body):
        return await _direct(desk, {**passed_on(written), "model": target.id})
    said = conversation_of(body.messages)
    config = config_of(body, target, wishes)
    mode = decided(wishes.mode, target, said, has_functions=bool(body.tools))
    if mode is RoutingMode.AUTO:
        tools = list(desk.toolset.declarations().values())
        mode = await route_by_model(desk.model, config, said, tools=tools)
    if mode is RoutingMode.DIRECT:
        return await _direct(desk, {**passed_on(written), "model": target.id})
    call = _call(desk, body, target, said, wishes=wishes)
    return await (_streamed(desk, call) if body.stream else _whole(desk, call, request))


def _is_direct(wishes: Wishes, target: Target, body: ChatBody) -> bool:
    """Tells whether a request is passed on unread: it may hold what no run could take, such as pictures."""
    if target.is_ours or wishes.mode not in (None, RoutingMode.DIRECT):
        return False
    return wishes.mode is RoutingMode.DIRECT or body.messages[-1].role != "tool"


def _call(desk: Desk, body: ChatBody, target: Target, said: Conversation, *, wishes: Wishes) -> Call:
    with_usage = body.stream_options is not None and body.stream_options.include_usage
    if said.answers:
        runs = list(dict.fromkeys(answer.run for answer in said.answers))
        if len(runs) > 1:
            raise ApiError(400, "one request answers questions of one run alone", param="messages")
        return Call(target.id, runs[0], said, wishes, by=body.user, with_usage=with_usage)
    config = config_of(body, target, wishes)
    job = job_of(desk, target, said, wishes=wishes, config=config)
    return Call(target.id, job.run, said, wishes, job, by=body.user, with_usage=with_usage)


# The model itself.


async def _direct(desk: Desk, body: Mapping[str, Any]) -> Response:
    headers = {"X-Routing-Mode": RoutingMode.DIRECT.value}
    if body.get("stream"):
        return stream_response(await direct.opened_stream(desk, body), desk=desk, headers=headers)
    return JSONResponse(await direct.answered(desk, body), headers=headers)


# A run.


async def _begun(desk: Desk, call: Call) -> set[tuple[str, str]]:
    """Starts the run of a request, or gives it its answers; returns which of its requests are answered."""
    if call.job is not None:
        await start_job(desk, call.job)
        return set()
    return await give_answers(desk, call.said.answers, by=call.by)


async def _whole(desk: Desk, call: Call, request: Request) -> Response:
    """Answers when the run has ended or asks something."""

    async def work() -> Outcome:
        answered = await desk.keep_doing(_begun(desk, call))
        return await _outcome(desk, call, await last_moment(desk, call.run, answered=answered))

    outcome = await _unless_gone(work(), request)
    if outcome is None:
        _left(desk, call)
        return Response(status_code=CLIENT_GONE)
    return JSONResponse(_completion(call, outcome), headers=call.headers)


async def _unless_gone(work: Coroutine[Any, Any, T], request: Request) -> T | None:
    """Returns what comes of some work; `None` if the client leaves before."""

    async def leaves() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    working, leaving = asyncio.create_task(work), asyncio.create_task(leaves())
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        return await working if working.done() else None
    finally:
        working.cancel()
        leaving.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


def _left(desk: Desk, call: Call) -> None:
    """Cancels the run of a client that has left, if it asked for that."""
    if call.wishes.cancels:
        message = {"reason": "the client left", "by": call.by}
        desk.keep_doing(desk.steering.cancel(call.run, message=message))


async def _outcome(desk: Desk, call: Call, moment: Moment) -> Outcome:
    return await outcome_of(desk, moment, session=call.session, words=question_words(moment.requests))


def _completion(call: Call, outcome: Outcome) -> dict[str, Any]:
    calls = [call_of(request, run=call.run) for request in outcome.requests]
    message = {
        "role": "assistant",
        "content": outcome.text,
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


def _reason(outcome: Outcome) -> str:
    return "tool_calls" if outcome.requests else "stop"


# The same as it comes.


async def _streamed(desk: Desk, call: Call) -> Response:
    beginning = desk.keep_doing(_begun(desk, call))
    await asyncio.wait({beginning}, timeout=START_S)
    if beginning.done():
        await beginning
    return stream_response(
        _events(desk, call, beginning), desk=desk, headers=call.headers, gone=lambda: _left(desk, call)
    )


async def _events(desk: Desk, call: Call, beginning: "asyncio.Task[set[tuple[str, str]]]") -> Events:
    """Yields the role at once, what happens meanwhile, and the answer when it is there."""
    chunks = _Chunks(call)
    yield chunks.delta({"role": "assistant", "content": ""})
    try:
        answered = await asyncio.shield(beginning)
        progress = Progress(call.run, call.wishes.shown)
        last: Moment | None = None
        async for last in moments(desk, call.run, answered=answered):
            chunks.offset = str(last.view.offset)
            for told in progress.events(last):
                yield chunks.delta({}, dagwright={"event": told})
        assert last is not None
        outcome = await _outcome(desk, call, last)
    # The status of the answer is out, so what goes wrong now is told in the stream.
    except Exception as error:
        wrong = told_as(error)
        if wrong is None:
            raise
        yield event(wrong.body())
        yield DONE
        return
    if outcome.text:
        yield chunks.delta({"content": outcome.text})
    for index, each in enumerate(call_of(request, run=call.run) for request in outcome.requests):
        yield chunks.delta({"tool_calls": [{"index": index, **each}]})
    yield chunks.delta({}, finish_reason=_reason(outcome), dagwright=outcome.about)
    if call.with_usage:
        yield chunks.usage(outcome.usage)
    yield DONE


class _Chunks:
    """Makes the chunks of one stream.

    Progress stands in a field of its own beside an empty delta: every client reads that as a chunk that says nothing.
    """

    def __init__(self, call: Call) -> None:
        self._call = call
        self._created = int(time.time())
        self._number = 0
        self.offset = "1-0"
        """Place in the history of the run that has been told."""

    def delta(self, delta: Mapping[str, Any], *, finish_reason: str | None = None, **more: Any) -> str:
        """Returns an event with a part of the answer."""
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return self._event({"choices": [choice], **({"usage": None} if self._call.with_usage else {}), **more})

    def usage(self, usage: Mapping[str, Any]) -> str:
        """Returns the event with what was used."""
        return self._event({"choices": [], "usage": usage})

    def _event(self, parts: Mapping[str, Any]) -> str:
        call = self._call
        head = {"id": f"chatcmpl-{call.run}", "object": "chat.completion.chunk", "created": self._created}
        self._number += 1
        return event({**head, "model": call.model, **parts}, id=f"{call.run}/{self.offset}/{self._number}")
