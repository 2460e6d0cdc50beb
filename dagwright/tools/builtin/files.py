"""`read_file`, `write_file` and `list_files`: files below one folder, which no path, however written, leads out of."""

import base64
import fnmatch
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

from dagwright.core.boundary.limits import BUILT_IN_RESULT_BYTES
from dagwright.tools.builtin.file_access import FileAccess
from dagwright.tools.context import note_read
from dagwright.tools.environment import ToolEnvironment
from dagwright.tools.errors import GiveUp
from dagwright.tools.spec import tool

LISTED_FILES_LIMIT = 10_000

Encoding = Literal["utf-8", "base64"]


def file_tools(environment: ToolEnvironment) -> list[Callable[..., Any]]:
    """Returns `read_file`, `write_file` and `list_files`, which stay below the environment's folder."""
    access = FileAccess(environment)

    @tool(effects="read", secrets=[])
    def read_file(path: str, encoding: Encoding = "utf-8") -> str:
        """Reads a file and returns its text.

        Args:
            path: below the files folder
            encoding: `utf-8` for text, `base64` for any bytes
        """
        text = _read(access, path, encoding=encoding)
        note_read(path)
        return text

    @tool(effects="idempotent", secrets=[])
    def write_file(path: str, content: Any, encoding: Encoding = "utf-8") -> dict[str, Any]:
        """Writes a file, whole or not at all, and returns its path and size; folders are made as needed.

        Args:
            path: below the files folder; a file that is there is replaced
            content: text, or any JSON value, which is written as JSON
            encoding: `utf-8` for text, `base64` if the content is base64
        """
        written = _encoded(content, encoding)
        _write(access, path, written)
        return {"path": path, "bytes": len(written)}

    @tool(effects="read", secrets=[])
    def list_files(folder: str = ".", pattern: str = "*") -> dict[str, list[dict[str, Any]]]:
        """Lists the files of a folder by name, each with its name, path and size in bytes.

        Args:
            folder: below the files folder
            pattern: only names like this, such as `*.csv`
        """
        found = _listed(access, folder, pattern=pattern)
        note_read(folder)
        return {"files": found}

    return [read_file, write_file, list_files]


def _read(access: FileAccess, path: str, *, encoding: Encoding) -> str:
    try:
        with access.parent(path) as (folder, name), folder.file(name) as file:
            size_bytes = os.fstat(file.fileno()).st_size
            content = file.read(BUILT_IN_RESULT_BYTES + 1)
    except FileNotFoundError:
        raise GiveUp(f"There is no file {path!r} in the files folder") from None
    except (IsADirectoryError, NotADirectoryError):
        raise GiveUp(f"{path!r} is not a file") from None
    if len(content) > BUILT_IN_RESULT_BYTES:
        words = f"{path!r} has {size_bytes:,} bytes, over the limit of {BUILT_IN_RESULT_BYTES:,} for a result"
        raise GiveUp(f"{words}; split it, or let a tool of your own read it where it is")
    if encoding == "base64":
        return base64.b64encode(content).decode()
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise GiveUp(f"{path!r} is not UTF-8 text (byte {error.start}); read it as base64") from None
    if "\0" in text:
        raise GiveUp(f"{path!r} is not text (a null byte); read it as base64")
    return text


def _encoded(content: Any, encoding: Encoding) -> bytes:
    if encoding == "utf-8":
        text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False, indent=2) + "\n"
        return text.encode()
    if not isinstance(content, str):
        raise ValueError("content must be a text of base64")
    try:
        return base64.b64decode(content, validate=True)
    except ValueError as error:
        raise ValueError(f"content is not base64: {error}") from None


def _write(access: FileAccess, path: str, content: bytes) -> None:
    try:
        with access.parent(path, create=True) as (folder, name):
            folder.replace_file(name, content)
    except IsADirectoryError:
        raise GiveUp(f"{path!r} is a folder") from None
    except (FileExistsError, NotADirectoryError):
        raise GiveUp(f"A part of the path {path!r} is a file, not a folder") from None


@contextmanager
def explained_folder(path: str) -> Iterator[None]:
    """Say in words of the tools why a folder cannot be opened.

    Raises:
        GiveUp: it cannot.
    """
    try:
        yield
    except FileNotFoundError:
        raise GiveUp(f"There is no folder {path!r} in the files folder") from None
    except NotADirectoryError:
        raise GiveUp(f"{path!r} is not a folder") from None


def _listed(access: FileAccess, folder: str, *, pattern: str) -> list[dict[str, Any]]:
    with explained_folder(folder), access.folder(folder) as opened:
        files = [
            entry for entry in opened.entries() if not entry.is_folder and fnmatch.fnmatchcase(entry.name, pattern)
        ]
    if len(files) > LISTED_FILES_LIMIT:
        raise GiveUp(f"{folder!r} has {len(files):,} files, over the limit of {LISTED_FILES_LIMIT:,}")
    return [
        {"name": entry.name, "path": str(opened.relative / entry.name), "bytes": entry.size_bytes} for entry in files
    ]
