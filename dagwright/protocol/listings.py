"""Facts about a run that a client can list without reading its history: progress, assignees, open requests and error.

The run writes these facts to its search attributes and its memo; `workflows.search_attributes` decides when.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from dagwright.core.boundary.limits import (
    MAX_LISTED_ERROR_BYTES,
    MAX_LISTED_REQUEST_BYTES,
    MAX_LISTED_REQUESTS_TOTAL_BYTES,
)
from dagwright.core.expressions.value_refs import encoded_size
from dagwright.core.model.requests import ANYONE
from dagwright.core.scheduler.run_state import counts_of
from dagwright.core.text import cut_bytes
from dagwright.features.compensation.compensation import compensation_counts
from dagwright.protocol.failures import run_error_of
from dagwright.protocol.run_labels import MAX_ATTRIBUTE_BYTES, fitting_keywords, json_bytes, keyword

if TYPE_CHECKING:
    from dagwright.features.run_scheduler import RunScheduler

_MAX_REQUESTS = 50
"""Maximum number of requests in the memo of a run; the smallest requests have about 300 bytes."""
_MAX_NAME_CHARACTERS = 100
OTHER_ASSIGNEES = "…"
"""Element of `SEARCH_AWAITING` if there was no room for further assignees."""

RequestsVersion = tuple[int, tuple[tuple[str, str | None, float | None], ...]]
"""Number of open requests, and for each listed request its ID and the fields that can change: assignee and deadline."""


@dataclass(frozen=True, slots=True)
class NodeProgress:
    """Progress of a run, without compensation nodes.

    Args:
        done: number of nodes that have run and ended.
        total: number of nodes.
    """

    done: int
    total: int

    def __str__(self) -> str:
        return f"{self.done}/{self.total}"


def progress_of(scheduler: "RunScheduler") -> NodeProgress:
    """Return the progress of a run. Complexity: linear in the nodes."""
    compensating_counts = compensation_counts(scheduler.state)
    counts = counts_of(scheduler.plan, scheduler.records) - compensating_counts
    done = sum(count for status, count in counts.items() if status.has_run)
    return NodeProgress(done, scheduler.plan.visible_count - compensating_counts.total())


def parse_progress(text: str | None) -> NodeProgress | None:
    """Parse the text form of a progress; `None` if the text has another form."""
    done, separator, total = (text or "").partition("/")
    return NodeProgress(int(done), int(total)) if separator and done.isdecimal() and total.isdecimal() else None


def awaited_assignees(scheduler: "RunScheduler") -> list[str]:
    """Return the assignees of the open requests in alphabetical order, as many as fit into a search attribute."""
    assignees = {request.assignee for request in scheduler.features.feedback.requests.open.values()}
    names = sorted({keyword_of_assignee(assignee) for assignee in assignees})
    fitting_names = fitting_keywords(names, max_bytes=MAX_ATTRIBUTE_BYTES - json_bytes([OTHER_ASSIGNEES]))
    return fitting_names if len(fitting_names) == len(names) else [*fitting_names, OTHER_ASSIGNEES]


def keyword_of_assignee(name: str | None) -> str:
    """Return the element of `SEARCH_AWAITING` for an assignee; `None` is anyone."""
    return keyword((name or ANYONE)[:_MAX_NAME_CHARACTERS])


def requests_version(scheduler: "RunScheduler") -> RequestsVersion:
    """Return a value that changes when the result of `requests_to_json` changes."""
    requests = scheduler.features.feedback.requests.open
    listed_requests = islice(requests.values(), _MAX_REQUESTS)
    return len(requests), tuple((request.id, request.assignee, request.deadline_at) for request in listed_requests)


def requests_to_json(scheduler: "RunScheduler", *, title: str | None) -> dict[str, Any]:
    """Return the open requests of a run for its memo: the oldest requests, and the total number."""
    requests = scheduler.features.feedback.requests.open
    documents: list[dict[str, Any]] = []
    remaining_bytes = MAX_LISTED_REQUESTS_TOTAL_BYTES
    for request in islice(requests.values(), _MAX_REQUESTS):
        document = shortened_request(request.to_json(""), max_bytes=MAX_LISTED_REQUEST_BYTES)
        # The reader knows the run. Requests for the inputs of the run belong to no node.
        del document["run_id"]
        node_id = scheduler.state.node_of(document["node_id"]).id if document["node_id"] else request.id
        remaining_bytes -= encoded_size(document)
        if remaining_bytes < 0:
            break
        documents.append({"node": node_id, "request": document})
    return {"title": title, "count": len(requests), "shown": documents}


def shortened_request(document: Mapping[str, Any], *, max_bytes: int) -> dict[str, Any]:
    """Return the document of a request. If it is too large, cut the prompt, and omit schema, options and arguments."""
    if encoded_size(document) <= max_bytes:
        return dict(document)
    prompt = cut_bytes(document["prompt"], max_bytes=max_bytes // 4)
    empty_fields = dict.fromkeys(("schema", "options", "arguments"))
    return {**document, "prompt": prompt, **empty_fields, "shortened": True}


@dataclass(frozen=True, slots=True)
class ListedRequests:
    """The open requests in the memo of a run.

    Args:
        title: title of the plan.
        count: number of all open requests.
        requests: node and document of each listed request, without the run.
    """

    title: str | None
    count: int
    requests: Sequence[tuple[str, Mapping[str, Any]]]


def requests_from_json(encoded: Any) -> ListedRequests:
    """Parse the result of `requests_to_json`.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: the form is invalid.
    """
    documents = [(str(document["node"]), {**document["request"]}) for document in encoded["shown"]]
    title = encoded["title"]
    return ListedRequests(title if isinstance(title, str) else None, int(encoded["count"]), documents)


def error_to_json(document: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the error of a result document for the memo of the run; `None` if the run has no error."""
    error = run_error_of(document)
    if error is None:
        return None
    message = cut_bytes(str(error["message"]), max_bytes=MAX_LISTED_ERROR_BYTES)
    return {"code": error["code"], "message": message, "node_id": error["node_id"]}
