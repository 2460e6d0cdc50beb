"""`python -m benchmarks.planning.rounds [--questions N] [--at-once N]`: what a round costs beside its workers.

A scripted model plans rounds of two chains of workers that do nothing. Of each round three gaps are read from the
history: from the planner's answer to the first worker, from the last worker to the planner, and between two workers of
a chain, which is an ordinary dispatch. Then many questions are asked at once. Exit code 1 only if the goal is missed by
more than half as much again.
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

from benchmarks.figures import Figure, figure_to_json, ratio_figure, save_as, table
from benchmarks.planning import round_workers
from benchmarks.planning.streaming import Place
from benchmarks.processes import python, running
from benchmarks.rows import RUN_TIMEOUT_S, event_time
from dagwright.contracts import wire
from dagwright.contracts.messages import RunInput, run_input_to_json
from dagwright.planner import RoundsAsked, prepare_rounds
from dagwright.server import LocalServer
from dagwright.server.local import dial
from dagwright.server.namespace import register_search_attributes
from dagwright.settings import Settings
from dagwright.testing import ANY_NUMBER, ModelServer, Step, json_text, step
from dagwright.toolset import load_toolset

QUESTIONS, AT_ONCE, ROUNDS = 10, 50, 6
MOST_RATIO = 2.0
"""Of a gap around the planner to an ordinary dispatch in the same run."""
_TOOLS_FILE = str(Path(round_workers.__file__).resolve())
_RESULTS = Path(__file__).resolve().parent.parent / "results"
_CHAINS, _LENGTH = 2, 3


@dataclass(frozen=True, slots=True)
class Gaps:
    """Seconds between the end of one activity and the start of another, of all rounds of a question.

    Args:
        after_answer: from the planner's answer to the first worker that it begins.
        before_planner: from the end of the last worker of a round to the call of the planner.
        ordinary: from the end of a worker to the start of the one behind it in its chain.
    """

    after_answer: Sequence[float]
    before_planner: Sequence[float]
    ordinary: Sequence[float]


def script() -> Sequence[Step]:
    """Returns what the model says to any question, however often it is asked."""
    steps = [step("Note and tell.", metadata={"purpose": "intention"}, times=ANY_NUMBER)]
    for number in range(1, ROUNDS + 1):
        answer = {"reasoning": "On.", "action": "continue", "sub_goals": _sub_goals(number)}
        steps.append(step(json_text(answer), last=f"This is round {number} of", times=ANY_NUMBER))
    last = {"from_sub_goal": _id(ROUNDS, 0, _LENGTH), "slot": "report"}
    enough = {"reasoning": "All is told.", "action": "done", "synthesis_inputs": {"report": last}}
    steps.append(step(json_text(enough), last=f"This is round {ROUNDS + 1} of", times=ANY_NUMBER))
    return [*steps, step("It is so.", metadata={"purpose": "answer"}, times=ANY_NUMBER)]


def _id(number: int, chain: int, place: int) -> int:
    return 100 * number + 10 * chain + place


def _sub_goals(number: int) -> list[dict[str, Any]]:
    found = []
    for chain in range(_CHAINS):
        for place in range(_LENGTH):
            name = f"{number}.{chain}.{place}"
            before = {"from_sub_goal": _id(number, chain, place - 1), "slot": "noted"}
            inputs = {"before": before} if place else {}
            found.append({"id": _id(number, chain, place), "worker": "note", "description": name, "inputs": inputs})
            found[-1]["params"] = {"name": name}
    noted = {"from_sub_goal": _id(number, 0, _LENGTH - 1), "slot": "noted"}
    told = {
        "id": _id(number, 0, _LENGTH),
        "worker": "tell",
        "description": "tell",
        "inputs": {"noted": noted},
        "params": {},
    }
    return [*found, told]


@asynccontextmanager
async def serving() -> AsyncIterator[Place]:
    """Runs a server, one worker and the scripted model inside the block."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        settings = Settings(state_dir=Path(name) / "state")
        async with LocalServer(settings).hold() as server, ModelServer(*script()) as model:
            client = await dial(server.address)
            await register_search_attributes(client)
            asked = [f"OPENAI_BASE_URL={model.base_url}", "OPENAI_API_KEY=any", "DAGWRIGHT_MODEL=scripted"]
            command = ["env", *asked, *python(settings), "worker.py", "--tools", _TOOLS_FILE]
            async with running(command, log=Path(name) / "worker.log"):
                yield Place(client, model, settings)


