"""The row `lists`: how long each list query takes while 10,000 runs wait for a person.

No worker serves these runs: they have the search attributes and memos of runs that wait for an approval. A list
query reads nothing else.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable

from temporalio.client import Client
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes

from benchmarks.figures import Figure, median_figure
from benchmarks.processes import Bench
from benchmarks.rows import Row
from dagwright.client.feedback.inbox import InboxFilter
from dagwright.client.run_lists import RunFilter
from dagwright.client.sessions import Sessions
from dagwright.core.boundary import wire
from dagwright.protocol.run_attributes import attributes_from_memo

WAITING_RUNS = 10_000
LIST_GOAL_S = 0.5
_OWNERS = 100
_STARTS_AT_ONCE = 50
_SAMPLES = 7
_TIMEOUT_S = 1_800.0
_OPENED_AT = "2026-01-05T09:30:00.000Z"

_STATE = SearchAttributeKey.for_keyword(wire.SEARCH_STATE)
_PROGRESS = SearchAttributeKey.for_keyword(wire.SEARCH_PROGRESS)
_AWAITING = SearchAttributeKey.for_keyword_list(wire.SEARCH_AWAITING)


async def measure_lists(bench: Bench, pair_count: int) -> list[Figure]:  # noqa: ARG001 - as for every row
    """Measure each list with 10,000 waiting runs of 100 owners."""
    await _start_waiting_runs(bench.client)
    runs = bench.own_queue_runs
    sessions = Sessions(bench.connection, runs, task_queue=bench.settings.task_queue)
    queries: dict[str, Callable[[], Awaitable[object]]] = {
        "page of 100 runs": lambda: runs.page_of_runs(limit=100),
        "runs of a state": lambda: runs.page_of_runs(limit=100, run_filter=RunFilter(status="waiting")),
        "runs of a state, no hit": lambda: runs.page_of_runs(limit=100, run_filter=RunFilter(status="failed")),
        "runs of an owner": lambda: runs.page_of_runs(limit=100, run_filter=RunFilter(owner="owner-7")),
        "runs with a tag": lambda: runs.page_of_runs(limit=100, run_filter=RunFilter(tags={"team": "blue"})),
        "runs with a tag, no hit": lambda: runs.page_of_runs(limit=100, run_filter=RunFilter(tags={"team": "red"})),
        "runs with a title": lambda: runs.page_of_runs(limit=100, run_filter=RunFilter(title="Plan 77")),
        "runs with a title, no hit": lambda: runs.page_of_runs(limit=100, run_filter=RunFilter(title="No plan")),
        "page of 100 requests": lambda: runs.inbox(limit=100),
        "requests of an owner": lambda: runs.inbox(limit=100, inbox_filter=InboxFilter(owner="owner-7")),
        "requests to a person": lambda: runs.inbox(limit=100, inbox_filter=InboxFilter(assignee="ann")),
        "open runs of an owner, counted": lambda: runs.count_open_runs("owner-7"),
        "sessions": sessions.page_of_sessions,
    }
    return [
        median_figure(
            f"{WAITING_RUNS:,} waiting runs: {name}", await _measure_query_s(run_query), goal=LIST_GOAL_S, unit="s"
        )
        for name, run_query in queries.items()
    ]


async def _measure_query_s(run_query: Callable[[], Awaitable[object]]) -> list[float]:
    samples = []
    for _ in range(_SAMPLES + 1):
        started_at = time.monotonic()
        await run_query()
        samples.append(time.monotonic() - started_at)
    # The first sample is a warm-up.
    return samples[1:]


async def _start_waiting_runs(client: Client) -> None:
    start_slots = asyncio.Semaphore(_STARTS_AT_ONCE)

    async def start(number: int) -> None:
        async with start_slots:
            await _start_waiting_run(client, number)

    await asyncio.gather(*map(start, range(WAITING_RUNS)))
    deadline = time.monotonic() + _TIMEOUT_S
    while (await client.count_workflows(f"{wire.SEARCH_AWAITING} IS NOT NULL")).count < WAITING_RUNS:
        if time.monotonic() > deadline:
            raise RuntimeError("the server does not list the waiting runs")
        await asyncio.sleep(1.0)


async def _start_waiting_run(client: Client, number: int) -> None:
    assignee = "ann" if number % 2 else None
    request = {
        "request_id": "check",
        "node_id": "check",
        "type": "APPROVAL",
        "prompt": "Publish the report?",
        "schema": None,
        "options": None,
        "assignee": assignee,
        "opened_at": _OPENED_AT,
        "deadline": None,
        "purpose": "human",
        "multiple": False,
        "allow_text": False,
    }
    title = f"Plan {number}"
    memo = {
        wire.MEMO_DIGEST: "0" * 64,
        wire.MEMO_TOOLS: [],
        wire.MEMO_NODES: 3,
        wire.MEMO_TITLE: title,
        wire.MEMO_OWNER: f"owner-{number % _OWNERS}",
        wire.MEMO_TAGS: {"team": "blue", "number": str(number)},
        wire.MEMO_REQUESTS: {"title": title, "count": 1, "shown": [{"node": "check", "request": request}]},
    }
    await client.start_workflow(
        wire.WORKFLOW_RUN_PLAN,
        {},
        id=f"waiting-{number}",
        task_queue="unserved",
        memo=memo,
        search_attributes=TypedSearchAttributes(
            [
                SearchAttributePair(_STATE, "waiting"),
                SearchAttributePair(_PROGRESS, "1/3"),
                SearchAttributePair(_AWAITING, [assignee or "anyone"]),
                *attributes_from_memo(memo),
            ]
        ),
    )


LIST_ROWS: dict[str, Row] = {"lists": measure_lists}
