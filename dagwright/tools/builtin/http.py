"""`http_request`: call a service over HTTP. Private addresses are rejected unless the settings allow them."""

import asyncio
import base64
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import httpx
from pydantic import WithJsonSchema

from dagwright.core.boundary.limits import MAX_BUILT_IN_RESULT_BYTES
from dagwright.core.model.json_schemas import TEXT_FORMAT
from dagwright.core.text import one_line
from dagwright.tools.builtin.addresses import HostResolver, PinnedTransport, resolve_host
from dagwright.tools.context import context, record_reads
from dagwright.tools.environment import ToolEnvironment
from dagwright.tools.errors import GiveUp, NotStarted, RetryLater, SecretNotAllowed
from dagwright.tools.retry_after import requested_delay, requesting_service
from dagwright.tools.secret_bindings import may_send_to
from dagwright.tools.spec import tool

Method = Literal["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"]

HttpUrl = Annotated[str, WithJsonSchema({"type": "string", TEXT_FORMAT: "http_url"})]

MAX_TIMEOUT_S = 300.0
REDIRECTS_LIMIT = 5
MAX_ATTEMPTS = 3
"""Maximum attempts of one request. A request that changes something is retried only if the service did not
process it."""

_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
"""The safe methods (RFC 9110, section 9.2.1)."""
_EFFECTS_BY_METHOD = {"argument": "method", "default": "GET", "effects": dict.fromkeys(_SAFE_METHODS, "read")}
_CONNECTION_HEADERS = frozenset(
    {"connection", "content-length", "host", "te", "trailer", "transfer-encoding", "upgrade"}
)
_METHOD_OVERRIDE_HEADERS = frozenset({"x-http-method", "x-http-method-override", "x-method-override"})
"""Headers from which some services read the method, so a GET with such a header could change something."""
_OMITTED_RESPONSE_HEADERS = frozenset({"set-cookie"})
_EXCERPT_BYTES = 400
_LAST_WORD = re.compile(r"[^\s\"'<>]*\Z")
_TRANSIENT_CLIENT_ERRORS = (httpx.codes.REQUEST_TIMEOUT, httpx.codes.TOO_EARLY)


@dataclass(frozen=True, slots=True)
class HttpCall:
    """One request of a plan.

    Args:
        method: HTTP method in upper case.
        expected_statuses: statuses that count as success, in addition to 200 to 299.
        is_repeatable: whether the request may be processed twice. Other requests are retried only if the service did
            not process them.
    """

    method: str
    url: httpx.URL
    headers: Mapping[str, str]
    body: bytes | None
    expected_statuses: frozenset[int]
    is_repeatable: bool

    @property
    def label(self) -> str:
        """Method and URL without parts that may be secret: user, query and fragment."""
        return f"{self.method} {self.url.copy_with(username=None, password=None, query=None, fragment=None)}"


def http_tools(environment: ToolEnvironment, resolve: HostResolver = resolve_host) -> list[Callable[..., Any]]:
    """Return `http_request`, restricted to public addresses unless the environment allows others."""

    @tool(
        effects="write",
        effects_by=_EFFECTS_BY_METHOD,
        max_attempts=MAX_ATTEMPTS,
        timeout=MAX_TIMEOUT_S + 30,
        sends_to_hosts=True,
    )
    async def http_request(  # noqa: PLR0913 - each is one part of the request, passed by keyword
        url: HttpUrl,
        method: Method = "GET",
        *,
        query: dict[str, str | int | float | bool | None] | None = None,
        headers: dict[str, str] | None = None,
        body: Any = None,
        expected_statuses: list[int] | None = None,
        timeout_s: float = 30.0,
    ) -> dict[str, Any]:
        """Send an HTTP request and return status, url, headers and body; JSON bodies are parsed.

        A status outside 200 to 299 is a failure. The request is retried if the failure may be transient, after the
        delay that the service requests. Methods other than GET, HEAD and OPTIONS are retried only if the service did
        not process the request. Redirects are followed. GET, HEAD and OPTIONS take no body and no header that overrides
        the method.

        Args:
            url: `http` or `https`, at a public address
            method: GET, HEAD, OPTIONS, POST, PUT, PATCH or DELETE
            query: parameters to add to the url
            headers: name -> value; `{{secret.NAME}}` inserts a secret that is bound to the host
            body: text is sent as it is, anything else as JSON
            expected_statuses: statuses that count as success, such as 404
            timeout_s: seconds for the whole request, at most 300
        """
        if not 0 < timeout_s <= MAX_TIMEOUT_S:
            raise ValueError(f"timeout_s is {timeout_s:g}, expected over 0 and at most {MAX_TIMEOUT_S:g}")
        call = HttpCall(
            method,
            _checked_url(url, query),
            _request_headers(headers, body, method=method),
            _request_body(body, method=method),
            frozenset(expected_statuses or ()),
            is_repeatable=method in _SAFE_METHODS or context().effects == "idempotent",
        )
        _check_secret_hosts(call.url)
        _record_sending(call)
        try:
            async with asyncio.timeout(timeout_s):
                return await _send(call, PinnedTransport(environment.allow_private_addresses, resolve))
        except TimeoutError:
            raise _connection_error(call, TimeoutError(f"after {timeout_s:g} s")) from None
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            raise _connection_error(call, error) from None

    return [http_request]


