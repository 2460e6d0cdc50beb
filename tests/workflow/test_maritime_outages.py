"""Questions about shipments while something is missing: the server, an index, or whatever a query was to find."""

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.client import Client

from dagwright.search import asking
from dagwright.search import client as search_client
from dagwright.settings import Settings
from dagwright.tools import load_tools
from tests.support.eventually import eventually
from tests.support.gates import gate_to
from tests.support.goals import ended
from tests.support.maritime_runs import (
    SCRIPTS,
    answered,
    generates,
    looks_up,
    maritime_runs,
    one_round,
    query,
    runs_generated,
    runs_query,
    shows,
    slot,
    start,
    understood,
    worker_says,
)
from tests.support.rounds import done, failed, ref, results_of, said_to, sub_goal
from tests.support.search import LiveSearch, Maritime, load_maritime

pytestmark = [pytest.mark.server, pytest.mark.search]

TO_HOUSTON = {"term": {"destination_port_code": "USHOU"}}


async def test_new_worker_explains_why_nothing_was_found_and_the_planner_knows_of_it(
    client: Client, tmp_path: Path, maritime: Maritime
) -> None:
    carrier, port = {"term": {"carrier_name": "Maersk"}}, TO_HOUSTON
    asked = {"query": {"bool": {"filter": [carrier, port]}}, "track_total_hits": True}
    why = sub_goal(2, "explain_nothing_found", es_results=ref(1, "es_results"))
    script = (
        "Show shipments of Maersk to Houston.",
        one_round(runs_query(1, maritime, asked)),
        one_round(why),
        done(why=ref(2, "why_nothing")),
    )
    more = load_tools([str(SCRIPTS / "why_nothing.py")])
    async with maritime_runs(client, tmp_path, maritime, *script, more=more) as (server, runs):
        found = await answered(runs, "Show shipments of Maersk to Houston")
        told = said_to(server, "plan")
    assert found["status"] == "completed"
    assert slot(found, "sg1", "hit_count") == 0
    to_houston = sum(each["destination_port_code"] == "USHOU" for each in maritime.shipments())
    assert slot(found, "sg2", "why_nothing").splitlines() == [
        f'- without `{{"term": {{"carrier_name": {{"value": "Maersk"}}}}}}`: {to_houston:,}',
        '- without `{"term": {"destination_port_code": {"value": "USHOU"}}}`: 0',
    ]
    assert '"worker": "explain_nothing_found"' in told
    assert "has `es_results` of a query that found nothing" in told


async def test_index_that_is_missing_is_told_to_the_planner_and_to_the_person(
    client: Client, tmp_path: Path, search: LiveSearch
) -> None:
    lost = await load_maritime(search, "lost", documents=10)
    async with lost.client() as direct:
        await direct.indices.delete(index=lost.indices.shipments)
    script = (
        "Show shipments to Houston.",
        one_round(runs_query(1, lost, {"query": TO_HOUSTON}), shows(2, 1)),
        failed("The shipments are not loaded."),
    )
    async with maritime_runs(client, tmp_path, lost, *script) as (server, runs):
        found = await answered(runs, "Show shipments to Houston")
        told = said_to(server, "plan#2")
    assert (found["status"], found["error"]["code"]) == ("failed", "planner_failed")
    assert results_of(found)[0] == [(1, "failed")]
    error = found["rounds"]["rounds"][0]["results"][0]["error"]
    assert "lost-shipments" in error
    assert "python -m dagwright.maritime load" in error
    assert "lost-shipments" in told


def covered_s(call: PendingActivityInfo) -> float:
    """Returns for how many seconds from its last failure on a call is tried again, by what the Temporal server says.

    Each attempt that fails at once is followed by the same wait; the one that comes next counts as an attempt already.
    """
    wait_s = (
        call.next_attempt_schedule_time.ToDatetime() - call.last_attempt_complete_time.ToDatetime()
    ).total_seconds()
    left_s = wait_s * (call.maximum_attempts - call.attempt + 1)
    if not call.HasField("expiration_time") or not call.expiration_time.seconds:
        return left_s
    until = call.expiration_time.ToDatetime() - call.last_attempt_complete_time.ToDatetime()
    return min(left_s, until.total_seconds())


