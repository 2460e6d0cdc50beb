"""`http_request` and `serper_web_search` against a real server on this machine."""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from dagwright.tools import GiveUp, NotStarted, RetryLater
from dagwright.tools.builtin.addresses import AddressNotAllowed
from dagwright.tools.builtin.http import HttpCall, _send, decode_body, http_tools
from dagwright.tools.builtin.web_search import web_search_tools
from dagwright.tools.environment import ToolEnvironment
from dagwright.tools.errors import SecretNotAllowed
from dagwright.tools.secret_bindings import may_send_to
from dagwright.tools.testing import RecordedCall, tool_context
from tests.support.http_servers import ReceivedRequest, ServiceResponse, serve_requests


class Service:
    """A server that sends its responses in order. An unused or missing response fails the test."""

    def __init__(self) -> None:
        self.responses: list[ServiceResponse] = []
        self.received_requests: list[ReceivedRequest] = []
        self.url = ""

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])


@pytest.fixture
def service() -> Iterator[Service]:
    service = Service()

    def respond(request: ReceivedRequest) -> ServiceResponse:
        service.received_requests.append(request)
        return service.responses.pop(0) if service.responses else ServiceResponse(599, b"not expected")

    with serve_requests(respond, protocol="HTTP/1.1") as url:
        service.url = url
        yield service
    assert service.responses == []


@pytest.fixture
def call() -> Iterator[RecordedCall]:
    with tool_context(idempotency_key="key-1") as recorded_call:
        yield recorded_call


ToolFunction = Callable[..., Any]


def http_request_tool(
    addresses_by_name: dict[str, list[str]] | None = None, *, allow_private: bool = True
) -> ToolFunction:
    """Return the tool `http_request`. With `addresses_by_name`, the tool resolves only these names."""

    async def resolve(host: str, port: int) -> list[str]:
        return (addresses_by_name or {})[host]

    environment = ToolEnvironment(Path(), allow_private_addresses=allow_private)
    [function] = http_tools(environment) if addresses_by_name is None else http_tools(environment, resolve)
    return function


def json_response(value: Any, **headers: str) -> ServiceResponse:
    return ServiceResponse(200, json.dumps(value).encode(), {"Content-Type": "application/json", **headers})


async def test_request_is_sent_and_json_is_parsed(service: Service, call: RecordedCall) -> None:
    service.responses = [json_response({"a": [1]}, ETag="x", **{"Set-Cookie": "s=1"})]
    result = await http_request_tool()(
        service.url + "/p?a=1", "POST", query={"b": "é"}, headers={"X-Token": "t"}, body={"k": "é"}
    )
    assert (result["status"], result["url"], result["body"]) == (200, f"{service.url}/p?a=1&b=%C3%A9", {"a": [1]})
    assert result["headers"]["etag"] == "x"
    assert "set-cookie" not in result["headers"]
    [request] = service.received_requests
    assert (request.method, request.path, request.body) == ("POST", "/p?a=1&b=%C3%A9", '{"k": "é"}'.encode())
    assert {name: request.headers[name] for name in ("X-Token", "Idempotency-Key", "Content-Type", "Host")} == {
        "X-Token": "t",
        "Idempotency-Key": "key-1",
        "Content-Type": "application/json",
        "Host": f"127.0.0.1:{service.port}",
    }


async def test_resolved_address_is_checked_and_used(service: Service, call: RecordedCall) -> None:
    service.responses = [ServiceResponse(200, b"ok")]
    result = await http_request_tool({"svc.example": ["127.0.0.1"]})(f"http://svc.example:{service.port}/")
    assert (result["body"], result["url"]) == ("ok", f"http://svc.example:{service.port}/")
    assert service.received_requests[0].headers["Host"] == f"svc.example:{service.port}"


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:{port}/",
        "http://localhost:{port}/",
        "http://2130706433:{port}/",
        "http://0x7f.1:{port}/",
        "http://0.0.0.0:{port}/",
        "http://[::1]:{port}/",
        "http://[::ffff:127.0.0.1]:{port}/",
        "http://[::]:{port}/",
        "http://10.0.0.1/",
        "http://169.254.169.254/latest/meta-data/",
    ],
)
async def test_private_address_is_rejected_in_every_notation(service: Service, call: RecordedCall, url: str) -> None:
    with pytest.raises(AddressNotAllowed, match="not a public address"):
        await http_request_tool(allow_private=False)(url.format(port=service.port))
    assert service.received_requests == []


