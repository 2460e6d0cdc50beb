"""Plans that grow and look parties up: of requests in words, and by nodes that people add."""

from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from dagwright.entities.database import EntityDatabase
from dagwright.entities.loading import load_parties
from dagwright.settings import Settings
from tests.support.eventually import eventually
from tests.support.goals import scripted_runs
from tests.support.intents import fund, intents_goal, said
from tests.support.onboarding import intent, looked_up
from tests.support.people import answer, view_of
from tests.support.runs import Handle, Runs, document_of

pytestmark = pytest.mark.server

_PARTIES = Path(__file__).parents[2] / "examples" / "onboarding" / "parties.csv"
MARIA = "lookup:person:Maria Garcia"


def load(folder: Path) -> None:
    database = EntityDatabase(Settings(state_dir=folder).database_url)
    load_parties(database, _PARTIES)
    database.dispose()


def director(who: str, of: str, role: str = "DIRECTOR") -> dict[str, Any]:
    return intent("cbu.assign-role", role=role, refs={"cbu-id": of}, lookups={"entity-id": looked_up(who)})


async def asked(runs: Runs, handle: Handle) -> list[str]:
    return [request["id"] for request in (await view_of(runs, handle)).document()["waiting_for"]]


async def asks_soon(runs: Runs, handle: Handle, *requests: str) -> list[dict[str, Any]]:
    async def does() -> bool:
        return await asked(runs, handle) == list(requests)

    await eventually(does)
    return list((await view_of(runs, handle)).document()["waiting_for"])


async def test_intents_of_a_model_look_up_before_anything_is_changed(client: Client, tmp_path: Path) -> None:
    script = said(fund("Iberia"), director("Maria Garcia", "@result_1"), director("Sarah Chen", "@result_1"))
    async with scripted_runs(client, tmp_path, script) as (_, runs):
        load(tmp_path)
        handle = await runs.start_compiled(intents_goal(runs))
        [request] = await asks_soon(runs, handle, MARIA)
        states = (await view_of(runs, handle)).document()["nodes"]
        assert [name for name, node in states.items() if node["status"] == "completed"] == ["plan", "read"]
        await answer(handle, MARIA, {"selected": [request["options"][0]["id"]]})
        document = await document_of(handle)
        await runs.check_ended()
    assert [*document["nodes"]] == ["plan", "read", "@result_1", "@result_2", "@result_3"]
    assert document["status"] == "completed"
    assert document["nodes"]["@result_2"]["result"]["entity_id"] == request["options"][0]["id"]
    assert [binding["search_text"] for binding in document["lookups"]] == ["Maria Garcia", "Sarah Chen"]


async def test_request_that_asks_nobody_fails_with_what_is_unclear(client: Client, tmp_path: Path) -> None:
    script = said(fund("Iberia Two"), director("Maria Garcia", "@result_1"), director("Nobody Known", "@result_1"))
    async with scripted_runs(client, tmp_path, script) as (_, runs):
        load(tmp_path)
        document = await document_of(await runs.start_compiled(intents_goal(runs), asks=False))
        await runs.check_ended()
    assert (document["status"], document["error"]["code"]) == ("failed", "lookup_ambiguous")
    assert [(each["code"], each["node"]) for each in document["error"]["errors"]] == [
        ("lookup_ambiguous", "@result_2"),
        ("lookup_not_found", "@result_3"),
    ]
    assert document["nodes"]["@result_1"]["status"] == "cancelled"
