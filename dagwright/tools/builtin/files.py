"""`read_file`, `write_file` and `list_files`: access to the files of one folder, which no path can leave."""

import base64
import fnmatch
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

from dagwright.core.boundary.limits import MAX_BUILT_IN_RESULT_BYTES
from dagwright.tools.builtin.file_access import FileAccess
from dagwright.tools.context import record_reads
from dagwright.tools.environment import ToolEnvironment
from dagwright.tools.errors import GiveUp
from dagwright.tools.spec import tool

LISTED_FILES_LIMIT = 10_000

Encoding = Literal["utf-8", "base64"]


def file_tools(environment: ToolEnvironment) -> list[Callable[..., Any]]:
    """Return `read_file`, `write_file` and `list_files` for the environment's files folder."""
    access = FileAccess(environment)

    @tool(effects="read", secrets=[])
    def read_file(path: str, encoding: Encoding = "utf-8") -> str:
        """Read a file and return its text.

        Args:
            path: path in the files folder
            encoding: `utf-8` for text, `base64` for any bytes
        """
        text = _read(access, path, encoding=encoding)
        record_reads(path)
        return text

    @tool(effects="idempotent", secrets=[])
    def write_file(path: str, content: Any, encoding: Encoding = "utf-8") -> dict[str, Any]:
        """Write a file atomically and return its path and size; missing folders are created.

        Args:
            path: path in the files folder; an existing file is replaced
            content: text, or any JSON value, which is written as JSON
            encoding: `utf-8` for text, `base64` if the content is base64
        """
        encoded_content = _encode(content, encoding)
        _write(access, path, encoded_content)
        return {"path": path, "bytes": len(encoded_content)}

    @tool(effects="read", secrets=[])
    def list_files(folder: str = ".", pattern: str = "*") -> dict[str, list[dict[str, Any]]]:
        """List the files of a folder, sorted by name, each with its name, path and size in bytes.

        Args:
            folder: folder in the files folder
            pattern: pattern that the names must match, such as `*.csv`
        """
        files = _list(access, folder, pattern=pattern)
        record_reads(folder)
        return {"files": files}

    return [read_file, write_file, list_files]


def _read(access: FileAccess, path: str, *, encoding: Encoding) -> str:
    try:
        with access.parent(path) as (folder, name), folder.file(name) as file:
            size_bytes = os.fstat(file.fileno()).st_size
            content = file.read(MAX_BUILT_IN_RESULT_BYTES + 1)
    except FileNotFoundError:
        raise GiveUp(f"There is no file {path!r} in the files folder") from None
    except (IsADirectoryError, NotADirectoryError):
        raise GiveUp(f"{path!r} is not a file") from None
    if len(content) > MAX_BUILT_IN_RESULT_BYTES:
        message = f"{path!r} has {size_bytes:,} bytes, over the limit of {MAX_BUILT_IN_RESULT_BYTES:,} for a result"
        raise GiveUp(f"{message}; split it, or write a tool that reads it directly")
    if encoding == "base64":
        return base64.b64encode(content).decode()
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise GiveUp(f"{path!r} is not UTF-8 text (byte {error.start}); read it as base64") from None
    if "\0" in text:
        raise GiveUp(f"{path!r} is not text (a null byte); read it as base64")
    return text


def _encode(content: Any, encoding: Encoding) -> bytes:
    if encoding == "utf-8":
        text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False, indent=2) + "\n"
        return text.encode()
    if not isinstance(content, str):
        raise ValueError("content must be base64 text")
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
def folder_errors(path: str) -> Iterator[None]:
    """Convert errors of opening a folder to messages of the tools.

    Raises:
        GiveUp: the folder cannot be opened.
    """
    try:
        yield
    except FileNotFoundError:
        raise GiveUp(f"There is no folder {path!r} in the files folder") from None
    except NotADirectoryError:
        raise GiveUp(f"{path!r} is not a folder") from None


def _list(access: FileAccess, folder: str, *, pattern: str) -> list[dict[str, Any]]:
    with folder_errors(folder), access.folder(folder) as open_folder:
        files = [
            entry for entry in open_folder.entries() if not entry.is_folder and fnmatch.fnmatchcase(entry.name, pattern)
        ]
    if len(files) > LISTED_FILES_LIMIT:
        raise GiveUp(f"{folder!r} has {len(files):,} files, over the limit of {LISTED_FILES_LIMIT:,}")
    return [
        {"name": entry.name, "path": str(open_folder.relative_path / entry.name), "bytes": entry.size_bytes}
        for entry in files
    ]
