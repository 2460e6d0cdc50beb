"""Rounds of a hundred concurrent requests on one worker: requests are isolated, and their memory is released."""

import asyncio
import json
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from statistics import mean
from typing import Any
from uuid import uuid4

import pytest
from temporalio.client import Client

from dagwright.core.boundary import wire
from dagwright.core.model.tools import ToolDeclaration
from dagwright.planner import PlanningOptions, prepare_goal
from dagwright.planning.model_calls.model_requests import ModelConfig
from dagwright.protocol.run_input import RunInput, run_input_to_json
from dagwright.settings import Settings
from dagwright.testing import ModelServer, ReceivedCall, Step, When, step
from dagwright.toolset.toolset import load_toolset
from tests.support.chaos import TOOLS_FILE, start_run, worker_process
from tests.support.chaos_tools import LIVING_OBJECTS_FILE
from tests.support.eventually import eventually
from tests.support.goals import call_node, plan_text
from tests.support.server import LiveServer

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.alone]

REQUESTS_PER_ROUND = 100
ROUNDS = 5
WARM_UP_ROUNDS = 2
"""Rounds in which caches are filled and modules are loaded."""
MAX_OBJECT_GROWTH = REQUESTS_PER_ROUND
"""Maximum growth of the number of objects in the worker per round: one object for each request.

In some rounds, the connection pool of the model client still keeps connections, each with 60 objects. The test
therefore compares the minimum of several rounds."""
MAX_GROWTH_MB = 5.0
"""Maximum growth of the memory from the mean of the middle rounds to the mean of the last rounds.

The middle and the last rounds are on average 150 requests apart. Memory is measured after garbage collection, and
varies by 3 MB. If each request kept the 100 KB of a running run, the memory would grow by 15 MB."""
_WORD = re.compile(r"word-\d+-\d+-")
_ROUND_TIMEOUT_S = 420


def word(round_index: int, number: int) -> str:
    """Return a word that occurs in one request only."""
    return f"word-{round_index}-{number}-"


def model_of(number: int) -> str:
    """Return the model that the request with this number names."""
    return f"model-{number % 3}"


def steps_of(round_index: int) -> list[Step]:
    """Return the plan and the answer of each request of a round, in the reverse order of the requests."""
    steps = []
    for number in reversed(range(REQUESTS_PER_ROUND)):
        request_word, model = word(round_index, number), model_of(number)
        plan = plan_text(call_node("a", "echo", text=request_word), call_node("b", "echo", text="{{a.result.text}}"))
        steps.append(step(plan, when=When(model=model, metadata={"purpose": "plan"}, last=request_word)))
        steps.append(
            step(f"heard {request_word}", when=When(model=model, metadata={"purpose": "answer"}, last=request_word))
        )
    return steps


async def run_goal(
    client: Client, tools: Mapping[str, ToolDeclaration], *, round_index: int, number: int
) -> tuple[str, dict[str, Any]]:
    """Run one request, and return its run ID and document."""
    options = PlanningOptions(ModelConfig(model=model_of(number)))
    compiled, _ = prepare_goal(f"Say {word(round_index, number)}", {"echo": tools["echo"]}, options)
    handle = await client.start_workflow(
        wire.WORKFLOW_PLAN_AND_EXECUTE,
        run_input_to_json(RunInput(compiled=compiled)),
        id=f"at-once-{round_index}-{number}-{uuid4().hex}",
        task_queue=wire.DEFAULT_TASK_QUEUE,
    )
    document: dict[str, Any] = await handle.result()
    return handle.id, document


def assert_has_only_its_word(received: ReceivedCall) -> None:
    """Check that a call contains the word of its own run and no other word, and names the model of its run."""
    round_index, number = map(int, received.metadata["run_id"].split("-")[2:4])
    assert {*_WORD.findall(received.text)} == {word(round_index, number)}
    assert received.model == model_of(number)


async def count_living_objects(client: Client, folder: Path) -> Counter[str]:
    plan = {"nodes": [call_node("count", "living_objects")], "output": "{{count.result}}"}
    await (await start_run(client, plan, run_id=f"count-{uuid4().hex}")).result()
    return Counter(json.loads((folder / LIVING_OBJECTS_FILE).read_text(encoding="utf-8")))


def largest_increases(counts_before: Counter[str], counts_after: Counter[str]) -> list[tuple[str, int]]:
    """Return the types with a higher count, largest increase first."""
    return (counts_after - counts_before).most_common(20)


async def test_concurrent_requests_are_isolated_and_release_their_memory(
    private_server: LiveServer, folder: Path, record_property: Any
) -> None:
    client = await private_server.start()
    tools = load_toolset(Settings(), [str(TOOLS_FILE)]).declarations()
    memory_by_round: list[float] = []
    measurements: list[Counter[str]] = []
    counts_by_round: list[Counter[str]] = []

    async def is_object_count_stable() -> bool:
        # The worker releases the last runs of a round shortly after they have ended.
        measurements.append(await count_living_objects(client, folder))
        return len(measurements) > 1 and abs(measurements[-1].total() - measurements[-2].total()) < MAX_OBJECT_GROWTH

    steps = [step for round_index in range(ROUNDS) for step in steps_of(round_index)]
    async with ModelServer(*steps) as model:
        environment = {"OPENAI_BASE_URL": model.base_url, "OPENAI_API_KEY": "key"}
        async with worker_process(private_server.address, folder, environment=environment) as worker:
            for round_index in range(ROUNDS):
                async with asyncio.timeout(_ROUND_TIMEOUT_S):
                    ended_runs = await asyncio.gather(
                        *(
                            run_goal(client, tools, round_index=round_index, number=number)
                            for number in range(REQUESTS_PER_ROUND)
                        )
                    )
                outcomes = [(document["status"], document["output"]) for _, document in ended_runs]
                expected = [("completed", f"heard {word(round_index, number)}") for number in range(REQUESTS_PER_ROUND)]
                assert outcomes == expected
                measurements.clear()
                await eventually(is_object_count_stable)
                counts_by_round.append(measurements[-1])
                memory_by_round.append(worker.memory_mb)
        for received in model.calls:
            assert_has_only_its_word(received)
        assert len(model.calls) == 2 * REQUESTS_PER_ROUND * ROUNDS
    object_totals = [count.total() for count in counts_by_round]
    record_property("objects", object_totals)
    record_property("memory_mb", memory_by_round)
    # The last warm-up round is included, so that both halves have two rounds.
    warm_rounds = counts_by_round[WARM_UP_ROUNDS - 1 :]
    half_length = len(warm_rounds) // 2
    # Objects that are released late appear in some rounds only, while a leak also raises the minimum of the rounds.
    early_counts, late_counts = (
        min(part, key=Counter.total) for part in (warm_rounds[:half_length], warm_rounds[half_length:])
    )
    growth_per_round = (late_counts.total() - early_counts.total()) / half_length
    assert growth_per_round < MAX_OBJECT_GROWTH, (object_totals, largest_increases(early_counts, late_counts))
    middle_memory, last_memory = (
        memory_by_round[WARM_UP_ROUNDS : (WARM_UP_ROUNDS + ROUNDS) // 2],
        memory_by_round[(WARM_UP_ROUNDS + ROUNDS) // 2 :],
    )
    assert mean(last_memory) - mean(middle_memory) < MAX_GROWTH_MB, memory_by_round
