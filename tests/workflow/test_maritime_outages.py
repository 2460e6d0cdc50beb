"""Questions about shipments: without results, without an index, and during an outage of the search server."""

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
from temporalio.client import Client

from dagwright.settings import Settings
from dagwright.tools import load_tools
from dagwright_maritime.search import client as search_client
from dagwright_maritime.search import requests
from dagwright_maritime.settings import MaritimeSettings
from tests.support.eventually import eventually
from tests.support.goals import checked_document
from tests.support.maritime_runs import (
    SCRIPTS,
    answer_question,
    generated_query_sub_goal,
    maritime_runs,
    query,
    query_sub_goal,
    results_sub_goal,
    slot_value,
    start_question,
    worker_response,
)
from tests.support.rounds import (
    continue_response,
    done_response,
    failed_response,
    prompt_of,
    ref,
    sub_goal,
    sub_goal_statuses_of,
)
from tests.support.search import LiveSearch, Maritime, load_maritime
from tests.support.server_proxies import server_proxy

pytestmark = [pytest.mark.server, pytest.mark.search]

HOUSTON_FILTER = {"term": {"destination_port_code": "USHOU"}}


async def test_additional_worker_tool_explains_a_query_without_results(
    client: Client, tmp_path: Path, maritime: Maritime
) -> None:
    carrier_filter = {"term": {"carrier_name": "Maersk"}}
    body = {"query": {"bool": {"filter": [carrier_filter, HOUSTON_FILTER]}}, "track_total_hits": True}
    explanation = sub_goal(2, "explain_nothing_found", es_results=ref(1, "es_results"))
    script = (
        "Show shipments of Maersk to Houston.",
        continue_response(query_sub_goal(1, maritime, body)),
        continue_response(explanation),
        done_response(why=ref(2, "why_nothing")),
    )
    additional_tools = load_tools([str(SCRIPTS / "why_nothing.py")])
    async with maritime_runs(client, tmp_path, maritime, *script, more_tools=additional_tools) as (server, runs):
        document = await answer_question(runs, "Show shipments of Maersk to Houston")
        planner_prompt = prompt_of(server, "plan")
    assert document["status"] == "completed"
    assert slot_value(document, "sg1", "hit_count") == 0
    houston_count = sum(shipment["destination_port_code"] == "USHOU" for shipment in maritime.shipments())
    assert slot_value(document, "sg2", "why_nothing").splitlines() == [
        f'- without `{{"term": {{"carrier_name": {{"value": "Maersk"}}}}}}`: {houston_count:,}',
        '- without `{"term": {"destination_port_code": {"value": "USHOU"}}}`: 0',
    ]
    assert '"worker": "explain_nothing_found"' in planner_prompt
    assert "has `es_results` of a query that found nothing" in planner_prompt


async def test_missing_index_is_reported_to_the_planner_and_in_the_document(
    client: Client, tmp_path: Path, search: LiveSearch
) -> None:
    maritime = await load_maritime(search, "lost", shipment_count=10)
    async with maritime.client() as direct_client:
        await direct_client.indices.delete(index=maritime.indices.shipments)
    script = (
        "Show shipments to Houston.",
        continue_response(query_sub_goal(1, maritime, {"query": HOUSTON_FILTER}), results_sub_goal(2, 1)),
        failed_response("The shipments are not loaded."),
    )
    async with maritime_runs(client, tmp_path, maritime, *script) as (server, runs):
        document = await answer_question(runs, "Show shipments to Houston")
        planner_prompt = prompt_of(server, "plan#2")
    assert (document["status"], document["error"]["code"]) == ("failed", "planner_failed")
    assert sub_goal_statuses_of(document)[0] == [(1, "failed")]
    error = document["rounds"]["rounds"][0]["results"][0]["error"]
    assert "lost-shipments" in error
    assert "python -m dagwright_maritime load" in error
    assert "lost-shipments" in planner_prompt


OUTAGE_ATTEMPTS = int(timedelta(minutes=1) / requests.RETRY_AFTER) + 1
"""Number of attempts that fail during an outage of a minute, with the real delay between attempts."""
SHORT_RETRY_AFTER = timedelta(milliseconds=500)
"""Delay between attempts in the test."""
SHORT_TIMEOUT_S = 3.0
"""Time in which a local search server responds, also on a busy machine."""


@dataclass(frozen=True)
class MaritimeBehindProxy(Maritime):
    """Shipments on a search server that is reached through a proxy.

    Args:
        address: address of the proxy.
    """

    address: str

    def settings(self, settings: Settings) -> MaritimeSettings:
        return Maritime.settings(self, settings).model_copy(update={"opensearch_url": self.address})


async def test_question_survives_an_outage_of_a_minute_and_a_response_that_times_out(
    client: Client, tmp_path: Path, search: LiveSearch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "RETRY_AFTER", SHORT_RETRY_AFTER)
    monkeypatch.setattr(search_client, "_TIMEOUT_S", SHORT_TIMEOUT_S)
    loaded_maritime = await load_maritime(search, "minute", shipment_count=2_000)
    expected = sum(shipment["destination_port_code"] == "USHOU" for shipment in loaded_maritime.shipments())
    release_response = asyncio.Event()
    body = {"query": {"bool": {"filter": [HOUSTON_FILTER]}}, "size": 1}
    query_generation = sub_goal(
        1,
        "es_query_gen",
        "the query",
        analysis_result={"intent_type": "search", "question": "shipments to Houston"},
        metadata_results={"index": loaded_maritime.indices.shipments},
    )
    script = (
        "Show shipments to Houston.",
        continue_response(query_generation, generated_query_sub_goal(2, 1), results_sub_goal(3, 2)),
        done_response(table=ref(3, "formatted_results")),
        worker_response("sg1", query(body), release_event=release_response),
    )
    async with server_proxy(search.address) as proxy:
        proxied_maritime = MaritimeBehindProxy(
            loaded_maritime.search, loaded_maritime.indices, loaded_maritime.data, proxy.address
        )
        async with maritime_runs(client, tmp_path, proxied_maritime, *script) as (server, runs):
            handle = await start_question(runs, "Show shipments to Houston")

            def count_calls() -> int:
                return sum(call.metadata.get("node_id") == "sg1" for call in server.calls)

            async def have_outage_attempts_failed() -> bool:
                [call] = (await handle.describe()).raw_description.pending_activities or [None]
                if call is None or not call.HasField("next_attempt_schedule_time"):
                    return False
                assert "does not answer" in call.last_failure.message
                # `call.attempt` is the number of the next attempt.
                return call.attempt > OUTAGE_ATTEMPTS

            await eventually(lambda: count_calls() == 1)
            # The worker tool has read the fields of the index, and waits for the model. It then needs the search server
            # again, to check the query.
            await proxy.close()
            release_response.set()
            await eventually(have_outage_attempts_failed)
            proxy.remaining_silent_connection_count = 1
            await proxy.open()
            await checked_document(runs, handle)
            document = await runs.read_document(handle, full=True)
    assert sub_goal_statuses_of(document)[0] == [(1, "success"), (2, "success"), (3, "success")]
    # The minimum counts the attempts of the outage, the attempt without a response, and the last attempt.
    assert document["nodes"]["sg1"]["attempts"] >= OUTAGE_ATTEMPTS + 2
    assert (count_calls(), proxy.remaining_silent_connection_count) == (1, 0)
    assert slot_value(document, "sg2", "hit_count") == expected
    assert document["status"] == "completed"
