"""A payload store in a folder, with files such as `ab/cd/sha256-abcd…`.

Content is written to a file in `tmp`, synced to disk, and then renamed; then the folder that contains the new name is
synced. A file with its final name is therefore complete and survives a power failure, as does the history of Temporal
that refers to the file.

Cache entries are in `cache/ab` and are not synced; the modification time of their files is their expiry time.

The age of a payload counts from the modification time of its file. A file lock (`flock`) on the file orders writers and
removers. A writer holds a shared lock from finding the file until its age is renewed. A remover holds an exclusive lock
from reading the age until the file is deleted. Readers need no lock.
"""

import asyncio
import errno
import fcntl
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

from dagwright.store.errors import PayloadDamaged, PayloadMissing, StoreUnavailable
from dagwright.store.payloads import (
    CACHE_PREFIX,
    OWNERS,
    STORE_ID,
    CacheEntry,
    StoredPayload,
    is_key,
    is_owner,
    is_ref,
    ref_of,
)
from dagwright.store.private_files import FILE_MODE, FOLDER_MODE

T = TypeVar("T")

_THREAD_COUNT = 8
"""Number of threads in a separate pool, so that the store does not wait for tools that use the default pool."""
_DRAFT_FOLDER = "tmp"
_LEFTOVER_AGE_S = 86_400.0
"""A file of this age in `tmp` was left by a dead process: no write takes a day."""
_CHUNK_BYTES = 1 << 20

_DISK_FULL_ERRNOS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_NO_ACCESS_ERRNOS = {errno.EACCES, errno.EPERM, errno.EROFS}


