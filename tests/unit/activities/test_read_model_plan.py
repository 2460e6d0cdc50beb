"""The activity `read_model_plan` without a server: what an outage of the payload store means for it."""

from activities.read_model_plan import read_plan_activity
from activities.values import Values
from dagwright.contracts.wire import DETAIL_UNSTORED_BYTES, HEADER_HOLES
from tests.support.activity_bench import ActivityBench
from tests.support.memory_store import MemoryStore


async def test_store_that_is_down_costs_the_reading_of_a_plan_no_attempt() -> None:
    store = MemoryStore()
    ref = await store.put(b'"text"')
    store.is_down = True
    bench = ActivityBench(read_plan_activity({}, Values(store, patience_s=())))
    failure = await bench.failure({"text": ""}, **{HEADER_HOLES: [[["text"], [{"stored": ref}]]]})
    assert (failure.type, failure.non_retryable) == ("store_away", True)
    assert failure.details[0][DETAIL_UNSTORED_BYTES] == 0
