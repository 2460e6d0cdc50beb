"""Conventions of every operation of the API: names, ids of requests, errors of failed runs, metadata."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import httpx
import openai
import pytest
from temporalio.service import RPCError, RPCStatusCode

from dagwright.client.errors import (
    CommandRejected,
    ForkRejected,
    RunIdInUse,
    RunIdInvalid,
    ServerRejected,
    TurnRejected,
)
from dagwright.core.errors import PlanInvalid, Problem
from dagwright.core.model.document import Document
from dagwright.core.model.tools import ToolDeclaration
from dagwright.core.validation.validation import check_document
from dagwright.interfaces.http.error_codes import ErrorCode
from dagwright.interfaces.http.errors import _MODEL_ERRORS, ApiError, api_error
from dagwright.interfaces.http.request_fields import gateway_options, run_tags
from dagwright.planning.model_calls.model_failure import ModelError, ModelFailure
from dagwright.protocol.failures import run_error_of
from dagwright.protocol.sessions import SessionIdInvalid
from dagwright.store import StoreError
from tests.unit.interfaces.http.test_document import OPENAPI_DOCUMENT, OPERATIONS


def test_operations_have_names_that_a_generated_client_can_use() -> None:
    names = [operation["operationId"] for operation in OPERATIONS.values()]
    assert [name for name in names if not re.fullmatch(r"[a-z]+([A-Z][a-z]+)+", name)] == []
    assert len({*names}) == len(names)


def test_events_and_nodes_have_schemas() -> None:
    schemas = OPENAPI_DOCUMENT["components"]["schemas"]
    (content,) = OPERATIONS["GET /v1/runs/{run_id}/events"]["responses"]["200"]["content"].values()
    schema_by_event = {}
    for event in content["itemSchema"]["oneOf"]:
        reference = event["properties"]["data"]["contentSchema"]["$ref"]
        schema_by_event[event["properties"]["event"]["const"]] = reference.rpartition("/")[2]
    expected = {"node.started": "NodeEventDocument", "run.waiting": "RunEventDocument"}
    expected |= {"run.failed": "RunEndEvent", "error": "ErrorEvent"}
    assert expected.items() <= schema_by_event.items()
    assert {*schema_by_event.values(), "OrchestrationEvent", "CompletionChunk", "ResponseEvent"} <= {*schemas}
    nodes = schemas["RunDocument"]["properties"]["nodes"]
    assert nodes["additionalProperties"] == {"$ref": "#/components/schemas/NodeState"}
    assert {"status", "attempts", "result", "error", "lineage"} <= {*schemas["NodeState"]["properties"]}


@pytest.mark.parametrize("path", ["/v1/models", "/v1/runs", "/v1/nothing", "/console/"])
async def test_response_has_the_id_of_its_request(http: httpx.AsyncClient, path: str) -> None:
    async def request_id_of_response(**headers: str) -> str:
        return str((await http.get(path, headers=headers)).headers["x-request-id"])

    assert await request_id_of_response(**{"X-Request-Id": "order-4711:1"}) == "order-4711:1"
    generated_ids = [
        await request_id_of_response(),
        await request_id_of_response(),
        await request_id_of_response(**{"X-Request-Id": "a b" * 100}),
    ]
    assert all(re.fullmatch("req_[0-9a-f]{32}", request_id) for request_id in generated_ids)
    assert len({*generated_ids}) == 3


def _node(status: str, message: str | None = None) -> dict[str, Any]:
    return {"status": status, "error": None if message is None else {"code": "tool_failed", "message": message}}


def _failed_run(nodes: Any, error: Any = None, **fields: Any) -> dict[str, Any]:
    return {"status": "failed", "error": error, "nodes": nodes, **fields}


def _error(code: str, message: str, node_id: str | None = None) -> dict[str, Any]:
    return {"code": code, "message": message, "node_id": node_id}


FAILED_NODE = _node("failed", "no")
TWO_FAILED_NODES = {name: _node("failed", name * 2) for name in "ab"}
NODES_IN_REGIONS = {"nodes_ref": {"ref": "regions", "counts": {"failed": 2}}}
NODES_IN_HISTORY = {"nodes_ref": {"ref": "history", "counts": {"failed": 3}}}


@pytest.mark.parametrize(
    ("document", "error"),
    [
        ({"status": "completed", "error": None, "nodes": {"a": _node("completed")}}, None),
        (_failed_run({}, {"code": "deadline", "message": "20m are over"}), _error("deadline", "20m are over")),
        (_failed_run({"a": _node("completed"), "b": FAILED_NODE}), _error("node_failed", "'b' failed: no", "b")),
        (_failed_run(TWO_FAILED_NODES), _error("node_failed", "'a' failed: aa; 1 more failed", "a")),
        (
            _failed_run({"a": FAILED_NODE}, _error("node_failed", "3 nodes failed"), **NODES_IN_REGIONS),
            _error("node_failed", "'a' failed: no; 2 more failed", "a"),
        ),
        (_failed_run({}, **NODES_IN_HISTORY), _error("node_failed", "3 nodes failed")),
        (_failed_run({"a": _node("skipped")}), _error("nothing_completed", "no required node was completed")),
    ],
)
def test_error_of_a_failed_run_has_message_and_node(document: dict[str, Any], error: dict[str, Any] | None) -> None:
    assert run_error_of(document) == error


def test_metadata_of_a_run_has_no_fields_of_the_gateway() -> None:
    options = gateway_options({"metadata": {"session_id": "main", "order": "4711"}}, {})
    assert (options.session_id, options.metadata) == ("main", {"order": "4711"})


@pytest.mark.parametrize("metadata", [{"a b": "1"}, {"a": 1}, {"a": "x" * 300}, {str(n): "" for n in range(21)}])
def test_invalid_tags_of_a_run_are_rejected(metadata: dict[str, Any]) -> None:
    with pytest.raises(ApiError, match=r"^metadata: ") as error:
        run_tags(metadata, name="metadata")
    assert (error.value.status, error.value.param) == (400, "metadata")
    assert "tag" not in str(error.value)
    with pytest.raises(ApiError, match=r"^tags: .*tag") as error:
        run_tags(metadata)
    assert (error.value.status, error.value.param) == (400, "tags")


@asynccontextmanager
async def _connection_closing_server(keys: list[str | None]) -> AsyncIterator[str]:
    """Yield the address of a server that records each `Idempotency-Key` and closes the connection."""

    async def close_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        headers = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if line)
        keys.append(headers.get("idempotency-key"))
        writer.close()

    async with await asyncio.start_server(close_connection, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        yield f"http://{host}:{port}/v1"


@pytest.mark.parametrize(
    ("headers", "expected_keys"),
    [({}, [None, None]), ({"Idempotency-Key": "order-4711"}, ["order-4711", "order-4711"])],
)
async def test_client_retries_with_the_same_idempotency_key(headers: Any, expected_keys: list[str | None]) -> None:
    keys: list[str | None] = []
    async with (
        _connection_closing_server(keys) as address,
        openai.AsyncOpenAI(base_url=address, api_key="none", max_retries=1) as client,
    ):
        with pytest.raises(openai.APIConnectionError):
            await client.chat.completions.create(
                model="plan/publish", messages=[{"role": "user", "content": "{}"}], extra_headers=headers
            )
    assert keys == expected_keys
    assert openai.DEFAULT_MAX_RETRIES == 2


def rpc_error(status: RPCStatusCode) -> RPCError:
    return RPCError("no", status, b"")


def api_error_of(error: Exception) -> ApiError:
    http_error = api_error(error)
    assert http_error is not None
    return http_error


SEVEN_S = timedelta(seconds=7)
NO_RETRY = {"x-should-retry": "false"}


@pytest.mark.parametrize(
    ("error", "status", "code", "headers"),
    [
        (rpc_error(RPCStatusCode.UNAVAILABLE), 503, "server_unavailable", {"Retry-After": "2"}),
        (rpc_error(RPCStatusCode.RESOURCE_EXHAUSTED), 429, "server_busy", {"Retry-After": "2"}),
        (StoreError("x"), 503, "store_unavailable", {"Retry-After": "2"}),
        (ServerRejected("x"), 400, "server_rejected", {}),
        (CommandRejected("x"), 400, "command_rejected", {}),
        (ForkRejected("x"), 400, "fork_rejected", {}),
        (RunIdInUse("x"), 409, "idempotency_key_in_use", NO_RETRY),
        (TurnRejected("no_worker", "x"), 503, "no_worker", {"Retry-After": "2"}),
        (TurnRejected("session_ending", "x"), 409, "session_ending", {}),
        (PlanInvalid([Problem("too_large", "x")]), 400, "too_large", {}),
        (ModelFailure(ModelError.BUSY, "x", delay=SEVEN_S), 429, "rate_limit_exceeded", {"Retry-After": "7"}),
        (ModelFailure(ModelError.QUOTA_EXCEEDED, "x"), 429, "insufficient_quota", NO_RETRY),
    ],
)
def test_error_has_its_status_its_code_and_its_headers(
    error: Exception, status: int, code: str, headers: dict[str, str]
) -> None:
    http_error = api_error_of(error)
    assert (http_error.status, http_error.code, dict(http_error.headers)) == (status, code, headers)
    extra_fields = {"errors"} if isinstance(error, PlanInvalid) else set()
    assert set(http_error.body()["error"]) == {"message", "type", "param", "code"} | extra_fields


def test_error_codes_have_exactly_the_types_of_the_api() -> None:
    types = {"invalid_request_error", "server_error", "run_error", "rate_limit_error", "insufficient_quota"}
    assert {code.type for code in ErrorCode} == types


def test_error_messages_use_terms_of_the_api_and_unknown_errors_are_not_converted() -> None:
    run_id_error, session_error = api_error_of(RunIdInvalid("x")), api_error_of(SessionIdInvalid("x"))
    assert (run_id_error.code, run_id_error.param) == ("invalid_run_id", None)
    assert (session_error.code, session_error.param) == ("invalid_session_id", "session_id")
    assert api_error_of(ForkRejected("rerun 'z': no such node")).message == "rerun 'z': no such node"
    id_error = api_error_of(RunIdInUse("the id is in use; choose another id"))
    assert id_error.message == "the id is in use; send another request with another Idempotency-Key"
    assert set(_MODEL_ERRORS) == set(ModelError)
    assert [api_error(error) for error in (ZeroDivisionError(), rpc_error(RPCStatusCode.INTERNAL))] == [None, None]


def test_hint_of_a_problem_is_shown_once() -> None:
    plan = {"plan": 1, "nodes": [{"id": "a", "tool": "t"}, {"id": "b", "tool": "t", "when": "aa.result > 1"}]}
    with pytest.raises(PlanInvalid) as error:
        check_document(Document(plan), tools={"t": ToolDeclaration("t")})
    http_error = api_error_of(error.value)
    assert http_error.message == str(error.value) == "when: there is no node 'aa' (did you mean 'a'?)"
    (problem,) = http_error.errors
    assert (problem["message"], problem["hint"]) == ("when: there is no node 'aa'", "did you mean 'a'?")
