"""One process that reads many event streams at once, and reports the delay of each event.

    python -m benchmarks.stream_client HOST PORT COUNT RUN...

Opens `COUNT` streams of each run, prints `reading` when each stream has received an event, and prints one JSON document
at the end. So that the process uses little CPU time, it implements only the necessary HTTP: asyncio protocols read the
streams, and events that are equal in several streams are decoded once.
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

CONCURRENT_OPENS = 50
"""Number of streams that are opened at the same time."""
_RUN_END_EVENTS = frozenset({"run.completed", "run.failed", "run.cancelled"})
_NODE_END_STATUSES = ("completed", "failed", "skipped", "blocked", "cancelled")


@dataclass(slots=True)
class StreamContent:
    """Content of one stream.

    Args:
        statuses_by_node: node ID -> statuses, in the order of arrival.
        delays: seconds from the end of a node to the reading of the event, for nodes that end after the stream opened.
    """

    statuses_by_node: dict[str, list[str]] = field(default_factory=dict)
    ids: list[str] = field(default_factory=list)
    delays: array = field(default_factory=lambda: array("d"))  # type: ignore[type-arg]
    end_count: int = 0


@lru_cache(maxsize=256)
def _parse_event(block: str) -> tuple[str | None, str, Any]:
    """Return id, type and content of an event."""
    fields = dict(line.split(": ", 1) for line in block.split("\n"))
    return fields.get("id"), fields.get("event", ""), json.loads(fields.get("data", "null"))


@lru_cache(maxsize=4096)
def _timestamp(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


class Stream(asyncio.Protocol):
    """Protocol that reads one stream to its end."""

    def __init__(self, request: bytes) -> None:
        self.stream_content = StreamContent()
        self.opened_future = asyncio.get_running_loop().create_future()
        self.ended_future = asyncio.get_running_loop().create_future()
        self._request = request
        self._bytes = b""
        self._text = ""
        self._is_past_head = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the request."""
        # The transports of uvloop do not subclass those of asyncio.
        cast("asyncio.WriteTransport", transport).write(self._request)

    def data_received(self, new_bytes: bytes) -> None:
        """Process received data: the head, then parts of events in chunks."""
        received_at = time.time()
        self._bytes += new_bytes
        if not self._is_past_head:
            head, separator, remaining_bytes = self._bytes.partition(b"\r\n\r\n")
            if not separator:
                return
            if b" 200 " not in head.split(b"\r\n", 1)[0]:
                self._fail(f"unexpected response: {head[:80]!r}")
                return
            self._is_past_head, self._bytes = True, remaining_bytes
        while (size_end := self._bytes.find(b"\r\n")) >= 0:
            size = int(self._bytes[:size_end], 16)
            end = size_end + 2 + size
            if len(self._bytes) < end + 2:
                return
            self._text += self._bytes[size_end + 2 : end].decode()
            self._bytes = self._bytes[end + 2 :]
            self._process_events(received_at)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the stream unless it has ended."""
        self._fail(f"connection lost: {exc}")

    def _fail(self, text: str) -> None:
        for future in (self.opened_future, self.ended_future):
            if not future.done():
                future.set_exception(RuntimeError(text))

    def _process_events(self, received_at: float) -> None:
        while "\n\n" in self._text:
            block, _, self._text = self._text.partition("\n\n")
            if block.startswith(":"):
                continue
            id, event_type, content = _parse_event(block)
            # Only the last event of an update has an ID, because a client cannot resume within an update.
            if id:
                self.stream_content.ids.append(id)
            self._record_event(event_type, content, received_at)

    def _record_event(self, event_type: str, content: Mapping[str, Any], received_at: float) -> None:
        stream_content = self.stream_content
        if event_type.startswith("node."):
            stream_content.statuses_by_node.setdefault(content["node_id"], []).append(content["status"])
            if self.opened_future.done() and content["status"] in _NODE_END_STATUSES:
                stream_content.delays.append(received_at - _timestamp(content["ended_at"]))
        elif event_type in _RUN_END_EVENTS:
            stream_content.end_count += 1
            if not self.ended_future.done():
                self.ended_future.set_result(None)
        if not self.opened_future.done():
            self.opened_future.set_result(None)


async def read_streams(host: str, port: int, runs: list[str], *, count: int) -> list[Stream]:
    """Open `count` streams of each run, print `reading` when all are open, and return the ended streams."""
    loop = asyncio.get_running_loop()
    streams: list[Stream] = []
    run_ids = [run_id for _ in range(count) for run_id in runs]
    for start in range(0, len(run_ids), CONCURRENT_OPENS):
        new_streams = []
        for run_id in run_ids[start : start + CONCURRENT_OPENS]:
            request = f"GET /v1/runs/{run_id}/events HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode()
            _, stream = await loop.create_connection(lambda request=request: Stream(request), host, port)  # type: ignore[misc]
            new_streams.append(stream)
        await asyncio.gather(*(stream.opened_future for stream in new_streams))
        streams += new_streams
    print("reading", flush=True)
    await asyncio.gather(*(stream.ended_future for stream in streams))
    return streams


def problem_with(stream_content: StreamContent) -> str | None:
    """Return the problem of a stream; `None` if every event came once and in order."""
    for node_id, reported_statuses in stream_content.statuses_by_node.items():
        statuses = _remove_waits(reported_statuses)
        end_statuses = [status for status in statuses if status in _NODE_END_STATUSES]
        if end_statuses != ["completed"] or statuses[-1] != "completed" or len(set(statuses)) != len(statuses):
            return f"{node_id}: {statuses}"
    positions = [tuple(map(int, id.rstrip("we").split("-"))) for id in stream_content.ids]
    if positions != sorted(positions):
        return f"event ids are not in order: {stream_content.ids}"
    return None if stream_content.end_count == 1 else f"{stream_content.end_count} end events"


def _remove_waits(statuses: Sequence[str]) -> list[str]:
    """Remove the statuses of waits for a worker. After such a wait, a started node is reported as running again."""
    remaining_statuses: list[str] = []
    for status in statuses:
        if status == "running" and remaining_statuses[-2:] == ["running", "waiting"]:
            remaining_statuses.pop()
        else:
            remaining_statuses.append(status)
    return remaining_statuses


async def main() -> None:
    """Read the streams of the command line and report the delays."""
    host, port, count, *runs = sys.argv[1:]
    initial_cpu_s = time.process_time()
    streams = await read_streams(host, int(port), runs, count=int(count))
    delays = sorted(each for stream in streams for each in stream.stream_content.delays)
    node_counts = {len(stream.stream_content.statuses_by_node) for stream in streams}
    document = {
        "streams": len(streams),
        "nodes": sorted(node_counts),
        "events": len(delays),
        "wrong": [each for stream in streams if (each := problem_with(stream.stream_content)) is not None][:5],
        "cpu_s": round(time.process_time() - initial_cpu_s, 2),
        "p50_s": delays[len(delays) // 2],
        "p95_s": delays[int(len(delays) * 0.95)],
        "p99_s": delays[int(len(delays) * 0.99)],
        "max_s": delays[-1],
    }
    print(json.dumps(document), flush=True)


if __name__ == "__main__":
    event_loop.run(main())
