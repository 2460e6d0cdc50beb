"""The plans of onboarding, run with the real verbs on a store: each pattern, when what runs, and who wins a race."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from dagwright.entities.database import EntityDatabase
from dagwright.entities.overview import read_overview
from tests.support.eventually import eventually
from tests.support.onboarding import (
    FULL,
    FUND,
    Onboarding,
    StoreGates,
    calls_of,
    example,
    intent,
    looked_up,
    onboarding,
    scheduled_together,
    seed,
)
from tests.support.people import answer, asks, view_of
from tests.support.runs import bare, document_of

pytestmark = pytest.mark.server

ALL = sorted(row for rows in FULL.values() for row in rows)
"""What the full onboarding adds to the store."""


@pytest.fixture
async def desk(client: Client, tmp_path: Path) -> AsyncIterator[Onboarding]:
    """Runs with a store of their own."""
    async with onboarding(client, tmp_path) as found:
        yield found


@pytest.fixture
def gates(monkeypatch: pytest.MonkeyPatch) -> StoreGates:
    """Holds verbs before their transaction."""
    found = StoreGates()

    def write(database: EntityDatabase, work: Callable[[Any], Any]) -> Any:
        return found.write(database, work)

    monkeypatch.setattr(EntityDatabase, "write", write)
    return found


@pytest.mark.parametrize(
    ("name", "added"),
    [
        (
            "fan-out",
            [
                "Apex: LU, fund, active",
                "Apex (LU): DIRECTOR: John Smith (GB)",
                "Apex (LU): CUSTODY",
                "Apex (LU): FUND_ACCOUNTING",
            ],
        ),
        (
            "chain",
            [
                "HoldCo Ltd: JE, active",
                "HoldCo Fund I: JE, fund, active",
                "HoldCo Fund I (JE): CUSTODY",
                "HoldCo Fund I (JE): has the parent HoldCo Ltd (JE)",
            ],
        ),
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
        (
            "mixed",
            [
                "BlackRock Alpha: IE, fund, active",
                "BlackRock Alpha (IE): COMPLIANCE_OFFICER: Sarah Chen (HK)",
                "BlackRock Alpha (IE): is managed by BlackRock ManCo (IE)",
            ],
        ),
        ("onboarding", ALL),
        ("forward-reference", ["Apex: jurisdiction not known, fund, active", "Apex: CUSTODY"]),
        ("lookups-instead", ["Apex Fund (KY): DIRECTOR: John Smith (GB)"]),
    ],
)
async def test_plan_adds_its_rows_and_none_when_it_runs_again(desk: Onboarding, name: str, added: list[str]) -> None:
    plan = seed(name)
    first, second = [await desk.runs.run(plan) for _ in range(2)]
    assert [first["status"], second["status"]] == ["completed", "completed"]
    assert [*first["nodes"]] == [f"@result_{number + 1}" for number in range(len(plan["intents"]))]
    assert desk.added() == sorted(added)
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
    assert desk.added() == ALL


async def test_company_has_a_director_and_an_entity_may_be_of_any_kind(desk: Onboarding) -> None:
    def role(name: str, text: str, entity_type: str) -> dict[str, object]:
        return intent(
            "cbu.assign-role",
            role=name,
            refs={"cbu-id": "@result_1"},
            lookups={"entity-id": looked_up(text, entity_type)},
        )

    plan = {
        "intents": [
            intent("entity.create-limited-company", name="HoldCo Ltd", jurisdiction="JE"),
            role("DIRECTOR", "John Smith", "entity"),
            role("SHAREHOLDER", "BlackRock ManCo", "entity"),
            role("INVESTOR", "Apex Fund", "entity"),
        ]
    }
    assert (await desk.runs.run(plan))["status"] == "completed"
    assert desk.added() == [
        "HoldCo Ltd (JE): DIRECTOR: John Smith (GB)",
        "HoldCo Ltd (JE): INVESTOR: Apex Fund (KY)",
        "HoldCo Ltd (JE): SHAREHOLDER: BlackRock ManCo (IE)",
        "HoldCo Ltd: JE, active",
    ]


async def test_director_who_could_be_two_people_is_asked_about_once_before_anything_is_made(desk: Onboarding) -> None:
    handle = await desk.runs.start(example("which_director.json"))
    await asks(desk.runs, handle, "lookup:person:Maria Garcia")
    waiting = (await view_of(desk.runs, handle)).document()
    [request] = waiting["waiting_for"]
    assert {node["status"] for node in waiting["nodes"].values()} == {"pending"}
    assert desk.added() == []
    [other] = [option["id"] for option in request["options"] if option["label"].startswith("María Garcia (person, LU")]
    await answer(handle, request["id"], {"selected": [other]})
    document = await document_of(handle)
    assert (document["status"], [each["party"]["id"] for each in document["lookups"]]) == ("completed", [other])
    assert [row for row in desk.added() if "DIRECTOR" in row] == [
        "Iberia Growth Fund (LU): DIRECTOR: María Garcia (LU)",
        "Iberia ManCo S.à r.l. (LU): DIRECTOR: María Garcia (LU)",
    ]


async def test_party_that_might_not_exist_is_found_or_the_run_fails_before_anything_is_made(desk: Onboarding) -> None:
    def plan(name: str) -> Any:
        lookups = {"entity-id": looked_up(name)}
        return {
            "intents": [
                intent("cbu.ensure", name="Apex Capital Fund", jurisdiction="LU"),
                intent("cbu.assign-role", role="DIRECTOR", refs={"cbu-id": "@result_1"}, lookups=lookups),
            ]
        }

    missing = await document_of(await desk.runs.start(plan("Sarah Cohen"), asks=False))
    assert (missing["status"], missing["error"]["code"]) == ("failed", "lookup_not_found")
    assert [each["name"] for each in missing["error"]["errors"][0]["candidates"]] == ["Sarah Chen"]
    assert desk.added() == []
    found = await document_of(await desk.runs.start(plan("Sarah Chen"), asks=False))
    assert found["status"] == "completed"
    assert desk.added() == [f"{FUND}: DIRECTOR: Sarah Chen (HK)", "Apex Capital Fund: LU, fund, active"]


async def test_party_of_another_type_is_not_bound_as_an_entity_and_nothing_is_made(desk: Onboarding) -> None:
    fund = intent("cbu.ensure", name="Apex Capital Fund", jurisdiction="LU")
    of_person = {"entity-id": looked_up("BlackRock ManCo", "entity")}
    officer = intent("cbu.assign-role", role="COMPLIANCE_OFFICER", refs={"cbu-id": "@result_1"}, lookups=of_person)
    failed = await document_of(await desk.runs.start({"intents": [fund, officer]}, asks=False))
    [problem] = failed["error"]["errors"]
    assert (failed["status"], problem["code"], problem["node"]) == ("failed", "lookup_not_found", "@result_2")
    assert problem["message"].startswith("No party found for person 'BlackRock ManCo'; near: BlackRock ManCo (company")
    assert desk.added() == []


async def test_lookup_and_reference_are_used_as_the_table_says(desk: Onboarding) -> None:
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
            # What the session works on.
            intent("cbu.add-product", product="CUSTODY", refs={"cbu-id": "@cbu"}),
        ]
    }
    assert (await desk.runs.run(plan, context={"cbu": fund.id}))["status"] == "completed"
    assert desk.added() == [
        f"{FUND}: CUSTODY",
        f"{FUND}: DIRECTOR: John Smith (GB)",
        "Apex Capital Fund: LU, fund, active",
        "Apex Fund (KY): CUSTODY",
    ]


async def test_context_that_is_nobody_or_of_another_type_is_found_out_before_anything_is_made(
    desk: Onboarding,
) -> None:
    plan = {
        "intents": [
            intent("cbu.ensure", name="Apex Capital Fund", jurisdiction="LU"),
            intent("cbu.add-product", product="CUSTODY", refs={"cbu-id": "@cbu"}),
        ]
    }
    (john,) = [row for row in desk.before.rows if row.subject == "John Smith"]
    for wrong, told in (("fund_x", "'fund_x', and no party has that id."), (john.id, "person 'John Smith' (GB), and")):
        document = await document_of(await desk.runs.start(plan, context={"cbu": wrong}))
        [error] = document["error"]["errors"]
        assert (document["status"], error["code"], error["pointer"]) == (
            "failed",
            "missing_context",
            "/intents/1/refs/cbu-id",
        )
        assert error["message"].startswith(f"@cbu is {told}")
        assert error["hint"] == "give the id of a fund with --context cbu=ID"
    assert desk.added() == []


async def test_id_of_nobody_or_of_another_type_is_found_out_before_anything_is_made(desk: Onboarding) -> None:
    def plan(fund: str) -> Any:
        return {
            "intents": [
                intent("cbu.ensure", name="Apex Capital Fund", jurisdiction="LU"),
                intent("cbu.add-product", product="CUSTODY", cbu_id=fund),
            ]
        }

    ids = {row.subject: row.id for row in desk.before.rows}
    wrong = {
        "nonsense": "No party has the id 'nonsense'.",
        ids["John Smith"]: f"'{ids['John Smith']}' is person 'John Smith' (GB), and a fund is needed.",
    }
    for given, told in wrong.items():
        document = await document_of(await desk.runs.start(plan(given)))
        [error] = document["error"]["errors"]
        assert (document["status"], error["code"], error["pointer"], error["message"]) == (
            "failed",
            "invalid_arguments",
            "/intents/1/params/cbu-id",
            told,
        )
    assert desk.added() == []
    assert (await desk.runs.run(plan(ids["Apex Fund"])))["status"] == "completed"
    assert "Apex Fund (KY): CUSTODY" in desk.added()


async def test_product_and_role_are_looked_up_by_what_people_call_them(desk: Onboarding) -> None:
    plan = {
        "intents": [
            intent("cbu.ensure", name="Apex Capital Fund", jurisdiction="LU"),
            intent(
                "cbu.add-product",
                refs={"cbu-id": "@result_1"},
                lookups={"product": looked_up("fund accounts", "product")},
            ),
        ]
    }
    assert (await desk.runs.run(plan))["status"] == "completed"
    assert desk.added() == [f"{FUND}: FUND_ACCOUNTING", "Apex Capital Fund: LU, fund, active"]


async def test_intents_of_eight_funds_are_one_request(desk: Onboarding) -> None:
    products = ["CUSTODY", "FUND_ACCOUNTING", "DEPOSITARY"]
    intents: list[dict[str, Any]] = []
    for number in range(8):
        here = {"cbu-id": f"@result_{len(intents) + 1}"}
        intents.append(intent("cbu.ensure", name=f"Fund {number}", jurisdiction="LU", client_type="fund"))
        intents += [intent("cbu.add-product", product=product, refs=here) for product in products]
        who = "John Smith" if number % 2 else "Sarah Chen"
        lookups = {"entity-id": looked_up(who)}
        intents.append(intent("cbu.assign-role", role="DIRECTOR", refs=here, lookups=lookups))
    handle = await desk.runs.start({"intents": intents})
    document = await document_of(handle)
    counts = {sort.value: count for sort, count in read_overview(desk.database).counts.items()}
    assert (document["status"], len(document["nodes"])) == ("completed", 40)
    assert (counts["fund"], counts["product"], counts["role"]) == (9, 24, 8)


async def test_of_two_runs_that_create_the_same_fund_at_once_one_does_and_the_other_gets_it(
    desk: Onboarding, gates: StoreGates
) -> None:
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
    assert desk.added() == [f"{FUND}: CUSTODY", "Apex Capital Fund: LU, fund, active"]
