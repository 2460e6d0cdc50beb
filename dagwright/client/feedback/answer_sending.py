"""Answer requests of runs: select the requests that an answer is for, send the answer, and report the outcome."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

from dagwright.client.errors import FeedbackRejected
from dagwright.client.feedback.open_requests import (
    Answer,
    ItemNotNamed,
    OpenRequest,
    RequestRef,
    refs_by_run,
    requests_of_node,
)
from dagwright.core.errors import DagwrightError
from dagwright.history.executions import RunClosed

if TYPE_CHECKING:
    from dagwright.client.feedback.feedback_client import FeedbackClient

_MAX_CONCURRENT_RUNS = 8
"""Maximum number of runs to which an answer is sent concurrently."""
_MAX_LISTED_NAMES = 20

ExtraContentReader = Callable[[RequestRef], Awaitable[Mapping[str, Any]]]
"""Function that returns additional fields of the answer for a run, such as nodes for the plan of the run."""


class NoOpenRequest(DagwrightError):
    """The run has no open request."""


class AnswerUnclear(DagwrightError):
    """The run has several open requests and the answer names none of them; the message lists the request IDs."""


@dataclass(frozen=True, slots=True)
class AnswerTarget:
    """The requests that an answer is for.

    Args:
        run_id: run ID that the user gave.
        request_id: ID of a request or node, as the user gave it.
        requests: the matching open requests; empty if no open request has this ID.
    """

    run_id: str
    request_id: str
    requests: Sequence[OpenRequest] = ()

    @classmethod
    def of(cls, run_id: str, requests: Sequence[OpenRequest]) -> Self:
        """Return the target of an answer to open requests: one request, or all requests of one node."""
        return cls(run_id, requests[0].id if len(requests) == 1 else requests[0].node_path, requests)


@dataclass(frozen=True, slots=True)
class AnswerResult:
    """Outcome of an answer in one run.

    Args:
        is_accepted: whether the run accepted the answer.
        message: the run's reply.
        is_ambiguous: the answer matches several requests and names none of them.
        request_ref: the request that received the answer; `None` if it is unknown.
    """

    is_accepted: bool
    message: str
    is_ambiguous: bool = False
    request_ref: RequestRef | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class AnswerOutcome:
    """Outcome of an answer in all runs that it was sent to."""

    target: AnswerTarget
    results: Sequence[AnswerResult]

    @property
    def is_accepted(self) -> bool:
        """Whether every run accepted the answer."""
        return all(result.is_accepted for result in self.results)

    @property
    def is_rejected(self) -> bool:
        """Whether no run accepted the answer."""
        return not any(result.is_accepted for result in self.results)

    @property
    def is_ambiguous(self) -> bool:
        """Whether the answer matches several requests of a run."""
        return any(result.is_ambiguous for result in self.results)

    @property
    def message(self) -> str:
        """One or more sentences for the user."""
        rejections = [*dict.fromkeys(result.message for result in self.results if not result.is_accepted)]
        message = "; ".join(
            [*dict.fromkeys(result.message for result in self.results if result.is_accepted), *rejections]
        )
        if len(self.results) > 1:
            accepted_count = sum(result.is_accepted for result in self.results)
            message = f"answered in {accepted_count:,} of {len(self.results):,} sub-plans: {message}"
        return message


def requests_with_id(requests: Sequence[OpenRequest], request_id: str, *, for_all: bool) -> Sequence[OpenRequest]:
    """Return the open request with this ID; with `for_all` or for a node ID, return all requests of the node."""
    matching_requests = [open_request for open_request in requests if open_request.id == request_id]
    node_path = matching_requests[0].node_path if matching_requests else request_id
    node_requests = requests_of_node(requests, node_path)
    return node_requests if for_all or not matching_requests else matching_requests


def choose_requests(
    open_requests: Sequence[OpenRequest], request_id: str | None, *, for_all: bool
) -> Sequence[OpenRequest]:
    """Return the open requests that an answer is for; empty if no open request has the given ID.

    Args:
        open_requests: the open requests of the run.
        request_id: ID of the request or of its node; `None` if the run has a single open request.
        for_all: the answer is for all requests of the same node.

    Raises:
        NoOpenRequest: no request is named, and the run has no open request.
        AnswerUnclear: no request is named, and the run has several.
    """
    if request_id is not None:
        return requests_with_id(open_requests, request_id, for_all=for_all)
    if not open_requests:
        raise NoOpenRequest
    if len(open_requests) > 1 and not (
        for_all and len({open_request.node_path for open_request in open_requests}) == 1
    ):
        raise AnswerUnclear(", ".join(open_request.id for open_request in open_requests[:_MAX_LISTED_NAMES]))
    return open_requests


def find_target(
    run_id: str, open_requests: Sequence[OpenRequest], request_id: str | None, *, for_all: bool
) -> AnswerTarget:
    """Return the target of an answer; arguments and errors as in `choose_requests`.

    If the request is not open, the target has no requests: the request may be answered already, or be opened later.
    """
    chosen_requests = choose_requests(open_requests, request_id, for_all=for_all)
    return AnswerTarget.of(run_id, chosen_requests) if chosen_requests else AnswerTarget(run_id, str(request_id))


async def no_extra_content(_: RequestRef) -> Mapping[str, Any]:
    """Return no additional fields."""
    return {}


async def send_answer(
    feedback: "FeedbackClient",
    target: AnswerTarget,
    answer: Answer,
    *,
    read_extra_content: ExtraContentReader = no_extra_content,
) -> AnswerOutcome:
    """Send an answer to each run that has an open request of the target.

    If no request of the target is open, send the answer to the run that the path in `target.request_id` names.
    """
    slots = asyncio.Semaphore(_MAX_CONCURRENT_RUNS)

    async def send(open_ref: RequestRef | None) -> AnswerResult:
        async with slots:
            ref = open_ref
            try:
                ref = ref or await feedback.request_ref_of(target.run_id, target.request_id)
                full_answer = replace(answer, content={**answer.content, **await read_extra_content(ref)})
                message = await feedback.answer(ref, full_answer)
                return AnswerResult(True, _with_path(message, ref, target.request_id), request_ref=ref)
            except ItemNotNamed as error:
                return AnswerResult(False, str(error), is_ambiguous=True)
            except (FeedbackRejected, RunClosed) as error:
                return AnswerResult(False, _with_path(str(error), ref, target.request_id))

    refs: Sequence[RequestRef | None] = refs_by_run(target.requests) or [None]
    return AnswerOutcome(target, await asyncio.gather(*map(send, refs)))


async def answer_request(feedback: "FeedbackClient", run_id: str, request_id: str, answer: Answer) -> str:
    """Answer one request of a run or its sub-plans; return the run's reply.

    Raises:
        FeedbackRejected, RunNotFound, RunClosed: as `FeedbackClient.answer`.
    """
    return await feedback.answer(await feedback.request_ref_of(run_id, request_id), answer)


async def next_request(feedback: "FeedbackClient", outcome: AnswerOutcome) -> Mapping[str, Any] | None:
    """Return the next request of a `lookup` node after the answer; `None` if the node opens no other request.

    A `lookup` node opens another request if nothing matches the answer. The run's reply to the answer does not contain
    that request.
    """
    target, results = outcome.target, outcome.results
    if len(results) != 1 or not results[0].is_accepted or results[0].request_ref is None:
        return None
    following_document = await feedback.request_after(results[0].request_ref)
    if following_document is None:
        return None
    path = "".join(target.request_id.rpartition("/")[:2])
    return {**following_document, "request_id": f"{path}{following_document['request_id']}", "run_id": target.run_id}


def _with_path(message: str, request_ref: RequestRef | None, request_id: str) -> str:
    """Return the message with the full ID of the request: the run knows only the last part of the ID."""
    return message if request_ref is None else message.replace(repr(request_ref.request_id), repr(request_id), 1)
