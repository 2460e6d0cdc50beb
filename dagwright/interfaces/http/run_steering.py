"""Commands and answers that the routes of runs and of sessions send to runs."""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dagwright.client.errors import CommandRejected, OptionInvalid
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
from dagwright.interfaces.http.list_pages import next_page_fields
from dagwright.interfaces.http.posted_plans import added_nodes_with_tools, reject_forbidden_added_nodes
from dagwright.interfaces.http.run_models import AnswerBody, CommandBody

if TYPE_CHECKING:
    from dagwright.interfaces.http.context import GatewayContext

_EMPTY_BODY = CommandBody()
"""Default for requests without a body."""


async def cancel_run(context: "GatewayContext", run_id: str, body: CommandBody | None) -> dict[str, Any]:
    """Cancel a run. A run that is stopping or cancelled is not changed.

    Raises:
        RunNotFound, RunClosed, CommandRejected: the run cannot be cancelled.
    """
    try:
        return command_result(run_id, await context.steering.cancel(run_id, command_author(context, body)))
    except (RunClosed, CommandRejected):
        view = await context.runs.reader(run_id).read()
        is_stopping = not view.is_closed and view.scheduler is not None and view.scheduler.is_stopped
        if not is_stopping and view.status != RunStatus.CANCELLED:
            raise
        state = "is being stopped" if is_stopping else "is cancelled"
        return {**command_result(run_id, f"the run {state} already"), "status": view.status}


async def send_command(
    context: "GatewayContext", run_id: str, command: Command, body: CommandBody | None, *, param: str | None = None
) -> dict[str, Any]:
    """Send a command to a run of the caller, and return its result.

    Args:
        param: field of the request that the run checks.

    Raises:
        ApiError: the field is invalid.
        RunNotFound, RunClosed, CommandRejected: the command was not accepted.
    """
    run_id = await context.visible_run(run_id)
    try:
        message = await context.steering.send(run_id, command, command_author(context, body))
    except OptionInvalid as error:
        raise ApiError(ErrorCode.INVALID_VALUE, str(error), param=param) from None
    return command_result(run_id, message)


def command_author(context: "GatewayContext", body: CommandBody | None) -> CommandAuthor:
    """Return the actor and reason of a command. For a request with a key, the actor is the owner or ID of the key."""
    command_body = body or _EMPTY_BODY
    return CommandAuthor(context.caller.actor_name or command_body.by, command_body.reason)


def command_result(run_id: str, message: str) -> dict[str, Any]:
    """Return the result of an accepted command."""
    return {"run_id": run_id, "ok": True, "message": message}


async def open_requests(context: "GatewayContext", run_id: str) -> dict[str, Any]:
    """Return the open requests of a run and its sub-plans.

    For a run of another owner, return only the requests that are assigned to the caller.

    Raises:
        RunNotFound: there is no such run.
    """
    requests, _ = await _visible_requests(context, run_id)
    documents = [request_document(request) for request in requests]
    return {"object": "list", "data": documents, **next_page_fields(None)}


async def _visible_requests(context: "GatewayContext", run_id: str) -> tuple[Sequence[OpenRequest], MayAnswer]:
    """Return the open requests of a run that the caller sees, and the kind of requests that the caller may answer.

    Raises:
        RunNotFound: there is no such run, or it belongs to another owner and has no request for the caller.
    """
    owner = context.caller.owner
    checked_run_id(run_id)
    if owner is not None:
        try:
            await context.visible_run(run_id)
        except RunNotFound:
            requests = [
                request for request in await context.runs.feedback.requests_of(run_id) if request.assignee == owner
            ]
            if not requests:
                raise
            return requests, "assigned"
    return await context.runs.feedback.requests_of(run_id), context.caller.answerable_requests


def request_document(request: OpenRequest) -> dict[str, Any]:
    """Return a request in the format of the API."""
    document = request.document
    request_fields = {name: value for name, value in document.items() if name != "run_id"}
    run_fields = {"run_id": document["run_id"], "title": request.title}
    return {**request_fields, **run_fields, "answer_schema": answer_schema(document)}


async def answer_run_request(context: "GatewayContext", run_id: str, body: AnswerBody) -> dict[str, Any]:
    """Answer a request of a run and return the result.

    Raises:
        ApiError: the answer is invalid, matches several requests, or has nodes that the caller may not add.
        RunNotFound: there is no such run.
    """
    requests, answerable_requests = await _visible_requests(context, run_id)
    target = _target(requests, body, run_id=run_id)
    target_requests = target.requests
    if answerable_requests == "assigned" and not target_requests:
        raise ApiError(
            ErrorCode.NOT_FOUND, f"the run {run_id!r:.200} has no request {body.request_id!r:.80} for this key's owner"
        )
    content = answer_content(target_requests[0].document if target_requests else None, body)
    reject_forbidden_added_nodes(context, content, answerable_requests=answerable_requests)
    if content.get("nodes") and len(target_requests) > 1:
        raise _invalid_answer_error("nodes are added once: name one request, and omit `all`", param="request_id")

    async def extra_content(request_ref: RequestRef) -> Mapping[str, Any]:
        return await added_nodes_with_tools(context, request_ref, content)

    by = context.caller.actor_name or body.by
    answer = Answer(content, by, body.note, may_answer=answerable_requests)
    outcome = await send_answer(context.runs.feedback, target, answer, read_extra_content=extra_content)
    message = outcome.message
    if outcome.is_rejected:
        hint = "; `all` answers all of them" if outcome.is_ambiguous else ""
        raise _invalid_answer_error(f"{message}{hint}", param="answer" if target_requests else "request_id")
    if (next_open_request := await next_request(context.runs.feedback, outcome)) is not None:
        message += f"; there is another request: {next_open_request['request_id']}: {next_open_request['prompt']}"
    return {"run_id": run_id, "ok": outcome.is_accepted, "message": message}


def answer_content(request: Mapping[str, Any] | None, body: AnswerBody) -> dict[str, Any]:
    """Return the content of an answer in the form that the run accepts.

    Args:
        request: the answered request; `None` if the request is not open.

    Raises:
        ApiError: the answer is invalid.
    """
    answer_value = body.answer
    if request is None:
        if isinstance(answer_value, dict):
            return answer_value
        message = (
            f"the request {body.request_id!r:.80} is not open; send an object as `answer` to store it until the "
            "request opens"
        )
        raise ApiError(ErrorCode.NO_OPEN_REQUEST, message, param="request_id")
    if isinstance(answer_value, dict) and request["type"] != "INFORMATION":
        # An object is the content of the answer, even if the request expects a text.
        return answer_value
    return parse_answer(request, answer_value if isinstance(answer_value, str) else json.dumps(answer_value))


def _target(requests: Sequence[OpenRequest], body: AnswerBody, *, run_id: str) -> AnswerTarget:
    try:
        return find_target(run_id, requests, body.request_id, for_all=body.all)
    except NoOpenRequest:
        raise ApiError(ErrorCode.NO_OPEN_REQUEST, f"the run {run_id!r} has no open requests") from None
    except AnswerUnclear as error:
        message = f"the run {run_id!r} has {len(requests):,} open requests; name one in `request_id`: {error}"
        raise ApiError(ErrorCode.INVALID_VALUE, message, param="request_id") from None


def _invalid_answer_error(message: str, *, param: str) -> ApiError:
    return ApiError(ErrorCode.ANSWER_REJECTED, message, param=param)
