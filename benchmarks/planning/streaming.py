"""`python -m benchmarks.planning.streaming [--repeats N] [--sizes 3,6,9]`: the gain of starting an incomplete plan.

A scripted model writes 50 tokens a second, and each tool call takes a second. The same request is handled in three
ways: by a plan whose nodes start while the model writes, by a plan that starts when it is complete, and by an agent
that calls one tool per turn. The ways alternate. Goal: at most 40 % of a plan is written when its first tool starts.
The exit code is 1 only if the goal is exceeded by more than the factor 1.5.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client

from benchmarks.figures import save_document
from benchmarks.planning import slow_tools
from benchmarks.planning.paced_responses import (
    SHAPES,
    TOKEN_CHARACTERS,
    TOOL,
    Shape,
    agent_script,
    plan_text,
    planner_script,
)
from benchmarks.planning.streaming_report import Comparison, RunTimes, comparison_table, report_to_json, written_figure
from benchmarks.processes import python_command, run_process
from benchmarks.rows import RUN_TIMEOUT_S, event_time
from dagwright.core.boundary import wire
from dagwright.planner import PlanningOptions, prepare_goal
from dagwright.planning.agent_loop.spec import OBJECTIVE, AgentSpec, agent_plan
from dagwright.protocol.run_input import RunInput, run_input_to_json
from dagwright.server import LocalServer
from dagwright.server.local import dial
from dagwright.server.namespace import register_search_attributes
from dagwright.settings import Settings
from dagwright.testing import ModelServer, ReceivedCall, Step
from dagwright.toolset.toolset import load_toolset

SIZES = (3, 6, 9)
REPEATS = 3
STREAMED, WHOLE, TURNS = WAYS = ("streamed", "whole", "turns")
"""Ways to handle a request: a plan that starts while the model writes it, a plan that starts when it is complete, and
an agent that calls one tool per turn."""
_REQUEST_TEXT = "Compare the rents of flats with two rooms in some cities."
_TOOLS_FILE = str(Path(slow_tools.__file__).resolve())
_RESULTS = Path(__file__).resolve().parent.parent / "results"


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the benchmark.

    Args:
        repeat: index among the runs of this shape and way.
        is_counted: whether the run is measured; otherwise it is a warm-up.
    """

    shape: Shape
    way: str
    repeat: int
    is_counted: bool = True

    @property
    def id(self) -> str:
        """Return the ID of the run."""
        suffix = "" if self.is_counted else "-warm"
        return f"{self.shape.name}-{len(self.shape.dependencies)}-{self.way}-{self.repeat}{suffix}"

    def script(self) -> Sequence[Step]:
        """Return the model's responses."""
        if self.way == TURNS:
            return agent_script(self.id, self.shape)
        return planner_script(self.id, self.shape, is_streamed=self.way == STREAMED)


@dataclass(frozen=True, slots=True)
class ModelBench:
    """The server of the runs, and the model that they call."""

    client: Client
    model: ModelServer
    settings: Settings


def runs_of(sizes: Sequence[int], repeats: int) -> list[Run]:
    """Return all runs in order: a warm-up of each way, then the ways alternately."""
    warm_ups = [Run(SHAPES[0](min(sizes)), way, 0, is_counted=False) for way in WAYS]
    counted_runs = [
        Run(make_shape(size), WAYS[(position + repeat) % len(WAYS)], repeat)
        for repeat in range(repeats)
        for make_shape in SHAPES
        for size in sizes
        for position in range(len(WAYS))
    ]
    return warm_ups + counted_runs


@asynccontextmanager
async def serve_runs(runs: Sequence[Run]) -> AsyncIterator[ModelBench]:
    """Run a server, a worker with the slow tool and the scripted model inside the block."""
    steps = [step for run in runs for step in run.script()]
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        settings = Settings(state_dir=Path(folder) / "state")
        async with LocalServer(settings).hold() as server, ModelServer(*steps) as model:
            client = await dial(server.address)
            await register_search_attributes(client)
            environment = [f"OPENAI_BASE_URL={model.base_url}", "OPENAI_API_KEY=any", "DAGWRIGHT_MODEL=scripted"]
            command = ["env", *environment, *python_command(settings), "worker.py", "--tools", _TOOLS_FILE]
            async with run_process(command, log=Path(folder) / "worker.log"):
                yield ModelBench(client, model, settings)


