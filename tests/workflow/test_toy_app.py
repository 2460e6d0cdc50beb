"""The toy application: its tool, and its resolver of lookups, which asks a person."""

from pathlib import Path

import pytest
from temporalio.client import Client

from dagwright.settings import Settings
from dagwright.tools import ToolRegistry
from tests.support.people import answer, wait_for_request_set
from tests.support.plugin_replacement import toy_app
from tests.support.runs import checked_runs, document_of

pytestmark = pytest.mark.server


def put_intent(item: str, **lookup: str) -> dict[str, object]:
    shelf_lookup = {"search_text": "Long shelf", "entity_type": "rack", **lookup}
    return {"verb": "toy.put", "params": {"item": item}, "lookups": {"shelf-id": shelf_lookup}}


async def test_lookup_is_resolved_by_a_person_or_by_additional_fields(client: Client, tmp_path: Path) -> None:
    with toy_app():
        settings = Settings(state_dir=tmp_path)
        async with checked_runs(client, ToolRegistry(), settings=settings) as runs:
            handle = await runs.start({"intents": [put_intent("lamp"), put_intent("cup", aisle="a")]})
            request_id = "lookup:rack:Long shelf"
            requests = await wait_for_request_set(client, handle.id, request_id)
            assert requests[request_id]["options"] == ["s1", "s2"]
            await answer(handle, request_id, {"selected": ["s2"]})
            document = await document_of(handle)
    assert document["status"] == "completed"
    expected = ["lamp is on s2 in north", "cup is on s1 in north"]
    assert [node["result"]["text"] for node in document["nodes"].values()] == expected
    assert [(lookup["search_text"], lookup.get("aisle"), lookup["entity"]["id"]) for lookup in document["lookups"]] == [
        ("Long shelf", None, "s2"),
        ("Long shelf", "A", "s1"),
    ]