async def asked(place: Place, name: str) -> tuple[Gaps, float]:
    """Asks one question; returns its gaps, and how many seconds it took."""
    tools = load_toolset(place.settings, [_TOOLS_FILE]).declarations()
    plan, _ = prepare_rounds("What is noted?", tools, RoundsAsked())
    began = time.monotonic()
    handle: Any = await place.client.start_workflow(
        wire.WORKFLOW_PURSUE_GOAL,
        run_input_to_json(RunInput(compiled=plan)),
        id=name,
        task_queue=wire.DEFAULT_TASK_QUEUE,
    )
    document = await asyncio.wait_for(handle.result(), RUN_TIMEOUT_S)
    took = time.monotonic() - began
    if document["status"] != "completed":
        raise RuntimeError(f"{name} did not go as it should: {document['error']}")
    return gaps_of((await handle.fetch_history()).events), took


def gaps_of(events: Sequence[HistoryEvent]) -> Gaps:
    """Returns the gaps of a question, round by round."""
    began, ended = _times(events)
    planners = ["plan", *(f"plan#{number}" for number in range(2, ROUNDS + 2))]
    after, before, ordinary = [], [], []
    for number in range(1, ROUNDS + 1):
        names = [f"sg{sub_goal['id']}" for sub_goal in _sub_goals(number)]
        after.append(min(began[name] for name in names) - ended[planners[number - 1]])
        before.append(began[planners[number]] - max(ended[name] for name in names))
        for sub_goal in _sub_goals(number):
            for source in sub_goal["inputs"].values():
                ordinary.append(began[f"sg{sub_goal['id']}"] - ended[f"sg{source['from_sub_goal']}"])
    return Gaps(after, before, ordinary)


def _times(events: Sequence[HistoryEvent]) -> tuple[Mapping[str, float], Mapping[str, float]]:
    """Returns when each activity started and ended, in seconds since the epoch."""
    names: dict[int, str] = {}
    began: dict[str, float] = {}
    ended: dict[str, float] = {}
    for event in events:
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
            names[event.event_id] = event.activity_task_scheduled_event_attributes.activity_id
        elif event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED:
            began[names[event.activity_task_started_event_attributes.scheduled_event_id]] = event_time(event)
        elif event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
            ended[names[event.activity_task_completed_event_attributes.scheduled_event_id]] = event_time(event)
    return began, ended


async def measure(questions: int, at_once: int) -> list[Figure]:
    """Returns the figures: the gaps one question after the other, then how long many at once take."""
    async with serving() as place:
        await asked(place, "warm")
        found = [(await asked(place, f"question-{number}"))[0] for number in range(questions)]
        began = time.monotonic()
        each = await asyncio.gather(*(asked(place, f"at-once-{number}") for number in range(at_once)))
        whole = time.monotonic() - began
    ordinary = [1000 * gap for gaps in found for gap in gaps.ordinary]
    after = [1000 * gap for gaps in found for gap in gaps.after_answer]
    before = [1000 * gap for gaps in found for gap in gaps.before_planner]
    slowest = {
        "median_s": round(statistics.median(took for _, took in each), 2),
        "samples": [round(took, 2) for _, took in each],
    }
    return [
        ratio_figure("planner's answer to first worker : dispatch in a chain, ms", after, ordinary, goal=MOST_RATIO),
        ratio_figure("last worker to planner : dispatch in a chain, ms", before, ordinary, goal=MOST_RATIO),
        Figure(
            f"{at_once} questions of {ROUNDS} rounds at once on one worker", whole, None, unit="s", measured=slowest
        ),
    ]


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.planning.rounds", description=__doc__)
    parser.add_argument("--questions", type=int, default=QUESTIONS, help="questions asked one after the other")
    parser.add_argument("--at-once", type=int, default=AT_ONCE, help="questions asked at once")
    options = parser.parse_args(arguments)
    if options.questions < 1 or options.at_once < 1:
        parser.error("--questions and --at-once are at least 1")
    figures = asyncio.run(measure(options.questions, options.at_once))
    print(table(figures))
    if (options.questions, options.at_once) == (QUESTIONS, AT_ONCE):
        rows = [figure_to_json(figure) for figure in figures]
        save_as(_RESULTS, "rounds", text=table(figures), document={"figures": rows}, often=f"{QUESTIONS} questions")
    return 1 if any(figure.verdict == "lost" for figure in figures) else 0


if __name__ == "__main__":
    sys.exit(main())
