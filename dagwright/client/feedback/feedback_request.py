"""Requests for feedback of a person, and the answers of Python programs."""

from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol, TypedDict, Unpack, overload

from dagwright.client.errors import FeedbackRejected
from dagwright.client.feedback.answer_sending import AnswerUnclear, NoOpenRequest, find_target, send_answer
from dagwright.client.feedback.open_requests import Answer, OpenRequest, RequestRef
from dagwright.core.boundary.arguments import checks_arguments, json_argument
from dagwright.core.errors import DagwrightError
from dagwright.core.model.times import parse_time, utc_datetime
from dagwright.core.model.tools import ToolDeclaration

if TYPE_CHECKING:
    from dagwright.client.feedback.feedback_client import FeedbackClient
    from dagwright.client.steering import Steering


class FeedbackAnswer(TypedDict, total=False):
    """Arguments of an answer. The type of the request decides which are valid.

    Args:
        approved: for an APPROVAL. `reason` is also valid; with `approved=True` also `arguments` and `remember`.
        reason: why the request is approved or rejected.
        arguments: new arguments of the call.
        remember: approve later calls of this tool in the run without a request.
        selected: for a SELECTION, the ID or IDs of the selected options. `value` and `arguments` are also valid.
        value: the new result of a failed node; only if the option `value` is selected.
        text: for a CLARIFICATION or GUIDANCE.
        nodes: for a GUIDANCE, nodes to add to the plan.
        data: for an INFORMATION, the data in the form of the request's schema.
        by: name of the person who answers.
        note: additional remark to record.
        all: answer all open requests of the same node, such as those of the items of a map.
    """

    approved: bool
    reason: str
    arguments: Mapping[str, Any]
    remember: bool
    selected: str | Sequence[str]
    value: Any
    text: str
    nodes: Sequence[Any]
    data: Any
    by: str
    note: str
    all: bool


_NON_CONTENT_FIELDS = ("by", "note", "all", "nodes")
_EXCLUSIVE_FIELDS = ("approved", "selected", "text", "data")
"""Fields of which an answer has exactly one."""


class Answerable(Protocol):
    """A run whose requests can be answered."""

    def feedback(self, request_id: str | None = None, /, **answer: Unpack[FeedbackAnswer]) -> Coroutine[Any, Any, str]:
        """Answer a request."""


@dataclass(frozen=True, slots=True)
class FeedbackRequest:
    """An open request for feedback of a person.

    Args:
        request_id: for a request of a sub-plan, the path to the request, such as `archive/check`.
        run_id: the run that the user started.
        node_id: the node with the request; `None` for requests of the run itself, such as for its inputs.
        type: APPROVAL, SELECTION, GUIDANCE, CLARIFICATION or INFORMATION.
        schema: for an INFORMATION, the JSON Schema of `data`.
        options: for a SELECTION, the options.
        assignee: person who should answer; `None` for anyone.
        deadline: when the request expires.
        tool: for an APPROVAL, the tool of the call to approve.
        arguments: for an APPROVAL, the arguments of that call.
        title: title of the plan with the request.
        shortened: whether the request was too large for the inbox. Then it has no schema, options or arguments,
            and only the first part of its prompt.
    """

    request_id: str
    run_id: str
    node_id: str | None
    type: str
    prompt: str
    opened_at: datetime
    schema: Mapping[str, Any] | None = None
    options: Sequence[Any] | None = None
    assignee: str | None = None
    deadline: datetime | None = None
    tool: str | None = None
    arguments: Any = None
    title: str | None = None
    shortened: bool = False
    run: Answerable | None = field(default=None, repr=False, compare=False)

    @checks_arguments
    def answer(self, **answer: Unpack[FeedbackAnswer]) -> Coroutine[Any, Any, str]:
        """Answer this request; return the run's reply.

        Raises:
            FeedbackRejected: the answer is invalid, the request is closed, or the run has ended.
            DagwrightError: the request comes from a `SyncClient`; answer it with `run.feedback(request_id, ...)`.
        """
        if self.run is None:
            raise DagwrightError("a synchronous client answers requests with run.feedback(request.request_id, ...)")
        return self.run.feedback(self.request_id, **answer)


