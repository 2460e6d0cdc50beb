"""A payload store in memory that a test can make unavailable."""

from collections.abc import AsyncIterator
from datetime import datetime

from dagwright.store import CacheEntry, PayloadMissing, PayloadStore, StoredPayload, StoreUnavailable, ref_of


class MemoryStore(PayloadStore):
    """The payload store of a test, without clean-up.

    Attributes:
        contents: reference -> content.
        cached_contents: cache key -> content and expiry time.
        read_keys: the cache keys that were read, in order.
        is_down: whether every method fails.
    """

    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}
        self.cached_contents: dict[str, tuple[bytes, datetime]] = {}
        self.read_keys: list[str] = []
        self.is_down = False

    @property
    def location(self) -> str:
        return "memory"

    async def put(self, content: bytes) -> str:
        self._raise_if_down()
        self.contents[ref_of(content)] = content
        return ref_of(content)

    async def get(self, ref: str) -> bytes:
        self._raise_if_down()
        if ref not in self.contents:
            raise PayloadMissing(ref, store="memory")
        return self.contents[ref]

    async def renew(self, ref: str) -> None:
        raise NotImplementedError

    async def delete(self, ref: str, *, renewed_before: datetime) -> bool:
        self._raise_if_down()
        return self.contents.pop(ref, None) is not None

    def list_payloads(self) -> AsyncIterator[StoredPayload]:
        raise NotImplementedError

    async def put_cache_entry(self, key: str, content: bytes, *, expires_at: datetime) -> None:
        self._raise_if_down()
        self.cached_contents[key] = (content, expires_at)

    async def get_cache_entry(self, key: str) -> bytes | None:
        self.read_keys.append(key)
        self._raise_if_down()
        return self.cached_contents[key][0] if key in self.cached_contents else None

    async def delete_cache_entry(self, key: str, *, expired_before: datetime) -> bool:
        raise NotImplementedError

    def cache_entries(self) -> AsyncIterator[CacheEntry]:
        raise NotImplementedError

    async def claim(self, owner: str) -> None:
        raise NotImplementedError

    async def owner_namespaces(self) -> frozenset[str]:
        raise NotImplementedError

    async def identify(self) -> str:
        self._raise_if_down()
        return "memory"

    async def check(self) -> None:
        self._raise_if_down()

    def _raise_if_down(self) -> None:
        if self.is_down:
            raise StoreUnavailable("the payload store is down")
