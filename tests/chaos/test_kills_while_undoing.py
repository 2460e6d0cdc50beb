"""Kills of the worker while a run takes back what it did, and between an effect and its completion."""

from dataclasses import replace
from pathlib import Path

import pytest

from dagwright.contracts import wire
from dagwright.contracts.messages import RunInput, run_input_to_json
from dagwright.entities.database import EntityDatabase
from dagwright.entities.loading import load_parties
from dagwright.entities.overview import read_overview
from dagwright.preparation import check_plan, prepare_plan
from dagwright.settings import Settings
from dagwright.toolset import load_toolset
from tests.support.chaos import ROOT, FaultPoints, worker_process
from tests.support.onboarding import FULL, PARTIES, intent, rows_since, seed
from tests.support.onboarding_worker import AFTER, INSIDE
from tests.support.runs import assert_clean, assert_replays, document_of
from tests.support.server import LiveServer

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.alone]

WORKER = ROOT / "tests" / "support" / "onboarding_worker.py"
KILLS = (f"@result_6-{AFTER}", f"undo @result_5-{INSIDE}", f"undo @result_2-{AFTER}")
"""In the middle of the last effect, whose end nobody hears; before one was taken back; and behind another one."""


async def test_onboarding_that_fails_leaves_no_row_however_often_its_worker_dies(
    own_server: LiveServer, folder: Path, points: FaultPoints
) -> None:
    settings = Settings(state_dir=folder / "state")
    database = EntityDatabase(settings.database_url)
    (folder / "parties.csv").write_text(PARTIES, encoding="utf-8")
    load_parties(database, folder / "parties.csv")
    before = read_overview(database)
    plan = seed("onboarding")
    # The fund is there by then, and of another type.
    plan["intents"].append(intent("cbu.ensure", name="Apex Capital Fund", jurisdiction="LU", client_type="pension"))
    plan["intents"][-1]["refs"] = {"related-to": "@result_2"}
    compiled = prepare_plan(check_plan(plan, load_toolset(settings).declarations()), {})
    nodes = [replace(node, heartbeat_s=1.0) for node in compiled.nodes]
    for name in KILLS:
        points.hold(name)
    client = await own_server.start()
    async with worker_process(own_server.address, folder, program=WORKER) as worker:
        handle = await client.start_workflow(
            wire.WORKFLOW_RUN_PLAN,
            # One at a time, so that they end, and are taken back, in the order of the plan.
            run_input_to_json(RunInput(compiled=replace(compiled, nodes=nodes), max_in_flight=1, all_or_nothing=True)),
            id="onboarding-undone",
            task_queue=wire.DEFAULT_TASK_QUEUE,
        )
        for name in KILLS:
            await points.reached(name)
            await worker.kill()
            points.release(name)
            await worker.start()
        document = await document_of(handle)
    undoing = [name for name in document["nodes"] if name.startswith("undo ")]
    assert undoing == [f"undo {name}" for name in ("@result_7", *reversed(FULL))]
    assert {document["nodes"][name]["status"] for name in undoing} == {"completed"}
    assert document["status"] == "failed"
    assert rows_since(before, database) == []
    history = await handle.fetch_history()
    assert_clean(history)
    await assert_replays(history)
    database.dispose()
