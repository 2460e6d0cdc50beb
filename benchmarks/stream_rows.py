"""The rows of streams: a thousand clients of one gateway, and two hundred runs that are started through it at once.

Gateway, worker, server and clients are processes of their own. How late an event is counts from when a node ended to
when a client has read it. Beside it stands the same for a reader of the same runs without a gateway, at the same time.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx

from benchmarks.figures import Figure
from benchmarks.processes import TOOLS_FILE, Bench, python
from benchmarks.rows import RUN_TIMEOUT_S, Row
from dagwright.interfaces.http.run_events import node_now

ADDED_S = 0.25
"""By which events may come later at p95 than to a reader without a gateway."""
ANSWER_RATIO = 2.0
MEMORY_RATIO = 1.1
START_S = 60.0
EVENTS_PER_S = 50
"""Changes of nodes in all runs together; a node of these plans changes twice."""
STREAMS = 1_000
RUNS = 200
LONG_S = 40
"""How long the runs take that are read."""
DIRECT_RUNS = 10
"""Runs that are read without a gateway too, where there are many."""
ANSWERS = 20
"""Requests that are answered while all streams are open."""
_SETTLED_S = 12.0
"""After which memory is looked at for the first time."""
_PORT_FILE = "gateway.url"
_STARTED_AT_ONCE = {"plan": 1, "nodes": [{"id": "wait", "tool": "pause", "arguments": {"seconds": 2}}]}


@dataclass(frozen=True, slots=True)
class Gateway:
    """A gateway in a process of its own."""

    url: str
    pid: int

    def memory_mb(self) -> float:
        """Returns how much memory it has now, in 10^6 bytes."""
        status = Path(f"/proc/{self.pid}/status").read_text(encoding="utf-8")
        resident = next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:"))
        return int(resident) * 1024 / 1e6

    def cpu_s(self) -> float:
        """Returns how much time of a core it has taken."""
        parts = Path(f"/proc/{self.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return (int(parts[11]) + int(parts[12])) / os.sysconf("SC_CLK_TCK")


async def streams(bench: Bench, pairs: int) -> list[Figure]:  # noqa: ARG001 - a row like any other
    """Measures a thousand streams of one run, and five of each of 200."""
    async with _gateway(bench) as gateway, httpx.AsyncClient(base_url=gateway.url, timeout=RUN_TIMEOUT_S) as http:
        chains = EVENTS_PER_S // 2
        # The same goes on in the same run, and nobody reads it.
        unread = await _start(http, _chains(chains, LONG_S // 2, 1.0))
        alone = await _answered(http)
        await bench.client.get_workflow_handle(unread).result()
        one = await _read(bench, gateway, [await _start(http, _chains(chains, LONG_S, 1.0))], asking=http)
        each_s = RUNS / chains
        plan = _chains(1, round(LONG_S / each_s), each_s)
        runs = list(await asyncio.gather(*(_start(http, plan) for _ in range(RUNS))))
        many = await _read(bench, gateway, runs)
    return [
        *_figures(f"{STREAMS:,} streams of one run", one),
        Figure(
            f"answer while {STREAMS:,} streams are open",
            _middle(one.answers) / _middle(alone),
            ANSWER_RATIO,
            measured={"median": [_middle(one.answers), _middle(alone)], "samples": [one.answers, list(alone)]},
        ),
        *_figures(f"{STREAMS // RUNS} streams of each of {RUNS} runs", many),
    ]


async def starts(bench: Bench, pairs: int) -> list[Figure]:  # noqa: ARG001 - a row like any other
    """Measures 200 runs that are started through the gateway at once."""
    async with _gateway(bench) as gateway, httpx.AsyncClient(base_url=gateway.url, timeout=RUN_TIMEOUT_S) as http:
        await _start(http, _STARTED_AT_ONCE)
        before = time.perf_counter()

        async def started() -> tuple[str, float]:
            run = await _start(http, _STARTED_AT_ONCE)
            return run, time.perf_counter() - before

        found = await asyncio.gather(*(started() for _ in range(RUNS)))
        await asyncio.gather(*(bench.client.get_workflow_handle(run).result() for run, _ in found))
        took = time.perf_counter() - before
    return [
        Figure(f"{RUNS} runs started at once through the gateway", max(at for _, at in found), None, unit="s"),
        Figure("the same until all have ended, each after a step of 2 s", took, None, unit="s"),
    ]


@dataclass(frozen=True, slots=True)
class _Read:
    """What was read.

    Args:
        told: by the process of the clients.
        direct: seconds by which a reader without a gateway was told late, sorted.
        memory: of the gateway once all streams are open and when they are about to end, in 10^6 bytes.
        cpu: of the gateway, cores.
        answers: seconds from an answer to the start of what waited for it.
    """

    told: Mapping[str, Any]
    direct: Sequence[float]
    memory: tuple[float, float]
    cpu: float
    answers: Sequence[float]


def _figures(name: str, read: _Read) -> list[Figure]:
    direct = read.direct[int(len(read.direct) * 0.95)]
    about = {
        "median": [round(read.told["p95_s"], 4), round(direct, 4)],
        "samples": [dict(read.told), {"gateway_cores": round(read.cpu, 2)}],
    }
    return [
        Figure(
            f"{name}: events later than read directly, p95",
            read.told["p95_s"] - direct,
            ADDED_S,
            unit="s",
            measured=about,
        ),
        Figure(
            f"{name}: memory of the gateway, at the end beside the beginning",
            read.memory[1] / read.memory[0],
            MEMORY_RATIO,
            measured={"median": [round(each, 1) for each in reversed(read.memory)]},
        ),
    ]


async def _read(
    bench: Bench, gateway: Gateway, runs: Sequence[str], *, asking: httpx.AsyncClient | None = None
) -> _Read:
    """Reads runs by all streams and directly, to their end; answers requests meanwhile if there is a client for it."""
    host, port = gateway.url.removeprefix("http://").split(":")
    command = ["-m", "benchmarks.stream_client", host, port, str(STREAMS // len(runs)), *runs]
    client = await asyncio.create_subprocess_exec(
        *python(bench.settings), *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE
    )
    assert client.stdout is not None
    try:
        async with asyncio.timeout(RUN_TIMEOUT_S):
            if await client.stdout.readline() != b"reading\n":
                raise RuntimeError("the streams could not be opened")
        reading = asyncio.gather(*(_directly(bench, run) for run in runs[:DIRECT_RUNS]))
        cpu, at = gateway.cpu_s(), time.perf_counter()
        answers = await _answered(asking) if asking is not None else []
        await asyncio.sleep(max(0.0, at + _SETTLED_S - time.perf_counter()))
        first, last = gateway.memory_mb(), 0.0
        ended = asyncio.create_task(client.stdout.readline())
        while not ended.done():
            last = gateway.memory_mb()
            await asyncio.wait({ended}, timeout=0.5)
        cores = (gateway.cpu_s() - cpu) / (time.perf_counter() - at)
        told = json.loads(await ended)
        direct = sorted(each for some in await reading for each in some)
    finally:
        if client.returncode is None:
            client.terminate()
        await client.wait()
    if told["wrong"] or told["streams"] != STREAMS:
        raise RuntimeError(f"streams did not tell every event once and in order: {told}")
    return _Read(told, direct, (first, last), cores, answers)


async def _directly(bench: Bench, run: str) -> list[float]:
    """Returns how late a reader of this process is told of the end of each node, since it has begun."""
    late: list[float] = []
    async with aclosing(bench.own_queue.feeds.subscribe(run)) as updates:
        has_begun = False
        async for update in updates:
            now = time.time()
            nodes = [node_now(update, task) for task in update.changed] if has_begun else []
            ended = [node["ended_at"] for node in nodes if node["status"] == "completed"]
            late += [now - datetime.fromisoformat(at).timestamp() for at in ended]
            has_begun = True
    return late


async def _answered(http: httpx.AsyncClient) -> list[float]:
    """Answers requests of a run through the gateway; returns the seconds from each answer to what waited for it."""
    nodes: list[dict[str, Any]] = []
    for number in range(ANSWERS):
        ask = {"id": f"ask{number}", "human": {"type": "CLARIFICATION", "prompt": "Go on?"}}
        after = {"id": f"after{number}", "tool": "no_op", "arguments": {"value": 1}, "depends_on": [f"ask{number}"]}
        nodes += [ask, after]
    run = await _start(http, {"plan": 1, "nodes": nodes})
    while len((await http.get(f"/v1/runs/{run}/feedback")).json()["data"]) < ANSWERS:
        await asyncio.sleep(0.1)
    sent: list[float] = []
    for number in range(ANSWERS):
        sent.append(time.time())
        answer = await http.post(f"/v1/runs/{run}/feedback", json={"request": f"ask{number}", "answer": "yes"})
        answer.raise_for_status()
        await asyncio.sleep(0.1)
    while (document := (await http.get(f"/v1/runs/{run}")).json())["status"] in ("running", "waiting"):
        await asyncio.sleep(0.1)
    began = [document["nodes"][f"after{number}"]["started_at"] for number in range(ANSWERS)]
    return [round(datetime.fromisoformat(each).timestamp() - at, 4) for each, at in zip(began, sent, strict=True)]


async def _start(http: httpx.AsyncClient, plan: Mapping[str, Any]) -> str:
    """Starts a run through the gateway."""
    answer = await http.post("/v1/runs", json={"plan": plan})
    answer.raise_for_status()
    return str(answer.json()["run_id"])


def _chains(count: int, length: int, each_s: float) -> dict[str, Any]:
    """Returns so many chains of steps, each of which takes so long."""
    nodes = []
    for chain in range(count):
        for step in range(length):
            # Chains do not go in step, as runs that people start do not.
            seconds = each_s if step else each_s * (chain + 1) / count
            # So many processes on a machine may be late with signs of life; that is not what is measured here.
            node = {"id": f"c{chain}-{step}", "tool": "pause", "arguments": {"seconds": seconds}, "heartbeat": "1m"}
            nodes.append(node | ({"depends_on": [f"c{chain}-{step - 1}"]} if step else {}))
    return {"plan": 1, "title": "Chains", "nodes": nodes}


def _middle(samples: Sequence[float]) -> float:
    return sorted(samples)[len(samples) // 2]


@asynccontextmanager
async def _gateway(bench: Bench) -> AsyncIterator[Gateway]:
    """Serves the API in a process of its own inside the block."""
    file = bench.settings.state_dir / f"{uuid4().hex[:8]}-{_PORT_FILE}"
    options = ["serve", "--no-worker", "--port", "0", "--tools", TOOLS_FILE, "--address-file", str(file)]
    process = await asyncio.create_subprocess_exec(
        *python(bench.settings),
        "starter.py",
        *options,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=sys.stderr,
    )
    try:
        async with asyncio.timeout(START_S):
            while not file.exists() or not file.read_text(encoding="utf-8"):
                await asyncio.sleep(0.1)
        yield Gateway(file.read_text(encoding="utf-8"), process.pid)
    finally:
        process.terminate()
        await process.wait()


STREAM_ROWS: dict[str, Row] = {"streams": streams, "starts": starts}