async def test_private_address_among_public_addresses_is_rejected(call: RecordedCall) -> None:
    with pytest.raises(AddressNotAllowed):
        await http_request_tool({"svc.example": ["93.184.216.34", "10.0.0.1"]}, allow_private=False)(
            "http://svc.example/"
        )


async def test_redirect_to_another_host_drops_the_headers_of_the_plan(service: Service, call: RecordedCall) -> None:
    service.responses = [
        ServiceResponse(301, headers={"Location": "/next"}),
        ServiceResponse(302, headers={"Location": f"http://b.example:{service.port}/end"}),
        ServiceResponse(200, b"done"),
    ]
    http_request = http_request_tool({"a.example": ["127.0.0.1"], "b.example": ["127.0.0.1"]})
    headers = {"X-Token": "t", "Authorization": "Bearer t"}
    result = await http_request(f"http://a.example:{service.port}/", headers=headers)
    assert result["body"] == "done"
    sent_fields = [
        (sent.path, sent.headers.get("X-Token"), sent.headers.get("Authorization"))
        for sent in service.received_requests
    ]
    assert sent_fields == [("/", "t", "Bearer t"), ("/next", "t", "Bearer t"), ("/end", None, None)]


async def test_body_is_not_forwarded_to_another_host(service: Service, call: RecordedCall) -> None:
    service.responses = [ServiceResponse(307, headers={"Location": "http://b.example/"})]
    http_request = http_request_tool({"a.example": ["127.0.0.1"]})
    with pytest.raises(GiveUp, match=r"redirects the POST to another host, 'b\.example'"):
        await http_request(f"http://a.example:{service.port}/", "POST", body="x")


async def test_endless_redirects_are_stopped(service: Service, call: RecordedCall) -> None:
    service.responses = [ServiceResponse(302, headers={"Location": "/again"}) for _ in range(6)]
    with pytest.raises(GiveUp, match="redirected more than 5 times"):
        await http_request_tool()(service.url)


@pytest.mark.parametrize(
    ("method", "response", "error_type", "delay"),
    [
        ("GET", ServiceResponse(429, b"slow", {"Retry-After": "7"}), RetryLater, timedelta(seconds=7)),
        ("POST", ServiceResponse(429, b"slow", {"Retry-After": "7"}), RetryLater, timedelta(seconds=7)),
        (
            "GET",
            ServiceResponse(503, b"", {"Retry-After": "Sun, 01 Jan 2100 00:00:00 GMT"}),
            RetryLater,
            timedelta(days=1),
        ),
        ("GET", ServiceResponse(500, b"no"), RetryLater, None),
        ("PUT", ServiceResponse(502, b"no"), GiveUp, None),
        ("POST", ServiceResponse(500, b"no"), GiveUp, None),
        ("PATCH", ServiceResponse(503, b"no"), GiveUp, None),
        ("GET", ServiceResponse(404, b"not found"), GiveUp, None),
        ("GET", ServiceResponse(304), GiveUp, None),
        ("GET", ServiceResponse(0), RetryLater, None),
        ("POST", ServiceResponse(0), GiveUp, None),
    ],
)
async def test_failure_is_retried_only_if_a_repeated_request_is_safe(
    service: Service,
    call: RecordedCall,
    *,
    method: str,
    response: ServiceResponse,
    error_type: type[Exception],
    delay: timedelta | None,
) -> None:
    service.responses = [response]
    with pytest.raises(error_type) as caught:
        await http_request_tool()(f"http://user:pass@127.0.0.1:{service.port}/p?token=t", method)
    assert type(caught.value) is error_type
    assert getattr(caught.value, "after", None) == delay
    assert str(caught.value).startswith(f"{method} {service.url}/p ")
    if method != "GET":
        assert call.heartbeats[0] == {"sent": True}
        assert call.heartbeats[-1] == {"sent": error_type is not RetryLater}


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
async def test_request_that_the_plan_declares_idempotent_is_retried(service: Service, method: str) -> None:
    service.responses = [ServiceResponse(502, b"no")]
    with tool_context(effects="idempotent") as call, pytest.raises(RetryLater):
        await http_request_tool()(service.url, method)
    assert call.heartbeats == []


