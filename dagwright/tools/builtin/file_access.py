"""Access to files in the files folder: every path of a file tool goes through `FileAccess`.

A path is opened one component at a time, each relative to the open parent folder and without following links, so that
concurrent changes cannot redirect it. `FileAccess` rejects hidden names, links and the paths that
`dagwright.tools.protected_paths` protects; for writing, it also rejects files that Python would import. The root is the
files folder, or, in a run that was started with an API key, the subfolder of the owner of the key.

A file with several names (hard links) is rejected: one of the other names, which cannot be looked up, may be in the
folder of another owner or in the state folder. No run may read the state folder, not even a run without an owner.
"""

import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from dagwright.protocol.run_labels import ALL_OWNERS, is_owner_name
from dagwright.tools.context import context, current_owner
from dagwright.tools.environment import ToolEnvironment
from dagwright.tools.errors import GiveUp
from dagwright.tools.protected_paths import PathGuard

_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""With `O_NONBLOCK`: without it, opening a pipe would block the tool. The pipe is rejected after it is opened."""
_DRAFT_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""Flags for the temporary file that replaces a file. They lack `O_TRUNC`: the temporary file is truncated only after a
check that it has no other hard link."""

MAX_PATH_CHARACTERS = 1_000
"""Maximum length of a path in characters. It also limits how many folders of the path are open at the same time."""
_NAME_LIMIT_BYTES = 255
"""Bytes of one component, the limit of common file systems."""


@dataclass(frozen=True, slots=True)
class FolderEntry:
    """A file or folder inside a folder.

    Args:
        size_bytes: size of a file, 0 for a folder.
    """

    name: str
    is_folder: bool
    size_bytes: int