class FolderStore:
    """Stores payloads in a folder. The first write creates the folder, which only its owner can read.

    Args:
        root: absolute path of the folder.
        is_private: create files with mode 0600 and folders with mode 0700; otherwise the umask applies.
    """

    def __init__(self, root: Path, *, is_private: bool = False) -> None:
        self._root = root
        self._file_mode = FILE_MODE if is_private else 0o666
        self._folder_mode = FOLDER_MODE if is_private else 0o777
        self._executor = ThreadPoolExecutor(_THREAD_COUNT, thread_name_prefix="payload-store")
        self._has_removed_old_drafts = False
        self._id: str | None = None
        """ID that `identify` found; `None` before. A folder with another ID is not the same store."""

    @property
    def location(self) -> str:
        """Location of the store; see `PayloadStore`."""
        return str(self._root)

    async def put(self, content: bytes) -> str:
        """Store content and return its reference; see `PayloadStore`."""
        return await self._in_thread(lambda: self._put(content))

    async def get(self, ref: str) -> bytes:
        """Return content, checked against its hash; see `PayloadStore`."""
        return await self._in_thread(lambda: self._get(ref))

    async def renew(self, ref: str) -> None:
        """Reset the age of a payload; see `PayloadStore`."""
        await self._in_thread(lambda: self._renew(ref))

    async def delete(self, ref: str, *, renewed_before: datetime) -> bool:
        """Remove a payload that is old enough; see `PayloadStore`."""
        return await self._in_thread(lambda: self._delete(ref, renewed_before=renewed_before))

    async def list_payloads(self) -> AsyncIterator[StoredPayload]:
        """Iterate over all payloads, one first-level folder at a time."""
        for folder in await self._in_thread(lambda: _folders(self._root)):
            for payload in await self._in_thread(partial(_payloads, folder)):
                yield payload

    async def put_cache_entry(self, key: str, content: bytes, *, expires_at: datetime) -> None:
        """Store a cache entry; see `PayloadStore`."""
        await self._in_thread(lambda: self._put_cache_entry(key, content, expires_at=expires_at))

    async def get_cache_entry(self, key: str) -> bytes | None:
        """Return the cache entry of a key; see `PayloadStore`."""

        def get_cache_entry() -> bytes | None:
            try:
                return self._cache_location(key).read_bytes()
            except FileNotFoundError:
                return None

        return await self._in_thread(get_cache_entry)

    async def delete_cache_entry(self, key: str, *, expired_before: datetime) -> bool:
        """Remove an expired cache entry; see `PayloadStore`."""

        def delete_cache_entry() -> bool:
            path = self._cache_location(key)
            try:
                if _modified_at(path.stat()) >= expired_before:
                    return False
                # An entry that another process stores at this moment is lost, which is acceptable.
                path.unlink()
            except FileNotFoundError:
                return False
            return True

        return await self._in_thread(delete_cache_entry)

    async def cache_entries(self) -> AsyncIterator[CacheEntry]:
        """Iterate over all cache entries, one folder at a time."""
        for folder in await self._in_thread(lambda: _folders(self._root / CACHE_PREFIX)):
            for entry in await self._in_thread(partial(_cache_entries, folder)):
                yield entry

    async def claim(self, owner: str) -> None:
        """Record an owner of the store; see `PayloadStore`."""
        assert is_owner(owner), owner
        await self._in_thread(lambda: self._claim(owner))

    async def owner_namespaces(self) -> frozenset[str]:
        """Return the IDs of all namespaces that have claimed the store."""
        folder = self._root / OWNERS
        return await self._in_thread(
            lambda: frozenset(path.name for path in folder.iterdir()) if folder.is_dir() else frozenset()
        )

    async def identify(self) -> str:
        """Return the ID of the store, and create it at the first call; see `PayloadStore`."""
        return await self._in_thread(self._identify)

    async def check(self) -> None:
        """Check that the store still has its ID; see `PayloadStore`."""
        await self._in_thread(self._check)

    def _identify(self) -> str:
        if (stored_id := self._stored_id()) is None:
            self._check_id()
            # A link instead of a rename, because a link fails if another process has created the file.
            with self._draft(uuid4().hex.encode()) as draft, suppress(FileExistsError):
                os.link(draft, self._root / STORE_ID)
            _sync_folder(self._root)
            stored_id = self._stored_id()
        self._id = self._id or stored_id
        self._check_id()
        return str(self._id)

    def _check(self) -> None:
        if not self._root.is_dir():
            raise self._unavailable_error()
        self._check_id()

    def _stored_id(self) -> str | None:
        try:
            return (self._root / STORE_ID).read_text(encoding="ascii").strip() or None
        except FileNotFoundError:
            return None

    def _check_id(self) -> None:
        """Check that the folder has the ID of the store; otherwise another disk or no disk is mounted there.

        Raises:
            StoreUnavailable: the ID is missing or different.
        """
        if self._id is not None and self._stored_id() != self._id:
            raise self._unavailable_error()

    def _claim(self, owner: str) -> None:
        owner_file = self._root / OWNERS / owner
        if not owner_file.exists():
            self._make_folder(owner_file.parent)
            owner_file.touch(mode=self._file_mode)
            _sync_folder(owner_file.parent)

    def _put_cache_entry(self, key: str, content: bytes, *, expires_at: datetime) -> None:
        path = self._cache_location(key)
        self._remove_old_drafts()
        self._make_folder(path.parent.parent)
        path.parent.mkdir(mode=self._folder_mode, exist_ok=True)
        with self._draft(content) as draft:
            os.utime(draft, (expires_at.timestamp(), expires_at.timestamp()))
            draft.replace(path)

    def _cache_location(self, key: str) -> Path:
        assert is_key(key), key
        return self._root / CACHE_PREFIX / key[:2] / key

    def _put(self, content: bytes) -> str:
        ref = ref_of(content)
        path = self._payload_path(ref)
        self._remove_old_drafts()
        with _holding_lock(path, fcntl.LOCK_SH) as descriptor:
            if descriptor is None or not _renew_if_equal(descriptor, content):
                self._write(path, content)
        return ref

    def _write(self, path: Path, content: bytes) -> None:
        self._make_folder(path.parent)
        with self._draft(content, is_synced=True) as draft:
            draft.replace(path)
        _sync_folder(path.parent)

    @contextmanager
    def _draft(self, content: bytes, *, is_synced: bool = False) -> Iterator[Path]:
        """Yield a new file in `tmp` with the content; remove it unless the block has renamed it."""
        draft = self._root / _DRAFT_FOLDER / uuid4().hex
        self._make_folder(draft.parent)
        try:
            with open(draft, "xb", opener=lambda path, flags: os.open(path, flags, self._file_mode)) as file:
                file.write(content)
                if is_synced:
                    file.flush()
                    os.fsync(file.fileno())
            yield draft
        finally:
            with suppress(OSError):
                draft.unlink(missing_ok=True)

    def _make_folder(self, folder: Path) -> None:
        if folder.is_dir():
            return
        self._check_id()
        self._make_folder(folder.parent)
        with suppress(FileExistsError):
            folder.mkdir(mode=FOLDER_MODE if folder == self._root else self._folder_mode)
        _sync_folder(folder.parent)

    def _get(self, ref: str) -> bytes:
        try:
            content = self._payload_path(ref).read_bytes()
        except FileNotFoundError:
            raise self._missing_error(ref) from None
        if ref_of(content) != ref:
            raise PayloadDamaged(ref, store=str(self._root))
        return content

    def _renew(self, ref: str) -> None:
        path = self._payload_path(ref)
        with _holding_lock(path, fcntl.LOCK_SH) as descriptor:
            if descriptor is None:
                raise self._missing_error(ref)
            os.utime(descriptor)

    def _delete(self, ref: str, *, renewed_before: datetime) -> bool:
        path = self._payload_path(ref)
        with _holding_lock(path, fcntl.LOCK_EX) as descriptor:
            if descriptor is None or _modified_at(os.fstat(descriptor)) >= renewed_before:
                return False
            path.unlink()
        return True

    def _payload_path(self, ref: str) -> Path:
        if not is_ref(ref):
            raise PayloadMissing(ref, store=str(self._root))
        digits = ref.removeprefix("sha256-")
        return self._root / digits[:2] / digits[2:4] / ref

    def _missing_error(self, ref: str) -> PayloadMissing | StoreUnavailable:
        is_same_store = self._root.is_dir() and (self._id is None or self._stored_id() == self._id)
        return PayloadMissing(ref, store=str(self._root)) if is_same_store else self._unavailable_error()

    def _unavailable_error(self) -> StoreUnavailable:
        # The store was used before, so the folder was replaced, or its disk is not mounted.
        return StoreUnavailable(
            f"the payload store {self._root} does not exist; check that its disk is mounted and that "
            "DAGWRIGHT_PAYLOAD_STORE is the same for all workers and commands of this Temporal server"
        )

    def _remove_old_drafts(self) -> None:
        """Remove unfinished files of dead processes, once per store object."""
        if self._has_removed_old_drafts:
            return
        self._has_removed_old_drafts = True
        with suppress(OSError), os.scandir(self._root / _DRAFT_FOLDER) as files:
            for file in files:
                if time.time() - file.stat().st_mtime > _LEFTOVER_AGE_S:
                    Path(file.path).unlink(missing_ok=True)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        def run() -> T:
            try:
                return work()
            except OSError as error:
                raise StoreUnavailable(f"the payload store {self._root} {_error_text(error)}") from error

        return await asyncio.get_running_loop().run_in_executor(self._executor, run)


