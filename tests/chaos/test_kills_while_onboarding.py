"""Kills of the worker at each step of an onboarding: no row is added twice, and no transaction is half applied."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from dagwright.core.model.compiled import CompiledPlan, RetryRule
from dagwright.history.run_view import RunView
from dagwright.plans.preparation import check_plan, prepare_plan
from dagwright.protocol.run_input import RunInput
from dagwright.settings import Settings
from dagwright.toolset.toolset import load_toolset
from dagwright_onboarding.database import EntityDatabase
from dagwright_onboarding.models import Effect
from dagwright_onboarding.overview import Overview, read_overview
from dagwright_onboarding.party_loading import load_parties
from tests.support.chaos import (
    ROOT,
    FaultPoints,
    WorkerProcess,
    killed_at,
    result_within,
    start_workflow,
    worker_process,
)
from tests.support.eventually import eventually
from tests.support.onboarding import FULL_ONBOARDING_ROWS, PARTIES, intent, rows_since, seed
from tests.support.onboarding_worker import AFTER, BEFORE, INSIDE
from tests.support.people import answer, wait_for_requests
from tests.support.run_views import wait_for_view
from tests.support.runs import Handle, check_history, document_of
from tests.support.server import LiveServer

pytestmark = [pytest.mark.server, pytest.mark.slow]

NEW_PERSON = "Ada Newman"
WORKER = ROOT / "tests" / "support" / "onboarding_worker.py"


@dataclass(slots=True)
class Entities:
    """Settings and database of the worker, and the overview of the database before the test."""

    settings: Settings
    database: EntityDatabase
    overview_before: Overview

    def assert_added(self, *rows: str, effects: int) -> None:
        """Check that exactly these rows were added, and check the number of effects that are not compensated."""
        assert rows_since(self.overview_before, self.database) == sorted(rows)
        effect_count = self.database.read(
            lambda session: session.query(Effect).filter(Effect.undone_at.is_(None)).count()
        )
        assert effect_count == effects


@pytest.fixture
def entities(folder: Path) -> Iterator[Entities]:
    """A database with the parties of the seed."""
    settings = Settings(state_dir=folder / "state")
    database = EntityDatabase(settings.database_url)
    (folder / "parties.csv").write_text(PARTIES, encoding="utf-8")
    load_parties(database, folder / "parties.csv")
    yield Entities(settings, database, read_overview(database))
    database.dispose()


def plan_with_retries(plan: Any, settings: Settings) -> CompiledPlan:
    """Return a plan whose nodes are retried shortly after the death of their worker, up to 100 times."""
    compiled = prepare_plan(check_plan(plan, load_toolset(settings).declarations()), {})
    retry = RetryRule(max_attempts=100, first_delay_s=0.1, factor=1.0)
    return replace(compiled, nodes=[replace(node, retry=retry) for node in compiled.nodes])


async def start(client: Client, plan: CompiledPlan, *, run_id: str, **options: Any) -> Handle:
    return await start_workflow(client, RunInput(compiled=plan, **options), run_id=run_id)


async def test_each_intent_is_applied_once_if_its_worker_is_killed(
    private_server: LiveServer, folder: Path, points: FaultPoints, entities: Entities
) -> None:
    client = await private_server.start()
    for node_id in FULL_ONBOARDING_ROWS:
        points.hold(f"{node_id}-{BEFORE}")
    async with worker_process(private_server.address, folder, program=WORKER) as worker:
        plan = plan_with_retries(seed("onboarding"), entities.settings)
        handle = await start(client, plan, run_id="onboarding-killed")
        added_rows: list[str] = []
        for number, (node_id, rows) in enumerate(FULL_ONBOARDING_ROWS.items()):
            for phase in (INSIDE, AFTER):
                points.hold(f"{node_id}-{phase}")
            points.release(f"{node_id}-{BEFORE}")
            is_killed_inside = number % 2 == 0
            async with stopped_at(f"{node_id}-{INSIDE}", points, worker, is_killed=is_killed_inside):
                if is_killed_inside:
                    entities.assert_added(*added_rows, effects=number)
            async with stopped_at(f"{node_id}-{AFTER}", points, worker, is_killed=not is_killed_inside):
                added_rows += rows
                entities.assert_added(*added_rows, effects=number + 1)
        document = await result_within(handle, 240)
    assert (document["status"], [*document["nodes"]]) == ("completed", [*FULL_ONBOARDING_ROWS])
    assert all(node["attempts"] >= 2 and node["result"]["created"] for node in document["nodes"].values())
    entities.assert_added(*added_rows, effects=len(FULL_ONBOARDING_ROWS))
    await check_history(await handle.fetch_history())


async def test_director_is_created_once_if_the_worker_is_killed_around_the_answer(
    private_server: LiveServer, folder: Path, points: FaultPoints, entities: Entities
) -> None:
    client = await private_server.start()
    text = json.dumps(seed("onboarding")).replace("John Smith", NEW_PERSON)
    plan = plan_with_retries(json.loads(text), entities.settings)
    bind_node_id = plan.nodes[-1].id
    for phase in (INSIDE, AFTER):
        points.hold(f"{bind_node_id}-{phase}")
    async with worker_process(private_server.address, folder, program=WORKER) as worker:
        handle = await start(client, plan, run_id="director-created")
        await wait_for_requests(client, handle.id, f"lookup:person:{NEW_PERSON}")
        await worker.restart()
        await answer(handle, f"lookup:person:{NEW_PERSON}", {"text": "create new"})
        async with killed_at(f"{bind_node_id}-{INSIDE}", points, worker):
            entities.assert_added(effects=0)
        person = f"{NEW_PERSON}: jurisdiction unknown, active"
        async with killed_at(f"{bind_node_id}-{AFTER}", points, worker):
            entities.assert_added(person, effects=1)
        document = await result_within(handle, 240)
    assert document["status"] == "completed"
    assert [(lookup["created"], lookup["entity"]["name"]) for lookup in document["lookups"]] == [(True, NEW_PERSON)]
    rows = [row.replace("John Smith (GB)", NEW_PERSON) for rows in FULL_ONBOARDING_ROWS.values() for row in rows]
    entities.assert_added(person, *rows, effects=1 + len(FULL_ONBOARDING_ROWS))
    await check_history(await handle.fetch_history())


@asynccontextmanager
async def stopped_at(point: str, points: FaultPoints, worker: WorkerProcess, *, is_killed: bool) -> AsyncIterator[None]:
    """Let a step wait at a fault point during the block; optionally kill the worker there."""
    if is_killed:
        async with killed_at(point, points, worker):
            yield
    else:
        await points.wait_for_point(point)
        yield
        points.release(point)


async def test_compensation_is_complete_if_the_worker_is_killed_in_each_undo(
    private_server: LiveServer, folder: Path, points: FaultPoints, entities: Entities
) -> None:
    client = await private_server.start()
    plan = seed("onboarding")
    # This last intent fails, because the first intent creates the fund with another client type.
    last_intent = intent("cbu.ensure", name="Apex Capital Fund", jurisdiction="LU", client_type="trust")
    plan["intents"].append(last_intent | {"refs": {"related-to": "@result_2"}})
    # `@result_7` is the node of this last intent.
    points.hold(f"@result_7-{BEFORE}")
    rows_by_undo_id = {f"undo {node_id}": rows for node_id, rows in FULL_ONBOARDING_ROWS.items()}
    for node_id in rows_by_undo_id:
        points.hold(f"{node_id}-{BEFORE}")
    remaining_rows = [row for rows in FULL_ONBOARDING_ROWS.values() for row in rows]
    async with worker_process(private_server.address, folder, program=WORKER) as worker:
        handle = await start(
            client, plan_with_retries(plan, entities.settings), run_id="onboarding-undone", compensate=True
        )
        await eventually(lambda: rows_since(entities.overview_before, entities.database) == sorted(remaining_rows))
        points.release(f"@result_7-{BEFORE}")

        def undo_ids_of(view: RunView) -> list[str]:
            return [node for node in view.document()["nodes"] if node in rows_by_undo_id]

        undo_ids = undo_ids_of(await wait_for_view(client, handle.id, lambda view: bool(undo_ids_of(view))))
        assert sorted(undo_ids) == sorted(rows_by_undo_id)
        # The loop follows the order of compensation, which is the reverse order of the calls.
        for number, node_id in enumerate(undo_ids, start=1):
            for phase in (INSIDE, AFTER):
                points.hold(f"{node_id}-{phase}")
            points.release(f"{node_id}-{BEFORE}")
            is_killed_inside = number % 2 == 0
            async with stopped_at(f"{node_id}-{INSIDE}", points, worker, is_killed=is_killed_inside):
                if is_killed_inside:
                    entities.assert_added(*remaining_rows, effects=len(FULL_ONBOARDING_ROWS) + 1 - number)
            async with stopped_at(f"{node_id}-{AFTER}", points, worker, is_killed=not is_killed_inside):
                remaining_rows = [row for row in remaining_rows if row not in rows_by_undo_id[node_id]]
                entities.assert_added(*remaining_rows, effects=len(FULL_ONBOARDING_ROWS) - number)
        async with asyncio.timeout(240):
            document = await document_of(handle)
    assert document["status"] == "failed"
    assert document["error"]["message"].endswith("compensated 6 calls")
    # The failed call is compensated too, because its effect is unknown.
    assert {document["nodes"][node_id]["status"] for node_id in undo_ids} == {"completed"}
    entities.assert_added(effects=0)
    await check_history(await handle.fetch_history())
