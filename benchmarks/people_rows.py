"""The row `answers`: the delay from an answer to the start of the waiting node, without and with watchers."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent

from benchmarks import shapes
from benchmarks.figures import Figure, ratio_figure
from benchmarks.limit_rows import WATCHERS, watch
from benchmarks.one_queue_worker import one_queue_toolset
from benchmarks.processes import Bench
from benchmarks.rows import RUN_TIMEOUT_S, Row, event_time
from dagwright.client.starts import StartRequest
from dagwright.core.boundary import wire
from dagwright.plans.preparation import check_plan, prepare_plan

ANSWER_RATIO = 2.0
"""Goal of the delay after an answer, compared with the delay between two nodes."""
WATCHED_RATIO = 2.0
"""Goal of the delay after an answer with many watchers, compared with the delay without watchers."""
_ANSWERS = 40
_PAUSE_S = 0.02


@dataclass(frozen=True, slots=True)
class _AnswerTimes:
    """Measurements of one run with requests.

    Args:
        answer_delays_s: seconds from sending each answer to the start of the node that waits for it.
        dispatch_delays_s: seconds from each node's end to the start of its dependent.
    """

    answer_delays_s: Sequence[float]
    dispatch_delays_s: Sequence[float]


async def measure_answers(bench: Bench, pair_count: int) -> list[Figure]:  # noqa: ARG001 - as for every row
    """Compare the delay after an answer with the delay between two nodes, and measure it again with many watchers."""
    # The first run is a warm-up.
    await _answer_requests(bench, watcher_count=0)
    unwatched_times, watched_times = (
        await _answer_requests(bench, watcher_count=0),
        await _answer_requests(bench, watcher_count=WATCHERS),
    )
    return [
        ratio_figure(
            "from an answer to the start of the dependent node",
            unwatched_times.answer_delays_s,
            unwatched_times.dispatch_delays_s,
            goal=ANSWER_RATIO,
        ),
        ratio_figure(
            f"from an answer to the start of the dependent node, {WATCHERS} watchers",
            watched_times.answer_delays_s,
            unwatched_times.answer_delays_s,
            goal=WATCHED_RATIO,
        ),
    ]


async def _answer_requests(bench: Bench, *, watcher_count: int) -> _AnswerTimes:
    """Answer the requests of a run one after the other."""
    tools = one_queue_toolset(bench.settings).declarations()
    started_run = await bench.one_queue_runs.start(
        StartRequest(prepare_plan(check_plan(shapes.requests_to_people(_ANSWERS), tools), {}))
    )
    handle = bench.client.get_workflow_handle(started_run.run_id)
    watch_tasks = [asyncio.create_task(watch(bench, started_run.run_id)) for _ in range(watcher_count)]
    sent_at: dict[str, float] = {}
    for number in range(_ANSWERS):
        sent_at[f"after{number}"] = time.time()
        message = {"request_id": f"ask{number}", "answer": {"text": "continue"}, "by": "benchmark"}
        await handle.execute_update(wire.UPDATE_SUBMIT_FEEDBACK, message)
        await asyncio.sleep(_PAUSE_S)
    document = await asyncio.wait_for(handle.result(), RUN_TIMEOUT_S)
    await asyncio.wait_for(asyncio.gather(*watch_tasks), RUN_TIMEOUT_S)
    if document["status"] != "completed":
        raise RuntimeError(f"the run {handle.id} ended as {document['status']}")
    starts, ends = _activity_times((await handle.fetch_history()).events)
    return _AnswerTimes(
        answer_delays_s=[starts[name] - answered_at for name, answered_at in sent_at.items()],
        dispatch_delays_s=[starts[f"next{number}"] - ends[f"after{number}"] for number in range(_ANSWERS)],
    )


def _activity_times(events: Sequence[HistoryEvent]) -> tuple[Mapping[str, float], Mapping[str, float]]:
    """Return the start times and the end times of the activities, by node ID."""
    node_ids: dict[int, str] = {}
    starts: dict[str, float] = {}
    ends: dict[str, float] = {}
    for event in events:
        attributes: Any
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
            node_ids[event.event_id] = event.activity_task_scheduled_event_attributes.activity_id
        elif event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED:
            attributes = event.activity_task_started_event_attributes
            starts[node_ids[attributes.scheduled_event_id]] = event_time(event)
        elif event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
            attributes = event.activity_task_completed_event_attributes
            ends[node_ids[attributes.scheduled_event_id]] = event_time(event)
    return starts, ends


PEOPLE_ROWS: dict[str, Row] = {"answers": measure_answers}