def _check_secret_hosts(url: httpx.URL) -> None:
    """Check that the secrets of a call are bound to the host.

    The check does not cover redirects: `_redirect_request` omits headers and body if the origin changes.
    """
    hosts = context().secret_hosts
    port = url.port or (443 if url.scheme == "https" else 80)
    if hosts is None or may_send_to(url.scheme, url.host, port, hosts):
        return
    if may_send_to("https", url.host, port, hosts):
        raise SecretNotAllowed(
            f"A secret of the request is bound to the host {url.host!r} over https only, and this url is plain "
            f"{url.scheme}; use https, or write http://{url.host} in DAGWRIGHT_SECRET_NAME_HOSTS on the worker"
        )
    raise SecretNotAllowed(
        f"A secret of the request is not bound to the host {url.host!r}; set its hosts in "
        "DAGWRIGHT_SECRET_NAME_HOSTS on the worker"
    )


async def _send(call: HttpCall, transport: httpx.AsyncBaseTransport) -> dict[str, Any]:
    timeout = httpx.Timeout(MAX_TIMEOUT_S)
    async with httpx.AsyncClient(transport=transport, trust_env=False, timeout=timeout) as client:
        request = client.build_request(call.method, call.url, headers=dict(call.headers), content=call.body)
        for _ in range(REDIRECTS_LIMIT + 1):
            response = await client.send(request, stream=True)
            try:
                if response.next_request is None or response.status_code in call.expected_statuses:
                    record_reads(str(request.url))
                    return await _read_result(call, response)
                request = _redirect_request(client, request, response.next_request)
            finally:
                await response.aclose()
    raise GiveUp(f"{call.label} was redirected more than {REDIRECTS_LIMIT} times")


def _redirect_request(client: httpx.AsyncClient, request: httpx.Request, next_request: httpx.Request) -> httpx.Request:
    """Return the next request. For another origin, the next request has no body and no headers of the first request."""
    if next_request.url.scheme not in ("http", "https"):
        raise GiveUp(f"The service redirects to {next_request.url.scheme!r}, which is not HTTP")
    if (request.url.scheme, request.url.host, request.url.port) == (
        next_request.url.scheme,
        next_request.url.host,
        next_request.url.port,
    ):
        return next_request
    if next_request.method not in _SAFE_METHODS:
        raise GiveUp(f"The service redirects the {next_request.method} to another host, {next_request.url.host!r}")
    return client.build_request(next_request.method, next_request.url)


async def _read_result(call: HttpCall, response: httpx.Response) -> dict[str, Any]:
    content = bytearray()
    async for chunk in response.aiter_bytes():
        content += chunk
        if len(content) > MAX_BUILT_IN_RESULT_BYTES:
            message = f"{call.label}: the response has over {MAX_BUILT_IN_RESULT_BYTES:,} bytes, the limit for a result"
            raise GiveUp(f"{message}; request less, or write a tool that processes it directly")
    if not response.is_success and response.status_code not in call.expected_statuses:
        raise _status_error(call, response, bytes(content))
    headers = {name: value for name, value in response.headers.items() if name not in _OMITTED_RESPONSE_HEADERS}
    return {
        "status": response.status_code,
        "url": str(response.request.url.copy_with(username=None, password=None)),
        "headers": headers,
        "body": await asyncio.to_thread(decode_body, bytes(content), response.headers.get("Content-Type", "")),
    }


