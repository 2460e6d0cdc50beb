"""What the heartbeats of an attempt carry, and how many there are."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, cast

import pytest
from temporalio.testing import ActivityEnvironment

from activities.call_starts import CallStarts
from activities.heartbeats import Heartbeats
from activities.telling import HEARTBEATS_PER_S, SHORTEST_PAUSE_S, Pace
from dagwright.contracts.text_so_far import TEXT_PLACE, TextSoFar
from dagwright.contracts.usage import Usage, started_attempt, usage_of_heartbeat
from dagwright.tools.context import Progress

TEXT = TextSoFar(1, 0, "Oslo")


async def _sent(work: Callable[[Heartbeats], None], *, before: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    """Returns the heartbeats of an attempt that does something at once and ends."""
    sent: list[tuple[Any, ...]] = []
    environment = ActivityEnvironment()
    environment.on_heartbeat = lambda *details: sent.append(details)
    environment.info = replace(ActivityEnvironment.default_info(), heartbeat_details=list(before))

    async def attempt() -> None:
        heartbeats = Heartbeats(environment.info)
        with heartbeats.sent():
            work(heartbeats)

    await environment.run(attempt)
    return sent


async def test_what_is_said_too_often_is_sent_twice_first_and_last() -> None:
    def work(heartbeats: Heartbeats) -> None:
        for _ in range(1_000):
            heartbeats.add_usage(Usage(calls=1))

    sent = await _sent(work)
    assert [usage_of_heartbeat(details).calls for details in sent] == [1, 1_000]


async def test_text_is_sent_each_time_beside_what_else_is_kept() -> None:
    def work(heartbeats: Heartbeats) -> None:
        heartbeats.tell(TEXT)
        heartbeats.add_usage(Usage(calls=1))
        heartbeats.tell(TextSoFar(1, 0, "Oslo has"))

    first, second = await _sent(work, before=["cursor"])
    assert first == ("cursor", None, None, TEXT.to_json())
    assert (second[0], usage_of_heartbeat(second).calls, second[TEXT_PLACE]["text"]) == ("cursor", 1, "Oslo has")


async def test_next_attempt_keeps_usage_and_details_and_no_text_of_the_one_before() -> None:
    used = {"usage": Usage(calls=2).to_json()}
    (only,) = await _sent(
        lambda heartbeats: heartbeats.add_usage(Usage(calls=1)), before=["cursor", {"done": 1}, used, TEXT.to_json()]
    )
    assert (only[:2], usage_of_heartbeat(only).calls, len(only)) == (("cursor", {"done": 1}), 3, TEXT_PLACE)


async def test_attempt_without_anything_to_say_sends_what_there_was() -> None:
    environment, sent = ActivityEnvironment(), list[tuple[Any, ...]]()
    environment.on_heartbeat = lambda *details: sent.append(details)
    environment.info = replace(ActivityEnvironment.default_info(), heartbeat_details=["cursor"])

    async def attempt() -> None:
        heartbeats = Heartbeats(environment.info)
        heartbeats._beat_on()
        heartbeats.stop()
        heartbeats.beat("late", Progress(1, 2))

    await environment.run(attempt)
    assert sent == [("cursor",)]


@pytest.mark.parametrize(("writing", "pause_s"), [(0, SHORTEST_PAUSE_S), (10, SHORTEST_PAUSE_S), (50, 0.5), (400, 4.0)])
def test_answers_of_a_process_share_so_many_heartbeats(writing: int, pause_s: float) -> None:
    pace = Pace()
    pace.writing = writing
    assert pace.pause_s == pytest.approx(pause_s)
    assert writing / pace.pause_s <= HEARTBEATS_PER_S + 1e-9


class _ServerAway:
    """Stands in for `CallStarts` while the server does not answer."""

    turns = nullcontext()

    async def record(self, task_token: bytes, details: Sequence[Any]) -> None:
        assert started_attempt(details) == 1, task_token
        await asyncio.Event().wait()


async def test_start_that_the_server_may_not_have_is_in_no_heartbeat() -> None:
    sent: list[tuple[Any, ...]] = []
    environment = ActivityEnvironment()
    environment.on_heartbeat = lambda *details: sent.append(details)

    async def attempt() -> None:
        heartbeats = Heartbeats(environment.info, starts=cast(CallStarts, _ServerAway()))
        recording = asyncio.create_task(heartbeats.record_start())
        await asyncio.sleep(0)
        heartbeats.tell(TEXT)
        assert sent == []
        recording.cancel()
        with pytest.raises(asyncio.CancelledError):
            await recording

    await environment.run(attempt)
    # The server may have the record of a call that was not made.
    assert sent == [(None, None, None, TEXT.to_json())]


class _Recorder:
    """Stands in for `CallStarts`."""

    turns = nullcontext()

    def __init__(self) -> None:
        self.recorded: list[int | None] = []

    async def record(self, task_token: bytes, details: Sequence[Any]) -> None:
        self.recorded.append(started_attempt(details))


async def test_heartbeats_keep_the_start_that_an_earlier_attempt_recorded() -> None:
    sent: list[tuple[Any, ...]] = []
    recorder, environment = _Recorder(), ActivityEnvironment()
    environment.on_heartbeat = lambda *details: sent.append(details)
    before = [None, None, {"started": 1}]
    environment.info = replace(ActivityEnvironment.default_info(), heartbeat_details=before, attempt=2)

    async def attempt() -> None:
        heartbeats = Heartbeats(environment.info, starts=cast(CallStarts, recorder))
        heartbeats.tell(TEXT)
        await heartbeats.record_end()
        heartbeats.stop()

    await environment.run(attempt)
    assert [started_attempt(details) for details in sent] == [1]
    assert recorder.recorded == []
