"""The interface of payload stores. This module imports no other module of Dagwright."""

import hashlib
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

_REF_PATTERN = re.compile(r"sha256-[0-9a-f]{64}")
_KEY_PATTERN = re.compile(r"[0-9a-f]{64}")
_OWNER_PATTERN = re.compile(r"[0-9a-z-]{1,64}")

CACHE_PREFIX = "cache"
"""Folder or key prefix of cache entries."""
OWNERS = "owners"
"""Folder or key prefix of the owners of a store: an empty file or object for each owner, named after the owner.

An owner is a Temporal namespace whose workers use the store.
"""


STORE_ID = "store-id"
"""Name of the file or object that contains the ID of a store."""


@dataclass(frozen=True, slots=True)
class StoredPayload:
    """A payload in a store, without its content.

    Args:
        ref: reference of the payload.
        size_bytes: length of the content.
        renewed_at: when the payload was last stored or renewed, timezone-aware.
    """

    ref: str
    size_bytes: int
    renewed_at: datetime


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """A cache entry in a store, without its content.

    Args:
        key: 64 hex digits.
        size_bytes: length of the content.
        expires_at: when the entry expires, timezone-aware.
    """

    key: str
    size_bytes: int
    expires_at: datetime


class PayloadStore(Protocol):
    """Stores content under a reference derived from its hash; safe for concurrent use by many processes.

    Each method raises `StoreUnavailable` if the store cannot be used now. Every call may be repeated.

    Code that passes a reference to a run must store or renew the payload after the start of the run and before the run
    receives the reference. The clean-up decides only by the time at which a payload was last stored or renewed.

    In addition to payloads, the store holds small cache entries under keys chosen by the caller. Entries may be lost at
    any time or damaged by a power failure, and no run depends on them.
    """

    @property
    def location(self) -> str:
        """Location of the store: an absolute folder, or `s3://bucket/prefix`."""
        ...

    async def put(self, content: bytes) -> str:
        """Store content and return its reference. Existing content is only renewed, or repaired if damaged.

        After this returns, the content survives a power failure.
        """
        ...

    async def get(self, ref: str) -> bytes:
        """Return content, checked against its hash.

        Raises:
            PayloadMissing: no payload is stored under the reference, or the reference is invalid.
            PayloadDamaged: the stored content is damaged.
        """
        ...

    async def renew(self, ref: str) -> None:
        """Reset the age of a payload. The content is not needed.

        Raises:
            PayloadMissing: no payload is stored under the reference, or the reference is invalid.
        """
        ...

    async def delete(self, ref: str, *, renewed_before: datetime) -> bool:
        """Remove a payload that was last stored or renewed before a time; return whether it was removed."""
        ...

    def list_payloads(self) -> AsyncIterator[StoredPayload]:
        """Iterate over all payloads, unordered. Payloads that are added or removed meanwhile may be included."""
        ...

    async def put_cache_entry(self, key: str, content: bytes, *, expires_at: datetime) -> None:
        """Store a cache entry until about `expires_at`; an existing entry of the key is replaced.

        Args:
            key: 64 hex digits.
            expires_at: when clean-up may remove the entry, timezone-aware.
        """
        ...

    async def get_cache_entry(self, key: str) -> bytes | None:
        """Return the cache entry of a key, even if the entry has expired; `None` without an entry."""
        ...

    async def delete_cache_entry(self, key: str, *, expired_before: datetime) -> bool:
        """Remove a cache entry that expires before a time; return whether it was removed."""
        ...

    def cache_entries(self) -> AsyncIterator[CacheEntry]:
        """Iterate over all cache entries, unordered, as `list_payloads` does."""
        ...

    async def claim(self, owner: str) -> None:
        """Record an owner of the store; idempotent. If a store has several owners, the clean-up removes no payload.

        Args:
            owner: ID of a Temporal namespace, a UUID.
        """
        ...

    async def owner_namespaces(self) -> frozenset[str]:
        """Return the IDs of all namespaces that have claimed the store."""
        ...

    async def identify(self) -> str:
        """Return the ID of the store, creating it at the first call; all processes get the same ID.

        The ID is in the store itself, so a copied or moved store keeps it. After this call, the store counts as
        unavailable if its ID is missing or differs, for example because the disk of the folder is no longer mounted.
        """
        ...

    async def check(self) -> None:
        """Check that the store responds and still has the ID from `identify`.

        Raises:
            StoreUnavailable: the store does not respond, or its ID differs.
        """
        ...


def ref_of(content: bytes) -> str:
    """Return the reference of content: `sha256-` and 64 hex digits."""
    return f"sha256-{hashlib.sha256(content).hexdigest()}"


def is_ref(text: str) -> bool:
    """Return whether a text has the form of a reference; only such texts become part of a path or key."""
    return _REF_PATTERN.fullmatch(text) is not None


def is_key(text: str) -> bool:
    """Return whether a text is a valid key of a cache entry."""
    return _KEY_PATTERN.fullmatch(text) is not None


def is_owner(text: str) -> bool:
    """Return whether a text is a valid ID of an owner."""
    return _OWNER_PATTERN.fullmatch(text) is not None