async def test_post_of_a_crashed_attempt_is_not_repeated(service: Service) -> None:
    with tool_context(attempt=2, last_heartbeat={"sent": True}), pytest.raises(GiveUp, match="outcome is unknown"):
        await http_request_tool()(service.url, "POST")
    assert service.received_requests == []


async def test_excerpt_of_a_response_ends_at_a_whole_word(service: Service, call: RecordedCall) -> None:
    service.responses = [ServiceResponse(404, b"no " + b"x" * 390 + b" token=s3cr3t-of-the-call")]
    with pytest.raises(GiveUp, match=r"returned 404: no x{390}\s*\Z"):
        await http_request_tool()(service.url)


async def test_response_with_an_expected_status_is_a_result(service: Service, call: RecordedCall) -> None:
    service.responses = [ServiceResponse(404, b"none"), ServiceResponse(302, headers={"Location": "/x"})]
    assert (await http_request_tool()(service.url, expected_statuses=[404]))["status"] == 404
    assert (await http_request_tool()(service.url, expected_statuses=[302]))["headers"]["location"] == "/x"


async def test_response_size_and_request_time_are_limited(service: Service, call: RecordedCall) -> None:
    limit = 16 * 1024 * 1024
    service.responses = [ServiceResponse(200, b"x" * limit), ServiceResponse(200, b"x" * (limit + 1))]
    assert len((await http_request_tool()(service.url))["body"]) == limit
    with pytest.raises(GiveUp, match=r"over 16,777,216 bytes, the limit for a result; request less"):
        await http_request_tool()(service.url)
    with (
        ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as silent_server,
        pytest.raises(RetryLater, match=r"after 0\.05 s"),
    ):
        await http_request_tool()(f"http://127.0.0.1:{silent_server.server_address[1]}", timeout_s=0.05)


async def test_connection_failure_is_reported_as_not_started(service: Service, call: RecordedCall) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as closed_server:
        port = closed_server.server_address[1]
    with pytest.raises(NotStarted, match="failed: ConnectError"):
        await http_request_tool()(f"http://127.0.0.1:{port}/", "POST")
    assert call.heartbeats == [{"sent": True}, {"sent": False}]
    with pytest.raises(NotStarted, match="has no address"):
        await http_request_tool({"no.example": []})("http://no.example/")


