"""A background process that outlives the command that starts it. Later commands can find and stop it.

The process inherits a file lock, which shows reliably whether the process is running; a PID may be reused. The process
has its own process group and is adopted by init, so Ctrl-C in the terminal does not reach it.
"""

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from dagwright.server.locks import acquire_lock, is_file_locked, is_locked
from dagwright.store.private_files import make_private_folder

_MAX_LOG_BYTES = 5_000_000
"""A log larger than this is truncated at the next start."""

_GRACE_S = 10.0
"""Temporal's dev server takes about 2 s to shut down gracefully, a worker up to 10 s."""

_POLL_INTERVAL_S = 0.05

_SOCKET_TABLES = Path("/proc/net/tcp"), Path("/proc/net/tcp6")
_LISTEN_STATE = "0A"
"""State of a listening socket in those tables: `TCP_LISTEN` in Linux's `include/net/tcp_states.h`."""

_LAUNCH_SCRIPT = """
log=$1; pid=$2; mask=$3; shift 3
[ "$mask" ] || mask=$(umask)
umask 077
exec >>"$log" 2>&1 </dev/null
(umask "$mask"; exec "$@") &
echo $! >"$pid"
"""
"""Shell script that starts the process; its log and PID file are private. An empty mask keeps the umask."""


@dataclass(frozen=True, slots=True)
class Daemon:
    """A background process with the files `<name>.lock`, `<name>.pid` and `<name>.log` in a folder.

    Args:
        umask: umask of the process; `None` keeps the umask of the command that starts it.
    """

    folder: Path
    name: str
    umask: int | None = None

    @property
    def lock_path(self) -> Path:
        return self.folder / f"{self.name}.lock"

    @property
    def log_path(self) -> Path:
        return self.folder / f"{self.name}.log"

    @property
    def _pid_path(self) -> Path:
        return self.folder / f"{self.name}.pid"

    def is_running(self) -> bool:
        """Return whether the process, or a child that inherited its lock, is running."""
        return is_locked(self.lock_path)

    def age_s(self) -> float | None:
        """Return how long the process has been running, in seconds; `None` if it does not run."""
        if not self.is_running():
            return None
        try:
            return max(0.0, time.time() - self._pid_path.stat().st_mtime)
        except FileNotFoundError:
            return 0.0

    def pid(self) -> int | None:
        """Return the process ID; `None` if the process is not running."""
        if not self.is_running():
            return None
        try:
            return int(self._pid_path.read_text(encoding="ascii"))
        except (FileNotFoundError, ValueError):
            return None

    def listens(self, port: int) -> bool:
        """Return whether the process or one of its children listens on a TCP port; True on systems without `/proc`."""
        pid = self.pid()
        if pid is None:
            return False
        if not _SOCKET_TABLES[0].exists():
            return True
        try:
            group = os.getpgid(pid)
        except ProcessLookupError:
            return False
        return not _listening_sockets(port).isdisjoint(_open_files_of_group(group))

    async def start(self, command: Sequence[str]) -> None:
        """Start `command` in the background; its output goes to the log.

        Raises:
            TimeoutError: the process is already running.
            OSError: there is no shell, or the folder is not writable.
        """
        make_private_folder(self.folder)
        # A command that checks whether the process is running holds the lock for an instant, so wait a moment.
        descriptor = await acquire_lock(self.lock_path, timeout_s=1)
        try:
            self._pid_path.unlink(missing_ok=True)
            self._launch(command, descriptor=descriptor)
        finally:
            os.close(descriptor)

    def _launch(self, command: Sequence[str], *, descriptor: int) -> None:
        if self.log_path.exists() and self.log_path.stat().st_size > _MAX_LOG_BYTES:
            self.log_path.unlink()
        mask = "" if self.umask is None else f"{self.umask:04o}"
        shell_result = subprocess.run(
            ["/bin/sh", "-c", _LAUNCH_SCRIPT, "sh", str(self.log_path), str(self._pid_path), mask, *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(descriptor,),
            start_new_session=True,
            check=False,
        )
        if shell_result.returncode != 0:
            raise OSError(f"the shell could not start {command[0]} (exit code {shell_result.returncode})")

    async def stop(self, *, grace_s: float = _GRACE_S) -> bool:
        """Stop the process, gracefully if it ends within `grace_s` seconds; return whether it was running."""
        pid = self.pid()
        if pid is None:
            return False
        await _stop_process(pid, self.is_running, grace_s=grace_s)
        return True

    def open_handle(self) -> "DaemonHandle | None":
        """Return a handle that controls the process even if its files are deleted; `None` if no process is running."""
        pid = self.pid()
        return None if pid is None else DaemonHandle(pid, self.lock_path, os.open(self.lock_path, os.O_RDWR))

    def last_log_line(self) -> str:
        """Return the last line of the log, at most 500 characters, or an empty string."""
        try:
            with self.log_path.open("rb") as log:
                log.seek(max(0, self.log_path.stat().st_size - 4096))
                lines = log.read().decode("utf-8", "replace").strip().splitlines()
        except FileNotFoundError:
            return ""
        return lines[-1][:500] if lines else ""


@dataclass(frozen=True, slots=True)
class DaemonHandle:
    """Handle of a process, identified by the lock that the process holds; valid even if the lock file is deleted.

    Args:
        lock_path: original path of the lock file.
        descriptor: file descriptor of that file, open and not locked.
    """

    pid: int
    lock_path: Path
    descriptor: int

    def is_lost(self) -> bool:
        """Return whether the process is running but can no longer be found by its files."""
        try:
            is_found = os.path.samestat(self.lock_path.stat(), os.fstat(self.descriptor))
        except OSError:
            is_found = False
        return not is_found and is_file_locked(self.descriptor)

    async def stop(self, *, grace_s: float = _GRACE_S) -> None:
        """Stop the process, gracefully if it ends within `grace_s` seconds."""
        await _stop_process(self.pid, lambda: is_file_locked(self.descriptor), grace_s=grace_s)

    def close(self) -> None:
        """Release the handle; the process continues."""
        os.close(self.descriptor)


def _listening_sockets(port: int) -> set[str]:
    """Return the names of the sockets that listen on a port, in the format of the links in `/proc/PID/fd`."""
    rows = (line.split() for table in _SOCKET_TABLES if table.exists() for line in table.read_text().splitlines()[1:])
    return {f"socket:[{row[9]}]" for row in rows if row[3] == _LISTEN_STATE and row[1].endswith(f":{port:04X}")}


def _open_files_of_group(group: int) -> Iterator[str]:
    """Yield the names of the open files of all processes in a process group."""
    for process in Path("/proc").glob("[0-9]*"):
        # A process or one of its files may have disappeared, or belong to another user.
        with suppress(OSError):
            if os.getpgid(int(process.name)) == group:
                for file in (process / "fd").iterdir():
                    with suppress(OSError):
                        yield str(file.readlink())


async def _stop_process(pid: int, is_running: Callable[[], bool], *, grace_s: float) -> None:
    for signal_number, timeout_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, 5.0)):
        try:
            os.killpg(os.getpgid(pid), signal_number)
        except ProcessLookupError:
            return
        deadline = time.monotonic() + timeout_s
        while is_running() and time.monotonic() < deadline:
            await asyncio.sleep(_POLL_INTERVAL_S)
        if not is_running():
            return
