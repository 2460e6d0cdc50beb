"""Requests that a run answers: start the run or deliver answers to it, and return its outcome."""

import asyncio
from dataclasses import dataclass, replace
from typing import TypeVar

from fastapi import Request

from dagwright.client.following import RequestKey, RunMoment
from dagwright.client.runs import RunIdInUse
from dagwright.client.steering import Actor
from dagwright.core.model.resolvers import callable_tools
from dagwright.history.run_reader import RunNotFound
from dagwright.interfaces.http.bodies import ChatBody, RoutingMode, Wishes
from dagwright.interfaces.http.callers import Scope, known_as
from dagwright.interfaces.http.conversation import Conversation
from dagwright.interfaces.http.desk import Desk, refuse_without
from dagwright.interfaces.http.disconnects import unless_gone
from dagwright.interfaces.http.errors import ApiError
from dagwright.interfaces.http.feedback_calls import is_call_of, may_call, refuse_undeclared
from dagwright.interfaces.http.following import (
    AnswerForm,
    Outcome,
    give_answers,
    headers_of_run,
    last_moment,
    outcome_of,
)
from dagwright.interfaces.http.jobs import Asking, config_of, id_of_key, job_of, start_job, starting_here
from dagwright.interfaces.http.places import HEADER, Place, refuse_place_of_other
from dagwright.interfaces.http.routing import decided, route_by_model, unknown_call
from dagwright.interfaces.http.starts import Job
from dagwright.interfaces.http.structured_output import OutputForm, output_form_of
from dagwright.interfaces.http.targets import Target

T = TypeVar("T")

Beginning = asyncio.Task[set[RequestKey]]
"""The start of a run, or the delivery of answers; its result is the feedback requests that were answered."""

START_S = 1.0
"""Seconds that a stream waits for the start of a run, an answer or a model before it sends its headers: errors until
then get an HTTP status of their own."""


@dataclass(frozen=True, slots=True)
class Call:
    """A request that a run answers.

    Args:
        model: model ID as the client sent it.
        run: ID of the run; if the request has answers, the run that they are for.
        job: start of the run; `None` for a run that exists.
        session: stored name of the session that the run is a turn of.
        called: the client's ID of that session.
        by: name recorded with answers to questions.
        seen: where the client resumes the stream; `None` from the start.
        allows_calls: whether questions may be sent as calls of `answer_feedback`.
        output: required form of the answer; `None` for text.
    """

    model: str
    run: str
    said: Conversation
    wishes: Wishes
    job: Job | None = None
    session: str | None = None
    called: str | None = None
    by: str | None = None
    seen: Place | None = None
    allows_calls: bool = True
    output: OutputForm | None = None

    @property
    def headers(self) -> dict[str, str]:
        """Return the headers of the response."""
        return {**headers_of_run(self.run, self.called), "X-Routing-Mode": RoutingMode.ORCHESTRATION.value}


async def routed(desk: Desk, body: ChatBody, target: Target, said: Conversation, *, wishes: Wishes) -> RoutingMode:
    """Return what answers a request: `direct` or `orchestration`.

    Raises:
        ApiError: the options of the request conflict, or the caller lacks the scope to call a model.
        ModelFailure: the model that decides cannot be called.
    """
    mode = decided(wishes.mode, target, said, has_functions=bool(body.tools))
    if mode is not RoutingMode.AUTO:
        return mode
    # The deciding model is called on behalf of the caller.
    refuse_without(desk, Scope.RUN)
    tools = list(callable_tools(desk.toolset.declarations()).values())
    return await route_by_model(desk.model, config_of(body, target, wishes), said, tools=tools)


async def call_for(
    desk: Desk, body: ChatBody, target: Target, said: Conversation, *, wishes: Wishes, seen: Place | None = None
) -> Call:
    """Prepare the call of a run, with the output form of the request; arguments and errors as `_call_for`."""
    output = output_form_of(body)
    call = await _call_for(desk, body, target, said, wishes=wishes, seen=seen)
    return replace(call, allows_calls=may_call(body, is_structured=output is not None), output=output)


async def _call_for(
    desk: Desk, body: ChatBody, target: Target, said: Conversation, *, wishes: Wishes, seen: Place | None = None
) -> Call:
    """Validate a request and prepare its run.

    Args:
        seen: where the client resumes the stream: the run is then the run of the cursor, and no run is started.

    Raises:
        ApiError, GoalRefused, PlanInvalid, SessionNameInvalid: no run can answer the request, or a scope is missing.
        RunNotFound: there is no run with the questions that the request answers, or with the cursor's ID.
    """
    by = desk.caller.acts_as or body.user
    if seen is not None:
        if decided(wishes.mode, target, said, has_functions=bool(body.tools)) is RoutingMode.DIRECT:
            words = f"{HEADER} is an event id of the run {seen.run!r:.200}, and {target.id!r:.120} needs no run"
            raise ApiError(400, words, param=HEADER, code="invalid_value")
        _refuse_other(desk, said, wishes=wishes, seen=seen)
    if wishes.cancels:
        refuse_without(desk, Scope.OPERATE)
    if said.answers:
        refuse_undeclared(body)
        runs = list(dict.fromkeys(answer.run for answer in said.answers))
        if len(runs) > 1:
            raise ApiError(400, "one request can answer questions of one run only", param="messages")
        refuse_without(desk, Scope.ANSWER)
        if not all(is_call_of(answer.call, run=answer.run) for answer in said.answers):
            raise unknown_call()
        session = await desk.runs.session_of(await desk.own(runs[0]))
        called = known_as(desk.caller, session)
        return Call(target.id, runs[0], said, wishes, session=session, called=called, by=by, seen=seen)
    # A run that waited for its session may not have started when its gateway died: the idempotency key starts it then.
    if seen is not None and (wishes.key is None or await _is_there(desk, seen.run)):
        return replace(await joined(desk, seen.run, target.id, wishes=wishes, seen=seen), by=by)
    refuse_without(desk, Scope.RUN)
    many = (body.model_extra or {}).get("n")
    # `True == 1` in Python.
    if many not in (None, 1) or isinstance(many, bool):
        raise ApiError(400, "n: a run returns one answer", param="n", code="unsupported_parameter")
    asking = Asking(config_of(body, target, wishes), output_form_of(body))
    job = job_of(desk, target, said, wishes=wishes, asking=asking)
    called = known_as(desk.caller, job.session)
    return Call(target.id, job.run, said, wishes, job, session=job.session, called=called, by=by, seen=seen)


