"""The folder store: disk failures, concurrent processes and crashes."""

import asyncio
import errno
import fcntl
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from dagwright.store import PayloadMissing, StoreUnavailable, open_store, ref_of
from dagwright.store.folder import FolderStore
from tests.support.eventually import eventually

FULL_STORE_PROBLEM = "is full: no disk space or quota is left; free space (`dagwright store prune` helps)"


def _files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


async def test_payload_is_two_folders_deep_and_opening_a_store_creates_no_files(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "store")
    assert ([entry async for entry in store.list_payloads()], await store.owner_namespaces()) == ([], frozenset())
    assert list(tmp_path.iterdir()) == []
    ref = await store.put(b"content")
    digits = ref.removeprefix("sha256-")
    assert _files(tmp_path / "store") == [f"{digits[:2]}/{digits[2:4]}/{ref}"]
    assert (tmp_path / "store").stat().st_mode & 0o777 == 0o700


async def test_content_is_synced_before_the_file_is_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []

    def record_sync(descriptor: int) -> None:
        steps.append(f"sync {Path(f'/proc/self/fd/{descriptor}').readlink().relative_to(tmp_path).parts[0]}")

    def record_rename(self: Path, target: Path) -> Path:
        steps.append(f"rename to {target.relative_to(tmp_path).parts[0]}")
        return original_rename(self, target)

    original_rename: Callable[[Path, Path], Path] = Path.rename
    await FolderStore(tmp_path).put(b"first")
    folder = ref_of(b"again")[7:9]
    (tmp_path / folder / ref_of(b"again")[9:11]).mkdir(parents=True)
    monkeypatch.setattr("os.fsync", record_sync)
    monkeypatch.setattr(Path, "replace", record_rename)
    await FolderStore(tmp_path).put(b"again")
    assert steps == ["sync tmp", f"rename to {folder}", f"sync {folder}"]


@pytest.mark.parametrize(
    ("error_number", "problem"),
    [
        (errno.ENOSPC, FULL_STORE_PROBLEM),
        (errno.EDQUOT, FULL_STORE_PROBLEM),
        (errno.EIO, "is unavailable: Input/output error"),
    ],
)
async def test_failed_put_leaves_no_file(
    error_number: int, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FolderStore(tmp_path)
    existing_ref = await store.put(b"kept")

    def fail(_: int) -> None:
        raise OSError(error_number, os.strerror(error_number))

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", fail)
        with pytest.raises(StoreUnavailable) as error:
            await store.put(b"content")
    assert str(error.value) == f"the payload store {tmp_path} {problem}"
    assert [Path(name).name for name in _files(tmp_path)] == [existing_ref]
    assert await store.get(await store.put(b"content")) == b"content"


_WRITER_WITH_FILE_SIZE_LIMIT = """
import asyncio, resource, signal, sys
from pathlib import Path
from dagwright.store import StoreUnavailable
from dagwright.store.folder import FolderStore
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    asyncio.run(FolderStore(Path(sys.argv[1])).put(b"x" * 200_000))
except StoreUnavailable as error:
    print(error)
"""


def test_interrupted_write_is_reported_and_leaves_no_file(tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-c", _WRITER_WITH_FILE_SIZE_LIMIT, tmp_path], capture_output=True, text=True, check=True
    )
    assert result.stdout.startswith(f"the payload store {tmp_path} is full: no disk space or quota is left")
    assert _files(tmp_path) == []


async def test_missing_store_is_reported_as_unavailable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="ascii")
    store = FolderStore(tmp_path / "file")
    for call in (store.put(b"x"), store.get(ref_of(b"x")), store.claim("me")):
        with pytest.raises(StoreUnavailable, match=re.escape(str(tmp_path / "file"))):
            await call
    store = FolderStore(tmp_path / "store")
    with pytest.raises(StoreUnavailable, match="does not exist; check that its disk is mounted"):
        await store.get(ref_of(b"x"))
    await store.put(b"other")
    with pytest.raises(PayloadMissing):
        await store.get(ref_of(b"x"))


