"""How much one key may do: requests a minute, streams at a time, plans that run, and how large a body may be.

Requests and streams are counted in each gateway for itself. Pure but for the clock that it is given.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

_MINUTE_S = 60.0


@dataclass(frozen=True, slots=True)
class Limits:
    """What a key may do.

    Args:
        requests_a_minute: on average; as many may come at once.
        streams: that are open at a time.
        runs: that go on at a time, over all gateways.
        body_bytes: of one request, with or without a key.
    """

    requests_a_minute: int
    streams: int
    runs: int
    body_bytes: int


@dataclass(slots=True)
class _Bucket:
    left: float
    at: float


@dataclass(slots=True)
class Uses:
    """What keys have used in this process.

    Args:
        clock: seconds that only grow.
    """

    limits: Limits
    clock: Callable[[], float]
    _buckets: dict[str, _Bucket] = field(default_factory=dict)
    _streams: dict[str, int] = field(default_factory=dict)

    def take_request(self, key: str) -> float:
        """Counts a request; returns after how many seconds there is room for it, 0 if there is now."""
        now, most = self.clock(), float(self.limits.requests_a_minute)
        bucket = self._buckets.setdefault(key, _Bucket(most, now))
        bucket.left = min(most, bucket.left + (now - bucket.at) * most / _MINUTE_S)
        bucket.at = now
        if bucket.left < 1:
            return (1 - bucket.left) * _MINUTE_S / most
        bucket.left -= 1
        return 0.0

    def open_stream(self, key: str) -> bool:
        """Counts a stream that opens; returns whether there is room for it, without which it is not counted."""
        if self._streams.get(key, 0) >= self.limits.streams:
            return False
        self._streams[key] = self._streams.get(key, 0) + 1
        return True

    def close_stream(self, key: str) -> None:
        """Counts a stream that was opened as closed."""
        self._streams[key] -= 1


@dataclass(slots=True)
class StreamOfKey:
    """The stream that a request may become: it counts from before anything is started until the request has ended."""

    uses: Uses
    key: str
    _is_open: bool = False

    def opens(self) -> bool:
        """Counts it, once; returns whether there is room for it."""
        self._is_open = self._is_open or self.uses.open_stream(self.key)
        return self._is_open

    def close(self) -> None:
        """Ends counting, if it was counted."""
        if self._is_open:
            self._is_open = False
            self.uses.close_stream(self.key)