@dataclass(frozen=True, slots=True)
class OpenFolder:
    """An open folder inside the root.

    Args:
        descriptor: file descriptor of the folder; valid inside the block that opened it.
        path: absolute path.
        relative_path: path relative to the root, as in results.
    """

    descriptor: int
    path: Path
    relative_path: PurePosixPath
    guard: PathGuard

    def entries(self) -> list[FolderEntry]:
        """Return the files and folders by name, without links and without hidden or protected entries."""
        with os.scandir(self.descriptor) as scan:
            names = sorted(entry.name for entry in scan if not entry.name.startswith("."))
        return [entry for entry in map(self._entry, names) if entry is not None]

    def _entry(self, name: str) -> FolderEntry | None:
        try:
            status = os.stat(name, dir_fd=self.descriptor, follow_symlinks=False)
        except OSError:
            return None
        is_folder = stat.S_ISDIR(status.st_mode)
        is_listable = is_folder or (stat.S_ISREG(status.st_mode) and not _has_other_names(status))
        if not is_listable or self.guard.protects(self.path / name, status):
            return None
        return FolderEntry(name, is_folder, 0 if is_folder else status.st_size)

    @contextmanager
    def folder(self, name: str) -> Iterator["OpenFolder"]:
        """Open a subfolder.

        Raises:
            GiveUp: the subfolder is rejected.
            OSError: the subfolder cannot be opened.
        """
        self._reject_link(name)
        descriptor = os.open(name, _FOLDER_FLAGS, dir_fd=self.descriptor)
        try:
            subfolder = OpenFolder(descriptor, self.path / name, self.relative_path / name, self.guard)
            _reject_protected_path(self.guard, subfolder.path, os.fstat(descriptor), shown_path=subfolder.relative_path)
            yield subfolder
        finally:
            os.close(descriptor)

    @contextmanager
    def file(self, name: str) -> Iterator[BinaryIO]:
        """Open a regular file of the folder for reading.

        Raises:
            GiveUp: the file is rejected.
            OSError: the file cannot be opened.
        """
        self._reject_link(name)
        with os.fdopen(os.open(name, _FILE_FLAGS, dir_fd=self.descriptor), "rb") as file:
            status = os.fstat(file.fileno())
            _reject_protected_path(self.guard, self.path / name, status, shown_path=self.relative_path / name)
            if not stat.S_ISREG(status.st_mode):
                raise IsADirectoryError(name)
            self._reject_hard_link(name, status)
            yield file

    def replace_file(self, name: str, content: bytes) -> None:
        """Replace the content of a file atomically.

        Raises:
            GiveUp: the file is rejected.
        """
        self._reject_link(name)
        status = self._status(name)
        if status is not None and stat.S_ISDIR(status.st_mode):
            raise GiveUp(f"{name!r} is a folder")
        path, relative_path = self.path / name, self.relative_path / name
        _reject_protected_path(self.guard, path, status, shown_path=relative_path)
        self._reject_hard_link(name, status)
        if self.guard.is_importable(path):
            raise GiveUp(
                f"{str(relative_path)!r} would be importable by Python; write it outside of the folders with code "
                "(DAGWRIGHT_FILES_ROOT on the worker), or with another suffix"
            )
        # The name is derived from the idempotency key, so that a retry after a crash overwrites the old draft.
        digest = hashlib.sha256(f"{context().idempotency_key}/{name}".encode()).hexdigest()[:16]
        draft = f".{digest}.draft"
        try:
            with os.fdopen(os.open(draft, _DRAFT_FLAGS, 0o666, dir_fd=self.descriptor), "wb") as file:
                self._reject_hard_link(draft, os.fstat(file.fileno()))
                file.truncate()
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(draft, name, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)
        finally:
            if self._status(draft) is not None:
                os.unlink(draft, dir_fd=self.descriptor)

    def make_folder(self, name: str) -> None:
        """Create a subfolder, unless it exists."""
        _reject_protected_path(self.guard, self.path / name, self._status(name), shown_path=self.relative_path / name)
        try:
            os.mkdir(name, dir_fd=self.descriptor)
        except FileExistsError:
            return

    def _reject_link(self, name: str) -> None:
        status = self._status(name)
        if status is not None and stat.S_ISLNK(status.st_mode):
            raise GiveUp(f"{str(self.relative_path / name)!r} is a symbolic link, which the file tools do not follow")

    def _reject_hard_link(self, name: str, status: os.stat_result | None) -> None:
        if status is not None and _has_other_names(status):
            raise GiveUp(
                f"{str(self.relative_path / name)!r} has several names (hard links), some of which may be outside of "
                "the files folder; the file tools reject it, so copy it"
            )

    def _status(self, name: str) -> os.stat_result | None:
        try:
            return os.stat(name, dir_fd=self.descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return None


def _has_other_names(status: os.stat_result) -> bool:
    return stat.S_ISREG(status.st_mode) and status.st_nlink > 1


class FileAccess:
    """The files that the current call may use."""

    def __init__(self, environment: ToolEnvironment) -> None:
        self._environment = environment

    @contextmanager
    def folder(self, path: str, *, create: bool = False) -> Iterator[OpenFolder]:
        """Open a folder.

        Args:
            path: relative to the root.
            create: whether to create missing folders.

        Raises:
            GiveUp: the path is rejected.
            OSError: the folder cannot be opened.
        """
        with self._open_folder(parts_of(path), create=create) as open_folder:
            yield open_folder

    @contextmanager
    def parent(self, path: str, *, create: bool = False) -> Iterator[tuple[OpenFolder, str]]:
        """Open the folder of a file; yield the open folder and the name of the file. Errors as in `folder`."""
        parts = parts_of(path)
        if not parts:
            raise IsADirectoryError(path)
        with self._open_folder(parts[:-1], create=create) as open_folder:
            yield open_folder, parts[-1]

    @contextmanager
    def _open_folder(self, parts: Sequence[str], *, create: bool) -> Iterator[OpenFolder]:
        with self._root(create=create) as root, _open_descendant(root, parts, create=create) as open_folder:
            yield open_folder

    @contextmanager
    def _root(self, *, create: bool) -> Iterator[OpenFolder]:
        owner = current_owner()
        if owner is not None and not self._environment.files_root_is_explicit:
            raise GiveUp(
                "The run was started with an API key, so the file tools need a folder of their own: set "
                "DAGWRIGHT_FILES_ROOT on the worker; each owner gets a subfolder"
            )
        # The owner is read from the memo of the run, which may contain any text.
        if owner is not None and owner != ALL_OWNERS and not is_owner_name(owner):
            raise GiveUp(f"The run belongs to {owner!r:.80}, which is not a valid folder name")
        real_root = self._environment.files_root.resolve()
        guard = self._environment.protected_paths.guard()
        if guard.protects_root(real_root):
            raise GiveUp(
                "The files folder is inside a folder of Dagwright (state, plans or payloads), which the file tools "
                "reject; set DAGWRIGHT_FILES_ROOT on the worker to another folder"
            )
        if create or owner is not None:
            real_root.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(real_root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            root = OpenFolder(descriptor, real_root, PurePosixPath(), guard)
            if owner is None or owner == ALL_OWNERS:
                yield root
                return
            root.make_folder(owner)
            with root.folder(owner) as owner_folder:
                yield OpenFolder(owner_folder.descriptor, owner_folder.path, PurePosixPath(), guard)
        finally:
            os.close(descriptor)


@contextmanager
def _open_descendant(folder: OpenFolder, parts: Sequence[str], *, create: bool) -> Iterator[OpenFolder]:
    if not parts:
        yield folder
        return
    if create:
        folder.make_folder(parts[0])
    with folder.folder(parts[0]) as subfolder, _open_descendant(subfolder, parts[1:], create=create) as open_folder:
        yield open_folder


def parts_of(path: str) -> list[str]:
    """Return the components of a path in the root; an empty list for the root itself.

    Raises:
        GiveUp: the path is absolute, leaves the root, or contains a hidden name.
    """
    if "\0" in path or not path.strip():
        raise GiveUp(f"{path!r} is not a path")
    if Path(path).is_absolute():
        raise GiveUp(f"{path!r} is outside the files folder; give a path relative to it")
    if len(path) > MAX_PATH_CHARACTERS or not _is_encodable(path):
        raise GiveUp(
            f"{path[:60]!r} is not a path: at most {MAX_PATH_CHARACTERS} characters of valid Unicode are allowed"
        )
    parts: list[str] = []
    for part in PurePosixPath(path).parts:
        if part != "..":
            parts.append(part)
        elif parts:
            parts.pop()
        else:
            raise GiveUp(f"{path!r} is outside the files folder; give a path relative to it")
    hidden_name = next((part for part in parts if part.startswith(".")), None)
    if hidden_name is not None:
        raise GiveUp(f"{path!r}: the file tools reject hidden names, such as {hidden_name!r}")
    if any(len(part.encode()) > _NAME_LIMIT_BYTES for part in parts):
        raise GiveUp(f"{path[:60]!r} is not a path: a name has at most {_NAME_LIMIT_BYTES} bytes")
    return parts


def _is_encodable(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _reject_protected_path(
    guard: PathGuard, path: Path, status: os.stat_result | None, *, shown_path: PurePosixPath
) -> None:
    if guard.protects(path, status):
        raise GiveUp(
            f"{str(shown_path)!r} belongs to Dagwright (state, keys, plans, tools or agents); the file tools reject it"
        )
