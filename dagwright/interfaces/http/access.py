"""Authentication, rate limits and body size limits for all endpoints.

The middleware uses ASGI directly, because it rejects bodies while they are received, and counts streams until they
have ended.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Send
from starlette.types import Scope as AsgiScope

from dagwright.interfaces.http.allowed_hosts import AllowedHosts
from dagwright.interfaces.http.api_keys import KeyFile, KeysUnreadable
from dagwright.interfaces.http.api_pages import REDOC, SWAGGER
from dagwright.interfaces.http.callers import ANYONE, Caller
from dagwright.interfaces.http.console import ROOT as CONSOLE
from dagwright.interfaces.http.context import ASGI_CALLER, ASGI_STREAM
from dagwright.interfaces.http.error_codes import ErrorCode
from dagwright.interfaces.http.errors import ApiError, draining_error, rate_limit_error
from dagwright.interfaces.http.key_limits import INVALID_KEYS_PER_MINUTE, KeyUsage, StreamReservation
from dagwright.process.health import LIVEZ, READYZ

_PUBLIC_PATHS = (LIVEZ, READYZ, "/openapi.json", SWAGGER, REDOC, "/", CONSOLE)
_PUBLIC_FOLDERS = (f"{CONSOLE}/", f"{SWAGGER}/")
"""Paths that need no key: they return no data of runs."""
_BEARER_PREFIX = "bearer "


class AccessMiddleware:
    """Middleware that authenticates callers and enforces their limits.

    Args:
        keys: keys of the API.
        usage: usage of each key at this gateway.
        stop_event: set when the gateway drains; from then on, the gateway rejects requests.
        hosts: checks the headers `Host` and `Origin` of browsers. Used only if no key is required.
    """

    def __init__(
        self, app: ASGIApp, *, keys: KeyFile, usage: KeyUsage, hosts: AllowedHosts, stop_event: asyncio.Event
    ) -> None:
        self._app = app
        self._keys = keys
        self._usage = usage
        self._hosts = hosts
        self._stop_event = stop_event

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            caller = self._caller(scope)
            if self._stop_event.is_set() and not _is_public(scope["path"]):
                raise draining_error()
            self._enforce_request_rate(caller)
            max_bytes = self._usage.limits.body_limit(scope["method"], scope["path"]).max_bytes
            _check_declared_size(scope, max_bytes)
        except ApiError as error:
            await error.response()(scope, receive, send)
            return
        scope[ASGI_CALLER] = caller
        stream = None if caller.key_id is None else StreamReservation(self._usage, caller.key_id)
        scope[ASGI_STREAM] = stream
        try:
            await self._app(scope, _with_size_limit(receive, max_bytes), send)
        finally:
            if stream is not None:
                stream.close()

    def _caller(self, scope: AsgiScope) -> Caller:
        """Return the caller.

        Raises:
            ApiError: the key is missing or unknown; or no key is required, and a page of another origin sent the
                request.
        """
        if _is_public(scope["path"]) or scope["method"] == "OPTIONS":
            return ANYONE
        headers = Headers(scope=scope)
        authorization = headers.get("authorization") or ""
        key = authorization[len(_BEARER_PREFIX) :].strip() if authorization.lower().startswith(_BEARER_PREFIX) else ""
        try:
            if not self._keys.requires_keys():
                self._reject_foreign_site(headers)
                return ANYONE
            caller = self._keys.caller_of(key)
        except KeysUnreadable as error:
            raise ApiError(ErrorCode.KEYS_UNREADABLE, str(error)) from None
        if caller is None:
            if key:
                self._count_invalid_key(scope)
            message = "the key is not known" if key else "this gateway needs a key: send Authorization: Bearer KEY"
            raise ApiError(ErrorCode.INVALID_API_KEY, message, headers={"WWW-Authenticate": "Bearer"})
        return caller

    def _count_invalid_key(self, scope: AsgiScope) -> None:
        """Count a request with an invalid key against the address of the client.

        Raises:
            ApiError: the address has sent too many such requests. A valid key from the same address is still accepted.
        """
        address = (scope.get("client") or ("",))[0]
        if (wait_s := self._usage.invalid_keys.count(address)) > 0:
            message = f"too many requests with an invalid key from this address: {INVALID_KEYS_PER_MINUTE} a minute"
            raise rate_limit_error(message, retry_after_s=wait_s)

    def _reject_foreign_site(self, headers: Headers) -> None:
        if (rejection := self._hosts.rejection(headers)) is not None:
            code, message = rejection
            raise ApiError(code, message)

    def _enforce_request_rate(self, caller: Caller) -> None:
        if caller.key_id is not None and (wait_s := self._usage.count_request(caller.key_id)) > 0:
            message = f"a key may make {self._usage.limits.requests_per_minute:,} requests a minute"
            raise rate_limit_error(message, retry_after_s=wait_s)


def _check_declared_size(scope: AsgiScope, max_bytes: int) -> None:
    declared_size = Headers(scope=scope).get("content-length") or "0"
    if declared_size.isdecimal() and int(declared_size) > max_bytes:
        raise ApiError(ErrorCode.REQUEST_TOO_LARGE, _too_large_message(max_bytes))


def _is_public(path: str) -> bool:
    return path in _PUBLIC_PATHS or path.startswith(_PUBLIC_FOLDERS)


def _with_size_limit(receive: Receive, max_bytes: int) -> Callable[[], Awaitable[Any]]:
    """Return a `receive` that rejects a body over the limit. Not every request declares the size of its body."""
    size = 0

    async def receive_within_limit() -> Message:
        nonlocal size
        message = await receive()
        if message["type"] == "http.request":
            size += len(message.get("body", b""))
            if size > max_bytes:
                # FastAPI would report any other exception as an unreadable body.
                raise HTTPException(413, _too_large_message(max_bytes))
        return message

    return receive_within_limit


def _too_large_message(max_bytes: int) -> str:
    return f"the body may have at most {max_bytes:,} bytes"
