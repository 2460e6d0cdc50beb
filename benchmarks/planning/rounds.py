"""`python -m benchmarks.planning.rounds [--questions N] [--at-once N]`: the cost of a round besides its worker tools.

A scripted model plans rounds of two chains of worker tools that do nothing. Three gaps of each round are read from the
history: from the planner's response to the first worker tool, from the last worker tool to the planner, and between two
worker tools of a chain, which is an ordinary dispatch. Then one worker gets two batches of many concurrent questions.
An unexpected answer ends the benchmark. This benchmark is also the row `rounds` of `make bench`. The exit code is 1
only if a goal is missed by more than the factor 1.5.
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent

from benchmarks.figures import Figure, figure_to_json, format_table, ratio_figure, save_document
from benchmarks.planning import round_worker_tools
from benchmarks.planning.streaming import ModelBench
from benchmarks.processes import Bench, KillableWorker, python_command
from benchmarks.rows import RUN_TIMEOUT_S, event_time
from dagwright.core.boundary import wire
from dagwright.planner import RoundsOptions, prepare_rounds
from dagwright.planning.rounds.rounds_spec import RoundsLimits
from dagwright.protocol.run_input import RunInput, run_input_to_json
from dagwright.server import LocalServer
from dagwright.server.local import dial
from dagwright.server.namespace import register_search_attributes
from dagwright.settings import Settings
from dagwright.testing import ANY_NUMBER, ModelServer, Step, When, json_text, step
from dagwright.toolset.toolset import load_toolset

QUESTIONS, AT_ONCE, ROUNDS = 10, 50, 6
"""Number of sequential questions, of concurrent questions in a batch, and of rounds for each question."""
ANSWER = "It is so."
GAP_RATIO = 2.0
"""Maximum ratio of a gap around the planner to an ordinary dispatch in the same run."""
CPU_RATIO = 1.3
"""Maximum ratio of the worker's CPU time per concurrent question to its CPU time for a single question. The wall-clock
time of concurrent questions has no goal, because it depends on other load."""
SLOWEST_RATIO = 1.5
"""Maximum ratio of the duration of the slowest concurrent question to the median duration."""
MEMORY_RATIO = 1.2
"""Maximum ratio of the worker's peak memory after both batches of questions to its peak after the first batch.
The memory grows, because questions leave garbage that Python has not collected yet (benchmarks/README.md)."""
_TOOLS_FILE = str(Path(round_worker_tools.__file__).resolve())
_RESULTS = Path(__file__).resolve().parent.parent / "results"
_CHAINS, _CHAIN_LENGTH = 2, 3


@dataclass(frozen=True, slots=True)
class Gaps:
    """Seconds between the end of one activity and the start of another, for all rounds of a question.

    Args:
        after_planner: from the planner's response to the start of the first worker tool.
        before_planner: from the end of a round's last worker tool to the planner call.
        dispatch: from the end of a worker tool to the start of the next worker tool in its chain.
    """

    after_planner: Sequence[float]
    before_planner: Sequence[float]
    dispatch: Sequence[float]


@dataclass(frozen=True, slots=True)
class QuestionSetup:
    """The only worker, which answers the questions, and its Temporal server and scripted model (`bench`)."""

    bench: ModelBench
    worker: KillableWorker


@dataclass(frozen=True, slots=True)
class ConcurrentQuestions:
    """Many concurrent questions.

    Args:
        total_s: from the first start to the last answer.
        durations_s: for each question, from its start to its answer.
        cpu_s: CPU time of the worker for all questions.
        peak_gb: peak memory of the worker until the last answer, in 10^9 bytes.
    """

    total_s: float
    durations_s: Sequence[float]
    cpu_s: float
    peak_gb: float


def script() -> Sequence[Step]:
    """Return the model's responses to any number of questions."""
    steps = [step("Note and report.", when=When(metadata={"purpose": "intention"}), times=ANY_NUMBER)]
    for number in range(1, ROUNDS + 1):
        answer = {"reasoning": "Continue.", "action": "continue", "sub_goals": _sub_goals(number)}
        steps.append(step(json_text(answer), when=When(last=f"This is round {number} of"), times=ANY_NUMBER))
    report_ref = {"from_sub_goal": _sub_goal_id(ROUNDS, 0, _CHAIN_LENGTH), "slot": "report"}
    final_round = {"reasoning": "All is noted.", "action": "done", "synthesis_inputs": {"report": report_ref}}
    steps.append(step(json_text(final_round), when=When(last=f"This is round {ROUNDS + 1} of"), times=ANY_NUMBER))
    return [*steps, step(ANSWER, when=When(metadata={"purpose": "answer"}), times=ANY_NUMBER)]


def _sub_goal_id(round_number: int, chain: int, position: int) -> int:
    return 100 * round_number + 10 * chain + position


