"""Follow the run of an HTTP request until the run ends or asks for feedback, and return the outcome.

The client sees open feedback requests of the run as questions.
"""

import json
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from dagwright.client.errors import FeedbackRejected
from dagwright.client.feedback.open_requests import Answer, OpenRequest
from dagwright.client.run_follower import RequestKey, RunMoment, follow, request_key
from dagwright.core.boundary import wire
from dagwright.core.model.states import NO_USAGE, RunStatus, Usage
from dagwright.history.executions import RunClosed
from dagwright.history.run_subscriptions import SubscriptionCursor
from dagwright.history.run_view import RunView
from dagwright.interfaces.http.callers import public_session_id
from dagwright.interfaces.http.conversation import FeedbackAnswer
from dagwright.interfaces.http.error_codes import RUN_ERROR, RUN_FAILED_STATUS, ErrorCode
from dagwright.interfaces.http.errors import NO_RETRY, ApiError
from dagwright.interfaces.http.feedback_calls import (
    RequestDocument,
    call_id,
    open_request_documents,
    parse_answer,
    questions_with_hint,
    requests_sent_as_calls,
)
from dagwright.interfaces.http.posted_plans import added_nodes_with_tools, reject_forbidden_added_nodes
from dagwright.interfaces.http.run_starts import headers_of_run
from dagwright.interfaces.http.structured_output import OutputForm, OutputMismatch
from dagwright.protocol.turns import end_of_turn

if TYPE_CHECKING:
    from dagwright.interfaces.http.context import GatewayContext

_STATUSES_WITH_ANSWER = (RunStatus.COMPLETED, RunStatus.COMPLETED_WITH_FAILURES)


async def moments(
    context: "GatewayContext",
    run_id: str,
    *,
    answered_requests: Collection[RequestKey] = (),
    after: SubscriptionCursor | None = None,
) -> AsyncGenerator[RunMoment, None]:
    """Yield the moments of a run until it has ended or waits for feedback; arguments as in `follow`."""
    async with aclosing(follow(context.runs, run_id, answered_requests=answered_requests, after=after)) as run_moments:
        async for moment in run_moments:
            yield moment
            if moment.has_ended_or_waits:
                return


async def wait_for_last_moment(
    context: "GatewayContext", run_id: str, *, answered_requests: Collection[RequestKey] = ()
) -> RunMoment:
    """Wait until a run has ended or waits for feedback, and return that moment. Raises the same errors as `follow`."""
    last_moments = [
        moment
        async for moment in moments(context, run_id, answered_requests=answered_requests)
        if moment.has_ended_or_waits
    ]
    return last_moments[-1]


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """Outcome of the run of a request: the answer, or questions.

    Args:
        text: the answer, or the text of the questions.
        requests: open requests; empty if the run has ended.
        usage: usage of the run so far, in OpenAI's form.
        run_fields: the JSON object under the key `dagwright` of the HTTP response.
        requests_as_tool_calls: requests that the client receives as tool calls and may answer with tool results.
        output_form: form of the answer; `None` for text and for questions.
    """

    text: str
    requests: Sequence[RequestDocument]
    usage: Mapping[str, Any]
    run_fields: Mapping[str, Any]
    requests_as_tool_calls: Sequence[RequestDocument] = ()
    output_form: OutputForm | None = None

    @property
    def has_answer_as_call(self) -> bool:
        """Whether the answer is a call of one of the client's functions."""
        return self.output_form is not None and self.output_form.function is not None


@dataclass(frozen=True, slots=True)
class AnswerForm:
    """The answers that a client accepts.

    Args:
        allows_calls: whether questions may be sent as calls of `answer_feedback`.
        output_form: required form of the answer; `None` for text.
    """

    allows_calls: bool = True
    output_form: OutputForm | None = None


DEFAULT_FORM = AnswerForm()


async def outcome_of(
    context: "GatewayContext", moment: RunMoment, *, session_name: str | None, form: AnswerForm = DEFAULT_FORM
) -> RunOutcome:
    """Return the outcome of a run at its last moment.

    Args:
        session_name: session that the run is a turn of.
        form: the answers that the client accepts.

    Raises:
        ApiError: the run failed or was cancelled.
    """
    view = moment.view
    if moment.requests:
        usage = view.scheduler.state.totals.usage.total if view.scheduler is not None else NO_USAGE
        run_id = view.run_id
        run_fields = run_fields_of(view, session_id=public_session_id(context.caller, session_name))
        run_fields["waiting_for"] = open_request_documents(moment.requests, run_id=run_id)
        message = questions_with_hint(moment.requests, run_id=run_id, allows_calls=form.allows_calls)
        requests_as_tool_calls = requests_sent_as_calls(moment.requests, allows_calls=form.allows_calls)
        if form.output_form is not None and len(requests_as_tool_calls) < len(moment.requests):
            # A client that expects a schema would treat the text as an invalid answer and send the request again.
            headers = {**headers_of_run(run_id, run_fields["session_id"]), **NO_RETRY}
            raise ApiError(ErrorCode.ANSWER_REQUIRED, message, headers=headers, run_fields=run_fields)
        return RunOutcome(message, moment.requests, usage_json(usage), run_fields, requests_as_tool_calls)
    document = await context.runs.document(view)
    if session_name is not None:
        # The next turn needs the results that this turn saves in the session.
        await context.sessions.wait_for_turn_end(session_name, view.run_id)
    run_fields = run_fields_of(
        view, session_id=public_session_id(context.caller, session_name), error=document["error"]
    )
    if view.status not in _STATUSES_WITH_ANSWER:
        raise run_error(document, run_fields)
    usage = view.scheduler.state.totals.usage.total if view.scheduler is not None else NO_USAGE
    text = (
        answer_text(view, document)
        if form.output_form is None
        else _format_structured_output(form.output_form, document, run_fields)
    )
    return RunOutcome(text, (), usage_json(usage), run_fields, output_form=form.output_form)