async def joined(desk: Desk, run: str, model: str, *, wishes: Wishes, seen: Place | None) -> Call:
    """Return the request of a client that follows an existing run, or a run that waits here for its session.

    Raises:
        RunNotFound: there is no such run.
        IdInvalid: the ID is not valid for a run.
    """
    here = starting_here(desk, run)
    job = here[0].job if here else None
    session = job.session if job is not None else await desk.runs.session_of(await desk.own(run))
    called = known_as(desk.caller, session)
    return Call(model, run, Conversation(""), wishes, job, session=session, called=called, seen=seen)


def _refuse_other(desk: Desk, said: Conversation, *, wishes: Wishes, seen: Place) -> None:
    """Refuse a cursor of another run than the one that the request is for."""
    meant = {answer.run for answer in said.answers}
    if wishes.key is not None and not said.answers:
        meant = {id_of_key(wishes.key, owner=desk.caller.owner)}
    for run in meant:
        refuse_place_of_other(seen, run)


async def _is_there(desk: Desk, run: str) -> bool:
    try:
        return await desk.runs.is_there(await desk.own(run))
    except RunNotFound:
        return False


async def begun(desk: Desk, call: Call) -> set[RequestKey]:
    """Start the run of a request, or deliver its answers; return the feedback requests that were answered."""
    if call.job is not None:
        await start_job(desk, call.job)
        return set()
    return await give_answers(desk, call.said.answers, by=call.by)


async def answered_whole(desk: Desk, call: Call, request: Request) -> Outcome | None:
    """Return the outcome when the run has ended or asks for feedback; `None` if the client disconnects first.

    The run continues without the client unless `cancel_on_disconnect` is set. Raises as `begun` and `outcome_of`.
    """
    beginning = desk.keep_doing(begun(desk, call))

    async def work() -> Outcome:
        answered = await asyncio.shield(beginning)
        return await end_of(desk, call, await last_moment(desk, call.run, answered=answered))

    outcome = await unless_gone(work(), request)
    if outcome is None:
        left(desk, call, beginning)
    return outcome


def left(desk: Desk, call: Call, beginning: Beginning) -> None:
    """Cancel the run of a disconnected client if it requested that; the run may not have started yet."""
    if not call.wishes.cancels:
        return
    if call.job is not None:
        call.job.unwanted.set()
    desk.keep_doing(_cancel(desk, call, beginning))


async def _cancel(desk: Desk, call: Call, beginning: Beginning) -> None:
    # A start request that was sent may take effect although no reply has arrived: there may be nothing to cancel yet.
    await asyncio.wait({beginning})
    refused = beginning.exception()
    # Do not cancel a run that belongs to another request with the same key, or that did not accept the answer.
    if not (isinstance(refused, RunIdInUse) or (call.job is None and refused is not None)):
        await desk.steering.cancel(call.run, Actor(call.by, "the client left"))


async def end_of(desk: Desk, call: Call, moment: RunMoment) -> Outcome:
    """Return the outcome of a run at its last moment; raises as `outcome_of`."""
    form = AnswerForm(call.allows_calls, call.output)
    return await outcome_of(desk, moment, session=call.session, form=form)


async def beginning_of(desk: Desk, call: Call) -> Beginning:
    """Start the run of a stream, waiting at most `START_S`; raises the error of a start that fails by then."""
    beginning = desk.keep_doing(begun(desk, call))
    is_soon_known = call.job is not None and call.job.session is None
    await asyncio.wait({beginning}, timeout=None if is_soon_known else START_S)
    if beginning.done():
        await beginning
    return beginning


async def begun_in_background(desk: Desk, call: Call) -> None:
    """Return once the run of a request continues without its client: it has started, or waits for its session.

    Later errors cannot be reported. Raises as `begun`.
    """
    beginning = desk.keep_doing(begun(desk, call))
    if call.job is None:
        await asyncio.shield(beginning)
        return
    waits = asyncio.create_task(call.job.waits.wait())
    try:
        await asyncio.wait({beginning, waits}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waits.cancel()
    if beginning.done():
        await beginning
