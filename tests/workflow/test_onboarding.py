"""The plans of onboarding, run with the real verbs on a store: each pattern, when what runs, and who wins a race."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from dagwright_onboarding.database import EntityDatabase
from tests.support.eventually import eventually
from tests.support.onboarding import (
    FULL,
    FUND,
    Onboarding,
    StoreGates,
    calls_of,
    intent,
    looked_up,
    onboarding,
    scheduled_together,
    seed,
)
from tests.support.people import view_of
from tests.support.runs import bare, document_of

pytestmark = pytest.mark.server

ALL = sorted(row for rows in FULL.values() for row in rows)
"""Rows that the full onboarding adds to the store."""


@pytest.fixture
async def desk(client: Client, tmp_path: Path) -> AsyncIterator[Onboarding]:
    """Runs with a store of their own."""
    async with onboarding(client, tmp_path) as found:
        yield found


@pytest.fixture
def gates(monkeypatch: pytest.MonkeyPatch) -> StoreGates:
    """Hold verbs before their transaction."""
    found = StoreGates()

    def write(database: EntityDatabase, work: Callable[[Any], Any]) -> Any:
        return found.write(database, work)

    monkeypatch.setattr(EntityDatabase, "write", write)
    return found


@pytest.mark.parametrize(
    ("name", "added"),
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
        ("onboarding", ALL),
    ],
)
async def test_plan_adds_its_rows_and_none_when_it_runs_again(desk: Onboarding, name: str, added: list[str]) -> None:
    plan = seed(name)
    first, second = [await desk.runs.run(plan) for _ in range(2)]
    assert [first["status"], second["status"]] == ["completed", "completed"]
    assert [*first["nodes"]] == [f"@result_{number + 1}" for number in range(len(plan["intents"]))]
    assert desk.added_rows() == sorted(added)
    made = [node["result"]["created"] for node in first["nodes"].values()]
    assert (made, {node["result"]["created"] for node in second["nodes"].values()}) == ([True] * len(made), {False})


async def test_intents_that_wait_for_the_same_start_together_and_the_lookup_is_made_once(desk: Onboarding) -> None:
    handle = await desk.runs.start(seed("onboarding"))
    assert (await document_of(handle))["status"] == "completed"
    history = await handle.fetch_history()
    assert calls_of(history).count("find_party") == 1
    stages = [sorted(found) for stage in scheduled_together(history) if (found := [i for i in stage if i[0] == "@"])]
    assert stages[0] == ["@result_1"]
    assert stages[1] == ["@result_2", "@result_3"]
    assert stages[2] == ["@result_4", "@result_5", "@result_6"]


async def test_intent_does_not_wait_for_a_stage_to_end(desk: Onboarding, gates: StoreGates) -> None:
    gates.hold("@result_3")
    handle = await desk.runs.start(seed("onboarding"))

    async def all_else_is_done() -> bool:
        nodes = (await view_of(desk.runs, handle)).document()["nodes"]
        return [node["status"] for node in nodes.values()].count("completed") == 5

    await eventually(all_else_is_done)
    assert gates.reached == ["@result_3"]
    gates.release("@result_3")
    assert bare(await document_of(handle))["status"] == "completed"
    assert desk.added_rows() == ALL


async def test_lookup_and_reference_are_used_as_in_the_table(desk: Onboarding) -> None:
    (fund,) = [row for row in desk.before.rows if row.subject == "Apex Fund"]
    plan = {
        "intents": [
            # Definitely being created now, and used by another intent of the same request.
            intent("cbu.ensure", name="Apex Capital Fund", jurisdiction="LU"),
            intent("cbu.add-product", product="CUSTODY", refs={"cbu-id": "@result_1"}),
            # There already.
            intent(
                "cbu.assign-role",
                role="DIRECTOR",
                refs={"cbu-id": "@result_1"},
                lookups={"entity-id": looked_up("John Smith")},
            ),
            # The names of the session.
            intent("cbu.add-product", product="CUSTODY", refs={"cbu-id": "@cbu"}),
        ]
    }
    assert (await desk.runs.run(plan, context={"cbu": fund.id}))["status"] == "completed"
    assert desk.added_rows() == [
        f"{FUND}: CUSTODY",
        f"{FUND}: DIRECTOR: John Smith (GB)",
        "Apex Capital Fund: LU, fund, active",
        "Apex Fund (KY): CUSTODY",
    ]


async def test_of_two_runs_one_creates_the_fund_and_the_other_gets_it(desk: Onboarding, gates: StoreGates) -> None:
    plan = {
        "intents": [
            intent("cbu.ensure", name="Apex Capital Fund", jurisdiction="LU"),
            intent("cbu.add-product", product="CUSTODY", refs={"cbu-id": "@result_1"}),
        ]
    }
    gates.hold("@result_1")
    handles = [await desk.runs.start(plan) for _ in range(2)]
    await eventually(lambda: len(gates.reached) == 2)
    gates.release("@result_1")
    ends = [bare(document) for document in await asyncio.gather(*map(document_of, handles))]
    assert [end["status"] for end in ends] == ["completed", "completed"]
    for node in ("@result_1", "@result_2"):
        made = [end["nodes"][node]["result"] for end in ends]
        assert sorted(result["created"] for result in made) == [False, True]
        assert made[0]["id"] == made[1]["id"]
    assert desk.added_rows() == [f"{FUND}: CUSTODY", "Apex Capital Fund: LU, fund, active"]
