"""Authentication, rate limits and body size limits for all endpoints.

A plain ASGI middleware: a body is refused while it is received, and a stream counts until it has ended.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Send
from starlette.types import Scope as Asked

from dagwright.interfaces.http.callers import ANYONE, Caller
from dagwright.interfaces.http.console import ROOT as CONSOLE
from dagwright.interfaces.http.desk import CALLER, STREAM
from dagwright.interfaces.http.errors import ApiError, draining, too_many
from dagwright.interfaces.http.hosts import Hosts
from dagwright.interfaces.http.keys import KeyFile, KeysUnreadable
from dagwright.interfaces.http.limits import INVALID_KEYS_A_MINUTE, StreamOfKey, Uses
from dagwright.process.health import LIVEZ, READYZ

_OPEN = (LIVEZ, READYZ, "/openapi.json", "/", CONSOLE)
_OPEN_FILES = f"{CONSOLE}/"
"""Paths that need no key: the console page itself contains no data."""
_BEARER = "bearer "


class Guard:
    """Middleware that authenticates callers and enforces their limits.

    Args:
        keys: keys of the API; if no key is required, all requests are accepted.
        uses: usage of each key at this gateway.
        leaving: set when the gateway drains: from then on it refuses requests.
        hosts: hosts and origins that browsers may send if no key is required.
    """

    def __init__(self, app: ASGIApp, *, keys: KeyFile, uses: Uses, hosts: Hosts, leaving: asyncio.Event) -> None:
        self._app = app
        self._keys = keys
        self._uses = uses
        self._hosts = hosts
        self._leaving = leaving

    async def __call__(self, scope: Asked, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            caller = self._caller(scope)
            if self._leaving.is_set() and not _is_open(scope["path"]):
                raise draining()
            self._refuse_too_many(caller)
            most_bytes = self._uses.limits.body_limit(scope["method"], scope["path"]).max_bytes
            _refuse_too_large(scope, most_bytes)
        except ApiError as error:
            await error.response()(scope, receive, send)
            return
        scope[CALLER] = caller
        stream = None if caller.key is None else StreamOfKey(self._uses, caller.key)
        scope[STREAM] = stream
        try:
            await self._app(scope, _counted(receive, most_bytes), send)
        finally:
            if stream is not None:
                stream.close()

    def _caller(self, scope: Asked) -> Caller:
        """Return the caller.

        Raises:
            ApiError: the key is missing or unknown; or, without keys, the page of another origin sends the request.
        """
        if _is_open(scope["path"]) or scope["method"] == "OPTIONS":
            return ANYONE
        headers = Headers(scope=scope)
        given = headers.get("authorization") or ""
        text = given[len(_BEARER) :].strip() if given.lower().startswith(_BEARER) else ""
        try:
            if not self._keys.are_needed():
                self._refuse_foreign(headers)
                return ANYONE
            caller = self._keys.caller_of(text)
        except KeysUnreadable as error:
            raise ApiError(503, str(error), "server_error", code="keys_unreadable") from None
        if caller is None:
            if text:
                self._count_invalid_key(scope)
            words = "the key is not known" if text else "this gateway needs a key: send Authorization: Bearer KEY"
            raise ApiError(401, words, code="invalid_api_key", headers={"WWW-Authenticate": "Bearer"})
        return caller

    def _count_invalid_key(self, scope: Asked) -> None:
        """Count a request with an invalid key against its address.

        Raises:
            ApiError: the address has sent too many. A valid key from the same address is still accepted.
        """
        address = (scope.get("client") or ("",))[0]
        if (wait_s := self._uses.invalid_keys.count(address)) > 0:
            words = f"too many requests with an invalid key from this address: {INVALID_KEYS_A_MINUTE} a minute"
            raise too_many(words, retry_after_s=wait_s)

    def _refuse_foreign(self, headers: Headers) -> None:
        if (refused := self._hosts.refusal(headers)) is not None:
            code, words = refused
            raise ApiError(403, words, code=code)

    def _refuse_too_many(self, caller: Caller) -> None:
        if caller.key is not None and (wait_s := self._uses.take_request(caller.key)) > 0:
            words = f"a key may make {self._uses.limits.requests_a_minute:,} requests a minute"
            raise too_many(words, retry_after_s=wait_s)


def _refuse_too_large(scope: Asked, most_bytes: int) -> None:
    declared = Headers(scope=scope).get("content-length") or "0"
    if declared.isdecimal() and int(declared) > most_bytes:
        raise ApiError(413, _too_large(most_bytes), code="request_too_large")


def _is_open(path: str) -> bool:
    return path in _OPEN or path.startswith(_OPEN_FILES)


def _counted(receive: Receive, most_bytes: int) -> Callable[[], Awaitable[Any]]:
    """Return a `receive` that refuses a body over the limit: not every request declares its size."""
    size = 0

    async def counted() -> Message:
        nonlocal size
        message = await receive()
        if message["type"] == "http.request":
            size += len(message.get("body", b""))
            if size > most_bytes:
                # FastAPI would report any other exception as an unreadable body.
                raise HTTPException(413, _too_large(most_bytes))
        return message

    return counted


def _too_large(most_bytes: int) -> str:
    return f"the body may have at most {most_bytes:,} bytes"
