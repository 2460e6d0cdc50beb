"""Server-sent events: format, heartbeats, and the end of a stream when the client disconnects or the gateway stops."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from dagwright.interfaces.http.errors import api_error

if TYPE_CHECKING:
    from dagwright.interfaces.http.context import GatewayContext

HEARTBEAT = ": heartbeat\n\n"
DONE = "data: [DONE]\n\n"
"""The last event of a stream of chat completions, without its `id` line."""
_HEADERS: Mapping[str, str] = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
"""Headers that turn off buffering in proxies."""

NO_MORE_EVENTS_STATUS = 204
"""Status for a client that has received the last event; browsers do not reconnect after this status."""

Events = AsyncGenerator[str, None]


def serialize_event(content: Mapping[str, Any], *, id: str | None = None, name: str | None = None) -> str:
    """Serialize an event.

    Args:
        id: cursor that a client sends as `Last-Event-ID` when it reconnects; must not contain line breaks.
        name: event type; events of chat completions have none.
    """
    lines = [f"id: {id}\n" if id is not None else "", f"event: {name}\n" if name is not None else ""]
    # ASCII JSON contains no line breaks, and no other character that a client may read as one.
    return "".join([*lines, f"data: {json.dumps(content, separators=(',', ':'))}\n\n"])


def serialize_events(changes: Iterable[tuple[str, Mapping[str, Any]]], *, id: str) -> str:
    """Serialize events that happened at the same time; only the last one has the `id`.

    Args:
        changes: type and content of each event.
    """
    contents = [*changes]
    last_index = len(contents) - 1
    return "".join(
        serialize_event(content, id=id if index == last_index else None, name=name)
        for index, (name, content) in enumerate(contents)
    )


async def append_error_event(events: Events) -> Events:
    """Yield events; if they raise an exception that `api_error` maps to a response, also yield an `error` event.

    The response has started, so its status can no longer report the error.
    """
    try:
        async with aclosing(events):
            async for text in events:
                yield text
    except Exception as error:
        if (failure := api_error(error)) is None:
            raise
        yield serialize_event(failure.body(), name="error")


def stream_response(
    events: Events,
    *,
    context: "GatewayContext",
    headers: Mapping[str, str],
    on_disconnect: Callable[[], object] = lambda: None,
) -> StreamingResponse:
    """Return a streamed response.

    Args:
        on_disconnect: called if the client disconnects before the end.
    """
    return _EventStream(events, context=context, headers=headers, on_disconnect=on_disconnect)


class _EventStream(StreamingResponse):
    """A response that sends events immediately, and heartbeats while there are no events.

    No task or timer is created per event: with a thousand streams, that would be most of the cost.
    """

    def __init__(
        self,
        events: Events,
        *,
        context: "GatewayContext",
        headers: Mapping[str, str],
        on_disconnect: Callable[[], object],
    ) -> None:
        super().__init__(events, media_type="text/event-stream", headers={**_HEADERS, **headers})
        self._events = events
        self._stop_event = context.stop_event
        self._heartbeat_s = context.heartbeat_s
        self._on_disconnect = on_disconnect
        self._is_silent = True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - signature of ASGI
        """Respond until the events end, the client disconnects, or the gateway stops."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        events_task = asyncio.create_task(self._send_events(send))
        heartbeat_task = asyncio.create_task(self._send_heartbeats(send))
        disconnect_task = asyncio.create_task(_wait_for_disconnect(receive))
        stop_task = asyncio.create_task(self._stop_event.wait())
        is_connected = True
        try:
            await asyncio.wait({events_task, disconnect_task, stop_task}, return_when=asyncio.FIRST_COMPLETED)
            is_connected = events_task.done() or not disconnect_task.done()
        except asyncio.CancelledError:
            is_connected = False
            raise
        finally:
            if not (is_connected or self._stop_event.is_set()):
                self._on_disconnect()
            tasks = (events_task, heartbeat_task, disconnect_task, stop_task)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._events.aclose()
        if not events_task.cancelled():
            await events_task
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_events(self, send: Send) -> None:
        async for text in self._events:
            # The stop of the gateway may have caused the event. Clients must not take it for the end of the run.
            if self._stop_event.is_set():
                return
            self._is_silent = False
            await send({"type": "http.response.body", "body": text.encode(), "more_body": True})

    async def _send_heartbeats(self, send: Send) -> None:
        while True:
            self._is_silent = True
            await asyncio.sleep(self._heartbeat_s)
            if self._is_silent:
                await send({"type": "http.response.body", "body": HEARTBEAT.encode(), "more_body": True})


async def _wait_for_disconnect(receive: Receive) -> None:
    """Wait until the client has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass
