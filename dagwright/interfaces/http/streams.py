"""Server-sent events: their form, heartbeats while nothing happens, and the end when client or gateway leave."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from dagwright.interfaces.http.desk import Desk

HEARTBEAT = ": heartbeat\n\n"
DONE = "data: [DONE]\n\n"
"""What ends a stream of chat completions, behind its `id` if it has one."""
_HEADERS: Mapping[str, str] = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
"""Against proxies that keep what they could hand on."""

NOTHING_MORE = 204
"""What a client is told that has seen the end: browsers do not come back after that."""

Events = AsyncGenerator[str, None]


def event(content: Mapping[str, Any], *, id: str | None = None, name: str | None = None) -> str:
    """Returns an event as it is sent.

    Args:
        id: what a client sends as `Last-Event-ID` after a drop; without line ends.
        name: its type; OpenAI's chat completions have none.
    """
    lines = [f"id: {id}\n" if id is not None else "", f"event: {name}\n" if name is not None else ""]
    # JSON has no line ends of its own, and in ASCII none that a reader of lines could take for one.
    return "".join([*lines, f"data: {json.dumps(content, separators=(',', ':'))}\n\n"])


def stream_response(
    events: Events,
    *,
    desk: Desk,
    headers: Mapping[str, str],
    gone: Callable[[], object] = lambda: None,
) -> StreamingResponse:
    """Returns an answer that is sent as it comes.

    Args:
        gone: called if the client leaves before the end.
    """
    return _EventStream(events, desk=desk, headers=headers, gone=gone)


class _EventStream(StreamingResponse):
    """Sends events as they come, and a sign of life while there are none.

    What comes goes straight out: a task or a timer for each event would be most of what a thousand streams cost.
    """

    def __init__(self, events: Events, *, desk: Desk, headers: Mapping[str, str], gone: Callable[[], object]) -> None:
        super().__init__(events, media_type="text/event-stream", headers={**_HEADERS, **headers})
        self._events = events
        self._leaving = desk.leaving
        self._pause_s = desk.heartbeat_s
        self._gone = gone
        self._is_silent = True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - as ASGI has it
        """Answers until the events, the client or the gateway end."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        sending = asyncio.create_task(self._send(send))
        beating = asyncio.create_task(self._beat(send))
        client, gateway = asyncio.create_task(_left(receive)), asyncio.create_task(self._leaving.wait())
        is_here = True
        try:
            await asyncio.wait({sending, client, gateway}, return_when=asyncio.FIRST_COMPLETED)
            is_here = sending.done() or not client.done()
        except asyncio.CancelledError:
            is_here = False
            raise
        finally:
            if not (is_here or self._leaving.is_set()):
                self._gone()
            for task in (sending, beating, client, gateway):
                task.cancel()
            await asyncio.gather(sending, beating, client, gateway, return_exceptions=True)
            await self._events.aclose()
        if not sending.cancelled():
            await sending
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send(self, send: Send) -> None:
        async for text in self._events:
            # What comes now may only say that the gateway ends, and no client is to take that for an end.
            if self._leaving.is_set():
                return
            self._is_silent = False
            await send({"type": "http.response.body", "body": text.encode(), "more_body": True})

    async def _beat(self, send: Send) -> None:
        while True:
            self._is_silent = True
            await asyncio.sleep(self._pause_s)
            if self._is_silent:
                await send({"type": "http.response.body", "body": HEARTBEAT.encode(), "more_body": True})


async def _left(receive: Receive) -> None:
    """Returns when the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass
