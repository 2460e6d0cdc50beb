"""API keys. A file contains their hashes; every gateway with the same state folder reads this file.

A key is `dw-ID-SECRET`. The file has the SHA-256 of the secret: 32 random bytes cannot be guessed, so a slow hash is
not needed. The file is written to a temporary name and renamed, so readers see the old or the new content.

KeysUnreadable      the key file is invalid or cannot be read
KeyRejected         a key cannot be added or removed
"""

import fcntl
import hashlib
import hmac
import json
import os
import re
import secrets
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dagwright.interfaces.http.callers import READ_ONLY_SCOPE, Caller, KeyScope
from dagwright.protocol.fairness import FairnessInvalid, fairness_of
from dagwright.protocol.run_labels import ALL_OWNERS, is_owner_name
from dagwright.store.private_files import FOLDER_MODE

PREFIX = "dw"
_SHA256 = re.compile(r"[0-9a-f]{64}")
_UNMATCHABLE_HASH = "0" * 64
"""Replaces the stored hash if the key ID is unknown; no secret has this hash."""
_SECRET_BYTES = 32
_ID_BYTES = 6


class KeysUnreadable(Exception):
    """The key file cannot be read; the message has the reason."""


class KeyRejected(Exception):
    """A key cannot be added or removed; the message has the reason."""


@dataclass(frozen=True, slots=True)
class Key:
    """A stored key.

    Args:
        id: the part of the key that may be shown.
        owner: owner of the runs that are started with the key; the owner `*` sees the runs of all owners.
        scopes: what callers with the key may do besides reading.
        sha256: hash of the secret, hexadecimal.
        created_at: RFC 3339 time.
        weight: weight of the owner's runs when worker slots are shared between owners.
    """

    id: str
    owner: str
    scopes: Sequence[KeyScope]
    sha256: str
    created_at: str
    weight: float = 1.0

    @property
    def caller(self) -> Caller:
        """The caller with this key."""
        return Caller(None if self.owner == ALL_OWNERS else self.owner, frozenset(self.scopes), self.id, self.weight)

    def to_json(self) -> dict[str, Any]:
        """Return the key as listed, without its hash."""
        fields = {name: value for name, value in asdict(self).items() if name != "sha256"}
        return {**fields, "scopes": self.scope_names}

    @property
    def scope_names(self) -> list[str]:
        """The scopes as commands show them."""
        return [*self.scopes] or [READ_ONLY_SCOPE]


