"""The toy application: its tool, and its resolver of lookups, which asks a person."""

from pathlib import Path

import pytest
from temporalio.client import Client

from dagwright.settings import Settings
from dagwright.tools import ToolRegistry
from tests.support.eventually import eventually
from tests.support.people import answer, view_of
from tests.support.plugin_replacement import toy_app
from tests.support.runs import document_of, serving_runs

pytestmark = pytest.mark.server


def put_intent(item: str, **lookup: str) -> dict[str, object]:
    shelf_lookup = {"search_text": "Long shelf", "entity_type": "rack", **lookup}
    return {"verb": "toy.put", "params": {"item": item}, "lookups": {"shelf-id": shelf_lookup}}


async def test_lookup_is_resolved_by_a_person_or_by_additional_fields(client: Client, tmp_path: Path) -> None:
    with toy_app():
        settings = Settings(state_dir=tmp_path)
        async with serving_runs(client, ToolRegistry(), settings=settings) as runs:
            handle = await runs.start({"intents": [put_intent("lamp"), put_intent("cup", aisle="a")]})

            async def has_request() -> bool:
                requests = (await view_of(runs, handle)).document()["waiting_for"]
                return [request["options"] for request in requests] == [["s1", "s2"]]

            await eventually(has_request)
            await answer(handle, "lookup:rack:Long shelf", {"selected": ["s2"]})
            document = await document_of(handle)
            await runs.check_runs()
    assert document["status"] == "completed"
    expected = ["lamp is on s2 in north", "cup is on s1 in north"]
    assert [node["result"]["text"] for node in document["nodes"].values()] == expected
    assert [(lookup["search_text"], lookup.get("aisle"), lookup["entity"]["id"]) for lookup in document["lookups"]] == [
        ("Long shelf", None, "s2"),
        ("Long shelf", "A", "s1"),
    ]
