"""Commands to runs and answers to their requests, which routes of runs and of sessions send."""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dagwright.client.errors import CommandRejected
from dagwright.client.feedback.answer_sending import (
    AnswerTarget,
    AnswerUnclear,
    NoOpenRequest,
    find_target,
    next_request,
    send_answer,
)
from dagwright.client.feedback.open_requests import Answer, OpenRequest, RequestRef
from dagwright.client.starts import checked_run_id
from dagwright.client.steering import Command, CommandAuthor
from dagwright.core.model.requests import MayAnswer
from dagwright.core.model.states import RunStatus
from dagwright.history.executions import RunClosed, RunNotFound
from dagwright.interfaces.http.error_codes import ErrorCode
from dagwright.interfaces.http.errors import ApiError
from dagwright.interfaces.http.feedback_calls import answer_schema, parse_answer
from dagwright.interfaces.http.list_pages import next_page
from dagwright.interfaces.http.posted_plans import nodes_with_tools, reject_nodes
from dagwright.interfaces.http.run_models import AnswerBody, CommandBody

if TYPE_CHECKING:
    from dagwright.interfaces.http.context import GatewayContext

_EMPTY_BODY = CommandBody()
"""Default for requests without a body."""


async def cancel_run(context: "GatewayContext", run: str, body: CommandBody | None) -> dict[str, Any]:
    """Cancel a run. A run that is stopping or cancelled is not changed.

    Raises:
        RunNotFound, RunClosed, CommandRejected: it cannot be cancelled.
    """
    try:
        return command_result(run, await context.steering.cancel(run, actor_of(context, body)))
    except (RunClosed, CommandRejected):
        view = await context.runs.reader(run).read()
        is_stopping = not view.is_closed and view.scheduler is not None and view.scheduler.is_stopped
        if not is_stopping and view.status != RunStatus.CANCELLED:
            raise
        state = "is being stopped" if is_stopping else "is cancelled"
        return {**command_result(run, f"the run {state} already"), "status": view.status}


async def send_command(
    context: "GatewayContext", run: str, command: Command, body: CommandBody | None
) -> dict[str, Any]:
    """Send a command to a run of the caller, and return its result.

    Raises:
        RunNotFound, RunClosed, CommandRejected: the command was not accepted.
    """
    message = await context.steering.send(await context.visible_run(run), command, actor_of(context, body))
    return command_result(run, message)


def actor_of(context: "GatewayContext", body: CommandBody | None) -> CommandAuthor:
    """Return the actor and reason of a command; the actor of an authenticated request is the owner of the key."""
    document = body or _EMPTY_BODY
    return CommandAuthor(context.caller.actor_name or document.by, document.reason)


def command_result(run: str, message: str) -> dict[str, Any]:
    """Return the result of an accepted command."""
    return {"run_id": run, "ok": True, "message": message}


async def open_requests(context: "GatewayContext", run: str) -> dict[str, Any]:
    """Return the open requests of a run and its sub-plans; for a run of another owner, those assigned to the caller.

    Raises:
        RunNotFound: there is no such run.
    """
    requests, _ = await _answerable(context, run)
    return _listed([request_document(request) for request in requests])


async def _answerable(context: "GatewayContext", run: str) -> tuple[Sequence[OpenRequest], MayAnswer]:
    """Return the open requests of a run, and the kind of requests that the caller may answer.

    Raises:
        RunNotFound: there is no such run, or it belongs to another owner and has no request for the caller.
    """
    owner = context.caller.owner
    checked_run_id(run)
    if owner is not None:
        try:
            await context.visible_run(run)
        except RunNotFound:
            requests = [
                request for request in await context.runs.feedback.requests_of(run) if request.assignee == owner
            ]
            if not requests:
                raise
            return requests, "assigned"
    return await context.runs.feedback.requests_of(run), context.caller.answerable_requests


def request_document(request: OpenRequest) -> dict[str, Any]:
    """Return a request in the format of the API."""
    document = request.document
    message = {name: value for name, value in document.items() if name != "run_id"}
    run_fields = {"run_id": document["run_id"], "title": request.title}
    return {**message, **run_fields, "answer_schema": answer_schema(document)}


def _listed(requests: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {"object": "list", "data": list(requests), **next_page(None)}


async def answer_run_request(context: "GatewayContext", run: str, body: AnswerBody) -> dict[str, Any]:
    """Answer a request of a run and return the result.

    Raises:
        ApiError: the answer is invalid, its request is ambiguous, or it has nodes that the caller may not add.
        RunNotFound: there is no such run.
    """
    open_now, may_answer = await _answerable(context, run)
    target = _target(open_now, body, run=run)
    chosen = target.requests
    if may_answer == "assigned" and not chosen:
        raise ApiError(
            ErrorCode.NOT_FOUND, f"the run {run!r:.200} has no request {body.request_id!r:.80} for this key's owner"
        )
    content = content_for(chosen[0].document if chosen else None, body)
    reject_nodes(context, content, may_answer)
    if content.get("nodes") and len(chosen) > 1:
        raise _refusal("nodes are added once: name one request, and omit `all`", param="request_id")

    async def extras(request_ref: RequestRef) -> Mapping[str, Any]:
        return await nodes_with_tools(context, request_ref, content)

    by = context.caller.actor_name or body.by
    answer = Answer(content, by, body.note, may_answer=may_answer)
    outcome = await send_answer(context.runs.feedback, target, answer, extras=extras)
    message = outcome.message
    if outcome.is_refused:
        hint = "; `all` answers all of them" if outcome.is_ambiguous else ""
        raise _refusal(f"{message}{hint}", param="answer" if chosen else "request_id")
    if (again := await next_request(context.runs.feedback, outcome)) is not None:
        message += f"; there is another request: {again['request_id']}: {again['prompt']}"
    return {"run_id": run, "ok": outcome.is_accepted, "message": message}


def content_for(request: Mapping[str, Any] | None, body: AnswerBody) -> dict[str, Any]:
    """Return an answer in the form that the run accepts.

    Args:
        request: the answered request; `None` if it is not open.

    Raises:
        ApiError: the answer is invalid.
    """
    answer_value = body.answer
    if request is None:
        if isinstance(answer_value, dict):
            return answer_value
        raise _refusal(
            f"the request {body.request_id!r:.80} is not open; until it is, the answer must be an object",
            param="request_id",
        )
    if isinstance(answer_value, dict) and request["type"] != "INFORMATION":
        # An object is the answer itself; it is not text that happens to be JSON.
        return answer_value
    return parse_answer(request, answer_value if isinstance(answer_value, str) else json.dumps(answer_value))


def _target(open_now: Sequence[OpenRequest], body: AnswerBody, *, run: str) -> AnswerTarget:
    try:
        return find_target(run, open_now, body.request_id, of_all=body.all)
    except NoOpenRequest:
        raise ApiError(ErrorCode.NOTHING_ASKED, f"the run {run!r} has no open requests") from None
    except AnswerUnclear as names:
        message = f"the run {run!r} has {len(open_now):,} open requests; name one in `request_id`: {names}"
        raise _refusal(message, param="request_id") from None


def _refusal(message: str, *, param: str) -> ApiError:
    return ApiError(ErrorCode.ANSWER_REFUSED, message, param=param)
