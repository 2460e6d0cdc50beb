"""Open requests for feedback, their locations, and the answers.

    FeedbackRejected      the run does not accept the answer; the message has the reason
    └── ItemNotNamed      the path must name one item of a `for_each` node

`feedback_client` reads and answers the requests.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dagwright.client.errors import FeedbackRejected
from dagwright.core.model.requests import ClientChannel, MayAnswer
from dagwright.core.scheduler.map_items import is_batched

if TYPE_CHECKING:
    from dagwright.history.run_view import RunView

_MAP_BATCH = re.compile(r"\[\d+-\d+\]$")
"""Suffix of the task of a map batch, such as `[0-499]`."""


class ItemNotNamed(FeedbackRejected):
    """The path leads through a node with `for_each`, and must name one of its items."""


@dataclass(frozen=True, slots=True)
class RequestRef:
    """Location of a request: the run with the request, which may be a sub-plan, and the request ID in that run."""

    run_id: str
    request_id: str


@dataclass(frozen=True, slots=True)
class OpenRequest:
    """A request that waits for its answer.

    Args:
        document: JSON of the request; `run_id` is the run that the user started, and `request_id` includes the path
            from that run.
        request_ref: destination of the answer.
        node_id: ID of the node with the request, without an item key, in the run of `request_ref`.
        path: path of nodes from the run that the user started to the run of `request_ref`, such as `archive/`; empty
            for a root run.
        title: title of the plan or sub-plan with the request.
    """

    document: Mapping[str, Any]
    request_ref: RequestRef
    node_id: str
    path: str = ""
    title: str | None = None

    @property
    def id(self) -> str:
        """Request ID with the path to its sub-plan."""
        return str(self.document["request_id"])

    @property
    def assignee(self) -> str | None:
        """Person who should answer; `None` for anyone."""
        return self.document.get("assignee")

    @property
    def node_path(self) -> str:
        """The path of the node without item keys, so that all items of a map have the same path."""
        return f"{self.path}{self.node_id}"


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of a person.

    Args:
        content: content in the format of the request type.
        by: person who answers.
        note: additional remark to record.
        source: channel of the model client that relays the answer; `None` if a person answered directly.
        may_answer: requests that the person may answer: `all`, `unassigned` (requests without an assignee, or assigned
            to `by`), or `assigned` (only requests assigned to `by`).
    """

    content: Any
    by: str | None = None
    note: str | None = None
    source: ClientChannel | None = None
    may_answer: MayAnswer = "all"

    def to_json(self, request_id: str) -> dict[str, Any]:
        """Return the message to a run."""
        optional_fields: dict[str, Any] = {} if self.source is None else {"source": self.source}
        optional_fields |= {} if self.may_answer == "all" else {"may_answer": self.may_answer}
        return {"request_id": request_id, "answer": self.content, "by": self.by, "note": self.note, **optional_fields}


def with_path(request: OpenRequest, run_id: str, tasks: Sequence[str]) -> OpenRequest:
    """Return a request of a sub-plan with the path from a parent run.

    Args:
        run_id: ID of the parent run.
        tasks: tasks on the path, outermost first; empty for a request of the run itself.
    """
    path = "".join(f"{task}/" for task in tasks)
    document = {**request.document, "request_id": f"{path}{request.id}", "run_id": run_id}
    return replace(request, document=document, path=_nodes_of(tasks))


def _nodes_of(tasks: Sequence[str]) -> str:
    """Return the nodes of the sub-plans on a path.

    For example, `archive/` for `archive[north]`. A map batch `archive[0-499]` and its item `archive[7]` are one node.
    """
    nodes = [task.partition("[")[0] if task.endswith("]") else task for task in tasks]
    batch_flags = [
        _MAP_BATCH.search(task) is not None and nodes[index : index + 1] == nodes[index + 1 : index + 2]
        for index, task in enumerate(tasks)
    ]
    return "".join(f"{node_id}/" for node_id, is_batch in zip(nodes, batch_flags, strict=True) if not is_batch)


def requests_in(view: "RunView") -> list[dict[str, Any]]:
    """Return the open requests of a run itself, in the order in which they were opened."""
    if view.scheduler is None or view.is_closed:
        return []
    return [request.to_json(view.run_id) for request in view.scheduler.features.feedback.requests.open.values()]


def has_sub_plans(view: "RunView") -> bool:
    """Return whether a run has a running sub-plan, which may have requests."""
    if view.scheduler is None or view.is_closed:
        return False
    visible_nodes = view.scheduler.state.visible_nodes()
    return any(
        (node.kind == "plan" or is_batched(record)) and not record.status.is_final for node, record in visible_nodes
    )


def requests_of_node(requests: Sequence[OpenRequest], node_path: str) -> list[OpenRequest]:
    """Return the requests of a node: `sum`, or `archive/sum` in every run of the sub-plan `archive`."""
    return [request for request in requests if request.node_path == node_path]


def refs_by_run(requests: Sequence[OpenRequest]) -> list[RequestRef]:
    """Return one location for each run with requests: its request, or its node if the run has several requests.

    Args:
        requests: requests of one node, which may belong to several runs of its sub-plan.
    """
    requests_by_run: dict[str, list[OpenRequest]] = {}
    for request in requests:
        requests_by_run.setdefault(request.request_ref.run_id, []).append(request)
    return [
        open_requests[0].request_ref if len(open_requests) == 1 else RequestRef(run_id, open_requests[0].node_id)
        for run_id, open_requests in requests_by_run.items()
    ]