def request_of(document: Mapping[str, Any], run: Answerable | None, *, title: str | None = None) -> FeedbackRequest:
    """Return a request from its document."""
    deadline = document.get("deadline")
    return FeedbackRequest(
        request_id=document["request_id"],
        run_id=document["run_id"],
        node_id=document.get("node_id"),
        type=document["type"],
        prompt=document["prompt"],
        opened_at=utc_datetime(parse_time(document["opened_at"])),
        schema=document.get("schema"),
        options=document.get("options"),
        assignee=document.get("assignee"),
        deadline=None if deadline is None else utc_datetime(parse_time(deadline)),
        tool=document.get("tool") or None,
        arguments=document.get("arguments"),
        title=title,
        shortened=document.get("shortened") is True,
        run=run,
    )


def to_feedback_request(request: OpenRequest, run: Answerable) -> FeedbackRequest:
    """Return the public form of an open request."""
    return request_of(request.document, run, title=request.title)


@dataclass(frozen=True, slots=True)
class Inbox(Sequence[FeedbackRequest]):
    """A page of the inbox: a sequence of its requests, oldest first.

    Args:
        cursor: where the inbox continues: `inbox(after=page.cursor)`; `None` on the last page.
        omitted: run ID -> number of open requests that are not listed, whether or not the requests match the filter;
            `Run.feedback_requests` returns all of them.
    """

    requests: Sequence[FeedbackRequest]
    cursor: str | None
    omitted: Mapping[str, int]

    def __len__(self) -> int:
        return len(self.requests)

    @overload
    def __getitem__(self, index: int) -> FeedbackRequest: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[FeedbackRequest]: ...

    def __getitem__(self, index: int | slice) -> FeedbackRequest | Sequence[FeedbackRequest]:
        return self.requests[index]


def answer_content(answer: FeedbackAnswer) -> dict[str, Any]:
    """Return the content of an answer in the format that runs receive, without the nodes of the answer.

    Raises:
        FeedbackRejected: none or several of `approved`, `selected`, `text` and `data` are given.
    """
    content_fields = [name for name in _EXCLUSIVE_FIELDS if name in answer] or (["text"] if "nodes" in answer else [])
    if len(content_fields) != 1:
        problem = f"{' and '.join(content_fields)} exclude each other" if content_fields else "an answer is missing"
        raise FeedbackRejected(f"{problem}: give one of approved=, selected=, text= and data=")
    content = {
        name: json_argument(value, name, function="feedback")
        for name, value in answer.items()
        if name not in _NON_CONTENT_FIELDS
    }
    if "selected" in content:
        selected = content["selected"]
        content["selected"] = [selected] if isinstance(selected, str) else [*selected]
    return content if "text" not in content_fields else {"text": "", **content}


@dataclass(frozen=True, slots=True)
class RunFeedback:
    """Answers the requests of one run.

    Args:
        tools: tools that nodes of an answer may call.
    """

    feedback: "FeedbackClient"
    steering: "Steering"
    run_id: str
    tools: Mapping[str, ToolDeclaration] = field(default_factory=dict)

    async def send(self, request_id: str | None, answer: FeedbackAnswer) -> str:
        """Send an answer; return the run's reply.

        Args:
            request_id: ID of a request or of its node; `None` if the run has a single open request.

        Raises:
            FeedbackRejected: the run does not accept the answer, or has ended.
            RunNotFound: there is no such run.
        """
        content, nodes = answer_content(answer), answer.get("nodes", ())
        requests = await self.feedback.requests_of(self.run_id)
        try:
            target = find_target(self.run_id, requests, request_id, for_all=answer.get("all", False))
        except NoOpenRequest:
            raise FeedbackRejected(f"the run {self.run_id!r} has no open request") from None
        except AnswerUnclear as error:
            raise FeedbackRejected(f"the run {self.run_id!r} has several open requests; name one: {error}") from None
        if nodes and len(target.requests) > 1:
            raise FeedbackRejected("an answer with `nodes` must be for a single request; give the ID of one request")

        async def read_nodes(request_ref: RequestRef) -> Mapping[str, Any]:
            return await self.steering.nodes_of_answer(request_ref, nodes, tools=self.tools) if nodes else {}

        full_answer = Answer(content, answer.get("by"), answer.get("note"))
        outcome = await send_answer(self.feedback, target, full_answer, read_extra_content=read_nodes)
        if not outcome.is_accepted:
            hint = "; all=True answers all of them" if outcome.is_ambiguous else ""
            raise FeedbackRejected(f"{outcome.message}{hint}")
        return outcome.message
