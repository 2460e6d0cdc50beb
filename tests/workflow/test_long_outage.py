"""A search server that is really away for a minute, and slow when it is back: the question goes on all the same."""

import asyncio
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pytest
from temporalio.client import Client

from dagwright.settings import Settings
from tests.support.eventually import eventually
from tests.support.gates import gate_to
from tests.support.goals import ended
from tests.support.maritime_runs import (
    maritime_runs,
    one_round,
    query,
    runs_generated,
    shows,
    slot,
    start,
    worker_says,
)
from tests.support.rounds import done, ref, results_of, sub_goal
from tests.support.search import LiveSearch, Maritime, load_maritime

pytestmark = [pytest.mark.server, pytest.mark.search, pytest.mark.slow]

MINUTE_S = 60.0


@dataclass(frozen=True)
class Behind(Maritime):
    """Shipments that are found at another address than that of their server."""

    address: str

    def settings(self, settings: Settings) -> Settings:
        return Maritime.settings(self, settings).model_copy(update={"opensearch_url": self.address})


async def test_question_goes_on_after_a_minute_without_a_server_and_a_first_answer_that_is_slow(
    client: Client, tmp_path: Path, search: LiveSearch
) -> None:
    loaded = await load_maritime(search, "minute", documents=2_000)
    expected = sum(each["destination_port_code"] == "USHOU" for each in loaded.shipments())
    answered_now = asyncio.Event()
    body = {"query": {"bool": {"filter": [{"term": {"destination_port_code": "USHOU"}}]}}, "size": 1}
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
        behind = Behind(loaded.search, loaded.indices, loaded.data, gate.address)
        async with maritime_runs(client, tmp_path, behind, *script) as (server, runs):
            handle = await start(runs, "Show shipments to Houston")

            def asked() -> int:
                return sum(call.metadata.get("node") == "sg1" for call in server.calls)

            async def last_failure() -> datetime | None:
                [call] = (await handle.describe()).raw_description.pending_activities or [None]
                if call is None or not call.HasField("next_attempt_schedule_time"):
                    return None
                assert "does not answer" in call.last_failure.message
                return call.last_attempt_complete_time.ToDatetime()

            # It has read the fields of the index, and its query is to be judged as soon as it is written.
            await eventually(lambda: asked() == 1)
            await gate.close()
            answered_now.set()
            failures: list[datetime] = []

            async def was_away_for_a_minute() -> bool:
                if (failed := await last_failure()) is not None:
                    failures.append(failed)
                return bool(failures) and (failures[-1] - failures[0]).total_seconds() > MINUTE_S

            await eventually(was_away_for_a_minute, timeout_s=300)
            gate.silent = 1
            await gate.open()
            await ended(runs, handle)
            found = await runs.restored(handle, full=True)
    assert results_of(found)[0] == [(1, "success"), (2, "success"), (3, "success")]
    # Those for which it was away, the one that it left without an answer, and the last.
    assert found["nodes"]["sg1"]["attempts"] > MINUTE_S / 5 + 1
    assert (asked(), gate.silent) == (1, 0)
    assert slot(found, "sg2", "hit_count") == expected
    assert found["status"] == "completed"
