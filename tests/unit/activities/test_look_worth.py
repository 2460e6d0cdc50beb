"""Whether it is worth to look for results of pure tools, and what a call has worked for."""

import threading
import time

import pytest

from activities.look_worth import LookWorth, WorkClock


def test_quick_tool_is_looked_for_twice_in_the_life_of_a_process() -> None:
    worth = LookWorth()
    looks = 0
    for _ in range(1_000):
        if worth.of("quick"):
            looks += 1
            worth.looked("quick", found_s=None)
    assert looks == 2


def test_slow_tool_is_always_looked_for() -> None:
    worth = LookWorth()
    for _ in range(1_000):
        assert worth.of("slow")
        worth.looked("slow", found_s=None)
        worth.called("slow", 0.006)
    for _ in range(1_000):
        assert worth.of("slow")
        worth.looked("slow", found_s=0.006)


def test_odd_slow_call_of_a_quick_tool_is_worth_two_looks() -> None:
    worth = LookWorth()
    for _ in range(2):
        worth.looked("quick", found_s=None)
    worth.called("quick", 0.02)
    looks = 0
    while worth.of("quick"):
        looks += 1
        worth.looked("quick", found_s=None)
    assert looks == 2


def test_store_is_asked_for_what_takes_longer_than_it_does() -> None:
    worth = LookWorth()
    assert worth.of_store("t")
    worth.asked_store(0.05)
    assert worth.of_store("t")
    worth.called("t", 0.02)
    assert not worth.of_store("t")
    worth.called("t", 0.06)
    assert worth.of_store("t")
    worth.looked("u", found_s=0.02)
    assert not worth.of_store("u")


def _work(seconds: float) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


@pytest.mark.alone
def test_clock_counts_work_and_not_waiting() -> None:
    clock = WorkClock()
    started_at = time.time()
    _work(0.02)
    assert 0.015 < clock.worked(started_at, time.time()) < 0.1

    clock.tick(time.time())
    started_at = time.time()
    threading.Event().wait(0.05)
    assert clock.worked(started_at, time.time()) < 0.005


@pytest.mark.alone
def test_clock_counts_what_was_worked_before_a_call_for_nothing() -> None:
    clock = WorkClock()
    _work(0.02)
    started_at = time.time()
    assert clock.worked(started_at, started_at + 0.02) < 0.005


def test_clock_counts_waiting_that_is_too_long_for_a_busy_machine() -> None:
    assert WorkClock().worked(1_000.0, 1_000.5) == 0.5
