"""Keys of the API: a file of their hashes, which every gateway of a state folder reads, and who has which key.

A key is `dw-ID-SECRET`. The file holds the SHA-256 of the secret: of 32 random bytes it needs no slow hash, for nobody
can try them out. It is written whole, under another name first, so a reader sees it as it was or as it is.

KeysUnreadable      the file is none of keys
KeyRefused          a key cannot be added or removed so
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

from dagwright.interfaces.http.callers import Caller, Scope
from dagwright.protocol.run_labels import ALL_OWNERS, is_owner_name
from dagwright.store.private_files import FOLDER_MODE

PREFIX = "dw"
_SHA256 = re.compile(r"[0-9a-f]{64}")
_NOBODYS = "0" * 64
"""Hash of no secret that anybody knows."""
_SECRET_BYTES = 32
_ID_BYTES = 6


class KeysUnreadable(Exception):
    """The file of keys cannot be read; the text says why."""


class KeyRefused(Exception):
    """A key cannot be added or removed so; the text says why."""


@dataclass(frozen=True, slots=True)
class Key:
    """A key as it is kept.

    Args:
        id: the part of it that may be shown.
        owner: whose runs it sees; `*` is everybody.
        scopes: what it lets do beside looking.
        sha256: of its secret, in hexadecimal digits.
        created_at: RFC 3339 time.
    """

    id: str
    owner: str
    scopes: Sequence[Scope]
    sha256: str
    created_at: str

    @property
    def caller(self) -> Caller:
        """Returns whoever has it."""
        return Caller(None if self.owner == ALL_OWNERS else self.owner, frozenset(self.scopes), self.id)

    def to_json(self) -> dict[str, Any]:
        """Returns it as lists show it, without its hash."""
        return {name: value for name, value in asdict(self).items() if name != "sha256"}


class KeyFile:
    """The keys of a file, which may change while somebody reads them.

    Where there is no file, none is needed. Once there was one, they are needed: whoever removes the last key, or the
    file while a gateway runs, opens it to nobody.

    Args:
        path: of the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: Mapping[str, Key] = {}
        self._seen: tuple[int, int, int] | None = None
        self._was_there = False

    def are_needed(self) -> bool:
        """Tells whether whoever calls needs a key; raises as `keys`."""
        self.keys()
        return self._was_there

    def keys(self) -> Mapping[str, Key]:
        """Returns all keys by their ids, read again only if the file has changed.

        Raises:
            KeysUnreadable: it holds something else.
        """
        try:
            status = self._path.stat()
        except FileNotFoundError:
            self._known, self._seen = {}, None
            return self._known
        except OSError as error:
            raise KeysUnreadable(f"the keys in {self._path} cannot be read: {error.strerror}") from None
        self._was_there = True
        seen = (status.st_mtime_ns, status.st_ino, status.st_size)
        if seen != self._seen:
            self._known, self._seen = self._read(), seen
        return self._known

    def caller_of(self, text: str) -> Caller | None:
        """Returns whose key a text is; `None` if it is none.

        Raises:
            KeysUnreadable: the file holds something else.
        """
        prefix, _, rest = text.partition("-")
        id, _, secret = rest.partition("-")
        key = self.keys().get(id)
        # An id that is not known costs as much as a wrong secret.
        is_right = hmac.compare_digest(_hash(secret), _NOBODYS if key is None else key.sha256)
        return key.caller if key is not None and is_right and prefix == PREFIX else None

    def add(self, owner: str, scopes: Iterable[Scope]) -> tuple[Key, str]:
        """Adds a key, and returns it with its text, which nobody can be told again.

        Raises:
            KeyRefused: the owner is none.
            KeysUnreadable: the file holds something else, or cannot be written.
        """
        if owner != ALL_OWNERS and not is_owner_name(owner):
            words = "an owner has 1 to 64 letters, digits, _, ., @ and -; * is one who sees the runs of all"
            raise KeyRefused(f"{owner!r:.80} is no owner: {words}")
        # Without a hyphen, which is between the parts of a key.
        id, secret = secrets.token_hex(_ID_BYTES), secrets.token_urlsafe(_SECRET_BYTES)
        created_at = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        chosen = [scope for scope in Scope if scope in set(scopes)]
        key = Key(id, owner, chosen, _hash(secret), created_at)
        with self._alone():
            self._write({**self.keys(), id: key})
        return key, f"{PREFIX}-{id}-{secret}"

    def remove(self, id: str) -> Key:
        """Removes a key and returns it; gateways take it no more from their next request on.

        Raises:
            KeyRefused: there is none of that id.
            KeysUnreadable: the file holds something else, or cannot be written.
        """
        with self._alone():
            left = dict(self.keys())
            if (key := left.pop(id, None)) is None:
                raise KeyRefused(f"there is no key {id!r:.80}; `dagwright keys list` lists them")
            self._write(left)
        return key

    def _read(self) -> dict[str, Key]:
        try:
            written = json.loads(self._path.read_text(encoding="utf-8"))
            return {each["id"]: _key_from_json(each) for each in written["keys"]}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise KeysUnreadable(f"the keys in {self._path} cannot be read: {error}") from None

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Lets nobody else change the file inside the block: who wrote last would take the keys of others away."""
        try:
            self._path.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
            # The file itself is another one after each change.
            lock = os.open(self._path.with_name(f".{self._path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise self._unwritable(error) from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _write(self, keys: Mapping[str, Key]) -> None:
        content = json.dumps({"keys": [asdict(key) for key in keys.values()]}, indent=1)
        try:
            # Only its owner may read what is made so.
            number, name = tempfile.mkstemp(dir=self._path.parent, prefix=f".{self._path.name}-")
            with os.fdopen(number, "w", encoding="utf-8") as file:
                file.write(content)
            Path(name).replace(self._path)
        except OSError as error:
            raise self._unwritable(error) from None

    def _unwritable(self, error: OSError) -> KeysUnreadable:
        return KeysUnreadable(f"the keys in {self._path} cannot be written: {error.strerror}")


def _key_from_json(encoded: Mapping[str, Any]) -> Key:
    scopes = [Scope(scope) for scope in encoded["scopes"]]
    sha256 = str(encoded["sha256"])
    if _SHA256.fullmatch(sha256) is None:
        raise ValueError(f"sha256 of {encoded['id']!r:.80} is none: it has 64 hexadecimal digits")
    return Key(str(encoded["id"]), str(encoded["owner"]), scopes, sha256, str(encoded["created_at"]))


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="replace")).hexdigest()
