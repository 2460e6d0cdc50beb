"""`list_directory` and `search_files`: find files in the files folder by name and by text."""

import fnmatch
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from typing import Annotated, Any

from pydantic import Field

from dagwright.tools.builtin.file_access import FileAccess, FolderEntry, OpenFolder
from dagwright.tools.builtin.files import LISTED_FILES_LIMIT, folder_errors
from dagwright.tools.context import context, record_reads
from dagwright.tools.environment import ToolEnvironment
from dagwright.tools.errors import GiveUp
from dagwright.tools.spec import tool

MATCHES_LIMIT = 500
SEARCHED_FILES_LIMIT = 50_000
SEARCH_DEPTH_LIMIT = 100
"""Limit of nested folders; each is open while its subfolders are searched."""
SEARCHED_FILE_LIMIT_BYTES = 4 * 1024 * 1024
"""Larger files are skipped; the result counts them."""
SHOWN_CHARACTERS = 300
"""Maximum length of a matching line in the result."""
_BINARY_CHECK_BYTES = 8 * 1024


def file_search_tools(environment: ToolEnvironment) -> list[Callable[..., Any]]:
    """Return `list_directory` and `search_files` for the environment's files folder."""
    access = FileAccess(environment)

    @tool(effects="read", secrets=[])
    def list_directory(path: str = ".") -> dict[str, list[dict[str, Any]]]:
        """List the entries of a folder, sorted by name: files with their size in bytes, and folders.

        Args:
            path: a folder in the files folder
        """
        entries = _entries(access, path)
        record_reads(path)
        return {"entries": entries}

    @tool(effects="read", secrets=[], timeout="2m")
    def search_files(
        pattern: str = "*", text: str | None = None, path: str = ".", limit: Annotated[int, Field(ge=1)] = 100
    ) -> dict[str, Any]:
        """Find files by name, or lines in files by text; hidden, binary and large files are skipped.

        Args:
            pattern: file names, such as `*.md`, or paths, such as `notes/*/plan-?.txt`
            text: text that a line must contain, ignoring case; without it, the files themselves are listed
            path: the folder to start from, in the files folder
            limit: maximum number of matches, at most 500
        """
        if text is not None and not text.strip():
            raise ValueError("text is empty; omit it to find files by name")
        result = _search(access, path, pattern=pattern, text=text, limit=min(limit, MATCHES_LIMIT))
        record_reads(path)
        if text is not None:
            record_reads(*dict.fromkeys(match["path"] for match in result["matches"]))
        return result

    return [list_directory, search_files]


def _entries(access: FileAccess, path: str) -> list[dict[str, Any]]:
    with folder_errors(path), access.folder(path) as folder:
        entries = folder.entries()
    if len(entries) > LISTED_FILES_LIMIT:
        raise GiveUp(f"{path!r} has {len(entries):,} entries, over the limit of {LISTED_FILES_LIMIT:,}")
    return [_entry_document(entry, folder) for entry in entries]


def _entry_document(entry: FolderEntry, folder: OpenFolder) -> dict[str, Any]:
    document: dict[str, Any] = {"name": entry.name, "path": str(folder.relative_path / entry.name)}
    if entry.is_folder:
        return {**document, "type": "folder"}
    return {**document, "type": "file", "bytes": entry.size_bytes}


def _search(access: FileAccess, path: str, *, pattern: str, text: str | None, limit: int) -> dict[str, Any]:
    matches: list[dict[str, Any]] = []
    skipped_count = 0
    with folder_errors(path), access.folder(path) as top_folder:
        for folder, entry in _files_in(top_folder):
            if context().cancelled:
                break
            relative_path = str(folder.relative_path / entry.name)
            if not (fnmatch.fnmatchcase(entry.name, pattern) or fnmatch.fnmatchcase(relative_path, pattern)):
                continue
            if text is None:
                matches.append({"path": relative_path, "bytes": entry.size_bytes})
            else:
                lines = _lines_containing(folder, entry, text)
                skipped_count += lines is None
                matches += [{"path": relative_path, **line} for line in lines or ()]
            if len(matches) > limit:
                return {"matches": matches[:limit], "is_cut": True, "skipped_files": skipped_count}
    return {"matches": matches, "is_cut": False, "skipped_files": skipped_count}


def _files_in(top_folder: OpenFolder) -> Iterator[tuple[OpenFolder, FolderEntry]]:
    """Yield the files of a folder in order, then the files of its subfolders; each file with its open folder."""
    counter = count()

    def walk(folder: OpenFolder, depth: int) -> Iterator[tuple[OpenFolder, FolderEntry]]:
        entries = folder.entries()
        for entry in entries:
            if not entry.is_folder:
                if next(counter) >= SEARCHED_FILES_LIMIT:
                    raise GiveUp(f"There are over {SEARCHED_FILES_LIMIT:,} files; choose a subfolder")
                yield folder, entry
        for entry in entries if depth < SEARCH_DEPTH_LIMIT else ():
            if entry.is_folder:
                with ExitStack() as stack:
                    try:
                        subfolder = stack.enter_context(folder.folder(entry.name))
                    except (OSError, GiveUp):
                        continue
                    yield from walk(subfolder, depth + 1)

    return walk(top_folder, 0)


def _lines_containing(folder: OpenFolder, entry: FolderEntry, text: str) -> list[dict[str, Any]] | None:
    """Return the lines of a file that contain a text; `None` if the file is unreadable, too large or not text."""
    try:
        with folder.file(entry.name) as file:
            content = file.read(SEARCHED_FILE_LIMIT_BYTES + 1)
    except (OSError, GiveUp):
        return None
    if len(content) > SEARCHED_FILE_LIMIT_BYTES or b"\0" in content[:_BINARY_CHECK_BYTES]:
        return None
    try:
        lines = content.decode().splitlines()
    except UnicodeDecodeError:
        return None
    searched_text = text.casefold()
    return [
        {"line": number, "text": line.strip()[:SHOWN_CHARACTERS]}
        for number, line in enumerate(lines, 1)
        if searched_text in line.casefold()
    ]