async def test_temporary_file_of_a_crash_is_not_a_payload_and_is_removed_after_a_day(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    for name, age_s in (("old", 90_000), ("young", 60)):
        (tmp_path / "tmp" / name).write_bytes(b"half of it")
        os.utime(tmp_path / "tmp" / name, (0, time.time() - age_s))
    store = FolderStore(tmp_path)
    assert [entry async for entry in store.list_payloads()] == []
    ref = await store.put(b"content")
    assert [Path(name).name for name in _files(tmp_path)] == [ref, "young"]


_WRITER = """
import asyncio, sys
from pathlib import Path
from dagwright.store.folder import FolderStore

async def main():
    store = FolderStore(Path(sys.argv[1]))
    for round in range(3):
        await asyncio.gather(*(store.put(bytes([number]) * 50_000) for number in range(40)))

asyncio.run(main())
"""


@pytest.mark.waits
async def test_concurrent_writes_of_the_same_values_succeed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _WRITER, str(tmp_path)]
    writers = [await asyncio.create_subprocess_exec(*command) for _ in range(2)]
    assert [await writer.wait() for writer in writers] == [0, 0]
    store = FolderStore(tmp_path)
    contents = [bytes([number]) * 50_000 for number in range(40)]
    assert [await store.get(ref_of(content)) for content in contents] == contents
    assert len(_files(tmp_path)) == 40


@pytest.fixture
def watch_lock(monkeypatch: pytest.MonkeyPatch) -> Callable[[], threading.Event]:
    """Function that returns an event, which is set as soon as the store requests a file lock."""

    def watch() -> threading.Event:
        lock_request_event, original_flock = threading.Event(), fcntl.flock

        def flock(descriptor: int, kind: int) -> Any:
            lock_request_event.set()
            return original_flock(descriptor, kind)

        monkeypatch.setattr("fcntl.flock", flock)
        return lock_request_event

    return watch


Watch = Callable[[], threading.Event]


async def test_put_during_a_removal_writes_the_value_again(tmp_path: Path, watch_lock: Watch) -> None:
    store = FolderStore(tmp_path)
    ref = await store.put(b"content")
    (path,) = tmp_path.rglob(ref)
    with path.open("rb") as file_of_removal:
        fcntl.flock(file_of_removal, fcntl.LOCK_EX)
        lock_request_event = watch_lock()
        put_task = asyncio.ensure_future(store.put(b"content"))
        await eventually(lock_request_event.is_set)
        path.unlink()
    assert await put_task == ref
    assert await store.get(ref) == b"content"


async def test_removal_during_a_put_keeps_the_renewed_value(tmp_path: Path, watch_lock: Watch) -> None:
    store = FolderStore(tmp_path)
    ref = await store.put(b"content")
    (path,) = tmp_path.rglob(ref)
    os.utime(path, (0, 0))
    renewed_before = datetime.now(UTC) - timedelta(days=100)
    with path.open("rb") as file_of_put:
        fcntl.flock(file_of_put, fcntl.LOCK_SH)
        lock_request_event = watch_lock()
        removal_task = asyncio.ensure_future(store.delete(ref, renewed_before=renewed_before))
        await eventually(lock_request_event.is_set)
        os.utime(file_of_put.fileno())
    assert await removal_task is False
    assert await store.get(ref) == b"content"


async def test_unmounted_disk_is_not_mistaken_for_the_store(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "store")
    await store.identify()
    ref = await store.put(b"content")
    (tmp_path / "store").rename(tmp_path / "elsewhere")
    for has_empty_mount_point in (False, True):
        if has_empty_mount_point:
            (tmp_path / "store").mkdir()
        for call in (store.put(b"other"), store.get(ref), store.check(), store.identify()):
            with pytest.raises(StoreUnavailable, match="check that its disk is mounted"):
                await call
    (tmp_path / "store").rmdir()
    (tmp_path / "elsewhere").rename(tmp_path / "store")
    await store.check()
    assert await store.get(ref) == b"content"


@pytest.mark.parametrize(("is_private", "modes"), [(True, {0o600, 0o700}), (False, {0o644, 0o755})])
async def test_files_of_a_private_store_are_unreadable_for_other_users(
    tmp_path: Path, is_private: bool, modes: set[int]
) -> None:
    store = open_store(str(tmp_path / "store"), state_dir=tmp_path if is_private else tmp_path / "state")
    (tmp_path / "store").mkdir()
    umask_before = os.umask(0o022)
    try:
        await store.put(b"content")
        await store.put_cache_entry("a" * 64, b"answer", expires_at=datetime.now(UTC) + timedelta(days=1))
        await store.identify()
        await store.claim("one-server")
    finally:
        os.umask(umask_before)
    modes_by_path = {
        path.relative_to(tmp_path): path.stat().st_mode & 0o777 for path in (tmp_path / "store").rglob("*")
    }
    assert len(modes_by_path) == 10, modes_by_path
    assert set(modes_by_path.values()) == modes, modes_by_path
