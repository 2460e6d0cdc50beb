"""Paths that the file tools of a process must not access, from its settings and the values of `--tools` and `--agents`.

A background worker does not know the options of later commands, so each command records its own files in the state
folder, where all processes of that folder find them.
"""

import fcntl
import json
import os
import re
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

from dagwright.mcp_client.config import Program, Variables, read_servers
from dagwright.settings import Settings
from dagwright.store.private_files import make_private_folder
from dagwright.tools.errors import ToolLoadError
from dagwright.tools.protected_paths import ProtectedPaths, recorded_paths
from dagwright.tools.tool_references import (
    SERVERS_SUFFIX,
    absolute_path,
    agents_file_of_reference,
    is_path,
    tools_queue_of_reference,
)

RECORD_FILE_NAME = "protected-paths.json"
MAX_RECORDED_PATHS = 1_000
"""Maximum number of recorded paths. The oldest are removed first, because they belong to old commands."""
_SQLITE_FILE = re.compile(r"sqlite[^:/]*:///([^?]+)")
_SQLITE_FILE_SUFFIXES = ("", "-wal", "-shm", "-journal")


def protected_paths(settings: Settings, references: Sequence[str] = ()) -> ProtectedPaths:
    """Return the paths and modules that the file tools of a process must not access.

    Args:
        references: as returned by `references_of`.
    """
    files = [file for file in map(_file_in, references) if file is not None]
    programs = [program for file in files if file.suffix == SERVERS_SUFFIX for program in _programs_in(file, settings)]
    return ProtectedPaths(
        paths=(*_paths_of(settings), *files, *programs),
        modules=tuple(
            reference
            for reference in references
            if _file_in(reference) is None and tools_queue_of_reference(reference) is None
        ),
        code_folders=tuple(
            dict.fromkeys([Path.cwd(), *(path.parent for file in files for path in (file, file.resolve()))])
        ),
        record_file=settings.state_dir / RECORD_FILE_NAME,
    )


def record_protected_paths(settings: Settings, protected_paths: ProtectedPaths) -> None:
    """Record the paths of this process for the other processes of its state folder, if the folder is writable.

    The modules with tools must be imported already, because the record contains the files of these modules. The record
    does not contain the names of the modules, because a name may refer to another file in another process.
    """
    record_file = settings.state_dir / RECORD_FILE_NAME
    paths = [*protected_paths.paths, *protected_paths.module_files()]
    outside_paths = [str(path) for path in paths if not path.is_relative_to(settings.state_dir)]
    if set(outside_paths) <= {str(path) for path in recorded_paths(record_file)}:
        return
    try:
        make_private_folder(settings.state_dir)
        lock = os.open(record_file.with_name(f".{RECORD_FILE_NAME}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        # No process can write to this state folder, so no worker uses the folder, and no worker needs the record.
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        previous_paths = [str(path) for path in recorded_paths(record_file)]
        descriptor, name = tempfile.mkstemp(dir=record_file.parent, prefix=f".{RECORD_FILE_NAME}-")
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(list(dict.fromkeys([*previous_paths, *outside_paths]))[-MAX_RECORDED_PATHS:], file)
        Path(name).replace(record_file)
    finally:
        os.close(lock)


def _paths_of(settings: Settings) -> Iterator[Path]:
    yield settings.state_dir
    yield settings.api_keys
    yield settings.cache_home / "dagwright"
    if settings.plans is not None:
        yield settings.plans
    if settings.prices is not None:
        yield settings.prices
    if "://" not in settings.payload_store:
        yield Path(settings.payload_store)
    if (match := _SQLITE_FILE.match(settings.database_url)) is not None:
        yield from (Path(f"{match[1]}{suffix}") for suffix in _SQLITE_FILE_SUFFIXES)
    for file in settings.temporal_files():
        yield file
        yield from _tls_files_in(file)
    if sys.prefix != sys.base_prefix:
        # The virtual environment, whose programs are executed.
        yield Path(sys.prefix)


def _file_in(reference: str) -> Path | None:
    """Return the file of a reference; `None` if the reference is a module or a queue."""
    agents_file = agents_file_of_reference(reference)
    if agents_file is not None:
        return absolute_path(agents_file)
    is_file = is_path(reference) and tools_queue_of_reference(reference) is None
    return absolute_path(reference) if is_file else None


def _programs_in(servers_file: Path, settings: Settings) -> Iterator[Path]:
    """Yield the command of each MCP server in a file, and its first argument that is a file: `node server.js`."""
    try:
        configs = read_servers(servers_file, Variables(settings.secret, settings.variable))
    except ToolLoadError:
        # Loading the tools reports the errors of the file.
        return
    for program in (config.endpoint for config in configs if isinstance(config.endpoint, Program)):
        script = next(filter(Path.is_file, (program.cwd / argument for argument in program.args)), None)
        yield from (absolute_path(str(file)) for file in (program.cwd / program.command, script) if file is not None)


def _tls_files_in(config: Path) -> Iterator[Path]:
    """Yield the TLS files in the profiles of a configuration file of Temporal's client."""
    try:
        profiles = tomllib.loads(config.read_text(encoding="utf-8")).get("profile")
    except (OSError, ValueError):
        # The client reports the errors of the file when it connects.
        return
    for profile in profiles.values() if isinstance(profiles, dict) else ():
        tls = profile.get("tls") if isinstance(profile, dict) else None
        for name, value in tls.items() if isinstance(tls, dict) else ():
            if name.endswith("_path") and isinstance(value, str):
                yield absolute_path(value)
