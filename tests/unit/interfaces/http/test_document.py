"""The OpenAPI document: complete, with examples that match their schemas."""

import asyncio
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import jsonschema_rs
import pytest

from dagwright.interfaces.http.api_keys import KeyFile
from dagwright.interfaces.http.app import create_app
from dagwright.interfaces.http.callers import KeyScope
from dagwright.interfaces.http.context import GatewayContext
from dagwright.interfaces.http.key_limits import KeyLimits, KeyUsage
from dagwright.interfaces.http.request_fields import RoutingMode, StreamProgress
from dagwright.protocol.run_labels import ALL_OWNERS
from dagwright.settings import Settings
from tests.unit.interfaces.http.conftest import OfflineGateway, status_and_code_of

_USAGE = KeyUsage(KeyLimits(1, 1, 1, 1_024, 1_024), lambda: 0.0)
_CONTEXT = SimpleNamespace(settings=Settings(), keys=KeyFile(Path("none")), usage=_USAGE, stop_event=asyncio.Event())
OPENAPI_DOCUMENT: dict[str, Any] = create_app(cast(GatewayContext, _CONTEXT)).openapi()


def operations() -> Iterator[tuple[str, Mapping[str, Any]]]:
    for path, methods in OPENAPI_DOCUMENT["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


OPERATIONS = dict(operations())
RUN_OPERATIONS = [name for name in OPERATIONS if "/v1/runs" in name or "/v1/sessions" in name or "/v1/plans" in name]


PATH_VALUES = {"node_id": "sum", "name": "double"}
"""Name of a path parameter -> its value in requests. Other path parameters have the value `run-1`."""
PATHS_WITHOUT_SERVER = ("/v1/plans/check", "/v1/plans/double")


def with_components(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {**schema, "components": OPENAPI_DOCUMENT["components"]}


@pytest.mark.parametrize("name", list(OPERATIONS))
def test_operation_has_a_summary_and_error_responses(name: str) -> None:
    operation = OPERATIONS[name]
    responses = operation["responses"]
    assert (operation["summary"] != "", operation["tags"] != []) == (True, True)
    if "/v1/" in name:
        assert {"400", "401", "429", "503"} <= set(responses)
        assert all("Retry-After" in responses[status]["headers"] for status in ("429", "503"))


@pytest.mark.parametrize("name", list(OPERATIONS))
def test_example_of_a_response_matches_its_schema(name: str) -> None:
    for media_type, content in OPERATIONS[name]["responses"]["200"]["content"].items():
        if media_type == "text/event-stream":
            assert content["example"].endswith("\n\n")
            for block in content["example"].split("\n\n")[:-1]:
                fields = dict(line.split(": ", 1) for line in block.split("\n"))
                jsonschema_rs.validate(content["itemSchema"], fields)
                assert fields["data"] == "[DONE]" or json.loads(fields["data"])
        else:
            # An empty schema would accept any example.
            assert content["schema"]
            jsonschema_rs.validate(with_components(content["schema"]), content["example"])


@pytest.mark.parametrize("name", list(OPERATIONS))
def test_operation_has_the_expected_error_statuses_with_valid_examples(name: str) -> None:
    error_responses = {
        status: response for status, response in OPERATIONS[name]["responses"].items() if status >= "400"
    }
    for response in error_responses.values():
        (content,) = response["content"].values()
        jsonschema_rs.validate(with_components(content["schema"]), content["example"])
        assert {"message", "type", "code"} <= set(content["example"]["error"])
    method, path = name.split(" ")
    common_statuses = {"400", "401", "403", "429", "503"}
    if path in ("/v1/chat/completions", "/v1/responses"):
        assert set(error_responses) == {*common_statuses, "404", "409", "413", "422", "502"}
    elif path == "/v1/plans/check":
        assert set(error_responses) == {*common_statuses, "413"}
    elif method == "POST":
        assert set(error_responses) - {"409"} == {*common_statuses, "404", "413"}
        assert ("409" in error_responses) is (path != "/v1/responses/{response_id}/cancel")
    elif method == "PUT":
        assert set(error_responses) == {*common_statuses, "404", "413"}
    elif path.startswith("/v1/"):
        # Lists have no 404: an empty list is a valid response.
        assert set(error_responses) == ({*common_statuses, "404"} if "{" in path else common_statuses)


@pytest.mark.parametrize("path", ["chat/completions", "responses"])
def test_openai_endpoint_documents_the_fields_and_headers_of_the_gateway(path: str) -> None:
    operation = OPERATIONS[f"POST /v1/{path}"]
    headers = {parameter["name"]: parameter for parameter in operation["parameters"] if parameter["in"] == "header"}
    gateway_headers = {"X-Routing-Mode", "X-Session-Id", "X-Stream-Progress", "X-Cancel-On-Disconnect"}
    assert {*gateway_headers, "Idempotency-Key"} <= {*headers}
    reference = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"]
    fields = OPENAPI_DOCUMENT["components"]["schemas"][reference.rpartition("/")[2]]["properties"]
    for field, header, values in (
        ("routing_mode", "X-Routing-Mode", [*RoutingMode]),
        ("stream_progress", "X-Stream-Progress", [*StreamProgress]),
    ):
        for schema in (fields[field], headers[header]["schema"]):
            assert schema["anyOf"][0] == {"type": "string", "enum": values}
    responses = operation["responses"]
    assert {*responses["200"]["headers"]} == {"X-Run-Id", "X-Session-Id", "X-Routing-Mode", "x-request-id"}
    assert "X-Run-Id" in responses["422"]["headers"]


@pytest.mark.parametrize("path", ["responses/{response_id}", "runs/{run_id}/answer"])
def test_stream_of_a_response_or_run_documents_the_values_of_stream_progress(path: str) -> None:
    parameters = OPERATIONS[f"GET /v1/{path}"]["parameters"]
    schemas = {(parameter["in"], parameter["name"]): parameter["schema"] for parameter in parameters}
    for location in (("query", "stream_progress"), ("header", "X-Stream-Progress")):
        assert schemas[location]["anyOf"][0] == {"type": "string", "enum": [*StreamProgress]}, location


def body_schemas_of(operation: Mapping[str, Any]) -> tuple[Any, list[Any]]:
    """Return the schema of the body of an operation, and the component schemas that the body schema refers to."""
    schema = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    references = [part["$ref"] for part in [*schema.get("anyOf", ()), schema] if "$ref" in part]
    return schema, [OPENAPI_DOCUMENT["components"]["schemas"][reference.rpartition("/")[2]] for reference in references]


@pytest.mark.parametrize("name", [name for name in RUN_OPERATIONS if "requestBody" in OPERATIONS[name]])
def test_examples_of_a_body_match_its_schema(name: str) -> None:
    schema, (component,) = body_schemas_of(OPERATIONS[name])
    assert component["examples"]
    # FastAPI omits the examples of an optional body, so the gateway adds them.
    assert "$ref" in schema or schema["examples"] == component["examples"]
    for example in component["examples"]:
        jsonschema_rs.validate(with_components(component), example)


def example_requests() -> Iterator[Any]:
    for name in RUN_OPERATIONS:
        method, path = name.split(" ")
        for parameter in OPERATIONS[name].get("parameters", ()):
            path = path.replace(f"{{{parameter['name']}}}", PATH_VALUES.get(parameter["name"], "run-1"))
        _, components = body_schemas_of(OPERATIONS[name])
        examples = [example for component in components for example in component["examples"]]
        for number, body in enumerate(examples or [None]):
            yield pytest.param(method, path, body, id=f"{name} {number}")


def scope_of(method: str, path: str) -> KeyScope | None:
    """Return the scope that a request needs, according to docs/guides/api-keys.md; `None` for read-only requests."""
    if method == "GET" or path == "/v1/plans/check":
        return None
    return KeyScope.RUN if path == "/v1/runs" else KeyScope.ANSWER if path.endswith("/feedback") else KeyScope.OPERATE


@pytest.mark.parametrize(("method", "path", "body"), list(example_requests()))
async def test_example_is_accepted_with_the_scope_that_it_needs(
    offline_gateway: OfflineGateway, method: str, path: str, body: Any
) -> None:
    http, client, context = offline_gateway
    # 503 means that the gateway accepts the request, but Temporal does not respond.
    response_without_keys = await http.request(method, path, json=body)
    assert response_without_keys.status_code == (503 if client.calls else 200), response_without_keys.text
    assert client.calls or path in PATHS_WITHOUT_SERVER
    client.calls.clear()
    scope = scope_of(method, path)
    keys = KeyFile(context.settings.api_keys)

    async def response_to_key(scopes: list[KeyScope]) -> httpx.Response:
        _, key = keys.add(ALL_OWNERS, scopes)
        return await http.request(method, path, json=body, headers={"Authorization": f"Bearer {key}"})

    if scope is not None:
        response = await response_to_key([other_scope for other_scope in KeyScope if other_scope is not scope])
        assert (status_and_code_of(response), client.calls) == ((403, "insufficient_scope"), [])
    accepted_response = await response_to_key([] if scope is None else [scope])
    assert accepted_response.status_code == (503 if client.calls else 200), accepted_response.text


@pytest.mark.parametrize(("host", "status"), [("localhost", 200), ("127.0.0.1", 200), ("0.0.0.0", 404)])
async def test_swagger_ui_and_redoc_are_on_for_localhost_only(host: str, status: int) -> None:
    app = create_app(cast(GatewayContext, _CONTEXT), host=host)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
        for path, title in (("/docs", "Swagger UI"), ("/redoc", "ReDoc")):
            response = await client.get(path)
            assert (response.status_code, title in response.text) == (status, status == 200)


async def test_swagger_ui_and_redoc_load_files_of_the_gateway_only_and_need_no_key(tmp_path: Path) -> None:
    keys = KeyFile(tmp_path / "keys.json")
    keys.add(ALL_OWNERS, [])
    app = create_app(cast(GatewayContext, SimpleNamespace(**vars(_CONTEXT) | {"keys": keys})))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
        pages = [await client.get(path) for path in ("/docs", "/redoc")]
        files = sorted({file for page in pages for file in re.findall(r'(?:src|href)="([^"]*)"', page.text)})
        names = ("favicon.png", "redoc.standalone.js", "swagger-ui-bundle.js", "swagger-ui.css")
        assert files == [f"/docs/{name}" for name in names]
        assert [(await client.get(file)).status_code for file in files] == [200] * len(files)
    assert all("default-src 'self'" in page.headers["content-security-policy"] for page in pages)
