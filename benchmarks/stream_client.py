"""One process that reads many streams of events at once, and tells how late each event came.

    python -m benchmarks.stream_client HOST PORT COUNT RUN...

Opens `COUNT` streams of each run, prints `reading` once each has been told something, and at the end one JSON document.
It speaks as much HTTP as that takes, so that what is measured is the gateway: reading is done by protocols, and what
several streams are told alike is read once.
"""

import asyncio
import json
import sys
import time
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Any, cast

from dagwright.process import event_loop

AT_ONCE = 50
"""Streams that are opened at the same time."""
_ENDED = ("completed", "failed", "skipped", "blocked", "cancelled")


@dataclass(slots=True)
class Told:
    """What one stream has told.

    Args:
        nodes: node -> states, in the order in which they came.
        late: seconds from the end of a node to when that was read, since the stream has begun.
    """

    nodes: dict[str, list[str]] = field(default_factory=dict)
    ids: list[str] = field(default_factory=list)
    late: array = field(default_factory=lambda: array("d"))  # type: ignore[type-arg]
    ends: int = 0


@lru_cache(maxsize=256)
def _event(block: str) -> tuple[str | None, str, Any]:
    """Returns id, type and content of an event."""
    fields = dict(line.split(": ", 1) for line in block.split("\n"))
    return fields.get("id"), fields.get("event", ""), json.loads(fields.get("data", "null"))


@lru_cache(maxsize=4096)
def _at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


class Stream(asyncio.Protocol):
    """Reads one stream to its end."""

    def __init__(self, request: bytes) -> None:
        self.told = Told()
        self.begun = asyncio.get_running_loop().create_future()
        self.ended = asyncio.get_running_loop().create_future()
        self._request = request
        self._bytes = b""
        self._text = ""
        self._is_inside = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Asks."""
        # The transports of uvloop are of no class of asyncio.
        cast("asyncio.WriteTransport", transport).write(self._request)

    def data_received(self, received: bytes) -> None:
        """Takes what came: the head, then parts of events in chunks."""
        now = time.time()
        self._bytes += received
        if not self._is_inside:
            head, found, rest = self._bytes.partition(b"\r\n\r\n")
            if not found:
                return
            if b" 200 " not in head.split(b"\r\n", 1)[0]:
                self._fail(f"answered {head[:80]!r}")
                return
            self._is_inside, self._bytes = True, rest
        while (size_end := self._bytes.find(b"\r\n")) >= 0:
            size = int(self._bytes[:size_end], 16)
            end = size_end + 2 + size
            if len(self._bytes) < end + 2:
                return
            self._text += self._bytes[size_end + 2 : end].decode()
            self._bytes = self._bytes[end + 2 :]
            self._take(now)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fails what has not come to its end."""
        self._fail(f"connection lost: {exc}")

    def _fail(self, words: str) -> None:
        for each in (self.begun, self.ended):
            if not each.done():
                each.set_exception(RuntimeError(words))

    def _take(self, now: float) -> None:
        while "\n\n" in self._text:
            block, _, self._text = self._text.partition("\n\n")
            if block.startswith(":"):
                continue
            id, name, content = _event(block)
            self._note(id or "", name, content, now)

    def _note(self, id: str, name: str, content: Mapping[str, Any], now: float) -> None:
        told = self.told
        told.ids.append(id)
        if name == "nodes":
            for node in content["nodes"]:
                told.nodes.setdefault(node["node_id"], []).append(node["status"])
                if self.begun.done() and node["status"] in _ENDED:
                    told.late.append(now - _at(node["ended_at"]))
        elif name == "end":
            told.ends += 1
            if not self.ended.done():
                self.ended.set_result(None)
        if not self.begun.done():
            self.begun.set_result(None)


async def read(host: str, port: int, runs: list[str], *, count: int) -> list[Stream]:
    """Opens so many streams of each run, says when all are open, and returns them at their end."""
    loop = asyncio.get_running_loop()
    streams: list[Stream] = []
    wanted = [run for _ in range(count) for run in runs]
    for place in range(0, len(wanted), AT_ONCE):
        opened = []
        for run in wanted[place : place + AT_ONCE]:
            request = f"GET /v1/runs/{run}/events HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode()
            _, stream = await loop.create_connection(lambda request=request: Stream(request), host, port)  # type: ignore[misc]
            opened.append(stream)
        await asyncio.gather(*(stream.begun for stream in opened))
        streams += opened
    print("reading", flush=True)
    await asyncio.gather(*(stream.ended for stream in streams))
    return streams


def wrong_with(told: Told) -> str | None:
    """Returns what is wrong with what a stream has told; `None` if every event came once and in order."""
    for node, told_states in told.nodes.items():
        states = _without_waits(told_states)
        ended = [state for state in states if state in _ENDED]
        if ended != ["completed"] or states[-1] != "completed" or len(set(states)) != len(states):
            return f"{node}: {states}"
    places = [tuple(map(int, id.rstrip("we").split("-"))) for id in told.ids]
    if places != sorted(places):
        return f"ids go back: {told.ids}"
    return None if told.ends == 1 else f"{told.ends} ends"


def _without_waits(states: Sequence[str]) -> list[str]:
    """Returns states without the waits for a worker, after which a node that has begun is told to run once more."""
    found: list[str] = []
    for state in states:
        if state == "running" and found[-2:] == ["running", "waiting"]:
            found.pop()
        else:
            found.append(state)
    return found


async def main() -> None:
    """Reads as the command line says and tells what came."""
    host, port, count, *runs = sys.argv[1:]
    started = time.process_time()
    streams = await read(host, int(port), runs, count=int(count))
    late = sorted(each for stream in streams for each in stream.told.late)
    nodes = {len(stream.told.nodes) for stream in streams}
    document = {
        "streams": len(streams),
        "nodes": sorted(nodes),
        "events": len(late),
        "wrong": [each for stream in streams if (each := wrong_with(stream.told)) is not None][:5],
        "cpu_s": round(time.process_time() - started, 2),
        "p50_s": late[len(late) // 2],
        "p95_s": late[int(len(late) * 0.95)],
        "p99_s": late[int(len(late) * 0.99)],
        "max_s": late[-1],
    }
    print(json.dumps(document), flush=True)


if __name__ == "__main__":
    event_loop.run(main())
