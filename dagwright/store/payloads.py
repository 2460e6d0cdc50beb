"""What a payload store is, for those who use one; it imports nothing of Dagwright."""

import hashlib
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

_REF = re.compile(r"sha256-[0-9a-f]{64}")
_KEY = re.compile(r"[0-9a-f]{64}")
_OWNER = re.compile(r"[0-9a-z-]{1,64}")

REMEMBERED = "remembered"
"""Folder, or part of the key, of what is remembered."""
OWNERS = "owners"
"""Folder, or part of the key, of the notes of who uses a store: each is empty and has the owner as its name."""


STORE_ID = "store-id"
"""Name of the file or object that holds the ID of a store."""


@dataclass(frozen=True, slots=True)
class StoredPayload:
    """One payload in a store, without its content.

    Args:
        ref: the reference it is stored under.
        size_bytes: length of the content.
        renewed_at: aware time at which it was put or renewed last.
    """

    ref: str
    size_bytes: int
    renewed_at: datetime


@dataclass(frozen=True, slots=True)
class Remembered:
    """Something that a store remembers, without its content.

    Args:
        key: 64 hex digits.
        size_bytes: length of the content.
        expires_at: aware time from which nobody wants it any more.
    """

    key: str
    size_bytes: int
    expires_at: datetime


class PayloadStore(Protocol):
    """Keeps content under the reference that its hash makes; safe for many processes at once.

    Each method raises `StoreUnavailable` if the store can not do it now. Every call may be repeated. Whoever gives a
    reference to a run puts or renews it after that run began: clean-up goes by this time alone.

    Beside the payloads it remembers small things under keys that others choose. Those may be forgotten at any time, a
    power failure can damage them, and no run ever hangs on one.
    """

    @property
    def location(self) -> str:
        """Where it is: an absolute folder, or `s3://bucket/prefix`."""
        ...

    async def put(self, content: bytes) -> str:
        """Keeps content and returns its reference; what is there already is only renewed, or healed if damaged.

        When it returns, a power failure does not lose the content.
        """
        ...

    async def get(self, ref: str) -> bytes:
        """Returns content, checked against its hash.

        Raises:
            PayloadMissing: nothing is stored under the reference, or it is none.
            PayloadDamaged: what is stored is not what was put.
        """
        ...

    async def renew(self, ref: str) -> None:
        """Makes the age of a payload zero without its content.

        Raises:
            PayloadMissing: nothing is stored under the reference, or it is none.
        """
        ...

    async def delete(self, ref: str, *, renewed_before: datetime) -> bool:
        """Removes a payload unless it was put or renewed at `renewed_before` or later; tells whether it removed it."""
        ...

    def entries(self) -> AsyncIterator[StoredPayload]:
        """Goes through all payloads, in no order; of those that come or go meanwhile it may tell or not."""
        ...

    async def remember(self, key: str, content: bytes, *, expires_at: datetime) -> None:
        """Keeps content under a key until about `expires_at`, instead of what was there.

        Args:
            key: 64 hex digits.
            expires_at: aware time from which clean-up may remove it.
        """
        ...

    async def recall(self, key: str) -> bytes | None:
        """Returns what was remembered last under a key, expired or not; `None` if there is nothing."""
        ...

    async def forget(self, key: str, *, expired_before: datetime) -> bool:
        """Removes what is remembered under a key if it expires before that time; tells whether it removed it."""
        ...

    def remembered(self) -> AsyncIterator[Remembered]:
        """Goes through all that is remembered, in no order, as `entries` does."""
        ...

    async def claim(self, owner: str) -> None:
        """Notes who uses the store, so that nobody else cleans it up; a second time changes nothing.

        Args:
            owner: id of a Temporal namespace, a UUID.
        """
        ...

    async def owners(self) -> frozenset[str]:
        """Returns everybody who has claimed the store."""
        ...

    async def identify(self) -> str:
        """Return the ID of the store, and create it at the first call; all processes get the same one.

        The ID is in the store itself, so a copy or a moved store keeps it. From then on this object takes a store
        without its ID, such as a disk that is not mounted any more, for one that is away.
        """
        ...

    async def check(self) -> None:
        """Make sure that the store answers and still has the ID that `identify` returned.

        Raises:
            StoreUnavailable: it does not.
        """
        ...


def ref_of(content: bytes) -> str:
    """Returns the reference of content: `sha256-` and 64 hex digits."""
    return f"sha256-{hashlib.sha256(content).hexdigest()}"


def is_ref(text: str) -> bool:
    """Tells whether a text has the form of a reference; nothing else ever becomes a part of a path or key."""
    return _REF.fullmatch(text) is not None


def is_key(text: str) -> bool:
    """Tells whether something can be remembered under a text."""
    return _KEY.fullmatch(text) is not None


def is_owner(text: str) -> bool:
    """Tells whether a text can be the name of an owner."""
    return _OWNER.fullmatch(text) is not None
