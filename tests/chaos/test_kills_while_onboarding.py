"""Kills of the worker at each step of an onboarding: no row comes twice, and nothing is there by half."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from dagwright.core.model.compiled import CompiledPlan, RetryRule
from dagwright.history.run_reader import RunReader
from dagwright.plans.preparation import check_plan, prepare_plan
from dagwright.protocol.run_input import RunInput
from dagwright.settings import Settings
from dagwright.toolset.toolset import load_toolset
from dagwright_onboarding.database import EntityDatabase
from dagwright_onboarding.models import Effect
from dagwright_onboarding.overview import Overview, read_overview
from dagwright_onboarding.party_loading import load_parties
from tests.chaos.building import assert_whole
from tests.support.chaos import ROOT, FaultPoints, result_within, start_workflow, worker_process
from tests.support.eventually import eventually
from tests.support.onboarding import FULL, PARTIES, intent, rows_since, seed
from tests.support.onboarding_worker import AFTER, BEFORE, INSIDE
from tests.support.people import answer
from tests.support.runs import Handle, document_of
from tests.support.server import LiveServer

pytestmark = [pytest.mark.server, pytest.mark.slow]

NEW = "Ada Newman"
WORKER = ROOT / "tests" / "support" / "onboarding_worker.py"


@dataclass(slots=True)
class Store:
    """The store that the worker and the test share."""

    settings: Settings
    database: EntityDatabase
    before: Overview

    def assert_has(self, *rows: str, effects: int) -> None:
        """Check that exactly these rows were added, under this number of keys, and that no key was compensated."""
        assert rows_since(self.before, self.database) == sorted(rows)
        standing = self.database.read(lambda session: session.query(Effect).filter(Effect.undone_at.is_(None)).count())
        assert standing == effects


@pytest.fixture
def store(folder: Path) -> Iterator[Store]:
    """A store with the parties of the seed."""
    settings = Settings(state_dir=folder / "state")
    database = EntityDatabase(settings.database_url)
    (folder / "parties.csv").write_text(PARTIES, encoding="utf-8")
    load_parties(database, folder / "parties.csv")
    yield Store(settings, database, read_overview(database))
    database.dispose()


def tried_often(plan: Any, settings: Settings) -> CompiledPlan:
    """Return a plan whose nodes are retried shortly after the death of their worker, without a limit."""
    compiled = prepare_plan(check_plan(plan, load_toolset(settings).declarations()), {})
    often = RetryRule(max_attempts=100, first_delay_s=0.1, factor=1.0)
    return replace(compiled, nodes=[replace(node, retry=often) for node in compiled.nodes])


async def start(client: Client, plan: CompiledPlan, *, workflow_id: str, **options: Any) -> Handle:
    return await start_workflow(client, RunInput(compiled=plan, **options), workflow_id=workflow_id)


async def test_worker_killed_in_or_after_the_transaction_of_each_intent(
    own_server: LiveServer, folder: Path, points: FaultPoints, store: Store
) -> None:
    client = await own_server.start()
    for node in FULL:
        points.hold(f"{node}-{BEFORE}")
    async with worker_process(own_server.address, folder, program=WORKER) as worker:
        plan = tried_often(seed("onboarding"), store.settings)
        handle = await start(client, plan, workflow_id="onboarding-killed")
        done: list[str] = []
        for number, (node, rows) in enumerate(FULL.items()):
            for where in (INSIDE, AFTER):
                points.hold(f"{node}-{where}")
            points.release(f"{node}-{BEFORE}")
            is_killed_inside = number % 2 == 0
            await points.wait_for_point(f"{node}-{INSIDE}")
            if is_killed_inside:
                await worker.kill()
                store.assert_has(*done, effects=number)
            points.release(f"{node}-{INSIDE}")
            if is_killed_inside:
                await worker.start()
            await points.wait_for_point(f"{node}-{AFTER}")
            done += rows
            if not is_killed_inside:
                await worker.kill()
            store.assert_has(*done, effects=number + 1)
            points.release(f"{node}-{AFTER}")
            if not is_killed_inside:
                await worker.start()
        document = await result_within(handle, 240)
    assert (document["status"], [*document["nodes"]]) == ("completed", [*FULL])
    assert all(node["attempts"] >= 2 and node["result"]["created"] for node in document["nodes"].values())
    store.assert_has(*done, effects=len(FULL))
    await assert_whole(handle)


async def test_worker_killed_while_a_director_is_asked_about_and_in_and_after_the_creation(
    own_server: LiveServer, folder: Path, points: FaultPoints, store: Store
) -> None:
    client = await own_server.start()
    text = json.dumps(seed("onboarding")).replace("John Smith", NEW)
    plan = tried_often(json.loads(text), store.settings)
    binding = plan.nodes[-1].id
    for where in (INSIDE, AFTER):
        points.hold(f"{binding}-{where}")
    async with worker_process(own_server.address, folder, program=WORKER) as worker:
        handle = await start(client, plan, workflow_id="director-created")
        await eventually(partial(asks, client, handle))
        await worker.kill()
        await worker.start()
        await answer(handle, f"lookup:person:{NEW}", {"text": "create new"})
        await points.wait_for_point(f"{binding}-{INSIDE}")
        await worker.kill()
        store.assert_has(effects=0)
        points.release(f"{binding}-{INSIDE}")
        await worker.start()
        await points.wait_for_point(f"{binding}-{AFTER}")
        await worker.kill()
        person = f"{NEW}: jurisdiction unknown, active"
        store.assert_has(person, effects=1)
        points.release(f"{binding}-{AFTER}")
        await worker.start()
        document = await result_within(handle, 240)
    assert document["status"] == "completed"
    assert [(lookup["created"], lookup["entity"]["name"]) for lookup in document["lookups"]] == [(True, NEW)]
    rows = [row.replace("John Smith (GB)", NEW) for rows in FULL.values() for row in rows]
    store.assert_has(person, *rows, effects=1 + len(FULL))
    await assert_whole(handle)


async def asks(client: Client, handle: Handle) -> bool:
    """Return whether a run waits for a person."""
    return bool((await RunReader(client, handle.id).read()).document()["waiting_for"])


async def test_worker_killed_in_or_after_each_step_that_takes_the_onboarding_back(
    own_server: LiveServer, folder: Path, points: FaultPoints, store: Store
) -> None:
    client = await own_server.start()
    plan = seed("onboarding")
    # The fund is of another type by then, so this fails when all else is done.
    last = intent("cbu.ensure", name="Apex Capital Fund", jurisdiction="LU", client_type="trust")
    plan["intents"].append(last | {"refs": {"related-to": "@result_2"}})
    points.hold("@result_7-before")
    rows_of = {f"undo {node}": rows for node, rows in FULL.items()}
    for node in rows_of:
        points.hold(f"{node}-{BEFORE}")
    there = [row for rows in FULL.values() for row in rows]
    async with worker_process(own_server.address, folder, program=WORKER) as worker:
        handle = await start(
            client, tried_often(plan, store.settings), workflow_id="onboarding-undone", compensate=True
        )
        await eventually(lambda: rows_since(store.before, store.database) == sorted(there))
        points.release("@result_7-before")
        undos: list[str] = []

        async def is_compensating() -> bool:
            nodes = (await RunReader(client, handle.id).read()).document()["nodes"]
            undos[:] = [node for node in nodes if node in rows_of]
            return bool(undos)

        # The order of compensation: the last call comes first.
        await eventually(is_compensating)
        assert sorted(undos) == sorted(rows_of)
        for number, node in enumerate(undos, start=1):
            for where in (INSIDE, AFTER):
                points.hold(f"{node}-{where}")
            points.release(f"{node}-{BEFORE}")
            is_killed_inside = number % 2 == 0
            await points.wait_for_point(f"{node}-{INSIDE}")
            if is_killed_inside:
                await worker.kill()
                store.assert_has(*there, effects=len(FULL) + 1 - number)
            points.release(f"{node}-{INSIDE}")
            if is_killed_inside:
                await worker.start()
            await points.wait_for_point(f"{node}-{AFTER}")
            there = [row for row in there if row not in rows_of[node]]
            if not is_killed_inside:
                await worker.kill()
            store.assert_has(*there, effects=len(FULL) - number)
            points.release(f"{node}-{AFTER}")
            if not is_killed_inside:
                await worker.start()
        async with asyncio.timeout(240):
            document = await document_of(handle)
    assert document["status"] == "failed"
    assert document["error"]["message"].endswith("compensated 6 calls")
    # Including the last one: the effect of a failed call is unknown.
    assert {document["nodes"][node]["status"] for node in undos} == {"completed"}
    store.assert_has(effects=0)
    await assert_whole(handle)
