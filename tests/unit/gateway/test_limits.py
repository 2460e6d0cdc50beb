"""How much a key may do."""

from dagwright.gateway.limits import Limits, Uses


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


LIMITS = Limits(requests_a_minute=3, streams=2, runs=1, body_bytes=10)


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
    for _ in range(2):
        assert uses.has_room_for_stream("a")
        uses.open_stream("a")
    assert (uses.has_room_for_stream("a"), uses.has_room_for_stream("b")) == (False, True)
    uses.close_stream("a")
    assert uses.has_room_for_stream("a")
