"""A thousand requests of one run, answered in random order, with repeated, early and invalid answers."""

import asyncio
import random
from collections.abc import Awaitable
from typing import Any

import pytest
from temporalio.client import WorkflowUpdateFailedError

from dagwright.core.boundary import wire
from tests.support.eventually import eventually
from tests.support.people import view_of
from tests.support.runs import Handle, Runs, document_of

pytestmark = [pytest.mark.server, pytest.mark.slow]

_HALF = 500
_OPTIONS = ["x", "y", "z"]
_MAX_CONCURRENT_ANSWERS = 40
_INVALID_ANSWERS: tuple[Any, ...] = (
    None,
    [],
    {"request_id": "now[0]"},
    {"request_id": "now[1]", "answer": {"selected": ["w"]}},
    {"request_id": "now[2]", "answer": {"approved": True}},
    {"request_id": "nobody", "answer": {"selected": ["x"]}},
    {"request_id": "then[7]", "answer": {"selected": ["w"]}, "by": "early and wrong"},
    {"request_id": "gate", "answer": {"approved": "maybe"}},
)


def _plan() -> dict[str, Any]:
    question = {"type": "SELECTION", "prompt": "Which, {{item}}?", "options": _OPTIONS}
    return {
        "nodes": [
            {"id": "gate", "human": {"prompt": "Go on?"}},
            {"id": "now", "for_each": [*range(_HALF)], "human": question},
            {"id": "then", "for_each": [*range(_HALF)], "human": question, "depends_on": ["gate"]},
        ]
    }


async def _open_requests(runs: Runs, handle: Handle) -> set[str]:
    view = await view_of(runs, handle)
    return set(view.scheduler.features.feedback.requests.open) if view.scheduler is not None else set()


async def _wait_for_requests(runs: Runs, handle: Handle, count: int) -> None:
    async def has_count() -> bool:
        return len(await _open_requests(runs, handle)) == count

    await eventually(has_count)


class _Person:
    """Answer by update or signal at random, and count the rejected answers."""

    def __init__(self, handle: Handle, source: random.Random) -> None:
        self._handle = handle
        self._source = source
        self._slots = asyncio.Semaphore(_MAX_CONCURRENT_ANSWERS)
        self.rejections: list[str] = []

    def answer(self, request: str, option: str, *, by_update: bool) -> Awaitable[None]:
        """Answer a request; an update that is rejected is counted."""
        return self._send({"request_id": request, "answer": {"selected": [option]}, "by": "ann"}, by_update=by_update)

    def send_invalid(self) -> Awaitable[None]:
        return self._send(self._source.choice(_INVALID_ANSWERS), by_update=self._source.random() < 0.5)

    async def _send(self, message: Any, *, by_update: bool) -> None:
        async with self._slots:
            if not by_update:
                await self._handle.signal(wire.SIGNAL_FEEDBACK, message)
                return
            try:
                await self._handle.execute_update(wire.UPDATE_SUBMIT_FEEDBACK, message)
            except WorkflowUpdateFailedError as error:
                self.rejections.append(str(error.cause))


async def test_every_request_has_its_first_valid_answer(cached_runs: Runs) -> None:
    source = random.Random(5)
    handle = await cached_runs.start(_plan())
    await _wait_for_requests(cached_runs, handle, _HALF + 1)
    person = _Person(handle, source)
    expected = {f"{node}[{number}]": source.choice(_OPTIONS) for node in ("now", "then") for number in range(_HALF)}
    # `then[7]` has no early answer, because an invalid early answer is sent to it.
    early = source.sample([name for name in expected if name.startswith("then") and name != "then[7]"], _HALF // 5)

    first = [name for name in expected if name.startswith("now")] + early
    source.shuffle(first)
    # Repeated answers are sent later, so that the expected answer of each request comes first.
    answers = [person.answer(name, expected[name], by_update=number % 2 == 0) for number, name in enumerate(first)]
    await asyncio.gather(*answers, *(person.send_invalid() for _ in range(100)))
    repeated = source.sample(first, 100)
    rejected_count = len(person.rejections)
    await asyncio.gather(*(person.answer(name, "x", by_update=True) for name in repeated))
    assert len(person.rejections) == rejected_count + len(repeated)

    await _wait_for_requests(cached_runs, handle, 1)
    assert await _open_requests(cached_runs, handle) == {"gate"}
    await handle.execute_update(wire.UPDATE_SUBMIT_FEEDBACK, {"request_id": "gate", "answer": {"approved": True}})
    await _wait_for_requests(cached_runs, handle, _HALF - len(early))
    rest = [name for name in expected if name not in first]
    assert await _open_requests(cached_runs, handle) == set(rest)
    source.shuffle(rest)
    answers = [person.answer(name, expected[name], by_update=number % 2 == 0) for number, name in enumerate(rest)]
    await asyncio.gather(*answers)

    document = await document_of(handle)
    view = await view_of(cached_runs, handle)
    assert document["status"] == "completed"
    assert view.scheduler is not None
    records = {name: view.scheduler.record_of(name) for name in expected}
    assert {name: record.result["selected"] for name, record in records.items() if record} == {
        name: [option] for name, option in expected.items()
    }
    assert {closing.outcome for closing in view.scheduler.features.feedback.requests.closed.values()} == {"answered"}
    assert len(view.scheduler.features.feedback.requests.closed) == 2 * _HALF + 1
    await cached_runs.check_runs()