async def test_question_goes_on_when_the_search_server_goes_away_while_a_worker_asks_it(
    client: Client, tmp_path: Path, search: LiveSearch
) -> None:
    away = await load_maritime(search, "away", documents=2_000)
    expected = sum(each["destination_port_code"] == "USHOU" for each in away.shipments())
    answered_now = asyncio.Event()
    body = {"query": {"bool": {"filter": [TO_HOUSTON]}}, "size": 1}
    script = (
        "Show shipments to Houston.",
        one_round(looks_up(1, "shipments to Houston")),
        one_round(generates(2, 1), runs_generated(3, 2), shows(4, 3)),
        done(table=ref(4, "formatted_results")),
        worker_says("sg1", understood("search", {"Houston": ("port", "destination_port")})),
        # It has read the fields of the index, and its query is to be judged by the server as soon as it is written.
        worker_says("sg2", query(body), released=answered_now),
    )

    async with maritime_runs(client, tmp_path, away, *script) as (server, runs):
        handle = await start(runs, "Show shipments to Houston")

        def asked_by(node: str) -> int:
            return sum(call.metadata.get("node") == node for call in server.calls)

        async def waiting() -> PendingActivityInfo | None:
            [call] = (await handle.describe()).raw_description.pending_activities or [None]
            return call if call is not None and call.HasField("next_attempt_schedule_time") else None

        async def is_tried_again() -> bool:
            return await waiting() is not None

        await eventually(lambda: asked_by("sg2") == 1)
        await search.kill()
        try:
            answered_now.set()
            await eventually(is_tried_again)
            call = await waiting()
            assert call is not None
            assert (call.activity_type.name, covered_s(call) > 60) == ("es_query_gen", True)
        finally:
            await search.start()
        await ended(runs, handle)
        found = await runs.restored(handle, full=True)
    assert results_of(found)[:2] == [[(1, "success")], [(2, "success"), (3, "success"), (4, "success")]]
    assert found["nodes"]["sg2"]["attempts"] > 1
    # What the model wrote before the server went away is used, and not paid for again.
    assert (asked_by("sg1"), asked_by("sg2")) == (1, 1)
    assert slot(found, "sg3", "hit_count") == expected
    assert (found["status"], f"1 of {expected:,} are shown" in found["output"]) == ("completed", True)


OUTAGE_ATTEMPTS = int(timedelta(minutes=1) / asking.RETRY_AFTER) + 1
"""Attempts that find no server during an outage of a minute."""
SHORT_RETRY_AFTER = timedelta(milliseconds=500)
SHORT_TIMEOUT_S = 3.0
"""Within which a search server on this machine answers even if other tests keep the machine busy."""


@dataclass(frozen=True)
class GatedMaritime(Maritime):
    """Shipments on a search server that is reached through a gate.

    Args:
        address: of the gate.
    """

    address: str

    def settings(self, settings: Settings) -> Settings:
        return Maritime.settings(self, settings).model_copy(update={"opensearch_url": self.address})


async def test_question_goes_on_after_the_attempts_of_a_minute_without_a_server_and_one_answer_that_times_out(
    client: Client, tmp_path: Path, search: LiveSearch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "RETRY_AFTER", SHORT_RETRY_AFTER)
    monkeypatch.setattr(search_client, "_TIMEOUT_S", SHORT_TIMEOUT_S)
    loaded = await load_maritime(search, "minute", documents=2_000)
    expected = sum(each["destination_port_code"] == "USHOU" for each in loaded.shipments())
    answered_now = asyncio.Event()
    body = {"query": {"bool": {"filter": [TO_HOUSTON]}}, "size": 1}
    generated = sub_goal(
        1,
        "es_query_gen",
        "the query",
        analysis_result={"intent_type": "search", "question": "shipments to Houston"},
        metadata_results={"index": loaded.indices.shipments},
    )
    script = (
        "Show shipments to Houston.",
        one_round(generated, runs_generated(2, 1), shows(3, 2)),
        done(table=ref(3, "formatted_results")),
        worker_says("sg1", query(body), released=answered_now),
    )
    async with gate_to(search.address) as gate:
        gated = GatedMaritime(loaded.search, loaded.indices, loaded.data, gate.address)
        async with maritime_runs(client, tmp_path, gated, *script) as (server, runs):
            handle = await start(runs, "Show shipments to Houston")

            def asked() -> int:
                return sum(call.metadata.get("node") == "sg1" for call in server.calls)

            async def was_away_for_a_minute() -> bool:
                [call] = (await handle.describe()).raw_description.pending_activities or [None]
                if call is None or not call.HasField("next_attempt_schedule_time"):
                    return False
                assert "does not answer" in call.last_failure.message
                # The next attempt is counted already.
                return call.attempt > OUTAGE_ATTEMPTS

            # It has read the fields of the index, and its query is to be judged as soon as it is written.
            await eventually(lambda: asked() == 1)
            await gate.close()
            answered_now.set()
            await eventually(was_away_for_a_minute)
            gate.silent = 1
            await gate.open()
            await ended(runs, handle)
            found = await runs.restored(handle, full=True)
    assert results_of(found)[0] == [(1, "success"), (2, "success"), (3, "success")]
    # Those for which it was away, the one that it left without an answer, and the last.
    assert found["nodes"]["sg1"]["attempts"] >= OUTAGE_ATTEMPTS + 2
    assert (asked(), gate.silent) == (1, 0)
    assert slot(found, "sg2", "hit_count") == expected
    assert found["status"] == "completed"
