"""Many requests at once on one worker: each is planned and answered from its own words."""

import asyncio
from pathlib import Path

import pytest
from temporalio.client import Client

from dagwright.contracts.model_calls import ModelConfig
from dagwright.testing import ModelServer, step
from tests.support.agents import agent_runs
from tests.support.goals import call, goal, written
from tests.support.runs import bare, document_of

pytestmark = pytest.mark.server

COUNT = 30


async def test_many_requests_at_once_never_mix(client: Client, tmp_path: Path) -> None:
    steps = [
        answer
        for number in range(COUNT)
        for answer in (
            step(
                written(call("a", "plus", left=number, right=1000)),
                model=f"model{number}",
                last=f"Add to {number}.",
                metadata={"purpose": "plan"},
            ),
            step(
                f"It is {1000 + number}.",
                model=f"model{number}",
                last=f"Result: {1000 + number}.0",
                metadata={"purpose": "answer"},
            ),
        )
    ]
    async with ModelServer(*steps) as server, agent_runs(client, server, tmp_path) as runs:
        handles = [
            await runs.start_compiled(
                goal(runs, f"Add to {number}.", "plus", config=ModelConfig(model=f"model{number}"))
            )
            for number in range(COUNT)
        ]
        documents = [bare(each) for each in await asyncio.gather(*map(document_of, handles))]
    assert [document["output"] for document in documents] == [f"It is {1000 + number}." for number in range(COUNT)]
    assert {document["status"] for document in documents} == {"completed"}
