"""Server-sent events: their form, heartbeats while nothing happens, and the end when client or gateway leave."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any

from starlette.responses import StreamingResponse

from dagwright.gateway.desk import Desk

HEARTBEAT = ": heartbeat\n\n"
DONE = "data: [DONE]\n\n"
"""What ends a stream of chat completions."""
_HEADERS: Mapping[str, str] = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
"""Against proxies that keep what they could hand on."""

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
    body = _beating(events, leaving=desk.leaving, gone=gone, pause_s=desk.heartbeat_s)
    return StreamingResponse(body, media_type="text/event-stream", headers={**_HEADERS, **headers})


async def _beating(
    events: Events, *, leaving: asyncio.Event, gone: Callable[[], object], pause_s: float
) -> AsyncGenerator[str, None]:
    async def following() -> str | None:
        return await anext(events, None)

    left = asyncio.create_task(leaving.wait())
    coming: asyncio.Task[str | None] | None = None
    try:
        while True:
            coming = coming or asyncio.create_task(following())
            done, _ = await asyncio.wait({coming, left}, timeout=pause_s, return_when=asyncio.FIRST_COMPLETED)
            # First, for what comes now may only say that the gateway ends, and no client is to take that for an end.
            if leaving.is_set():
                return
            if coming in done:
                text, coming = coming.result(), None
                if text is None:
                    return
                yield text
            else:
                yield HEARTBEAT
    except (asyncio.CancelledError, GeneratorExit):
        if not leaving.is_set():
            gone()
        raise
    finally:
        left.cancel()
        if coming is not None:
            coming.cancel()
            await asyncio.gather(coming, return_exceptions=True)
        await events.aclose()