def _sub_goals(round_number: int) -> list[dict[str, Any]]:
    sub_goals = []
    for chain in range(_CHAINS):
        for position in range(_CHAIN_LENGTH):
            name = f"{round_number}.{chain}.{position}"
            previous = {"from_sub_goal": _sub_goal_id(round_number, chain, position - 1), "slot": "noted"}
            inputs = {"previous": previous} if position else {}
            sub_goals.append(
                {
                    "id": _sub_goal_id(round_number, chain, position),
                    "worker": "note",
                    "description": name,
                    "inputs": inputs,
                }
            )
            sub_goals[-1]["params"] = {"name": name}
    noted_ref = {"from_sub_goal": _sub_goal_id(round_number, 0, _CHAIN_LENGTH - 1), "slot": "noted"}
    describe_sub_goal = {
        "id": _sub_goal_id(round_number, 0, _CHAIN_LENGTH),
        "worker": "describe",
        "description": "describe",
        "inputs": {"noted": noted_ref},
        "params": {},
    }
    return [*sub_goals, describe_sub_goal]


@asynccontextmanager
async def serve_questions() -> AsyncIterator[QuestionSetup]:
    """Run a Temporal server, one worker and the scripted model inside the block."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        settings = Settings(state_dir=Path(folder) / "state")
        async with LocalServer(settings).hold() as server, ModelServer(*script()) as model:
            client = await dial(server.address)
            await register_search_attributes(client)
            environment = [f"OPENAI_BASE_URL={model.base_url}", "OPENAI_API_KEY=any", "DAGWRIGHT_MODEL=scripted"]
            command = ["env", *environment, *python_command(settings), "worker.py", "--tools", _TOOLS_FILE]
            worker = KillableWorker(command, Path(folder) / "worker.log")
            await worker.start()
            try:
                yield QuestionSetup(ModelBench(client, model, settings), worker)
            finally:
                await worker.kill()


async def ask_question(bench: ModelBench, name: str) -> tuple[Gaps, float]:
    """Ask one question; return its gaps and its duration in seconds."""
    tools = load_toolset(bench.settings, [_TOOLS_FILE]).declarations()
    plan, _ = prepare_rounds("Which name was noted?", tools, RoundsOptions(limits=RoundsLimits(synthesis="model")))
    started_at = time.monotonic()
    handle: Any = await bench.client.start_workflow(
        wire.WORKFLOW_PLAN_AND_EXECUTE,
        run_input_to_json(RunInput(compiled=plan)),
        id=name,
        task_queue=wire.DEFAULT_TASK_QUEUE,
    )
    await asyncio.wait_for(handle.result(), RUN_TIMEOUT_S)
    duration_s = time.monotonic() - started_at
    document = await handle.query(wire.QUERY_STATUS)
    if (problem := problem_with(document)) is not None:
        raise RuntimeError(f"unexpected result of {name}: {problem}")
    return gaps_of((await handle.fetch_history()).events), duration_s


def problem_with(document: Mapping[str, Any]) -> str | None:
    """Return the problem of the answer, the rounds or a node of a question; `None` if all are as expected."""
    if document["status"] != "completed" or document["output"] != ANSWER:
        return f"{document['status']}, {document['output']!r}: {document['error']}"
    expected_rounds = [[sub_goal["id"] for sub_goal in _sub_goals(number)] for number in range(1, ROUNDS + 1)]
    rounds = document["rounds"]["rounds"]
    if [each["sub_goals"] for each in rounds] != [*expected_rounds, []]:
        return f"{len(rounds)} rounds; their number or their sub-goals are not as planned"
    failed_nodes = [
        name for name, node in document["nodes"].items() if node["status"] != "completed" or node["attempts"] > 1
    ]
    return f"{', '.join(failed_nodes[:5])} did not complete in one attempt" if failed_nodes else None


def gaps_of(events: Sequence[HistoryEvent]) -> Gaps:
    """Return the gaps of a question, round by round."""
    starts, ends = _activity_times(events)
    planner_ids = ["plan", *(f"plan#{number}" for number in range(2, ROUNDS + 2))]
    after_planner, before_planner, dispatch = [], [], []
    for number in range(1, ROUNDS + 1):
        node_ids = [f"sg{sub_goal['id']}" for sub_goal in _sub_goals(number)]
        after_planner.append(min(starts[node_id] for node_id in node_ids) - ends[planner_ids[number - 1]])
        before_planner.append(starts[planner_ids[number]] - max(ends[node_id] for node_id in node_ids))
        for sub_goal in _sub_goals(number):
            for source in sub_goal["inputs"].values():
                dispatch.append(starts[f"sg{sub_goal['id']}"] - ends[f"sg{source['from_sub_goal']}"])
    return Gaps(after_planner, before_planner, dispatch)


def _activity_times(events: Sequence[HistoryEvent]) -> tuple[Mapping[str, float], Mapping[str, float]]:
    """Return the start and end times of the activities, in seconds since the epoch."""
    node_ids: dict[int, str] = {}
    starts: dict[str, float] = {}
    ends: dict[str, float] = {}
    for event in events:
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
            node_ids[event.event_id] = event.activity_task_scheduled_event_attributes.activity_id
        elif event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED:
            starts[node_ids[event.activity_task_started_event_attributes.scheduled_event_id]] = event_time(event)
        elif event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
            ends[node_ids[event.activity_task_completed_event_attributes.scheduled_event_id]] = event_time(event)
    return starts, ends


async def ask_concurrently(setup: QuestionSetup, name: str, count: int) -> ConcurrentQuestions:
    """Ask many questions concurrently."""
    started_at, initial_cpu_s = time.monotonic(), setup.worker.cpu_s()
    results = await asyncio.gather(*(ask_question(setup.bench, f"{name}-{index}") for index in range(count)))
    total_s, cpu_s = time.monotonic() - started_at, setup.worker.cpu_s() - initial_cpu_s
    return ConcurrentQuestions(total_s, [duration_s for _, duration_s in results], cpu_s, setup.worker.peak_gb())


async def measure(question_count: int, concurrent_count: int) -> list[Figure]:
    """Return the figures: gaps and times of sequential questions, and the cost of concurrent questions."""
    async with serve_questions() as setup:
        await ask_question(setup.bench, "warm")
        initial_cpu_s = setup.worker.cpu_s()
        sequential_results = [await ask_question(setup.bench, f"question-{number}") for number in range(question_count)]
        single_cpu_s = (setup.worker.cpu_s() - initial_cpu_s) / question_count
        batches = [await ask_concurrently(setup, f"at-once-{name}", concurrent_count) for name in ("first", "second")]
    return figures_of([gaps for gaps, _ in sequential_results], single_cpu_s, batches)


def figures_of(gaps: Sequence[Gaps], single_cpu_s: float, batches: Sequence[ConcurrentQuestions]) -> list[Figure]:
    """Build the figures.

    Args:
        gaps: gaps of the sequential questions.
        single_cpu_s: CPU time of the worker for one sequential question.
        batches: the batches of concurrent questions, in order.
    """
    dispatch = [1000 * gap for each in gaps for gap in each.dispatch]
    after_planner = [1000 * gap for each in gaps for gap in each.after_planner]
    before_planner = [1000 * gap for each in gaps for gap in each.before_planner]
    count = len(batches[0].durations_s)
    title = f"{count} questions of {ROUNDS} rounds at once on one worker"
    cpu_s_per_question = [batch.cpu_s / count for batch in batches]
    totals_s = [round(batch.total_s, 2) for batch in batches]
    slowest = [max(batch.durations_s) for batch in batches]
    medians = [statistics.median(batch.durations_s) for batch in batches]
    return [
        ratio_figure(
            "from the planner's response to the first worker tool, ms", after_planner, dispatch, goal=GAP_RATIO
        ),
        ratio_figure("from the last worker tool to the planner, ms", before_planner, dispatch, goal=GAP_RATIO),
        Figure(title, statistics.median(totals_s), None, unit="s", measured={"samples": totals_s}),
        ratio_figure(
            f"{title}, CPU time: a concurrent question in relation to a single question, s",
            cpu_s_per_question,
            [single_cpu_s],
            goal=CPU_RATIO,
        ),
        ratio_figure(
            f"{title}, duration: the slowest question in relation to the median, s",
            slowest,
            medians,
            goal=SLOWEST_RATIO,
        ),
        ratio_figure(
            f"{title}, peak memory: after two batches in relation to one batch, GB",
            [batches[-1].peak_gb],
            [batches[0].peak_gb],
            goal=MEMORY_RATIO,
        ),
    ]


async def measure_rounds(_: Bench, question_count: int) -> list[Figure]:
    """Measure rounds as a row of `make bench`, with a separate server and worker.

    Args:
        question_count: number of sequential questions, from the option `--pairs`. A question is not a pair.
    """
    return await measure(question_count, AT_ONCE)


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.planning.rounds", description=__doc__)
    parser.add_argument("--questions", type=int, default=QUESTIONS, help="number of sequential questions")
    parser.add_argument(
        "--at-once", type=int, default=AT_ONCE, help="number of concurrent questions in each of the two batches"
    )
    options = parser.parse_args(arguments)
    if options.questions < 1 or options.at_once < 1:
        parser.error("--questions and --at-once must be at least 1")
    figures = asyncio.run(measure(options.questions, options.at_once))
    print(format_table(figures))
    if (options.questions, options.at_once) == (QUESTIONS, AT_ONCE):
        rows = [figure_to_json(figure) for figure in figures]
        save_document(
            _RESULTS,
            "rounds",
            text=format_table(figures),
            document={"figures": rows},
            workload_text=f"{QUESTIONS} questions",
        )
    return 1 if any(figure.verdict == "failed" for figure in figures) else 0


if __name__ == "__main__":
    sys.exit(main())
