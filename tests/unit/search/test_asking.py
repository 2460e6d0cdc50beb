"""What is done about each error of a search server: write the query anew, load the data, or try again later."""

from typing import Any

import pytest
from opensearchpy import exceptions

from dagwright.search.asking import AccessRefused, IndexMissing, NoAnswer, QueryInvalid, failure_of
from dagwright.tools.errors import GiveUp, RetryLater


def told(status: Any, kind: str, reason: str, *, cause: dict[str, Any] | None = None) -> exceptions.TransportError:
    """Returns an error of the client as an answer of the server makes it."""
    info = {"error": {"type": kind, "reason": reason, "root_cause": [cause] if cause else []}, "status": status}
    return exceptions.TransportError(status, kind, info)


NO_INDEX = told(404, "index_not_found_exception", "no such index [goods-a]")
WRONG = told(
    400,
    "search_phase_execution_exception",
    "all shards failed",
    cause={"type": "illegal_argument_exception", "reason": "Text fields are not optimised"},
)
TOO_MANY = told(
    503, "search_phase_execution_exception", "", cause={"type": "too_many_buckets_exception", "reason": "65535"}
)
BAD_ORDER = told(
    500, "aggregation_execution_exception", "", cause={"type": "illegal_argument_exception", "reason": "order"}
)


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (NO_INDEX, IndexMissing, "There is no index 'goods-a' on the search server"),
        (WRONG, QueryInvalid, "The search server does not take the query: 400: Text fields are not optimised"),
        (TOO_MANY, QueryInvalid, "The search server does not take the query: 503: 65535"),
        (BAD_ORDER, QueryInvalid, "The search server does not take the query: 500: order"),
        (
            told(403, "security_exception", "no"),
            AccessRefused,
            "The search server does not let us read 'goods-a': 403: no",
        ),
        (
            exceptions.TransportError(413, "too large", None),
            QueryInvalid,
            "The search server does not take the query: 413: too ",
        ),
    ],
)
def test_what_never_works_is_final(error: exceptions.TransportError, kind: type[Exception], words: str) -> None:
    failure = failure_of(error, "goods-a")
    assert type(failure) is kind
    assert isinstance(failure, GiveUp)
    assert str(failure).startswith(words)


@pytest.mark.parametrize(
    "error",
    [
        exceptions.ConnectionError("N/A", "refused", OSError()),
        exceptions.ConnectionTimeout("TIMEOUT", "slow", TimeoutError()),
        told(429, "circuit_breaking_exception", "memory"),
        told(503, "search_phase_execution_exception", "all shards failed"),
        told(503, "cluster_block_exception", "state not recovered"),
        exceptions.TransportError(502, "bad gateway", "<html>"),
        exceptions.SerializationError("no JSON"),
    ],
)
def test_server_that_is_not_there_is_asked_again(error: exceptions.OpenSearchException) -> None:
    failure = failure_of(error, "goods-a")
    assert isinstance(failure, RetryLater)
    assert failure.after is not None
    assert failure.after.total_seconds() == 5
    assert isinstance(failure, NoAnswer) == isinstance(error, exceptions.ConnectionTimeout)
