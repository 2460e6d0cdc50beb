"""Parse the JSON body of a request once, within limits, after the caller's scopes are checked.

Bodies with too many values are rejected before they are parsed: 30 MB of empty lists take gigabytes as Python objects,
and pydantic reports an error for each list.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any

from fastapi import Request
from fastapi.routing import APIRoute
from starlette.responses import Response

from dagwright.core.boundary.decoding import json_from_bytes
from dagwright.dialects.json_reader import MAX_DEPTH, depth_of
from dagwright.interfaces.http.context import RequiredScopes, context_of
from dagwright.interfaces.http.error_codes import ErrorCode
from dagwright.interfaces.http.errors import ApiError

MAX_FIELDS = 200
"""Maximum number of fields: pydantic reports an error for each unknown field."""
_LARGE_BYTES = 4 * 1024 * 1024
_LARGE_VALUE_COUNT = 20_000
"""A body with more bytes or values is large. Only one large body of each API key is parsed at a time, since parsing
blocks all other requests.

Parsing 480,000 empty lists takes 0.6 s.
"""
_PAUSE_FACTOR = 3.0
"""After a large body is parsed, the next large body of the API key waits for this multiple of the parsing time."""
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class JsonRequest(Request):
    """A request whose JSON is parsed by `read_json` only."""

    _value: Any = None

    async def read_json(self, *, max_values: int, hold_lock: Callable[[], AbstractAsyncContextManager[None]]) -> None:
        """Read and parse the body.

        Args:
            hold_lock: returns a context manager within which no other large body of the caller is parsed.

        Raises:
            ApiError: the body is invalid JSON; it has more than `max_values` values or too many fields; or too many
                other large bodies of the caller already wait.
        """
        body = (await self.body()).removeprefix(_BYTE_ORDER_MARK)
        if not body or "json" not in self.headers.get("content-type", "").lower():
            # FastAPI reports the missing or wrong content type.
            return
        count_bound = value_count_bound(body, max_values=max_values)
        if count_bound > max_values:
            # The message does not state the bound: the body may have fewer values, because an empty list counts twice.
            message = f"the body may have at most {max_values:,} JSON values"
            raise ApiError(ErrorCode.REQUEST_TOO_LARGE, message)
        if count_bound <= _LARGE_VALUE_COUNT and len(body) <= _LARGE_BYTES:
            self._value = _parse_json(body)
            return
        async with hold_lock():
            started_at = time.monotonic()
            self._value = await asyncio.to_thread(_parse_json, body)
            await asyncio.sleep(_PAUSE_FACTOR * (time.monotonic() - started_at))

    async def json(self) -> Any:
        """Return the parsed body."""
        return self._value


class JsonRoute(APIRoute):
    """A route that checks the scopes of the caller, then the size of the body, and then parses the body.

    Without this class, FastAPI would read the body before the dependencies of the route run.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler of a request."""
        handler = super().get_route_handler()
        required_scopes = [
            dependency.dependency
            for dependency in self.dependencies
            if isinstance(dependency.dependency, RequiredScopes)
        ]

        async def handle(request: Request) -> Response:
            context = context_of(request)
            for check_scopes in required_scopes:
                check_scopes(context, request)
            json_request = JsonRequest(request.scope, request.receive)
            limit = context.usage.limits.body_limit(request.method, request.url.path)
            hold_lock = partial(context.plan_checks.hold_lock, context.caller.key_id, rejects_if_busy=True)
            await json_request.read_json(max_values=limit.max_values, hold_lock=hold_lock)
            return await handler(json_request)

        return handle


def value_count_bound(body: bytes, *, max_values: int) -> int:
    """Return an upper bound for the number of values in a JSON text, without parsing the text.

    If the text certainly has more than `max_values` values, the result may be a lower bound instead.

    A `,`, `[` or `{` precedes each value except the root; in an object, the key stands between the character and the
    value. Strings may contain these characters, too. Therefore, strings are removed if the bound would otherwise exceed
    `max_values`.
    """
    upper_bound = _separator_bound(body)
    if upper_bound <= max_values:
        return upper_bound
    body_without_escapes = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    # Each value has at most four quotation marks: two around its key, and two around a string value.
    if (min_values := body_without_escapes.count(b'"') // 4) > max_values:
        return min_values
    return _separator_bound(b"".join(body_without_escapes.split(b'"')[::2]))


def _separator_bound(text: bytes) -> int:
    return 1 + text.count(b",") + text.count(b"[") + text.count(b"{")


def _parse_json(body: bytes) -> Any:
    """Parse a JSON text.

    Raises:
        ApiError: the text is not JSON, has a lone surrogate or a number that is not finite, is nested too deep, or has
            too many fields.
    """
    try:
        value = json_from_bytes(body)
    except RecursionError:
        raise _too_deep_error() from None
    except ValueError as error:
        reason = str(error)
        if "recursion limit" in reason:
            raise _too_deep_error() from None
        raise ApiError(ErrorCode.INVALID_JSON, f"the body of the request is not valid JSON: {reason:.200}") from None
    if isinstance(value, dict) and len(value) > MAX_FIELDS:
        message = f"the body has {len(value):,} fields; at most {MAX_FIELDS} are accepted"
        raise ApiError(ErrorCode.TOO_LARGE, message)
    if depth_of(value) > MAX_DEPTH:
        raise _too_deep_error()
    return value


def _too_deep_error() -> ApiError:
    return ApiError(ErrorCode.TOO_LARGE, f"the body is nested more than {MAX_DEPTH} deep")
