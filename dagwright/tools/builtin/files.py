"""Files below one folder, which no path, however written, gets out of."""

import base64
import fnmatch
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from dagwright.contracts.limits import BUILT_IN_RESULT_BYTES
from dagwright.tools.context import context, note_read
from dagwright.tools.environment import ToolEnvironment
from dagwright.tools.errors import GiveUp
from dagwright.tools.spec import tool

LISTED_FILES_LIMIT = 10_000

Encoding = Literal["utf-8", "base64"]


def file_tools(environment: ToolEnvironment) -> list[Callable[..., Any]]:
    """Returns `read_file`, `write_file` and `list_files`, which stay below the environment's folder."""
    root = environment.files_root

    @tool(effects="read")
    def read_file(path: str, encoding: Encoding = "utf-8") -> str:
        """Reads a file and returns its text.

        Args:
            path: below the files folder
            encoding: `utf-8` for text, `base64` for any bytes
        """
        text = _read(inside(root, path), path, encoding=encoding)
        note_read(path)
        return text

    @tool(effects="idempotent")
    def write_file(path: str, content: Any, encoding: Encoding = "utf-8") -> dict[str, Any]:
        """Writes a file, whole or not at all, and returns its path and size; folders are made as needed.

        Args:
            path: below the files folder; a file that is there is replaced
            content: text, or any JSON value, which is written as JSON
            encoding: `utf-8` for text, `base64` if the content is base64
        """
        target = inside(root, path)
        written = _encoded(content, encoding)
        _write(target, written)
        return {"path": path, "bytes": len(written)}

    @tool(effects="read")
    def list_files(folder: str = ".", pattern: str = "*") -> dict[str, list[dict[str, Any]]]:
        """Lists the files of a folder by name, each with its name, path and size in bytes.

        Args:
            folder: below the files folder
            pattern: only names like this, such as `*.csv`
        """
        found = _listed(root, folder, pattern=pattern)
        note_read(folder)
        return {"files": found}

    return [read_file, write_file, list_files]


def inside(root: Path, path: str) -> Path:
    """Returns the real place of `path` below `root`.

    Raises:
        GiveUp: the path is absolute, or leads out of `root` by `..` or by a link.
    """
    if "\0" in path or not path.strip():
        raise GiveUp(f"{path!r} is no path")
    real_root = root.resolve()
    try:
        real = (real_root / path).resolve()
    except (OSError, RuntimeError) as error:
        raise GiveUp(f"{path!r} cannot be followed: {error}") from error
    if Path(path).is_absolute() or not real.is_relative_to(real_root):
        raise GiveUp(f"{path!r} is outside the files folder; give a path relative to it")
    return real


def _read(place: Path, path: str, *, encoding: Encoding) -> str:
    try:
        with place.open("rb") as file:
            content = file.read(BUILT_IN_RESULT_BYTES + 1)
    except FileNotFoundError:
        raise GiveUp(f"There is no file {path!r} in the files folder") from None
    except (IsADirectoryError, NotADirectoryError):
        raise GiveUp(f"{path!r} is not a file") from None
    if len(content) > BUILT_IN_RESULT_BYTES:
        size = place.stat().st_size
        told = f"{path!r} has {size:,} bytes, over the limit of {BUILT_IN_RESULT_BYTES:,} for a result"
        raise GiveUp(f"{told}; split it, or let a tool of your own read it where it is")
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


def _write(target: Path, content: bytes) -> None:
    if target.is_dir():
        raise GiveUp(f"{target.name!r} is a folder")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise GiveUp(f"A part of the path to {target.name!r} is a file, not a folder") from None
    # Named by the effect: an attempt that follows a crash overwrites the leftover instead of adding one.
    mark = hashlib.sha256(f"{context().idempotency_key}/{target.name}".encode()).hexdigest()[:16]
    draft = target.parent / f".{mark}.draft"
    try:
        with draft.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)


def _listed(root: Path, folder: str, *, pattern: str) -> list[dict[str, Any]]:
    place = inside(root, folder)
    try:
        found = sorted(entry for entry in place.iterdir() if fnmatch.fnmatchcase(entry.name, pattern))
    except FileNotFoundError:
        raise GiveUp(f"There is no folder {folder!r} in the files folder") from None
    except NotADirectoryError:
        raise GiveUp(f"{folder!r} is not a folder") from None
    real_root = root.resolve()
    files = [entry for entry in found if entry.is_file() and entry.resolve().is_relative_to(real_root)]
    if len(files) > LISTED_FILES_LIMIT:
        raise GiveUp(f"{folder!r} has {len(files):,} files, over the limit of {LISTED_FILES_LIMIT:,}")
    base = place.relative_to(real_root)
    return [
        {"name": entry.name, "path": (base / entry.name).as_posix(), "bytes": entry.stat().st_size} for entry in files
    ]
