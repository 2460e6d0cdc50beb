"""A thousand questions of one run, answered in any order with doubles, early answers and garbage between them."""

import asyncio
import random
from collections.abc import Awaitable
from typing import Any

import pytest
from temporalio.client import WorkflowUpdateFailedError

from dagwright.core.boundary import wire
from dagwright.history.run_reader import RunReader
from tests.support.eventually import eventually
from tests.support.runs import Handle, Runs, document_of

pytestmark = [pytest.mark.server, pytest.mark.slow]

_HALF = 500
_OPTIONS = ["x", "y", "z"]
_AT_ONCE = 40
_GARBAGE: tuple[Any, ...] = (
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


async def _asked(runs: Runs, handle: Handle) -> set[str]:
    view = await RunReader(runs.client, handle.id).read()
    return set(view.scheduler.features.feedback.requests.open) if view.scheduler is not None else set()


async def _asks(runs: Runs, handle: Handle, count: int) -> None:
    async def does() -> bool:
        return len(await _asked(runs, handle)) == count

    await eventually(does)


class _Person:
    """Answer by update or signal at random, and count the refused answers."""

    def __init__(self, handle: Handle, chance: random.Random) -> None:
        self._handle = handle
        self._chance = chance
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self.refused: list[str] = []

    def answers(self, request: str, option: str, *, by_update: bool) -> Awaitable[None]:
        """Answer a request; an update that is refused is counted."""
        return self._send({"request_id": request, "answer": {"selected": [option]}, "by": "ann"}, by_update=by_update)

    def garbage(self) -> Awaitable[None]:
        """Send an invalid answer."""
        return self._send(self._chance.choice(_GARBAGE), by_update=self._chance.random() < 0.5)

    async def _send(self, message: Any, *, by_update: bool) -> None:
        async with self._turns:
            if not by_update:
                await self._handle.signal(wire.SIGNAL_FEEDBACK, message)
                return
            try:
                await self._handle.execute_update(wire.UPDATE_SUBMIT_FEEDBACK, message)
            except WorkflowUpdateFailedError as error:
                self.refused.append(str(error.cause))


async def test_every_request_gets_exactly_its_answer(cached_runs: Runs) -> None:
    chance = random.Random(5)
    handle = await cached_runs.start(_plan())
    await _asks(cached_runs, handle, _HALF + 1)
    person = _Person(handle, chance)
    expected = {f"{node}[{number}]": chance.choice(_OPTIONS) for node in ("now", "then") for number in range(_HALF)}
    # A wrong early answer comes for one of the others.
    early = chance.sample([name for name in expected if name.startswith("then") and name != "then[7]"], _HALF // 5)

    first = [name for name in expected if name.startswith("now")] + early
    chance.shuffle(first)
    # Each is answered before anything else is sent for it, so that the first answer is the wanted one.
    sending = [person.answers(name, expected[name], by_update=number % 2 == 0) for number, name in enumerate(first)]
    await asyncio.gather(*sending, *(person.garbage() for _ in range(100)))
    doubles = chance.sample(first, 100)
    result = len(person.refused)
    await asyncio.gather(*(person.answers(name, "x", by_update=True) for name in doubles))
    assert len(person.refused) == result + len(doubles)

    await _asks(cached_runs, handle, 1)
    assert await _asked(cached_runs, handle) == {"gate"}
    await handle.execute_update(wire.UPDATE_SUBMIT_FEEDBACK, {"request_id": "gate", "answer": {"approved": True}})
    await _asks(cached_runs, handle, _HALF - len(early))
    rest = [name for name in expected if name not in first]
    assert await _asked(cached_runs, handle) == set(rest)
    chance.shuffle(rest)
    sending = [person.answers(name, expected[name], by_update=number % 2 == 0) for number, name in enumerate(rest)]
    await asyncio.gather(*sending)

    document = await document_of(handle)
    view = await RunReader(cached_runs.client, handle.id).read()
    assert document["status"] == "completed"
    assert view.scheduler is not None
    given = {name: view.scheduler.record_of(name) for name in expected}
    assert {name: record.result["selected"] for name, record in given.items() if record} == {
        name: [option] for name, option in expected.items()
    }
    assert {closing.how for closing in view.scheduler.features.feedback.requests.closed.values()} == {"answered"}
    assert len(view.scheduler.features.feedback.requests.closed) == 2 * _HALF + 1
    await cached_runs.check_ended()
