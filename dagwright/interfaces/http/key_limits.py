"""Limits of a key: requests per minute, open streams, open runs, and body sizes.

Each gateway counts separately: requests and streams by key, and requests with invalid keys by address.
"""

import re
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import IPv6Address, ip_address

_KIB = 1024
_MIB = 1024 * _KIB


@dataclass(frozen=True, slots=True)
class BodyLimit:
    """Maximum size of a body, and maximum number of its JSON values.

    The number is limited because a parsed value can take 60 times as much memory as its JSON text.
    """

    max_bytes: int
    max_values: int


_COMPLETION_LIMIT = BodyLimit(32 * _MIB, 100_000)
"""Allows images, which are large strings. The messages and tools of a conversation have a few thousand values."""
_PLAN_LIMIT = BodyLimit(8 * _MIB, 1_000_000)
"""Allows the largest supported plan, which has 50,000 nodes."""
BODY_LIMITS: Sequence[tuple[str, BodyLimit]] = (
    (r"/v1/(chat/completions|responses)", _COMPLETION_LIMIT),
    (r"/v1/(plans/check|runs|runs/[^/]+/fork)", _PLAN_LIMIT),
    # Messages to runs are limited to 256 KiB; escapes (`\u00e9`) make a letter at most three times as long.
    (r"/v1/runs/[^/]+/(nodes|nodes/.+/(result|retry)|policy)", BodyLimit(_MIB, 200_000)),
    (r"/v1/(runs|sessions|orchestration)/[^/]+/feedback", BodyLimit(_MIB, 200_000)),
)
"""Path pattern and body limit; the first match applies. The settings change the sizes of the first two limits."""
DEFAULT_BODY_LIMIT = BodyLimit(64 * _KIB, 10_000)
"""Limit for all other requests, such as a cancellation with a reason."""
_PATTERNS = [(re.compile(f"{path}/?", re.DOTALL), limit) for path, limit in BODY_LIMITS]
_MINUTE_S = 60.0
INVALID_KEYS_PER_MINUTE = 20
"""Requests per minute with an invalid key from one address, or one /64 network of IPv6, at each gateway."""
_MAX_ADDRESSES = 10_000
"""Number of addresses that are tracked, about 2 MB; the least recently seen address is dropped first."""
_IPV6_NETWORK_BITS = 64
"""A client usually has a whole IPv6 network with a prefix of this length."""


@dataclass(frozen=True, slots=True)
class KeyLimits:
    """The limits of a key.

    Args:
        requests_per_minute: average rate, and maximum burst.
        streams: maximum number of open streams.
        runs: maximum number of open runs over all gateways.
        body_bytes: maximum size of any request body, with or without a key.
        plan_bytes: maximum size of a request body with a plan.
    """

    requests_per_minute: int
    streams: int
    runs: int
    body_bytes: int
    plan_bytes: int

    def body_limit(self, method: str, path: str) -> BodyLimit:
        """Return the limit for the body of a request."""
        limit = next(
            (limit for pattern, limit in _PATTERNS if method == "POST" and pattern.fullmatch(path)), DEFAULT_BODY_LIMIT
        )
        max_bytes = limit.max_bytes
        if limit is _COMPLETION_LIMIT:
            max_bytes = self.body_bytes
        elif limit is _PLAN_LIMIT:
            max_bytes = self.plan_bytes
        return replace(limit, max_bytes=min(self.body_bytes, max_bytes))


@dataclass(slots=True)
class _Bucket:
    """A token bucket: its tokens at the time of the last update."""

    tokens: float
    updated_at: float

    def take_token(self, *, per_minute: int, now: float) -> float:
        """Take a token; return the seconds until a token is available, 0 if there was a token."""
        new_tokens = (now - self.updated_at) * per_minute / _MINUTE_S
        self.tokens = min(float(per_minute), self.tokens + new_tokens)
        self.updated_at = now
        if self.tokens < 1:
            return (1 - self.tokens) * _MINUTE_S / per_minute
        self.tokens -= 1
        return 0.0


@dataclass(slots=True)
class InvalidKeyCounter:
    """Counts requests with invalid keys by address. Requests with a valid key are neither counted nor rejected.

    Args:
        clock: monotonic seconds.
    """

    clock: Callable[[], float]
    per_minute: int = INVALID_KEYS_PER_MINUTE
    _buckets: OrderedDict[str, _Bucket] = field(default_factory=OrderedDict)

    def count(self, address: str) -> float:
        """Count a request. Return the seconds until the address may send a request; 0 if this request is allowed."""
        now, network = self.clock(), _network_of(address)
        bucket = self._buckets.setdefault(network, _Bucket(float(self.per_minute), now))
        self._buckets.move_to_end(network)
        if len(self._buckets) > _MAX_ADDRESSES:
            self._buckets.popitem(last=False)
        return bucket.take_token(per_minute=self.per_minute, now=now)


def _network_of(address: str) -> str:
    """Return the address, or the network of an IPv6 address."""
    try:
        ip = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if not isinstance(ip, IPv6Address) or ip.ipv4_mapped is not None:
        return str(ip)
    return str(int(ip) >> (128 - _IPV6_NETWORK_BITS))


@dataclass(slots=True)
class KeyUsage:
    """Usage of keys at this gateway.

    Args:
        clock: monotonic seconds.
    """

    limits: KeyLimits
    clock: Callable[[], float]
    invalid_keys: InvalidKeyCounter = field(init=False)
    _buckets: dict[str, _Bucket] = field(default_factory=dict)
    _streams: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Use the same clock for invalid keys."""
        self.invalid_keys = InvalidKeyCounter(self.clock)

    def count_request(self, key_id: str) -> float:
        """Count a request; return the seconds until it is allowed, 0 if it is allowed now."""
        now, max_requests = self.clock(), self.limits.requests_per_minute
        return self._buckets.setdefault(key_id, _Bucket(float(max_requests), now)).take_token(
            per_minute=max_requests, now=now
        )

    def open_stream(self, key_id: str) -> bool:
        """Count an open stream if the limit allows it; return whether the stream was counted."""
        if self._streams.get(key_id, 0) >= self.limits.streams:
            return False
        self._streams[key_id] = self._streams.get(key_id, 0) + 1
        return True

    def close_stream(self, key_id: str) -> None:
        """Count a stream as closed."""
        self._streams[key_id] -= 1


@dataclass(slots=True)
class StreamReservation:
    """Reservation for the stream of a request. The reservation starts before the run and ends with the request."""

    usage: KeyUsage
    key_id: str
    _is_open: bool = False

    def reserve(self) -> bool:
        """Count the stream, at most once; return whether the limit allows it."""
        self._is_open = self._is_open or self.usage.open_stream(self.key_id)
        return self._is_open

    def close(self) -> None:
        """Stop counting the stream if it was counted."""
        if self._is_open:
            self._is_open = False
            self.usage.close_stream(self.key_id)
