"""Two hundred requests at once on one worker: none hears of another."""

import asyncio
import re
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from temporalio.client import Client

from dagwright.contracts import wire
from dagwright.contracts.messages import RunInput, run_input_to_json
from dagwright.contracts.model_calls import ModelConfig
from dagwright.planner import Asked, prepare_goal
from dagwright.settings import Settings
from dagwright.testing import ModelServer, ReceivedCall, Step, step
from dagwright.toolset import load_toolset
from tests.support.chaos import TOOLS, worker_process
from tests.support.goals import call, written
from tests.support.server import LiveServer

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.alone]

REQUESTS = 200
ROUNDS = 4
MOST_GROWTH_MB = 150
"""From the first round to the last: a quarter of a megabyte for each request. Four rounds grew by 28, 18 and 15 MB."""
_WORD = re.compile(r"word-\d+-\d+-")
_WITHIN_S = 420


def word(turn: int, number: int) -> str:
    """Returns what only one request holds."""
    return f"word-{turn}-{number}-"


def model_of(number: int) -> str:
    """Returns the model that a request names."""
    return f"model-{number % 3}"


def steps_of(turn: int) -> list[Step]:
    """Returns the plan and the answer of each request of a round, in an order of their own."""
    found = []
    for number in reversed(range(REQUESTS)):
        own, model = word(turn, number), model_of(number)
        plan = written(call("a", "echo", said=own), call("b", "echo", of="{{a.result.said}}"))
        found.append(step(plan, model=model, metadata={"purpose": "plan"}, last=own))
        found.append(step(f"heard {own}", model=model, metadata={"purpose": "answer"}, last=own))
    return found


async def answered(client: Client, known: Any, *, turn: int, number: int) -> tuple[str, dict[str, Any]]:
    """Returns the id and the document of one request."""
    asked = Asked(ModelConfig(model=model_of(number)))
    compiled, _ = prepare_goal(f"Say {word(turn, number)}", {"echo": known["echo"]}, asked)
    handle = await client.start_workflow(
        wire.WORKFLOW_PURSUE_GOAL,
        run_input_to_json(RunInput(compiled=compiled)),
        id=f"at-once-{turn}-{number}-{uuid4().hex}",
        task_queue=wire.DEFAULT_TASK_QUEUE,
    )
    document: dict[str, Any] = await handle.result()
    return handle.id, document


def assert_own_word(received: ReceivedCall) -> None:
    """Checks that a call holds the word of its own run and no other, and asks the model that this one names."""
    turn, number = map(int, received.metadata["run"].split("-")[2:4])
    assert {*_WORD.findall(received.text)} == {word(turn, number)}
    assert received.model == model_of(number)


async def test_two_hundred_requests_at_once_hear_nothing_of_each_other(
    own_server: LiveServer, folder: Path, record_property: Any
) -> None:
    client = await own_server.start()
    known = load_toolset(Settings(), [str(TOOLS)]).declarations()
    memory: list[float] = []
    steps = [each for turn in range(ROUNDS) for each in steps_of(turn)]
    async with ModelServer(*steps) as model:
        environment = {"OPENAI_BASE_URL": model.base_url, "OPENAI_API_KEY": "key"}
        async with worker_process(own_server.address, folder, environment=environment) as worker:
            for turn in range(ROUNDS):
                async with asyncio.timeout(_WITHIN_S):
                    ended = await asyncio.gather(
                        *(answered(client, known, turn=turn, number=number) for number in range(REQUESTS))
                    )
                memory.append(worker.memory_mb)
                told = [(document["status"], document["output"]) for _, document in ended]
                assert told == [("completed", f"heard {word(turn, number)}") for number in range(REQUESTS)]
        for received in model.calls:
            assert_own_word(received)
        assert len(model.calls) == 2 * REQUESTS * ROUNDS
    record_property("memory_mb", memory)
    assert memory[-1] - memory[0] < MOST_GROWTH_MB, memory