async def measure(sizes: Sequence[int], repeats: int) -> list[Comparison]:
    """Return the times of the runs, by shape and size."""
    runs = runs_of(sizes, repeats)
    times_by_kind: dict[tuple[str, int, str], list[RunTimes]] = {}
    async with serve_runs(runs) as bench:
        for run in runs:
            times = await _measure_run(bench, run)
            print(f"{run.id}: first tool after {times.first_call_s:.2f} s, end {times.end_s:.2f} s", file=sys.stderr)
            if run.is_counted:
                times_by_kind.setdefault((run.shape.name, len(run.shape.dependencies), run.way), []).append(times)
    shapes = [make_shape(size) for make_shape in SHAPES for size in sizes]
    return [
        Comparison(
            shape.name,
            len(shape.dependencies),
            round(len(plan_text(shape)) / TOKEN_CHARACTERS),
            **{way: times_by_kind[shape.name, len(shape.dependencies), way] for way in WAYS},
        )
        for shape in shapes
    ]


async def _measure_run(bench: ModelBench, run: Run) -> RunTimes:
    started_at = time.time()
    tools = {TOOL: load_toolset(bench.settings, [_TOOLS_FILE]).declarations()[TOOL]}
    if run.way == TURNS:
        spec = AgentSpec("helper", tools=tools)
        plan = agent_plan(spec, prompt="Answer the request with the results of the tools.", result_titles={})
        workflow_type, run_input = wire.WORKFLOW_RUN_AGENT, RunInput(compiled=plan, inputs={OBJECTIVE: _REQUEST_TEXT})
    else:
        plan, _ = prepare_goal(_REQUEST_TEXT, tools, PlanningOptions(streams=run.way == STREAMED))
        workflow_type, run_input = wire.WORKFLOW_PLAN_AND_EXECUTE, RunInput(compiled=plan)
    handle: Any = await bench.client.start_workflow(
        workflow_type, run_input_to_json(run_input), id=run.id, task_queue=wire.DEFAULT_TASK_QUEUE
    )
    document = await asyncio.wait_for(handle.result(), RUN_TIMEOUT_S)
    calls = [call for call in bench.model.calls if call.metadata.get("run_id") == run.id]
    events = (await handle.fetch_history()).events
    starts = tool_starts(events)
    if (
        document["status"] != "completed"
        or len(starts) != len(run.shape.dependencies)
        or len(calls) != len(run.script())
    ):
        raise RuntimeError(f"unexpected result of {run.id}: {len(starts)} tool calls, {json.dumps(document)}")
    return RunTimes(
        first_call_s=min(starts) - started_at,
        end_s=event_time(events[-1]) - started_at,
        written=_written_share(bench.model, calls[0], min(starts)),
    )


def _written_share(model: ModelServer, call: ReceivedCall, until: float) -> float | None:
    """Return the share of a response that had been sent at a time; `None` if it was not streamed."""
    chunks_sent_at = model.sent_at[model.calls.index(call)]
    return sum(sent_at <= until for sent_at in chunks_sent_at) / len(chunks_sent_at) if call.is_streamed else None


def tool_starts(events: Sequence[HistoryEvent]) -> list[float]:
    """Return the start times of the tool calls, in seconds since the epoch."""
    scheduled_ids = {
        event.event_id
        for event in events
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED
        and event.activity_task_scheduled_event_attributes.activity_type.name == TOOL
    }
    return [
        event_time(event)
        for event in events
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED
        and event.activity_task_started_event_attributes.scheduled_event_id in scheduled_ids
    ]


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.planning.streaming", description=__doc__)
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="numbers of nodes per plan, from 3 to 9")
    parser.add_argument("--repeats", type=int, default=REPEATS, help="number of runs of each shape, size and way")
    options = parser.parse_args(arguments)
    sizes = tuple(int(size) for size in options.sizes.split(","))
    if not all(3 <= size <= 9 for size in sizes) or options.repeats < 1:
        parser.error("--sizes must be from 3 to 9, and --repeats at least 1")
    comparisons = asyncio.run(measure(sizes, options.repeats))
    print(comparison_table(comparisons))
    if sizes == SIZES:
        workload_text = f"{options.repeats} runs of each"
        save_document(
            _RESULTS,
            "streaming",
            text=comparison_table(comparisons),
            document=report_to_json(comparisons),
            workload_text=workload_text,
        )
    return 1 if written_figure(comparisons).verdict == "failed" else 0


if __name__ == "__main__":
    sys.exit(main())