def decode_body(content: bytes, content_type: str) -> Any:
    """Decode a body as a JSON value, else as text, else as `{"base64": …}`; null if it is empty."""
    if not content:
        return None
    media_type, _, parameters = content_type.lower().partition(";")
    media_type = media_type.strip()
    if media_type == "application/json" or media_type.endswith("+json"):
        try:
            return json.loads(content, parse_constant=_reject_constant)
        except (ValueError, RecursionError):
            pass
    charset = parameters.partition("charset=")[2].partition(";")[0].strip(" \"'") or "utf-8"
    try:
        text = content.decode(charset)
    except (LookupError, UnicodeError):
        return {"base64": base64.b64encode(content).decode()}
    return text if "\0" not in text else {"base64": base64.b64encode(content).decode()}


def _reject_constant(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _checked_url(url: str, query: Mapping[str, Any] | None) -> httpx.URL:
    try:
        parsed_url = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise ValueError(f"The url is invalid: {error}") from None
    if parsed_url.scheme not in ("http", "https") or not parsed_url.host:
        raise ValueError(f"The url must start with http:// or https:// and a host, not {parsed_url.scheme[:20]!r}")
    return parsed_url.copy_merge_params(dict(query)) if query else parsed_url


def _request_headers(headers: Mapping[str, str] | None, body: Any, *, method: str) -> dict[str, str]:
    sent_headers = {name.lower(): value for name, value in (headers or {}).items()}
    for name in sorted(sent_headers):
        # Services behind WSGI and CGI cannot distinguish an underscore from a dash.
        header = name.replace("_", "-")
        if header in _CONNECTION_HEADERS:
            raise ValueError(f"The header {name} belongs to the connection and cannot be set")
        if method in _SAFE_METHODS and header in _METHOD_OVERRIDE_HEADERS:
            raise ValueError(f"The header {name} would override the method {method}; set the method instead")
    if body is not None and not isinstance(body, str):
        sent_headers.setdefault("content-type", "application/json")
    if method not in _SAFE_METHODS:
        sent_headers.setdefault("idempotency-key", context().idempotency_key)
    return sent_headers


def _request_body(body: Any, *, method: str) -> bytes | None:
    if body is None or body == "":
        return None
    if method in _SAFE_METHODS:
        raise ValueError(f"a {method} request takes no body; use query, or POST")
    return (body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)).encode()


def _record_sending(call: HttpCall) -> None:
    """Record in the heartbeat that the request is being sent, if the request must not be repeated.

    If a later attempt finds this record, the earlier attempt died without a response, and the outcome is unknown.
    """
    if call.is_repeatable:
        return
    if context().last_heartbeat == {"sent": True}:
        raise GiveUp(f"{call.label} was sent by an attempt that died before the response; its outcome is unknown")
    context().heartbeat({"sent": True})


def _status_error(call: HttpCall, response: httpx.Response, content: bytes) -> Exception:
    """Convert an unexpected status to an exception whose class decides whether the request is retried."""
    excerpt = one_line(content[:_EXCERPT_BYTES].decode(errors="replace"))
    if len(content) > _EXCERPT_BYTES:
        # Drop the last word: if it is a truncated secret, redaction would not find it.
        excerpt = _LAST_WORD.sub("", excerpt)
    message = f"{call.label} returned {response.status_code}" + (f": {excerpt}" if excerpt else "")
    delay = requested_delay(response.headers)
    requested_by = requesting_service(response.status_code, response.request.url.host)
    if response.status_code == httpx.codes.TOO_MANY_REQUESTS:
        # The service did not process the request, so the next attempt may send it.
        if not call.is_repeatable:
            context().heartbeat({"sent": False})
        return RetryLater(message, after=delay, requested_by=requested_by)
    if call.is_repeatable and (response.is_server_error or response.status_code in _TRANSIENT_CLIENT_ERRORS):
        return RetryLater(message, after=delay, requested_by=requested_by)
    return GiveUp(message)


def _connection_error(call: HttpCall, error: Exception) -> Exception:
    """Convert a connection failure to an exception whose class decides whether the request is retried."""
    message = f"{call.label} failed: {type(error).__name__} {error}".rstrip()
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout):
        if not call.is_repeatable:
            context().heartbeat({"sent": False})
        return NotStarted(message)
    if isinstance(error, httpx.InvalidURL | httpx.UnsupportedProtocol | httpx.LocalProtocolError):
        return GiveUp(message)
    if not call.is_repeatable:
        return GiveUp(f"{message}; its outcome is unknown")
    return RetryLater(message)