async def test_next_address_is_tried_if_the_first_does_not_respond(service: Service, call: RecordedCall) -> None:
    service.responses = [ServiceResponse(200, b"ok")]
    http_request = http_request_tool({"two.example": ["127.0.0.2", "127.0.0.1"]})
    assert (await http_request(f"http://two.example:{service.port}/", "PUT", body="x"))["body"] == "ok"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"url": "ftp://example.org"}, "must start with http"),
        ({"url": "file:///etc/passwd"}, "must start with http"),
        ({"url": "nothing"}, "must start with http"),
        ({"url": "http://"}, "must start with http"),
        ({"url": "http://a:b:c/"}, "The url is invalid"),
        ({"timeout_s": 301}, "timeout_s is 301"),
        ({"headers": {"Transfer-Encoding": "x"}}, "belongs to the connection"),
        ({"headers": {"transfer_encoding": "x"}}, "belongs to the connection"),
        ({"body": {"delete": 1}}, "a GET request takes no body"),
        ({"method": "HEAD", "body": "x"}, "a HEAD request takes no body"),
        ({"headers": {"X-HTTP-Method-Override": "DELETE"}}, "would override the method"),
        ({"headers": {"X-HTTP-Method": "DELETE"}}, "would override the method"),
        ({"headers": {"x_method_override": "PUT"}}, "would override the method"),
        ({"method": "OPTIONS", "headers": {"X-METHOD-OVERRIDE": "PUT"}}, "would override the method"),
    ],
)
async def test_invalid_requests_are_rejected(call: RecordedCall, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        await http_request_tool()(**{"url": "http://example.org", **arguments})


async def test_post_may_override_its_method_and_get_may_have_an_empty_body(
    service: Service, call: RecordedCall
) -> None:
    service.responses = [ServiceResponse(200, b"ok"), ServiceResponse(200, b"ok")]
    await http_request_tool()(service.url, "POST", headers={"X-HTTP-Method-Override": "PATCH"}, body={"a": 1})
    await http_request_tool()(service.url, body="")
    assert [request.headers.get("X-HTTP-Method-Override") for request in service.received_requests] == ["PATCH", None]


async def test_header_with_a_line_break_is_rejected(service: Service, call: RecordedCall) -> None:
    with pytest.raises((GiveUp, ValueError)):
        await http_request_tool()(service.url, headers={"X-A": "b\r\nX-C: d"})
    assert service.received_requests == []


@pytest.mark.parametrize(
    ("content", "content_type", "value"),
    [
        (b'{"a": 1}', "application/problem+json; charset=utf-8", {"a": 1}),
        (b"{broken", "application/json", "{broken"),
        (b"[NaN]", "application/json", "[NaN]"),
        ("é".encode("latin-1"), "text/plain; charset=latin-1", "é"),
        ("é".encode("latin-1"), "text/plain", {"base64": "6Q=="}),
        (b"a\0b", "", {"base64": "YQBi"}),
        (b"plain", "text/plain; charset=nonsense", {"base64": "cGxhaW4="}),
        (b"", "application/json", None),
    ],
)
def test_body_becomes_json_or_text_or_base64(content: bytes, content_type: str, value: Any) -> None:
    assert decode_body(content, content_type) == value


def search_tool(url: str) -> ToolFunction:
    function, _ = web_search_tools(ToolEnvironment(Path(), serper_api_key="k", serper_base_url=url))
    return function


@pytest.mark.parametrize(
    "response", [ServiceResponse(200, b"<html>"), json_response([1]), json_response({"organic": ["x"]})]
)
async def test_invalid_search_response_is_retried(service: Service, response: ServiceResponse) -> None:
    service.responses = [response]
    with pytest.raises(RetryLater, match="Invalid response of the search service"):
        await search_tool(service.url)("x")


@pytest.mark.parametrize(
    ("patterns", "is_allowed"),
    [
        ((("127.0.0.1",),), True),
        ((("127.0.0.1", "other.example"), ("127.0.0.1",)), True),
        ((("127.0.0.1:{port}",),), True),
        ((("127.0.0.1:1",),), False),
        ((("other.example",),), False),
        ((("127.0.0.1",), ("other.example",)), False),
        (((),), False),
    ],
)
async def test_secrets_are_sent_only_to_bound_hosts(
    service: Service, patterns: tuple[tuple[str, ...], ...], is_allowed: bool
) -> None:
    hosts = tuple(
        tuple(pattern.format(port=service.port) for pattern in secret_patterns) for secret_patterns in patterns
    )
    service.responses = [ServiceResponse(200, b"ok")] if is_allowed else []
    error = pytest.raises(SecretNotAllowed, match=r"not bound to the host '127\.0\.0\.1'")
    outcome: AbstractContextManager[Any] = nullcontext() if is_allowed else error
    with tool_context(secret_hosts=hosts), outcome:
        await http_request_tool()(service.url)


@pytest.mark.parametrize(
    ("host", "pattern", "expected"),
    [
        ("API.example.com", "api.example.com", True),
        ("a.example.com", "*.example.com", True),
        ("a.b.example.com", "*.example.com", True),
        ("example.com", "*.example.com", False),
        ("badexample.com", "*.example.com", False),
        ("api.example.com.evil.example", "api.example.com", False),
        ("::1", "[::1]:443", True),
        ("::1", "::1", True),
    ],
)
def test_host_pattern_matches_a_host_or_all_its_subdomains(host: str, pattern: str, expected: bool) -> None:
    assert may_send_to("https", host, 443, [[pattern]]) is expected


@pytest.mark.parametrize(
    ("url", "pattern", "expected"),
    [
        ("http://api.example.com/", "api.example.com", False),
        ("http://api.example.com/", "*.example.com", False),
        ("http://api.example.com/", "https://api.example.com", False),
        ("http://api.example.com:8080/", "api.example.com:8080", False),
        ("http://10.0.0.1/", "10.0.0.1", False),
        ("http://127.0.0.1.example.com/", "127.0.0.1.example.com", False),
        ("http://api.example.com/", "http://api.example.com", True),
        ("http://api.example.com/", "HTTP://API.example.com/", True),
        ("http://a.example.com:8080/", "http://*.example.com:8080", True),
        ("http://a.example.com:8081/", "http://*.example.com:8080", False),
        ("https://api.example.com/", "http://api.example.com", True),
        ("https://api.example.com/", "https://api.example.com", True),
        ("https://api.example.com/", "ftp://api.example.com", False),
        ("http://localhost:8080/", "localhost", True),
        ("http://127.0.0.2/", "127.0.0.2", True),
        ("http://[::1]/", "[::1]", True),
        ("http://localhost/", "https://localhost", False),
        ("http://127.0.0.1:8080/", "https://127.0.0.1:8080", False),
        ("https://localhost/", "https://localhost", True),
    ],
)
def test_secret_is_sent_over_plain_http_only_if_the_binding_allows_it(url: str, pattern: str, expected: bool) -> None:
    parsed_url = httpx.URL(url)
    port = parsed_url.port or (443 if parsed_url.scheme == "https" else 80)
    assert may_send_to(parsed_url.scheme, parsed_url.host, port, [[pattern]]) is expected


async def test_secret_bound_to_a_host_is_not_sent_over_plain_http(service: Service) -> None:
    http_request = http_request_tool({"svc.example": ["127.0.0.1"]})
    error = pytest.raises(SecretNotAllowed, match=r"over https only.*http://svc\.example")
    with tool_context(secret_hosts=(("svc.example",),)), error:
        await http_request(f"http://svc.example:{service.port}/", headers={"X-Token": "secret"})
    assert service.received_requests == []


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("status", [302, 307])
@pytest.mark.parametrize("target", ["https://a.example/next", "http://a.example:81/next", "http://b.example/next"])
async def test_request_after_a_redirect_to_another_origin_has_no_secret(method: str, status: int, target: str) -> None:
    assert not _has_secret(await _requests_after_redirect(target, status, method))


@pytest.mark.parametrize(
    ("target", "status", "has_secret"), [("http://a.example/next", 302, False), ("/next", 307, True)]
)
async def test_only_a_redirect_inside_an_https_origin_keeps_the_secret_headers(
    target: str, status: int, has_secret: bool
) -> None:
    [request] = await _requests_after_redirect(target, status, "GET", start_url="https://a.example/")
    assert _has_secret([request]) is has_secret


def _has_secret(requests: list[httpx.Request]) -> bool:
    return any(b"secret" in request.content + repr(request.headers.raw).encode() for request in requests)


async def _requests_after_redirect(
    target: str, status: int, method: str, *, start_url: str = "http://a.example/"
) -> list[httpx.Request]:
    """Send a secret in headers and body. Return the requests after the redirect.

    Return `[]` if the redirect is rejected.
    """
    sent_requests: list[httpx.Request] = []

    def handle(request: httpx.Request) -> httpx.Response:
        sent_requests.append(request)
        return httpx.Response(status, headers={"Location": target}) if len(sent_requests) == 1 else httpx.Response(200)

    secret_headers = {"authorization": "Bearer secret", "x-token": "secret"}
    call = HttpCall(method, httpx.URL(start_url), secret_headers, b"secret", frozenset(), is_repeatable=True)
    with tool_context():
        try:
            await _send(call, httpx.MockTransport(handle))
        except GiveUp:
            assert method == "POST"
    assert _has_secret(sent_requests[:1])
    return sent_requests[1:]
