"""Batches of a hundred concurrent requests, one batch after another, on one worker.

The requests are isolated, and their memory is released.
"""

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

REQUESTS_PER_BATCH = 100
BATCHES = 5
WARM_UP_BATCHES = 2
"""Batches in which caches are filled and modules are loaded."""
MAX_OBJECT_GROWTH = REQUESTS_PER_BATCH
"""Maximum growth of the number of objects in the worker per batch: one object for each request.

In some batches, the connection pool of the model client still keeps connections, each with 60 objects. The test
therefore compares the minimum of several batches."""
MAX_GROWTH_MB = 5.0
"""Maximum growth of the memory from the third batch, the first after the warm-up, to the mean of the last two batches.

These are on average 1.5 batches, or 150 requests, apart. Memory is measured after garbage collection, and varies by
3 MB. If each request kept the 100 KB of a running run, the memory would grow by 15 MB."""
_WORD = re.compile(r"word-\d+-\d+-")
_BATCH_TIMEOUT_S = 420


def word(batch_index: int, number: int) -> str:
    """Return a word that occurs in one request only."""
    return f"word-{batch_index}-{number}-"


def model_of(number: int) -> str:
    """Return the model that the request with this number uses."""
    return f"model-{number % 3}"


def steps_of(batch_index: int) -> list[Step]:
    """Return the plan and the answer of each request of a batch, in the reverse order of the requests."""
    steps = []
    for number in reversed(range(REQUESTS_PER_BATCH)):
        request_word, model = word(batch_index, number), model_of(number)
        plan = plan_text(call_node("a", "echo", text=request_word), call_node("b", "echo", text="{{a.result.text}}"))
        steps.append(step(plan, when=When(model=model, metadata={"purpose": "plan"}, last=request_word)))
        steps.append(
            step(f"heard {request_word}", when=When(model=model, metadata={"purpose": "answer"}, last=request_word))
        )
    return steps


async def run_goal(
    client: Client, tools: Mapping[str, ToolDeclaration], *, batch_index: int, number: int
) -> tuple[str, dict[str, Any]]:
    """Run one request, and return its run ID and document."""
    options = PlanningOptions(ModelConfig(model=model_of(number)))
    compiled, _ = prepare_goal(f"Say {word(batch_index, number)}", {"echo": tools["echo"]}, options)
    handle = await client.start_workflow(
        wire.WORKFLOW_PLAN_AND_EXECUTE,
        run_input_to_json(RunInput(compiled=compiled)),
        id=f"at-once-{batch_index}-{number}-{uuid4().hex}",
        task_queue=wire.DEFAULT_TASK_QUEUE,
    )
    document: dict[str, Any] = await handle.result()
    return handle.id, document


def assert_has_only_its_word(received: ReceivedCall) -> None:
    """Check that a call contains the word of its own run and no other word, and names the model of its run."""
    batch_index, number = map(int, received.metadata["run_id"].split("-")[2:4])
    assert {*_WORD.findall(received.text)} == {word(batch_index, number)}
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
    memory_by_batch: list[float] = []
    measurements: list[Counter[str]] = []
    counts_by_batch: list[Counter[str]] = []

    async def is_object_count_stable() -> bool:
        # The worker releases the last runs of a batch shortly after they have ended.
        measurements.append(await count_living_objects(client, folder))
        return len(measurements) > 1 and abs(measurements[-1].total() - measurements[-2].total()) < MAX_OBJECT_GROWTH

    steps = [step for batch_index in range(BATCHES) for step in steps_of(batch_index)]
    async with ModelServer(*steps) as model:
        environment = {"OPENAI_BASE_URL": model.base_url, "OPENAI_API_KEY": "key"}
        async with worker_process(private_server.address, folder, environment=environment) as worker:
            for batch_index in range(BATCHES):
                async with asyncio.timeout(_BATCH_TIMEOUT_S):
                    ended_runs = await asyncio.gather(
                        *(
                            run_goal(client, tools, batch_index=batch_index, number=number)
                            for number in range(REQUESTS_PER_BATCH)
                        )
                    )
                outcomes = [(document["status"], document["output"]) for _, document in ended_runs]
                expected = [("completed", f"heard {word(batch_index, number)}") for number in range(REQUESTS_PER_BATCH)]
                assert outcomes == expected
                measurements.clear()
                await eventually(is_object_count_stable)
                counts_by_batch.append(measurements[-1])
                memory_by_batch.append(worker.memory_mb)
        for received in model.calls:
            assert_has_only_its_word(received)
        assert len(model.calls) == 2 * REQUESTS_PER_BATCH * BATCHES
    object_totals = [count.total() for count in counts_by_batch]
    record_property("objects", object_totals)
    record_property("memory_mb", memory_by_batch)
    # The last warm-up batch is included, so that both halves have two batches.
    warm_batches = counts_by_batch[WARM_UP_BATCHES - 1 :]
    half_length = len(warm_batches) // 2
    # Objects that are released late appear in some batches only, while a leak also raises the minimum of the batches.
    early_counts, late_counts = (
        min(part, key=Counter.total) for part in (warm_batches[:half_length], warm_batches[half_length:])
    )
    growth_per_batch = (late_counts.total() - early_counts.total()) / half_length
    assert growth_per_batch < MAX_OBJECT_GROWTH, (object_totals, largest_increases(early_counts, late_counts))
    early_memory, late_memory = (
        memory_by_batch[WARM_UP_BATCHES : (WARM_UP_BATCHES + BATCHES) // 2],
        memory_by_batch[(WARM_UP_BATCHES + BATCHES) // 2 :],
    )
    assert mean(late_memory) - mean(early_memory) < MAX_GROWTH_MB, memory_by_batch
