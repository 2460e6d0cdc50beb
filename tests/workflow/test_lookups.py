"""Lookups of parties: a run resolves unambiguous lookups. People answer ambiguous lookups before any node runs."""

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from dagwright.settings import Settings
from dagwright_onboarding.catalogue import PartyKind
from dagwright_onboarding.database import EntityDatabase
from dagwright_onboarding.models import Party
from dagwright_onboarding.parties import NaturalKey, add_party
from dagwright_onboarding.party_loading import load_parties
from tests.support.people import answer, wait_for_request_set, wait_for_requests
from tests.support.run_views import view_of
from tests.support.runs import Document, Runs, document_of, serving_runs
from tests.support.tools import CallHarness
from tests.workflow.test_forks import fork

pytestmark = pytest.mark.server

_PARTIES_FILE = Path(__file__).parents[2] / "examples" / "onboarding" / "parties.csv"


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Settings of workers whose database has the parties of the example."""
    settings = Settings(state_dir=tmp_path_factory.mktemp("lookups"))
    database = EntityDatabase(settings.database_url)
    load_parties(database, _PARTIES_FILE)
    keys = [NaturalKey(PartyKind.PERSON, "Eva Twin", jurisdiction) for jurisdiction in ("GB", "IE")]
    database.write(lambda session: [add_party(session, key).id for key in keys])
    database.dispose()
    return settings


@pytest.fixture(scope="module")
async def cached_runs(client: Client, harness: CallHarness, settings: Settings) -> AsyncIterator[Runs]:
    async with serving_runs(client, harness.registry(), settings=settings) as runs:
        yield runs


@pytest.fixture
def database(settings: Settings) -> Any:
    database = EntityDatabase(settings.database_url)
    yield database
    database.dispose()


def lookup(text: str, kind: str = "person", **fields: Any) -> dict[str, Any]:
    return {"search_text": text, "entity_type": kind, **fields}


def intent(verb: str = "echo", refs: Mapping[str, str] | None = None, **lookups: Any) -> dict[str, Any]:
    return {"verb": verb, "params": {}, "refs": dict(refs or {}), "lookups": lookups}


def party_ids(database: EntityDatabase, name: str) -> list[str]:
    parties = database.read(
        lambda session: session.query(Party).filter(Party.name == name).order_by(Party.jurisdiction)
    )
    return [party.id for party in parties]


def results(document: Document) -> list[Any]:
    return [node["result"] for node in document["nodes"].values()]


async def test_unambiguous_lookup_is_resolved_without_a_request(runs: Runs, database: EntityDatabase) -> None:
    plan = {
        "intents": [intent(who=lookup("Sarah Chen")), intent(who=lookup("Sarah Chen"), fund=lookup("Apex Fund", "cbu"))]
    }
    handle = await runs.start(plan)
    document = await document_of(handle)
    graph = (await view_of(runs, handle)).graph()
    assert ([node["node_id"] for node in graph["nodes"]], graph["edges"]) == ([*document["nodes"]], [])
    assert [node["lineage"]["inputs"] for node in document["nodes"].values()] == [[], []]
    [sarah], [apex] = party_ids(database, "Sarah Chen"), party_ids(database, "Apex Fund")
    assert (document["status"], results(document)) == ("completed", [{"who": sarah}, {"who": sarah, "fund": apex}])
    entities = [
        {"id": sarah, "name": "Sarah Chen", "kind": "person", "jurisdiction": "HK"},
        {"id": apex, "name": "Apex Fund", "kind": "fund", "jurisdiction": "KY"},
    ]
    assert document["lookups"] == [
        {**lookup(entity["name"], kind), "entity": entity, "reason": "exact name", "created": False}
        for kind, entity in zip(("person", "cbu"), entities, strict=True)
    ]


MARIA_REQUEST_ID, POLARIS_REQUEST_ID = "lookup:person:Maria Garcia", "lookup:company:Polaris Partners"


async def test_requests_about_ambiguous_lookups_open_before_any_node_runs(
    runs: Runs, database: EntityDatabase, unique_name: str
) -> None:
    plan = {
        "intents": [
            intent(who=lookup("Maria Garcia"), firm=lookup("Polaris Partners", "company")),
            intent(again=lookup("Maria Garcia")),
            {"verb": "echo", "params": {"name": unique_name}, "refs": {}, "lookups": None},
        ]
    }
    handle = await runs.start(plan)
    requests = await wait_for_request_set(runs.client, handle.id, MARIA_REQUEST_ID, POLARIS_REQUEST_ID)
    document = (await view_of(runs, handle)).document()
    assert (document["status"], {node["status"] for node in document["nodes"].values()}) == ("waiting", {"pending"})
    spanish_id, luxembourgish_id = party_ids(database, "Maria García")[0], party_ids(database, "María Garcia")[0]
    selection, clarification = requests[MARIA_REQUEST_ID], requests[POLARIS_REQUEST_ID]
    assert (selection["type"], selection["allow_text"]) == ("SELECTION", True)
    expected_options = [spanish_id, luxembourgish_id, "none of these", "create new"]
    assert [option["id"] for option in selection["options"]] == expected_options
    assert selection["options"][0]["label"] == "Maria García (person, ES, born 1972-06-21)"
    assert (clarification["type"], clarification["options"]) == ("CLARIFICATION", None)
    assert clarification["prompt"].startswith("No party found for company 'Polaris Partners'")
    await answer(handle, MARIA_REQUEST_ID, {"selected": [luxembourgish_id]})
    await answer(handle, POLARIS_REQUEST_ID, {"text": "Meridian"})
    document = await document_of(handle)
    [meridian] = party_ids(database, "Meridian Fund Services S.à r.l.")
    assert results(document) == [
        {"who": luxembourgish_id, "firm": meridian},
        {"again": luxembourgish_id},
        {"name": unique_name},
    ]
    expected = [("chosen by a person", False), ("other name", False)]
    assert [(lookup["reason"], lookup["created"]) for lookup in document["lookups"]] == expected


async def test_party_is_created_after_all_answers(runs: Runs, database: EntityDatabase, unique_name: str) -> None:
    name = f"Ada {unique_name}"
    handle = await runs.start({"intents": [intent(who=lookup(name), maria=lookup("Maria Garcia"))]})
    request_id = f"lookup:person:{name}"
    await wait_for_request_set(runs.client, handle.id, request_id, MARIA_REQUEST_ID)
    await answer(handle, request_id, {"text": "Create new"})
    await wait_for_requests(runs.client, handle.id, MARIA_REQUEST_ID)
    assert party_ids(database, name) == []
    await answer(handle, MARIA_REQUEST_ID, {"selected": party_ids(database, "Maria García")})
    document = await document_of(handle)
    [ada] = party_ids(database, name)
    assert document["nodes"]["@result_1"]["result"]["who"] == ada
    expected = [(True, "created at the request of a person"), (False, "chosen by a person")]
    assert [(lookup["created"], lookup["reason"]) for lookup in document["lookups"]] == expected


async def test_non_interactive_run_fails_with_unresolved_lookups(
    runs: Runs, harness: CallHarness, unique_name: str
) -> None:
    plan = {
        "intents": [
            {"verb": "change", "params": {"name": unique_name}, "refs": {}, "lookups": None},
            intent(who=lookup("Maria Garcia"), firm=lookup("Polaris Partners", "company"), clear=lookup("Sarah Chen")),
        ]
    }
    document = await document_of(await runs.start(plan, is_interactive=False))
    error = document["error"]
    assert (document["status"], error["code"]) == ("failed", "lookup_ambiguous")
    assert error["message"].startswith("Several parties match person 'Maria Garcia'")
    assert "No party found for company 'Polaris Partners'" in error["message"]
    assert [(error["code"], error["pointer"], error["node_id"]) for error in error["errors"]] == [
        ("lookup_ambiguous", "/intents/1/lookups/who", "@result_2"),
        ("lookup_not_found", "/intents/1/lookups/firm", "@result_2"),
    ]
    assert [candidate["jurisdiction"] for candidate in error["errors"][0]["candidates"]] == ["ES", "LU"]
    assert {node["status"] for node in document["nodes"].values()} == {"cancelled"}
    assert not harness.effects[unique_name]
    assert "lookups" not in document


async def test_many_intents_share_lookups_of_the_same_name(runs: Runs, database: EntityDatabase) -> None:
    def add_parties(session: Any) -> None:
        for number in range(20):
            key = NaturalKey(PartyKind.PERSON, f"Crowd {number:03}", "GB")
            if session.query(Party).filter(Party.name == key.name).first() is None:
                add_party(session, key)

    database.write(add_parties)
    names = [f"Crowd {number % 19:03}" for number in range(38)] + ["Crowd", "Crowd 019"]
    handle = await runs.start({"intents": [intent(who=lookup(name)) for name in names]})
    await wait_for_requests(runs.client, handle.id, "lookup:person:Crowd")
    await answer(handle, "lookup:person:Crowd", {"text": "Crowd 000"})
    await document_of(handle)
    document = await runs.read_document(handle)
    assert document["status"] == "completed"
    ids_by_name = {item["search_text"]: item["entity"]["id"] for item in document["lookups"]}
    assert {*ids_by_name} == {*names}
    assert [result["who"] for result in results(document)] == [ids_by_name[name] for name in names]


async def test_fork_reuses_selected_parties_without_a_request(runs: Runs, database: EntityDatabase) -> None:
    [spanish_id] = party_ids(database, "Maria García")
    plan = {"intents": [intent(who=lookup("Maria Garcia")), intent(refs={"with": "@result_1"})]}
    handle = await runs.start(plan)
    await wait_for_requests(runs.client, handle.id, MARIA_REQUEST_ID)
    await answer(handle, MARIA_REQUEST_ID, {"selected": [spanish_id]})
    await document_of(handle)
    draft, fork_handle = await fork(runs, handle, rerun=["@result_2"])
    document = await document_of(fork_handle)
    assert draft.prediction.reused == ["@result_1"]
    assert document["nodes"]["@result_1"]["result"] == {"who": spanish_id}
    assert [item["entity"]["id"] for item in document["lookups"]] == [spanish_id]
