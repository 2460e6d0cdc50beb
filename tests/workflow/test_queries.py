"""What the Temporal UI alone tells of a run: queries, current details, search attributes, lookups."""

import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.api.sdk.v1 import WorkflowMetadata
from temporalio.client import WorkflowQueryFailedError
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes

from dagwright.core.boundary import wire
from dagwright.entities.database import EntityDatabase
from dagwright.entities.loading import load_parties
from dagwright.settings import Settings
from tests.support.eventually import eventually
from tests.support.runs import (
    Handle,
    Runs,
    bare,
    bare_node,
    document_of,
    done,
    events_of,
    serving_runs,
    without_cache,
)
from tests.support.tools import Bench

pytestmark = pytest.mark.server

_STATE = SearchAttributeKey.for_keyword(wire.SEARCH_STATE)
_PARTIES = Path(__file__).parents[2] / "examples" / "onboarding" / "parties.csv"


def _plan(name: str) -> dict[str, Any]:
    return {
        "title": "Looked at",
        "nodes": [
            {"id": "first", "title": "The | first", "tool": "add", "arguments": {"left": 1, "right": 1}},
            {"id": "held", "tool": "hold", "arguments": {"name": name}, "depends_on": ["first"]},
            {"id": "each", "tool": "echo", "for_each": ["x"], "key": "{{item}}", "depends_on": ["first"]},
            {"id": "last", "tool": "echo", "depends_on": ["held"]},
        ],
    }


async def _details(handle: Handle) -> str:
    metadata = await handle.query("__temporal_workflow_metadata", result_type=WorkflowMetadata)
    return str(metadata.current_details)


@without_cache
async def test_queries_tell_how_a_run_is_doing(runs: Runs, bench: Bench, unique: str) -> None:
    handle = await runs.start(_plan(unique))
    await eventually(lambda: unique in bench.entered)

    async def is_quiet() -> bool:
        node = await handle.query(wire.QUERY_NODE, "each")
        return bool(node["status"] == "completed")

    await eventually(is_quiet)
    assert bare(await handle.query(wire.QUERY_STATUS)) == {
        "status": "running",
        "output": None,
        "nodes": {
            "first": done(2.0),
            "held": {"status": "running"},
            "each": done([{}]),
            "each[x]": done({}),
            "last": {"status": "pending"},
        },
    }
    assert bare_node(await handle.query(wire.QUERY_NODE, "each[x]")) == done({})
    assert await handle.query(wire.QUERY_NODE, "nobody") is None
    with pytest.raises(WorkflowQueryFailedError):
        await handle.query(wire.QUERY_NODE)
    graph = await handle.query(wire.QUERY_GRAPH)
    assert [(node["id"], node["status"]) for node in graph["nodes"]] == [
        ("first", "completed"),
        ("held", "running"),
        ("each", "completed"),
        ("last", "pending"),
    ]
    assert graph["edges"] == [["first", "held"], ["first", "each"], ["held", "last"]]
    bench.open(unique)
    await document_of(handle)
    assert bare(await handle.query(wire.QUERY_STATUS)) == bare(await document_of(handle))


async def test_current_details_are_a_live_table(runs: Runs, bench: Bench, unique: str) -> None:
    handle = await runs.start(_plan(unique))
    await eventually(lambda: unique in bench.entered)

    async def is_shown() -> bool:
        return "1 of 1 items" in await _details(handle)

    await eventually(is_shown)
    assert (await _details(handle)).splitlines() == [
        "**running**: 2 completed, 1 pending, 1 running",
        "",
        "| node | state | tool | note |",
        "|---|---|---|---|",
        "| The \\| first | ✅ completed | add |  |",
        "| held | ▶️ running | hold |  |",
        "| each | ✅ completed | echo | 1 of 1 items |",
        "| last | pending | echo |  |",
    ]
    bench.open(unique)
    await document_of(handle)
    assert (await _details(handle)).startswith("**completed**: 4 completed")


async def test_search_attribute_follows_the_state(runs: Runs) -> None:
    attributes = TypedSearchAttributes([SearchAttributePair(_STATE, "running")])
    ends = {}
    for name, tool in (("good", "echo"), ("bad", "fail")):
        plan = {"plan": {"nodes": [{"id": "a", "tool": tool}]}}
        handle = await runs.start_raw(plan, search_attributes=attributes)
        await document_of(handle)
        ends[name] = (await handle.describe()).typed_search_attributes.get(_STATE)
    assert ends == {"good": "completed", "bad": "failed"}


async def test_run_that_anybody_starts_has_its_state(runs: Runs, bench: Bench) -> None:
    """As the Temporal UI starts it: with a plan and no search attribute."""
    unique = uuid4().hex
    held = {"id": "held", "tool": "hold", "arguments": {"name": unique}}
    handle = await runs.start_raw({"plan": {"nodes": [held]}})
    await eventually(lambda: unique in bench.entered)
    assert await _states_written(handle) == ["running"]
    bench.open(unique)
    await document_of(handle)
    refused = await runs.start_raw({"plan": {"nodes": [{"id": "a", "tool": "nobody"}]}})
    await document_of(refused)
    assert await _states_written(handle) == ["running", "completed"]
    assert await _states_written(refused) == ["failed"]
    assert (await handle.describe()).typed_search_attributes.get(_STATE) == "completed"


async def _states_written(handle: Handle) -> list[str]:
    upserts = events_of(await handle.fetch_history(), EventType.EVENT_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES)
    written = [event.upsert_workflow_search_attributes_event_attributes.search_attributes for event in upserts]
    return [json.loads(attributes.indexed_fields[_STATE.name].data) for attributes in written]


async def test_lookups_are_bound_before_anything_runs(cached_runs: Runs, bench: Bench, tmp_path: Path) -> None:
    settings = Settings(state_dir=tmp_path)
    database = EntityDatabase(settings.database_url)
    load_parties(database, _PARTIES)
    database.dispose()

    def intents(name: str) -> dict[str, Any]:
        lookup = {"who": {"search_text": name, "entity_type": "person"}}
        return {"intents": [{"verb": "echo", "params": {}, "refs": {}, "lookups": lookup}]}

    async with serving_runs(cached_runs.client, bench.registry(), settings=settings) as runs:
        found = await runs.run_raw({"plan": intents("Sarah Chen")})
        missing = await runs.run_raw({"plan": intents("Nobody Known"), "options": {"asks": False}})
        await runs.check_ended()
    assert found["nodes"]["@result_1"]["result"]["who"].startswith("person_")
    assert (missing["status"], missing["nodes"]["@result_1"]["status"]) == ("failed", "cancelled")
    assert missing["error"].startswith("lookup_not_found: ")