@contextmanager
def _holding_lock(path: Path, kind: int) -> Iterator[int | None]:
    """Yield a file descriptor that holds the lock on a file, or `None` if there is no file.

    A file of another user that cannot be opened counts as missing, because a new file may replace it.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except (FileNotFoundError, PermissionError):
        yield None
        return
    try:
        fcntl.flock(descriptor, kind)
        # The file may have been deleted while this process waited for the lock.
        yield descriptor if os.fstat(descriptor).st_nlink else None
    finally:
        os.close(descriptor)


def _renew_if_equal(descriptor: int, content: bytes) -> bool:
    """Reset the age of an open file if it has exactly this content; return whether the age was reset."""
    if os.fstat(descriptor).st_size != len(content):
        return False
    for start in range(0, len(content), _CHUNK_BYTES):
        if os.pread(descriptor, _CHUNK_BYTES, start) != content[start : start + _CHUNK_BYTES]:
            return False
    try:
        os.utime(descriptor)
    except PermissionError:
        return False
    return True


def _folders(root: Path) -> list[Path]:
    try:
        return sorted(path for path in root.iterdir() if len(path.name) == 2 and path.is_dir())
    except FileNotFoundError:
        return []


def _cache_entries(folder: Path) -> list[CacheEntry]:
    entries = []
    with suppress(FileNotFoundError), os.scandir(folder) as files:
        for file in files:
            with suppress(FileNotFoundError):
                if is_key(file.name):
                    file_stat = file.stat()
                    entries.append(CacheEntry(file.name, file_stat.st_size, _modified_at(file_stat)))
    return entries


def _payloads(folder: Path) -> list[StoredPayload]:
    payloads = []
    for subfolder in folder.iterdir():
        with suppress(NotADirectoryError), os.scandir(subfolder) as files:
            for file in files:
                if not is_ref(file.name):
                    continue
                with suppress(FileNotFoundError):
                    file_stat = file.stat()
                    payloads.append(StoredPayload(file.name, file_stat.st_size, _modified_at(file_stat)))
    return payloads


def _modified_at(file_stat: os.stat_result) -> datetime:
    return datetime.fromtimestamp(file_stat.st_mtime, UTC)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _error_text(error: OSError) -> str:
    if error.errno in _DISK_FULL_ERRNOS:
        return "is full: no disk space or quota is left; free space (`dagwright store prune` helps)"
    if error.errno in _NO_ACCESS_ERRNOS:
        return f"may not be used by this user ({error.strerror}: {error.filename}); grant write access to it"
    if error.errno in (errno.ENOTDIR, errno.EEXIST):
        return f"is not a folder ({error.filename} is a file); set another folder in DAGWRIGHT_PAYLOAD_STORE"
    return f"is unavailable: {error.strerror or error}"
