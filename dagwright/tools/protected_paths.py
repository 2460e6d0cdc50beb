"""Files and folders that the file tools never access: keys, histories, plans and code of Dagwright.

Paths are compared by name, without regard to case and Unicode form, and by device and inode: another spelling, a bind
mount or a hard link of a protected file is protected too. This module must not import the settings.
"""

import importlib.machinery
import json
import os
import sys
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

_CODE_SUFFIXES = (*importlib.machinery.all_suffixes(), ".pth", ".pyw", ".pyd", ".egg-link")
"""Suffixes of the files that Python imports or reads automatically from a folder in `sys.path`."""


@dataclass(frozen=True, slots=True)
class ProtectedPaths:
    """Files and folders that no file tool opens, lists or writes.

    Args:
        paths: files and folders, absolute; a folder is protected with everything in it.
        modules: names of modules with tools; the file of each module is protected once the module is imported.
        code_folders: folders in which no importable file may be written, at any depth. `sys.path` is added to them.
        record_file: JSON file in which all processes of a state folder record additional paths; `None` for no file.
    """

    paths: tuple[Path, ...] = ()
    modules: tuple[str, ...] = ()
    code_folders: tuple[Path, ...] = ()
    record_file: Path | None = None

    def guard(self) -> "PathGuard":
        """Return the checks for the current state of the file system."""
        files = [*self.module_files(), *recorded_paths(self.record_file)]
        tool_folders = [file.parent for file in files if file.suffix == ".py"]
        return PathGuard(
            [*self.paths, *files], [*self.code_folders, *tool_folders, *(Path(entry or ".") for entry in sys.path)]
        )

    def module_files(self) -> list[Path]:
        """Return the files of the modules that are imported by now, absolute."""
        files = (getattr(sys.modules.get(name), "__file__", None) for name in self.modules)
        return [Path(file).absolute() for file in files if file]


NOTHING_PROTECTED = ProtectedPaths()


class PathGuard:
    """Path checks during one call."""

    def __init__(self, paths: Iterable[Path], code_folders: Iterable[Path]) -> None:
        self._paths = _PathSet(paths)
        self._code_folders = list(code_folders)

    def protects(self, path: Path, status: os.stat_result | None = None) -> bool:
        """Return whether a path is a protected file or folder.

        A path inside a protected folder does not count: callers check every folder of the path as well.

        Args:
            path: absolute, without links.
            status: status of the open file or folder; `None` if it does not exist.
        """
        return self._paths.contains(path, status)

    def protects_root(self, root: Path) -> bool:
        """Return whether a folder is protected or inside a protected folder."""
        return any(self.protects(folder, _status(folder)) for folder in (root, *root.parents))

    def is_importable(self, path: Path) -> bool:
        """Return whether Python may import a file written to a path."""
        if not unicodedata.normalize("NFKC", path.name).casefold().endswith(_CODE_SUFFIXES):
            return False
        code_folders = _PathSet(self._code_folders)
        return any(code_folders.contains(parent, _status(parent)) for parent in path.parents)


class _PathSet:
    """Names and identities of some paths."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self._names: set[str] = set()
        self._identities: set[tuple[int, int]] = set()
        for path in paths:
            self._names |= set(_names_of(path))
            if (status := _status(path)) is not None:
                self._identities.add((status.st_dev, status.st_ino))

    def contains(self, path: Path, status: os.stat_result | None) -> bool:
        if status is not None and (status.st_dev, status.st_ino) in self._identities:
            return True
        return _normalize(path) in self._names


def _names_of(path: Path) -> Iterator[str]:
    yield _normalize(Path(os.path.abspath(path)))  # noqa: PTH100 - removes `..`, but does not follow links
    try:
        # Also for a missing file, because its folder may have several names.
        yield _normalize(path.resolve())
    except (OSError, RuntimeError):
        return


def _normalize(path: Path) -> str:
    return unicodedata.normalize("NFKC", str(path)).casefold()


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except (OSError, ValueError):
        return None


def recorded_paths(record_file: Path | None) -> list[Path]:
    """Return the paths that processes have recorded; an empty list if the file is missing or invalid."""
    if record_file is None:
        return []
    try:
        paths = json.loads(record_file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    return [Path(path_text) for path_text in paths if isinstance(path_text, str)] if isinstance(paths, list) else []
