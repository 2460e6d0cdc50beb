"""How much a key may do."""

from dagwright.interfaces.http.limits import InvalidKeys, Limits, StreamOfKey, Uses


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


LIMITS = Limits(requests_a_minute=3, streams=2, runs=1, body_bytes=10, plan_bytes=10)


def test_requests_are_counted_by_the_minute_for_each_key() -> None:
    clock = Clock()
    uses = Uses(LIMITS, clock)
    assert [uses.take_request("a") for _ in range(3)] == [0.0, 0.0, 0.0]
    assert uses.take_request("a") == 20.0
    assert uses.take_request("b") == 0.0
    clock.now += 15
    assert uses.take_request("a") == 5.0
    clock.now += 5
    assert (uses.take_request("a"), uses.take_request("a") > 0) == (0.0, True)


def test_room_does_not_grow_beyond_a_minute() -> None:
    clock = Clock()
    uses = Uses(LIMITS, clock)
    uses.take_request("a")
    clock.now += 10_000
    assert [uses.take_request("a") > 0 for _ in range(4)] == [False, False, False, True]


def test_streams_are_counted_while_they_are_open() -> None:
    uses = Uses(LIMITS, Clock())
    first, second, third = (StreamOfKey(uses, "a") for _ in range(3))
    # Asked twice, one is one.
    assert [each.opens() for each in (first, first, second, third)] == [True, True, True, False]
    assert StreamOfKey(uses, "b").opens()
    third.close()
    assert not third.opens()
    first.close()
    first.close()
    assert (third.opens(), StreamOfKey(uses, "a").opens()) == (True, False)


def test_invalid_keys_are_counted_by_address() -> None:
    clock = Clock()
    invalid = InvalidKeys(clock, a_minute=2)
    assert [invalid.count("10.0.0.1") for _ in range(3)] == [0.0, 0.0, 30.0]
    assert invalid.count("10.0.0.2") == 0.0
    clock.now += 30
    assert (invalid.count("10.0.0.1"), invalid.count("10.0.0.1")) == (0.0, 30.0)
    # One IPv6 network is one address, and an address is the same in both notations.
    assert [invalid.count(f"2001:db8::{number}") > 0 for number in range(3)] == [False, False, True]
    assert [invalid.count("2001:db8:0:1::1"), invalid.count("10.0.0.2"), invalid.count("")] == [0.0, 0.0, 0.0]


def test_addresses_are_remembered_up_to_a_limit() -> None:
    invalid = InvalidKeys(Clock(), a_minute=1)
    for number in range(10_001):
        invalid.count(str(number))
    assert (invalid.count("10000") > 0, invalid.count("0")) == (True, 0.0)
