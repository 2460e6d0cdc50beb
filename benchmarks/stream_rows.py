"""Benchmark rows of streams: a thousand clients of one gateway, and two hundred concurrent starts through it.

Gateway, worker, server and clients are separate processes. The delay of an event is the time from the end of a node
until a client has read the event. This delay is compared with the delay of a concurrent reader that reads the same runs
without a gateway.
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
from benchmarks.processes import TOOLS_FILE, Bench, python_command
from benchmarks.rows import RUN_TIMEOUT_S, Row
from dagwright.interfaces.http.run_events import node_document

MAX_ADDED_DELAY_S = 0.25
"""Permitted additional delay at p95 compared with a reader without a gateway."""
ANSWER_RATIO = 2.0
"""Goal of the delay after an answer while all streams are open, compared with the delay without streams."""
MEMORY_RATIO = 1.1
"""Goal of the gateway's memory at the end, compared with its memory after the streams were opened."""
START_TIMEOUT_S = 60.0
EVENTS_PER_S = 50
"""State changes per second in all runs together. Each node of the plans changes its state twice."""
STREAMS = 1_000
RUNS = 200
RUN_S = 40
"""Duration of the measured runs."""
DIRECT_RUNS = 10
"""Maximum number of runs that are also read without a gateway."""
ANSWERS = 20
"""Number of requests that are answered while all streams are open."""
_MEMORY_WAIT_S = 12.0
"""Time from the opening of the streams to the first reading of the memory."""
_URL_FILE = "gateway.url"
_PAUSE_PLAN = {"plan": 1, "nodes": [{"id": "wait", "tool": "pause", "arguments": {"seconds": 2}}]}


