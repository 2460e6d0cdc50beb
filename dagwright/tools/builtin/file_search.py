"""`list_directory` and `search_files`: what is below the files folder, by name and by text."""

import fnmatch
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from dagwright.tools.builtin.files import LISTED_FILES_LIMIT, inside
from dagwright.tools.context import context, note_read
from dagwright.tools.environment import ToolEnvironment
from dagwright.tools.errors import GiveUp
from dagwright.tools.spec import tool

MATCHES_LIMIT = 500
SEARCHED_FILES_LIMIT = 50_000
SEARCHED_FILE_BYTES = 4 * 1024 * 1024
"""A larger file is skipped, and counted: nobody reads through it line by line."""
SHOWN_CHARACTERS = 300
"""Of a line that holds the text."""
_BINARY_LOOK_BYTES = 8 * 1024


def file_search_tools(environment: ToolEnvironment) -> list[Callable[..., Any]]:
    """Returns `list_directory` and `search_files`, which stay below the environment's folder."""
    root = environment.files_root

    @tool(effects="read")
    def list_directory(path: str = ".") -> dict[str, list[dict[str, Any]]]:
        """Lists what is in a folder by name: files with their size in bytes, and folders.

        Args:
            path: a folder below the files folder
        """
        entries = _entries(root, path)
        note_read(path)
        return {"entries": entries}

    @tool(effects="read", timeout="2m")
    def search_files(
        pattern: str = "*", text: str | None = None, path: str = ".", limit: Annotated[int, Field(ge=1)] = 100
    ) -> dict[str, Any]:
        """Finds files by name, and lines in them by text; hidden files, binary ones and large ones are left out.

        Args:
            pattern: names like this, such as `*.md`, or paths, such as `notes/*/plan-?.txt`
            text: what a line must hold, whatever its case; without it the files themselves are found
            path: the folder to begin with, below the files folder
            limit: how many matches are wanted, at most 500
        """
        if text is not None and not text.strip():
            raise ValueError("text is empty; leave it out to find files by name")
        found = _searched(root, path, pattern=pattern, text=text, limit=min(limit, MATCHES_LIMIT))
        note_read(path)
        if text is not None:
            note_read(*dict.fromkeys(match["path"] for match in found["matches"]))
        return found

    return [list_directory, search_files]


def _folder(root: Path, path: str) -> Path:
    place = inside(root, path)
    if not place.exists():
        raise GiveUp(f"There is no folder {path!r} in the files folder")
    if not place.is_dir():
        raise GiveUp(f"{path!r} is not a folder")
    return place


def _entries(root: Path, path: str) -> list[dict[str, Any]]:
    place, real_root = _folder(root, path), root.resolve()
    found = [entry for entry in sorted(place.iterdir()) if _is_below(entry, real_root)]
    if len(found) > LISTED_FILES_LIMIT:
        raise GiveUp(f"{path!r} has {len(found):,} entries, over the limit of {LISTED_FILES_LIMIT:,}")
    return [_entry(entry, place.relative_to(real_root)) for entry in found]


def _entry(entry: Path, base: Path) -> dict[str, Any]:
    told: dict[str, Any] = {"name": entry.name, "path": (base / entry.name).as_posix()}
    if entry.is_dir():
        return {**told, "type": "folder"}
    return {**told, "type": "file", "bytes": entry.stat().st_size}


def _is_below(entry: Path, real_root: Path) -> bool:
    """Tells whether a file or folder is one that no link leads out to, and that is no socket or pipe."""
    try:
        return entry.resolve().is_relative_to(real_root) and (entry.is_file() or entry.is_dir())
    except (OSError, RuntimeError):
        return False


def _searched(root: Path, path: str, *, pattern: str, text: str | None, limit: int) -> dict[str, Any]:
    place, real_root = _folder(root, path), root.resolve()
    matches: list[dict[str, Any]] = []
    skipped = 0
    for file in _files_below(place, real_root):
        if context().cancelled:
            break
        relative = file.relative_to(real_root).as_posix()
        if not (fnmatch.fnmatchcase(file.name, pattern) or fnmatch.fnmatchcase(relative, pattern)):
            continue
        if text is None:
            matches.append({"path": relative, "bytes": file.stat().st_size})
        else:
            lines = _lines_with(file, text)
            skipped += lines is None
            matches += [{"path": relative, **line} for line in lines or ()]
        if len(matches) > limit:
            return {"matches": matches[:limit], "is_cut": True, "skipped_files": skipped}
    return {"matches": matches, "is_cut": False, "skipped_files": skipped}


def _files_below(place: Path, real_root: Path) -> Iterator[Path]:
    """Yields the files below a folder in order; links to folders are not followed."""
    seen = 0
    for folder, folders, names in os.walk(place):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            seen += 1
            if seen > SEARCHED_FILES_LIMIT:
                raise GiveUp(f"There are over {SEARCHED_FILES_LIMIT:,} files there; name a folder further down")
            file = Path(folder) / name
            if not name.startswith(".") and _is_below(file, real_root):
                yield file


def _lines_with(file: Path, text: str) -> list[dict[str, Any]] | None:
    """Returns the lines of a file that hold a text; `None` if it is no text, too large or not to be read."""
    try:
        with file.open("rb") as opened:
            content = opened.read(SEARCHED_FILE_BYTES + 1)
    except OSError:
        return None
    if len(content) > SEARCHED_FILE_BYTES or b"\0" in content[:_BINARY_LOOK_BYTES]:
        return None
    try:
        lines = content.decode().splitlines()
    except UnicodeDecodeError:
        return None
    wanted = text.casefold()
    return [
        {"line": number, "text": line.strip()[:SHOWN_CHARACTERS]}
        for number, line in enumerate(lines, 1)
        if wanted in line.casefold()
    ]
