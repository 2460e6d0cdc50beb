"""Find the `temporal` program on the path or in the user's cache; otherwise download it, or build it with Go.

The version is fixed: v1.5.1 is the newest that `go install` accepts (later versions have a `replace` directive in
go.mod), and it includes server 1.29.1, with which all measurements of this project were made.
"""

import asyncio
import os
import re
import shutil
import signal
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from dagwright.server.errors import ServerUnreachable
from dagwright.server.locks import holding_lock

CLI_VERSION = "1.5.1"
SERVER_VERSION = "1.29.1"
"""Version of the server in this version of the CLI."""

_GO_MODULE = f"github.com/temporalio/cli/cmd/temporal@v{CLI_VERSION}"
_MIN_SERVER_VERSION = (1, 27)
"""First version with priorities; older programs on the path are skipped."""

_DOWNLOAD_SITE = "https://temporal.download/"
_DOWNLOAD_TIMEOUT_S = 300.0
_SITE_CHECK_TIMEOUT_S = 5.0
_BUILD_TIMEOUT_S = 1800.0
"""The build takes 2.5 minutes on two idle cores; the timeout allows for a slow machine and a slow network."""

_INSTALL_HINT = (
    "no Temporal server is available: install the Temporal CLI (https://docs.temporal.io/cli) or Go 1.25 "
    "or newer, or set TEMPORAL_ADDRESS to a running server"
)


@dataclass(frozen=True, slots=True)
class Binary:
    """A `temporal` program that runs on this machine, and the version of its server."""

    path: Path
    server_version: str


async def get_binary(cache_home: Path, *, preferred_version: str | None) -> Binary:
    """Return a program to start a server with, installing it if necessary.

    Args:
        cache_home: the user's cache folder.
        preferred_version: version of the server that created the state; a program of this version is preferred.

    Raises:
        ServerUnreachable: there is no program, and it cannot be installed.
    """
    cached_path = cache_home / "dagwright" / f"temporal-{CLI_VERSION}" / "temporal"
    program_path = shutil.which("temporal")
    binaries = [
        binary
        for path in ([Path(program_path)] if program_path else []) + [cached_path]
        if (binary := await _inspect(path)) is not None
    ]
    for binary in binaries:
        if preferred_version in (None, binary.server_version):
            return binary
    if binaries and preferred_version != SERVER_VERSION:
        return binaries[0]
    try:
        return await _install(cached_path)
    except ServerUnreachable:
        if binaries:
            return binaries[0]
        raise


async def _inspect(path: Path) -> Binary | None:
    if not path.is_file():
        return None
    try:
        process = await asyncio.create_subprocess_exec(
            path, "--version", stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
        )
    except OSError:
        return None
    try:
        output, _ = await asyncio.wait_for(process.communicate(), timeout=15)
    except TimeoutError:
        process.kill()
        await process.wait()
        return None
    match = re.search(r"Server (\d+)\.(\d+)(\.\d+)", output.decode("utf-8", "replace"))
    if match is None or (int(match[1]), int(match[2])) < _MIN_SERVER_VERSION:
        return None
    return Binary(path, f"{match[1]}.{match[2]}{match[3]}")


async def _install(target: Path) -> Binary:
    cache_folder = target.parent.parent
    try:
        cache_folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ServerUnreachable(f"the cache folder {cache_folder} cannot be written: {error.strerror}") from error
    async with holding_lock(cache_folder / "get.lock", timeout_s=_BUILD_TIMEOUT_S, on_wait=_report_other_install):
        installed_binary = await _inspect(target)
        if installed_binary is not None:
            return installed_binary
        for unfinished_folder in cache_folder.glob(".getting-*"):
            shutil.rmtree(unfinished_folder, ignore_errors=True)
        with tempfile.TemporaryDirectory(dir=cache_folder, prefix=".getting-") as name:
            folder = Path(name)
            program = await _download(folder) or await _build(folder)
            target.parent.mkdir(exist_ok=True)
            program.replace(target)
    binary = await _inspect(target)
    if binary is None:
        raise ServerUnreachable(f"{target} does not run on this machine: {_INSTALL_HINT}")
    return binary


async def _download(folder: Path) -> Path | None:
    """Download the program with the SDK; return `None` if the site is unreachable or the download does not finish."""
    if not await asyncio.to_thread(_is_site_reachable):
        return None
    from temporalio.testing import WorkflowEnvironment  # noqa: PLC0415 - takes long to import, and is rarely used

    print_progress("downloading the Temporal server (once, about 100 MB)")
    try:
        # The SDK has no call that only downloads, so the server that it starts is stopped immediately.
        environment = await asyncio.wait_for(
            WorkflowEnvironment.start_local(
                download_dest_dir=str(folder), dev_server_download_version=f"v{CLI_VERSION}"
            ),
            timeout=_DOWNLOAD_TIMEOUT_S,
        )
    except (RuntimeError, TimeoutError) as error:
        print_progress(f"the download failed: {error}")
        return None
    await environment.shutdown()
    return next((path for path in folder.iterdir() if path.is_file() and os.access(path, os.X_OK)), None)


def _is_site_reachable() -> bool:
    # The standard library also uses the machine's proxy settings. Another library would slow down the start of `run`.
    request = urllib.request.Request(_DOWNLOAD_SITE, method="HEAD")
    try:
        with urllib.request.urlopen(request, timeout=_SITE_CHECK_TIMEOUT_S):
            return True
    except urllib.error.HTTPError as error:
        error.close()
        return True
    except OSError:
        return False


async def _build(folder: Path) -> Path:
    if shutil.which("go") is None:
        raise ServerUnreachable(_INSTALL_HINT)
    print_progress("building the Temporal server with Go (once, about 3 minutes)")
    process = await asyncio.create_subprocess_exec(
        "env",
        f"GOBIN={folder}",
        "go",
        "install",
        _GO_MODULE,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        message = await asyncio.wait_for(_watch_build(process), timeout=_BUILD_TIMEOUT_S)
    except BaseException as error:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        if isinstance(error, TimeoutError):
            raise ServerUnreachable(f"the build did not end within half an hour; {_INSTALL_HINT}") from error
        raise
    if process.returncode != 0:
        last_line = message.strip().splitlines()[-1][:300] if message.strip() else f"exit code {process.returncode}"
        raise ServerUnreachable(f"go install {_GO_MODULE} failed ({last_line}); {_INSTALL_HINT}")
    return folder / "temporal"


async def _watch_build(process: asyncio.subprocess.Process) -> str:
    build = asyncio.create_task(process.communicate())
    async for minutes in _each_minute(build):
        print_progress(f"still building ({minutes} min)")
    _, message = await build
    return message.decode("utf-8", "replace")


async def _each_minute(task: asyncio.Task[tuple[bytes, bytes]]) -> AsyncIterator[int]:
    minutes = 0
    while not (await asyncio.wait({task}, timeout=60))[0]:
        minutes += 1
        yield minutes


def _report_other_install() -> None:
    print_progress("waiting for another command that installs the Temporal server")


def print_progress(text: str) -> None:
    """Write one line of progress to stderr, at any log level: some steps take minutes."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