class KeyFile:
    """The keys in a file, which may change at any time.

    Without a file, no key is required. Once this object has seen a file, keys are required: if the file or its last key
    is removed, all requests are rejected.

    Args:
        path: path of the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._keys: Mapping[str, Key] = {}
        self._version: tuple[int, int, int] | None = None
        """Version of the file that was read last."""
        self._has_seen_file = False

    def requires_keys(self) -> bool:
        """Return whether callers need a key. Raises the same errors as `keys`."""
        self.keys()
        return self._has_seen_file

    def keys(self) -> Mapping[str, Key]:
        """Return all keys by ID. The file is read again only if it has changed.

        Raises:
            KeysUnreadable: the file is invalid.
        """
        try:
            status = self._path.stat()
        except FileNotFoundError:
            self._keys, self._version = {}, None
            return self._keys
        except OSError as error:
            raise KeysUnreadable(f"the keys in {self._path} cannot be read: {error.strerror}") from None
        self._has_seen_file = True
        version = (status.st_mtime_ns, status.st_ino, status.st_size)
        if version != self._version:
            self._keys, self._version = self._read(), version
        return self._keys

    def caller_of(self, api_key: str) -> Caller | None:
        """Return the caller who sent a key; `None` if the key is unknown.

        Raises:
            KeysUnreadable: the file is invalid.
        """
        prefix, _, id_and_secret = api_key.partition("-")
        id, _, secret = id_and_secret.partition("-")
        key = self.keys().get(id)
        # The hashes are also compared for an unknown ID, so that timing does not reveal valid IDs.
        is_match = hmac.compare_digest(_hash(secret), _UNMATCHABLE_HASH if key is None else key.sha256)
        return key.caller if key is not None and is_match and prefix == PREFIX else None

    def add(self, owner: str, scopes: Iterable[KeyScope], *, weight: float | None = None) -> tuple[Key, str]:
        """Add a key. Return the stored key, and the text that clients send. The text is not stored.

        Raises:
            KeyRejected: the owner name or the weight is invalid.
            KeysUnreadable: the file is invalid, or cannot be written.
        """
        if owner != ALL_OWNERS and not is_owner_name(owner):
            message = "use 1 to 64 letters, digits, _, ., @ and -; or * for a key that sees the runs of all owners"
            raise KeyRejected(f"invalid owner {owner!r:.80}: {message}")
        try:
            fairness = fairness_of(owner, weight)
        except FairnessInvalid as error:
            raise KeyRejected(str(error)) from None
        # The ID has no hyphen, since hyphens separate the parts of a key.
        id, secret = secrets.token_hex(_ID_BYTES), secrets.token_urlsafe(_SECRET_BYTES)
        created_at = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        ordered_scopes = [scope for scope in KeyScope if scope in set(scopes)]
        key = Key(id, owner, ordered_scopes, _hash(secret), created_at, 1.0 if fairness is None else fairness.weight)
        with self._exclusive_lock():
            self._write({**self.keys(), id: key})
        return key, f"{PREFIX}-{id}-{secret}"

    def remove(self, id: str) -> Key:
        """Remove a key and return it. Gateways reject all later requests with this key.

        Raises:
            KeyRejected: there is no key with that ID.
            KeysUnreadable: the file is invalid, or cannot be written.
        """
        with self._exclusive_lock():
            remaining_keys = dict(self.keys())
            if (key := remaining_keys.pop(id, None)) is None:
                raise KeyRejected(f"there is no key {id!r:.80}; `dagwright keys list` lists them")
            self._write(remaining_keys)
        return key

    def _read(self) -> dict[str, Key]:
        try:
            document = json.loads(self._path.read_text(encoding="utf-8"))
            return {key["id"]: _key_from_json(key) for key in document["keys"]}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise KeysUnreadable(f"the keys in {self._path} cannot be read: {error}") from None

    @contextmanager
    def _exclusive_lock(self) -> Iterator[None]:
        """Lock the file for a read-modify-write. Without the lock, a writer could overwrite another writer's key."""
        try:
            self._path.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
            # The key file itself is replaced on each change, so it cannot be the lock.
            lock = os.open(self._path.with_name(f".{self._path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise self._unwritable_error(error) from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _write(self, keys: Mapping[str, Key]) -> None:
        content = json.dumps({"keys": [asdict(key) for key in keys.values()]}, indent=1)
        try:
            # `mkstemp` creates files that only their owner may read.
            descriptor, name = tempfile.mkstemp(dir=self._path.parent, prefix=f".{self._path.name}-")
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(content)
            Path(name).replace(self._path)
        except OSError as error:
            raise self._unwritable_error(error) from None

    def _unwritable_error(self, error: OSError) -> KeysUnreadable:
        return KeysUnreadable(f"the keys in {self._path} cannot be written: {error.strerror}")


def _key_from_json(encoded_key: Mapping[str, Any]) -> Key:
    scopes = [KeyScope(scope) for scope in encoded_key["scopes"]]
    sha256 = str(encoded_key["sha256"])
    if _SHA256.fullmatch(sha256) is None:
        raise ValueError(f"sha256 of {encoded_key['id']!r:.80} is invalid: it must have 64 hexadecimal digits")
    weight = encoded_key.get("weight", 1.0)
    # This call only checks the owner and the weight: it raises an error if one of them is invalid.
    fairness_of(str(encoded_key["owner"]), weight)
    return Key(
        str(encoded_key["id"]), str(encoded_key["owner"]), scopes, sha256, str(encoded_key["created_at"]), weight
    )


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="replace")).hexdigest()