@dataclass(frozen=True, slots=True)
class Gateway:
    """A gateway in a separate process."""

    url: str
    pid: int

    def memory_mb(self) -> float:
        """Return the current memory of the gateway, in 10^6 bytes."""
        status = Path(f"/proc/{self.pid}/status").read_text(encoding="utf-8")
        resident = next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:"))
        return int(resident) * 1024 / 1e6

    def cpu_s(self) -> float:
        """Return the CPU time of the gateway, in seconds."""
        parts = Path(f"/proc/{self.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return (int(parts[11]) + int(parts[12])) / os.sysconf("SC_CLK_TCK")


async def measure_streams(bench: Bench, pair_count: int) -> list[Figure]:  # noqa: ARG001 - as for every row
    """Measure a thousand streams of one run, and five streams of each of 200 runs."""
    async with _gateway(bench) as gateway, httpx.AsyncClient(base_url=gateway.url, timeout=RUN_TIMEOUT_S) as http:
        chains = EVENTS_PER_S // 2
        # This run has the same load as the next run, but no readers.
        unread_run_id = await _start(http, _chains(chains, RUN_S // 2, 1.0))
        unread_answer_delays = await _answer_requests(http)
        await bench.client.get_workflow_handle(unread_run_id).result()
        one_run_result = await _read(
            bench, gateway, [await _start(http, _chains(chains, RUN_S, 1.0))], answer_client=http
        )
        step_s = RUNS / chains
        plan = _chains(1, round(RUN_S / step_s), step_s)
        run_ids = list(await asyncio.gather(*(_start(http, plan) for _ in range(RUNS))))
        many_runs_result = await _read(bench, gateway, run_ids)
    return [
        *_figures(f"{STREAMS:,} streams of one run", one_run_result),
        Figure(
            f"answer while {STREAMS:,} streams are open",
            _median(one_run_result.answer_delays) / _median(unread_answer_delays),
            ANSWER_RATIO,
            measured={
                "median": [_median(one_run_result.answer_delays), _median(unread_answer_delays)],
                "samples": [one_run_result.answer_delays, list(unread_answer_delays)],
            },
        ),
        *_figures(f"{STREAMS // RUNS} streams of each of {RUNS} runs", many_runs_result),
    ]


async def measure_starts(bench: Bench, pair_count: int) -> list[Figure]:  # noqa: ARG001 - as for every row
    """Measure 200 runs that are started through the gateway at once."""
    async with _gateway(bench) as gateway, httpx.AsyncClient(base_url=gateway.url, timeout=RUN_TIMEOUT_S) as http:
        await _start(http, _PAUSE_PLAN)
        started_at = time.perf_counter()

        async def start_run() -> tuple[str, float]:
            run_id = await _start(http, _PAUSE_PLAN)
            return run_id, time.perf_counter() - started_at

        starts_of_runs = await asyncio.gather(*(start_run() for _ in range(RUNS)))
        await asyncio.gather(*(bench.client.get_workflow_handle(run_id).result() for run_id, _ in starts_of_runs))
        duration_s = time.perf_counter() - started_at
    return [
        Figure(
            f"{RUNS} runs started at once through the gateway",
            max(start_s for _, start_s in starts_of_runs),
            None,
            unit="s",
        ),
        Figure(
            f"{RUNS} runs started at once: time until all have ended, with a step of 2 s", duration_s, None, unit="s"
        ),
    ]


@dataclass(frozen=True, slots=True)
class _ReadResult:
    """Result of reading the streams.

    Args:
        client_report: report of the client process.
        direct_delays: delays of a reader without a gateway in seconds, sorted.
        memory_mb: memory of the gateway when all streams are open and just before their end, in 10^6 bytes.
        cpu_cores: CPU cores used by the gateway.
        answer_delays: seconds from an answer to the start of the node that waited for it.
    """

    client_report: Mapping[str, Any]
    direct_delays: Sequence[float]
    memory_mb: tuple[float, float]
    cpu_cores: float
    answer_delays: Sequence[float]


def _figures(name: str, result: _ReadResult) -> list[Figure]:
    direct_p95_s = result.direct_delays[int(len(result.direct_delays) * 0.95)]
    samples = {
        "median": [round(result.client_report["p95_s"], 4), round(direct_p95_s, 4)],
        "samples": [dict(result.client_report), {"gateway_cores": round(result.cpu_cores, 2)}],
    }
    return [
        Figure(
            f"{name}: additional delay of events, p95",
            result.client_report["p95_s"] - direct_p95_s,
            MAX_ADDED_DELAY_S,
            unit="s",
            measured=samples,
        ),
        Figure(
            f"{name}: memory of the gateway, at the end against the start",
            result.memory_mb[1] / result.memory_mb[0],
            MEMORY_RATIO,
            measured={"median": [round(each, 1) for each in reversed(result.memory_mb)]},
        ),
    ]


async def _read(
    bench: Bench, gateway: Gateway, run_ids: Sequence[str], *, answer_client: httpx.AsyncClient | None = None
) -> _ReadResult:
    """Read runs to their end, through the gateway and without it. Meanwhile, answer requests with `answer_client`."""
    host, port = gateway.url.removeprefix("http://").split(":")
    command = ["-m", "benchmarks.stream_client", host, port, str(STREAMS // len(run_ids)), *run_ids]
    client = await asyncio.create_subprocess_exec(
        *python_command(bench.settings), *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE
    )
    assert client.stdout is not None
    try:
        async with asyncio.timeout(RUN_TIMEOUT_S):
            if await client.stdout.readline() != b"reading\n":
                raise RuntimeError("the streams could not be opened")
        direct_reads = asyncio.gather(*(_read_directly(bench, run_id) for run_id in run_ids[:DIRECT_RUNS]))
        initial_cpu_s, started_at = gateway.cpu_s(), time.perf_counter()
        answer_delays = await _answer_requests(answer_client) if answer_client is not None else []
        await asyncio.sleep(max(0.0, started_at + _MEMORY_WAIT_S - time.perf_counter()))
        first_mb, last_mb = gateway.memory_mb(), 0.0
        report_task = asyncio.create_task(client.stdout.readline())
        while not report_task.done():
            last_mb = gateway.memory_mb()
            await asyncio.wait({report_task}, timeout=0.5)
        cores = (gateway.cpu_s() - initial_cpu_s) / (time.perf_counter() - started_at)
        client_report = json.loads(await report_task)
        direct_delays = sorted(each for delays in await direct_reads for each in delays)
    finally:
        if client.returncode is None:
            client.terminate()
        await client.wait()
    if client_report["wrong"] or client_report["streams"] != STREAMS:
        raise RuntimeError(f"streams did not report every event once and in order: {client_report}")
    return _ReadResult(client_report, direct_delays, (first_mb, last_mb), cores, answer_delays)


async def _read_directly(bench: Bench, run_id: str) -> list[float]:
    """Read a run in this process; return the delays of the nodes that end after the reader has started."""
    delays: list[float] = []
    async with aclosing(bench.own_queue_runs.subscriptions.subscribe(run_id)) as updates:
        has_started = False
        async for update in updates:
            read_at = time.time()
            nodes = [node_document(update, task) for task in update.changed_ids] if has_started else []
            end_times = [node["ended_at"] for node in nodes if node["status"] == "completed"]
            delays += [read_at - datetime.fromisoformat(end_time).timestamp() for end_time in end_times]
            has_started = True
    return delays


async def _answer_requests(http: httpx.AsyncClient) -> list[float]:
    """Start a run and answer its requests through the gateway; return the delay of each waiting node, in seconds."""
    nodes: list[dict[str, Any]] = []
    for number in range(ANSWERS):
        request_node = {"id": f"ask{number}", "human": {"type": "CLARIFICATION", "prompt": "Continue?"}}
        waiting_node = {
            "id": f"after{number}",
            "tool": "no_op",
            "arguments": {"value": 1},
            "depends_on": [f"ask{number}"],
        }
        nodes += [request_node, waiting_node]
    run_id = await _start(http, {"plan": 1, "nodes": nodes})
    while len((await http.get(f"/v1/runs/{run_id}/feedback")).json()["data"]) < ANSWERS:
        await asyncio.sleep(0.1)
    sent_at: list[float] = []
    for number in range(ANSWERS):
        sent_at.append(time.time())
        answer = await http.post(f"/v1/runs/{run_id}/feedback", json={"request_id": f"ask{number}", "answer": "yes"})
        answer.raise_for_status()
        await asyncio.sleep(0.1)
    while (document := (await http.get(f"/v1/runs/{run_id}")).json())["status"] in ("running", "waiting"):
        await asyncio.sleep(0.1)
    start_times = [document["nodes"][f"after{number}"]["started_at"] for number in range(ANSWERS)]
    return [
        round(datetime.fromisoformat(started_at).timestamp() - answered_at, 4)
        for started_at, answered_at in zip(start_times, sent_at, strict=True)
    ]


async def _start(http: httpx.AsyncClient, plan: Mapping[str, Any]) -> str:
    """Start a run through the gateway."""
    response = await http.post("/v1/runs", json={"plan": plan})
    response.raise_for_status()
    return str(response.json()["run_id"])


def _chains(count: int, length: int, step_s: float) -> dict[str, Any]:
    """Return a plan with `count` chains of steps. Each step takes `step_s` seconds."""
    nodes = []
    for chain in range(count):
        for step in range(length):
            # The steps of different chains end at different times, like those of independent runs.
            seconds = step_s if step else step_s * (chain + 1) / count
            # Heartbeats may be late with many processes on a machine, so the timeout is long.
            node = {"id": f"c{chain}-{step}", "tool": "pause", "arguments": {"seconds": seconds}, "heartbeat": "1m"}
            nodes.append(node | ({"depends_on": [f"c{chain}-{step - 1}"]} if step else {}))
    return {"plan": 1, "title": "Chains", "nodes": nodes}


def _median(samples: Sequence[float]) -> float:
    return sorted(samples)[len(samples) // 2]


@asynccontextmanager
async def _gateway(bench: Bench) -> AsyncIterator[Gateway]:
    """Serve the API in a separate process inside the block."""
    file = bench.settings.state_dir / f"{uuid4().hex[:8]}-{_URL_FILE}"
    options = ["serve", "--no-worker", "--port", "0", "--tools", TOOLS_FILE, "--address-file", str(file)]
    process = await asyncio.create_subprocess_exec(
        *python_command(bench.settings),
        "starter.py",
        *options,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=sys.stderr,
    )
    try:
        async with asyncio.timeout(START_TIMEOUT_S):
            while not file.exists() or not file.read_text(encoding="utf-8"):
                await asyncio.sleep(0.1)
        yield Gateway(file.read_text(encoding="utf-8"), process.pid)
    finally:
        process.terminate()
        await process.wait()


STREAM_ROWS: dict[str, Row] = {"streams": measure_streams, "starts": measure_starts}
