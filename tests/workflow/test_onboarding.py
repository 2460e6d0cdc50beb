"""The onboarding plans, run with the real verbs on a database: added rows, order of calls, and concurrent runs."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from dagwright.history.run_view import RunView
from dagwright_onboarding.database import EntityDatabase
from tests.support.eventually import eventually
from tests.support.onboarding import (
    FULL_ONBOARDING_ROWS,
    FUND,
    Onboarding,
    WriteGates,
    activity_types_of,
    calls_by_workflow_task,
    entity_lookup,
    intent,
    onboarding,
    seed,
)
from tests.support.run_views import wait_for_view
from tests.support.runs import bare_document, document_of

pytestmark = pytest.mark.server

ALL_ROWS = sorted(row for rows in FULL_ONBOARDING_ROWS.values() for row in rows)
"""Rows that the full onboarding adds to the database."""


@pytest.fixture
async def onboarding_runs(client: Client, tmp_path: Path) -> AsyncIterator[Onboarding]:
    """Runs with a new database."""
    async with onboarding(client, tmp_path) as runs_with_database:
        yield runs_with_database


@pytest.fixture
def gates(monkeypatch: pytest.MonkeyPatch) -> WriteGates:
    """Gates that hold verbs before their transaction."""
    write_gates = WriteGates()

    def write(database: EntityDatabase, work: Callable[[Any], Any]) -> Any:
        return write_gates.write(database, work)

    monkeypatch.setattr(EntityDatabase, "write", write)
    return write_gates


@pytest.mark.parametrize(
    ("plan_name", "added_rows"),
    [
        (
            "diamond",
            [
                "HoldCo Ltd: LU, active",
                "ManCo S.à r.l.: LU, active",
                "Alpha Fund: LU, fund, active",
                "Alpha Fund (LU): has the parent HoldCo Ltd (LU)",
                "Alpha Fund (LU): is managed by ManCo S.à r.l. (LU)",
            ],
        ),
        ("onboarding", ALL_ROWS),
    ],
)
async def test_second_run_of_a_plan_adds_no_rows(
    onboarding_runs: Onboarding, plan_name: str, added_rows: list[str]
) -> None:
    plan = seed(plan_name)
    first_document, second_document = [await onboarding_runs.runs.run(plan) for _ in range(2)]
    assert [first_document["status"], second_document["status"]] == ["completed", "completed"]
    assert [*first_document["nodes"]] == [f"@result_{number + 1}" for number in range(len(plan["intents"]))]
    assert onboarding_runs.added_rows() == sorted(added_rows)
    created_flags = [node["result"]["created"] for node in first_document["nodes"].values()]
    expected = ([True] * len(created_flags), {False})
    assert (created_flags, {node["result"]["created"] for node in second_document["nodes"].values()}) == expected


async def test_intents_with_the_same_dependency_start_in_one_workflow_task(onboarding_runs: Onboarding) -> None:
    handle = await onboarding_runs.runs.start(seed("onboarding"))
    assert (await document_of(handle))["status"] == "completed"
    history = await handle.fetch_history()
    assert activity_types_of(history).count("find_party") == 1
    stages = [
        sorted(intent_ids)
        for activity_ids in calls_by_workflow_task(history)
        if (intent_ids := [activity_id for activity_id in activity_ids if activity_id[0] == "@"])
    ]
    assert stages[0] == ["@result_1"]
    assert stages[1] == ["@result_2", "@result_3"]
    assert stages[2] == ["@result_4", "@result_5", "@result_6"]


async def test_intent_waits_only_for_its_dependencies(onboarding_runs: Onboarding, gates: WriteGates) -> None:
    gates.hold("@result_3")
    handle = await onboarding_runs.runs.start(seed("onboarding"))

    def are_other_intents_done(view: RunView) -> bool:
        return [node["status"] for node in view.document()["nodes"].values()].count("completed") == 5

    await wait_for_view(onboarding_runs.runs.client, handle.id, are_other_intents_done)
    assert gates.reached_nodes == ["@result_3"]
    gates.release("@result_3")
    assert bare_document(await document_of(handle))["status"] == "completed"
    assert onboarding_runs.added_rows() == ALL_ROWS


async def test_intents_use_references_lookups_and_at_names_of_the_session(onboarding_runs: Onboarding) -> None:
    (fund,) = [row for row in onboarding_runs.initial_overview.rows if row.subject == "Apex Fund"]
    plan = {
        "intents": [
            # A reference to an entity that the same request creates.
            intent("cbu.ensure", name="Apex Capital Fund", jurisdiction="LU"),
            intent("cbu.add-product", product="CUSTODY", refs={"cbu-id": "@result_1"}),
            # A lookup of an existing entity.
            intent(
                "cbu.assign-role",
                role="DIRECTOR",
                refs={"cbu-id": "@result_1"},
                lookups={"entity-id": entity_lookup("John Smith")},
            ),
            # An `@` name of the session.
            intent("cbu.add-product", product="CUSTODY", refs={"cbu-id": "@cbu"}),
        ]
    }
    assert (await onboarding_runs.runs.run(plan, context={"cbu": fund.id}))["status"] == "completed"
    assert onboarding_runs.added_rows() == [
        f"{FUND}: CUSTODY",
        f"{FUND}: DIRECTOR: John Smith (GB)",
        "Apex Capital Fund: LU, fund, active",
        "Apex Fund (KY): CUSTODY",
    ]


async def test_concurrent_runs_create_a_fund_once(onboarding_runs: Onboarding, gates: WriteGates) -> None:
    plan = {
        "intents": [
            intent("cbu.ensure", name="Apex Capital Fund", jurisdiction="LU"),
            intent("cbu.add-product", product="CUSTODY", refs={"cbu-id": "@result_1"}),
        ]
    }
    gates.hold("@result_1")
    handles = [await onboarding_runs.runs.start(plan) for _ in range(2)]
    await eventually(lambda: len(gates.reached_nodes) == 2)
    gates.release("@result_1")
    documents = [bare_document(document) for document in await asyncio.gather(*map(document_of, handles))]
    assert [document["status"] for document in documents] == ["completed", "completed"]
    for node_id in ("@result_1", "@result_2"):
        node_results = [document["nodes"][node_id]["result"] for document in documents]
        assert sorted(result["created"] for result in node_results) == [False, True]
        assert node_results[0]["id"] == node_results[1]["id"]
    assert onboarding_runs.added_rows() == [f"{FUND}: CUSTODY", "Apex Capital Fund: LU, fund, active"]
