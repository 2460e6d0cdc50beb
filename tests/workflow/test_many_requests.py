"""A thousand requests of one run, answered in random order, with repeated, early and invalid answers."""

import asyncio
import random
from collections.abc import Awaitable
from typing import Any

import pytest
from temporalio.client import WorkflowUpdateFailedError

from dagwright.core.boundary import wire
from tests.support.eventually import eventually
from tests.support.plan_building import plan_of
from tests.support.run_views import view_of
from tests.support.runs import Handle, Runs, document_of

pytestmark = [pytest.mark.server, pytest.mark.slow]

_REQUESTS_PER_NODE = 500
_OPTIONS = ["x", "y", "z"]
_MAX_CONCURRENT_ANSWERS = 40
_INVALID_ANSWERS: tuple[Any, ...] = (
    None,
    [],
    {"request_id": "now[0]"},
    {"request_id": "now[1]", "answer": {"selected": ["w"]}},
    {"request_id": "now[2]", "answer": {"approved": True}},
    {"request_id": "unknown", "answer": {"selected": ["x"]}},
    {"request_id": "then[7]", "answer": {"selected": ["w"]}, "by": "early and wrong"},
    {"request_id": "gate", "answer": {"approved": "maybe"}},
)


def _plan() -> dict[str, Any]:
    question = {"type": "SELECTION", "prompt": "Which, {{item}}?", "options": _OPTIONS}
    return plan_of(
        {"id": "gate", "human": {"prompt": "Go on?"}},
        {"id": "now", "for_each": [*range(_REQUESTS_PER_NODE)], "human": question},
        {"id": "then", "for_each": [*range(_REQUESTS_PER_NODE)], "human": question, "depends_on": ["gate"]},
    )


async def _read_open_request_ids(runs: Runs, handle: Handle) -> set[str]:
    view = await view_of(runs, handle)
    return set(view.scheduler.features.feedback.requests.open) if view.scheduler is not None else set()


async def _wait_for_open_request_count(runs: Runs, handle: Handle, count: int) -> None:
    async def has_count() -> bool:
        return len(await _read_open_request_ids(runs, handle)) == count

    await eventually(has_count)


class _Person:
    """A person who answers by update or signal, and records the rejections of updates."""

    def __init__(self, handle: Handle, random_source: random.Random) -> None:
        self._handle = handle
        self._random = random_source
        self._slots = asyncio.Semaphore(_MAX_CONCURRENT_ANSWERS)
        self.rejections: list[str] = []

    def answer(self, request_id: str, option: str, *, by_update: bool) -> Awaitable[None]:
        """Answer a request, and record the rejection of an update."""
        return self._send(
            {"request_id": request_id, "answer": {"selected": [option]}, "by": "ann"}, by_update=by_update
        )

    def send_invalid(self) -> Awaitable[None]:
        return self._send(self._random.choice(_INVALID_ANSWERS), by_update=self._random.random() < 0.5)

    async def _send(self, message: Any, *, by_update: bool) -> None:
        async with self._slots:
            if not by_update:
                await self._handle.signal(wire.SIGNAL_FEEDBACK, message)
                return
            try:
                await self._handle.execute_update(wire.UPDATE_SUBMIT_FEEDBACK, message)
            except WorkflowUpdateFailedError as error:
                self.rejections.append(str(error.cause))


async def test_every_request_keeps_its_first_valid_answer(runs: Runs) -> None:
    random_source = random.Random(5)
    handle = await runs.start(_plan())
    await _wait_for_open_request_count(runs, handle, _REQUESTS_PER_NODE + 1)
    person = _Person(handle, random_source)
    expected = {
        f"{node_id}[{number}]": random_source.choice(_OPTIONS)
        for node_id in ("now", "then")
        for number in range(_REQUESTS_PER_NODE)
    }
    # `send_invalid` may answer `then[7]` early, so the test sends no valid early answer to `then[7]`.
    early_ids = random_source.sample(
        [request_id for request_id in expected if request_id.startswith("then") and request_id != "then[7]"],
        _REQUESTS_PER_NODE // 5,
    )

    first_ids = [request_id for request_id in expected if request_id.startswith("now")] + early_ids
    random_source.shuffle(first_ids)
    # Repeated answers are sent later, so that the expected answer of each request comes first.
    answers = [
        person.answer(request_id, expected[request_id], by_update=number % 2 == 0)
        for number, request_id in enumerate(first_ids)
    ]
    await asyncio.gather(*answers, *(person.send_invalid() for _ in range(100)))
    repeated_ids = random_source.sample(first_ids, 100)
    rejected_count = len(person.rejections)
    await asyncio.gather(*(person.answer(request_id, "x", by_update=True) for request_id in repeated_ids))
    assert len(person.rejections) == rejected_count + len(repeated_ids)

    await _wait_for_open_request_count(runs, handle, 1)
    assert await _read_open_request_ids(runs, handle) == {"gate"}
    await handle.execute_update(wire.UPDATE_SUBMIT_FEEDBACK, {"request_id": "gate", "answer": {"approved": True}})
    await _wait_for_open_request_count(runs, handle, _REQUESTS_PER_NODE - len(early_ids))
    later_ids = [request_id for request_id in expected if request_id not in first_ids]
    assert await _read_open_request_ids(runs, handle) == set(later_ids)
    random_source.shuffle(later_ids)
    answers = [
        person.answer(request_id, expected[request_id], by_update=number % 2 == 0)
        for number, request_id in enumerate(later_ids)
    ]
    await asyncio.gather(*answers)

    document = await document_of(handle)
    view = await view_of(runs, handle)
    assert document["status"] == "completed"
    assert view.scheduler is not None
    records = {request_id: view.scheduler.record_of(request_id) for request_id in expected}
    assert {request_id: record.result["selected"] for request_id, record in records.items() if record} == {
        request_id: [option] for request_id, option in expected.items()
    }
    assert {closing.outcome for closing in view.scheduler.features.feedback.requests.closed.values()} == {"answered"}
    assert len(view.scheduler.features.feedback.requests.closed) == 2 * _REQUESTS_PER_NODE + 1
