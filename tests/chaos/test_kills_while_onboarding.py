"""Kills of the worker at each step of an onboarding: no row comes twice, and nothing is there by half."""

from dataclasses import replace
from pathlib import Path

import pytest

from dagwright.contracts import wire
from dagwright.contracts.messages import RunInput, run_input_to_json
from dagwright.entities.database import EntityDatabase
from dagwright.entities.loading import load_parties
from dagwright.entities.models import Effect
from dagwright.entities.overview import read_overview
from dagwright.plan.compiled import RetryRule
from dagwright.preparation import check_plan, prepare_plan
from dagwright.settings import Settings
from dagwright.toolset import load_toolset
from tests.support.chaos import ROOT, FaultPoints, result_within, worker_process
from tests.support.onboarding import FULL, PARTIES, rows_since, seed
from tests.support.onboarding_worker import AFTER, BEFORE, INSIDE
from tests.support.runs import assert_clean, assert_replays
from tests.support.server import LiveServer

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.alone]

WORKER = ROOT / "tests" / "support" / "onboarding_worker.py"


async def test_worker_killed_in_and_after_the_transaction_of_each_intent(
    own_server: LiveServer, folder: Path, points: FaultPoints
) -> None:
    settings = Settings(state_dir=folder / "state")
    database = EntityDatabase(settings.database_url)
    (folder / "parties.csv").write_text(PARTIES, encoding="utf-8")
    load_parties(database, folder / "parties.csv")
    before = read_overview(database)

    def assert_there(*nodes: str) -> None:
        """Checks that the store has what these intents add, each with its key, and nothing else."""
        assert rows_since(before, database) == sorted(row for node in nodes for row in FULL[node])
        assert database.read(lambda session: session.query(Effect).count()) == len(nodes)

    compiled = prepare_plan(check_plan(seed("onboarding"), load_toolset(settings).declarations()), {})
    often = RetryRule(max_attempts=100, first_delay_s=0.1, factor=1.0)
    nodes = [replace(node, heartbeat_s=1.0, retry=often) for node in compiled.nodes]
    for node in FULL:
        points.hold(f"{node}-{BEFORE}")
    client = await own_server.start()
    async with worker_process(own_server.address, folder, program=WORKER) as worker:
        handle = await client.start_workflow(
            wire.WORKFLOW_RUN_PLAN,
            run_input_to_json(RunInput(compiled=replace(compiled, nodes=nodes))),
            id="onboarding-killed",
            task_queue=wire.DEFAULT_TASK_QUEUE,
        )
        done: list[str] = []
        for node in FULL:
            for where in (INSIDE, AFTER):
                points.hold(f"{node}-{where}")
            points.release(f"{node}-{BEFORE}")
            await points.reached(f"{node}-{INSIDE}")
            await worker.kill()
            assert_there(*done)
            points.release(f"{node}-{INSIDE}")
            await worker.start()
            await points.reached(f"{node}-{AFTER}")
            await worker.kill()
            done.append(node)
            assert_there(*done)
            points.release(f"{node}-{AFTER}")
            await worker.start()
        document = await result_within(handle, 240)
    assert (document["status"], [*document["nodes"]]) == ("completed", [*FULL])
    assert all(node["attempts"] >= 3 and node["result"]["created"] for node in document["nodes"].values())
    assert_there(*FULL)
    history = await handle.fetch_history()
    assert_clean(history)
    await assert_replays(history)
    database.dispose()