def _format_structured_output(form: OutputForm, document: Mapping[str, Any], run_fields: Mapping[str, Any]) -> str:
    """Return the output of a run as JSON that matches a schema.

    Raises:
        ApiError: the output does not match the schema.
    """
    try:
        return form.text_of(document["output"])
    except OutputMismatch as mismatch:
        run = document["run_id"]
        message = f"the run {run!r} is {run_fields['status']}, and its output does not match the schema in {form.param}"
        headers = {**headers_of_run(run, run_fields["session_id"]), **NO_RETRY}
        raise ApiError(
            ErrorCode.OUTPUT_INVALID, f"{message}: {mismatch}", param=form.param, headers=headers, run_fields=run_fields
        ) from None


def run_fields_of(view: RunView, *, session_id: str | None, error: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the JSON object under the key `dagwright` of an HTTP response.

    Args:
        error: error of a run that has an answer in spite of failures.
    """
    run_fields = {
        "run_id": view.run_id,
        "session_id": session_id,
        "status": str(view.status),
        "node_counts": view.node_counts,
    }
    error_fields = ("code", "message", "node_id")
    return run_fields if error is None else {**run_fields, "error": {name: error.get(name) for name in error_fields}}


def answer_text(view: RunView, document: Mapping[str, Any]) -> str:
    """Return the answer of a run: its output as text or JSON.

    Without an output, the answer is the explanation of the plan and the outcome of the run, if they exist.
    """
    output = document["output"]
    if isinstance(output, str):
        return output
    if output is None or output == {}:
        end = end_of_turn(document, view.scheduler)
        # Chat clients show nothing for an empty answer.
        return "\n".join(filter(None, [end.explanation, end.outcome])) or json.dumps(output)
    return json.dumps(output, ensure_ascii=False)


def run_error(document: Mapping[str, Any], run_fields: Mapping[str, Any]) -> ApiError:
    """Return the error of a run without an answer, with an HTTP status that clients do not retry.

    Args:
        run_fields: the JSON object under the key `dagwright` of the HTTP response.
    """
    run, error = document["run_id"], document["error"] or {}
    if document["status"] == RunStatus.CANCELLED:
        # The first note has the actor of the cancellation.
        cancellation_messages = [str(note["message"]) for note in document["notes"] if note["code"] == wire.CANCEL]
        code, end_text = "run_cancelled", f"was {cancellation_messages[0] if cancellation_messages else 'cancelled'}"
    else:
        failure_text = end_of_turn(document).outcome
        code, end_text = str(error.get("code") or "run_failed"), f"failed{f': {failure_text}' if failure_text else ''}"
    message = (
        f"the run {run!r} {end_text}; `dagwright explain {run}` or GET /v1/runs/{quote(run)}/explain has the details"
    )
    headers = {**headers_of_run(run, run_fields["session_id"]), **NO_RETRY}
    return ApiError(code, message, headers=headers, run_fields=run_fields, status=RUN_FAILED_STATUS, type=RUN_ERROR)


def usage_json(usage: Usage) -> dict[str, Any]:
    """Return token usage in OpenAI's form."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


async def deliver_answers(
    context: "GatewayContext", answers: Sequence[FeedbackAnswer], *, by: str | None
) -> set[RequestKey]:
    """Deliver the client's answers to a run; return the keys of the feedback requests that were answered.

    Answers to feedback requests that are not open are ignored: the client may send its HTTP request twice.

    Raises:
        ApiError, FeedbackRejected: an answer is invalid. The answers before the invalid answer have been delivered.
        RunClosed: the run ended before the answer arrived.
        RunNotFound: there is no such run.
    """
    answered_requests: set[RequestKey] = set()
    for answer in answers:
        if (request := await _open_request(context, answer)) is None:
            continue
        content = parse_answer(request.document, answer.text)
        # An answer may contain nodes, which are added to the plan of the run.
        reject_forbidden_added_nodes(context, content, answerable_requests=context.caller.answerable_requests)
        try:
            content |= await added_nodes_with_tools(context, request.request_ref, content)
            sent_answer = Answer(content, by, source="tool_result", may_answer=context.caller.answerable_requests)
            await context.runs.feedback.answer(request.request_ref, sent_answer)
        except (FeedbackRejected, RunClosed):
            # If the request is no longer open, another client has answered it in the meantime.
            if await _open_request(context, answer) is not None:
                raise
        answered_requests.add(request_key(request.document))
    return answered_requests


async def _open_request(context: "GatewayContext", answer: FeedbackAnswer) -> OpenRequest | None:
    """Return the request that an answer is for; `None` if the request is not open."""
    requests = await context.runs.feedback.requests_of(answer.run_id)
    return next(
        (request for request in requests if call_id(request.document, run_id=answer.run_id) == answer.call), None
    )
