"""The server of one state folder: reused if it is running, otherwise started, and stopped when its last holder exits.

A holder is a command that needs the server.

Files in the state folder: `server.lock` (locked by the server process itself, so that no two servers open one
database), `server.json` (address, UI, PID, version), `server.pid`, `server.log`, `temporal.db`, `start.lock` (locked
by the command that changes any of these files), `holders/` (a locked file for each holder),
`kept` (the PID of a server that continues without holders) and `workers/` (background workers).
"""

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote
from uuid import uuid4

from pydantic import BaseModel, ValidationError
from temporalio.client import Client
from temporalio.service import RPCError

from dagwright.logging import temporal_runtime
from dagwright.protocol.conversion import data_converter
from dagwright.server.binary import Binary, get_binary, print_progress
from dagwright.server.daemon import Daemon, DaemonHandle
from dagwright.server.errors import UNREACHABLE_STATUSES, ServerUnreachable
from dagwright.server.locks import holding_lock, is_locked, try_lock
from dagwright.server.namespace import SEARCH_ATTRIBUTES, prepare_namespace
from dagwright.settings import Settings
from dagwright.store.private_files import UMASK, make_files_private, make_private_folder, replace_private, write_private

DYNAMIC_CONFIG = {
    "matching.numTaskqueueReadPartitions": "1",
    "matching.numTaskqueueWritePartitions": "1",
    "matching.enableFairness": "true",
    "system.enableActivityEagerExecution": "true",
    "history.transferProcessorMaxPollRPS": "2000",
    "history.maxInFlightUpdates": "1000",
    "history.maxTotalUpdates": "100000",
    "history.maximumBufferedEventsBatch": "5000",
    "limit.mutableStateActivityFailureSize.warn": "65536",
    "limit.mutableStateActivityFailureSize.error": "65536",
}
"""Settings that make a dev server three to nine times faster than the defaults, measured on server 1.29.1.

The last two raise the size limit for the failure of a retried call to 64 KiB. The default is 4 KiB: the server replaces
a larger failure with `Failure exceeds size limit`. The failure of a tool has up to 20 KiB (activities/errors.py).
"""

_HOST = "127.0.0.1"
_START_TIMEOUT_S = 90.0
_RESPONSE_TIMEOUT_S = 20.0
"""How long a running server may fail to respond before it is restarted."""

_DIAL_TIMEOUT_S = 5.0
_UNRESPONSIVE_GRACE_S = 2.0
_MAX_STARTS = 3
"""Attempts to start the server, each with new ports: a free port may be taken before the server opens it."""

_LOCK_TIMEOUT_S = 1900.0
"""How long to wait for another command that starts the server: it may have to build the server first."""

_POLL_INTERVAL_S = 0.05


@dataclass(frozen=True, slots=True)
class Server:
    """Location of a server.

    Args:
        address: host and port of the frontend.
        namespace: namespace of the runs.
        ui_url: address of the Temporal UI without a trailing slash; `None` if it is unknown.
        pid: process ID of a server that Dagwright started; `None` for other servers.
        version: version of a server that Dagwright started.
        is_new: whether this connection started the server, because no server was running.
    """

    address: str
    namespace: str
    ui_url: str | None = None
    pid: int | None = None
    version: str | None = None
    is_new: bool = False

    def run_url(self, workflow_id: str, *, execution_id: str) -> str | None:
        """Return the address of the page of a run in the Temporal UI; `None` if the UI is unknown."""
        runs = self.runs_url()
        return None if runs is None else f"{runs}/{quote(workflow_id, safe='')}/{execution_id}/history"

    def runs_url(self) -> str | None:
        """Return the address of the page of all runs in the Temporal UI; `None` if the UI is unknown."""
        return None if self.ui_url is None else f"{self.ui_url}/namespaces/{quote(self.namespace, safe='')}/workflows"


class _Record(BaseModel):
    """Content of `server.json`.

    The file remains after the server has stopped: the next start reads the version and the ports from it.
    """

    address: str
    ui_url: str | None = None
    """`None` for a server without UI."""
    version: str
    pid: int | None = None
    program: str | None = None
    """Path of the `temporal` program; `None` for a server that an earlier version started."""


class LocalServer:
    """The server of one state folder. The object itself has no open resources."""

    def __init__(self, settings: Settings) -> None:
        self._folder = settings.state_dir
        self._cache_home = settings.cache_home
        self._daemon = Daemon(self._folder, "server", umask=UMASK)
        self._api_keys = settings.api_keys

    @asynccontextmanager
    async def hold(self, namespace: str = "default") -> AsyncIterator[Server]:
        """Start the server if it is not running, and keep it running during the block.

        The last holder stops the server.

        Raises:
            ServerUnreachable: the server cannot be started.
        """
        with self._report_unusable_files():
            self._make_folder()
            holder = self._folder / "holders" / f"{os.getpid()}-{uuid4().hex[:8]}"
            async with self._start_lock():
                descriptor = try_lock(holder)
                previous_pid = self._daemon.pid()
                try:
                    server = await self._find_or_start(namespace)
                except BaseException:
                    await self._release(holder, descriptor=descriptor)
                    raise
                new_handle = self._daemon.open_handle() if server.pid != previous_pid else None
        try:
            yield replace(server, is_new=new_handle is not None and previous_pid is None)
        finally:
            with self._report_unusable_files():
                await self._end_hold(holder, descriptor=descriptor, new_handle=new_handle)

    async def _end_hold(self, holder: Path, *, descriptor: int | None, new_handle: DaemonHandle | None) -> None:
        if new_handle is not None:
            # If the state folder was deleted in the meantime, no other command could find the server to stop it.
            if new_handle.is_lost():
                await new_handle.stop()
            new_handle.close()
        if self._folder.is_dir():
            async with self._start_lock():
                await self._release(holder, descriptor=descriptor)

    def keep_running(self) -> None:
        """Let the running server continue without holders until `stop`."""
        with self._report_unusable_files():
            pid = self._daemon.pid()
            if pid is not None:
                write_private(self._keep_file, str(pid))

    def find(self, namespace: str = "default") -> Server | None:
        """Return the server if its process is running. The caller does not become a holder, so the server may stop."""
        with self._report_unusable_files():
            record = self._read_record()
            if record is None or not self._daemon.is_running():
                return None
            return self._server_of(record, namespace=namespace)

    async def stop(self) -> list[str]:
        """Stop the background workers and the server, even if in use; return the names of stopped processes."""
        if not self._folder.is_dir():
            return []
        # A worker that shuts down gracefully needs the lock to release the server, so the workers are stopped before
        # the lock is acquired.
        workers = self.workers()
        were_running = await asyncio.gather(*(worker.stop() for worker in workers))
        stopped_names = [worker.name for worker, was_running in zip(workers, were_running, strict=True) if was_running]
        with self._report_unusable_files():
            async with self._start_lock():
                if await self._daemon.stop():
                    stopped_names.append(self._daemon.name)
                self._keep_file.unlink(missing_ok=True)
        return stopped_names

    def program(self) -> str | None:
        """Return the path of the `temporal` program that runs the server; `None` if it is unknown or no server runs."""
        record = self._read_record() if self._daemon.is_running() else None
        return record.program if record is not None else None

    def worker(self, name: str) -> Daemon:
        """Return the background worker with this name (letters, digits, `-`). `LocalServer.stop` also stops workers."""
        return Daemon(self._folder / "workers", name)

    def workers(self) -> list[Daemon]:
        """Return all background workers that were ever started in this state folder, sorted by name."""
        return [self.worker(path.stem) for path in sorted((self._folder / "workers").glob("*.lock"))]

    @property
    def _keep_file(self) -> Path:
        return self._folder / "kept"

    @property
    def _record_path(self) -> Path:
        return self._folder / "server.json"

    @contextmanager
    def _report_unusable_files(self) -> Iterator[None]:
        """Report an unusable file of the state folder in one sentence, with a hint."""
        try:
            yield
        except (IsADirectoryError, NotADirectoryError, PermissionError, FileExistsError) as error:
            advice = "remove it, or name another folder in DAGWRIGHT_STATE_DIR"
            raise ServerUnreachable(
                f"the state folder cannot be used: {error.filename}: {error.strerror}; {advice}"
            ) from error

    @asynccontextmanager
    async def _start_lock(self) -> AsyncIterator[None]:
        """Lock the server, so that only one command at a time inspects and changes it."""
        lock_path = self._folder / "start.lock"
        try:
            async with holding_lock(lock_path, timeout_s=_LOCK_TIMEOUT_S, on_wait=self._report_other_start):
                yield
        except TimeoutError as error:
            raise ServerUnreachable(f"another command has been starting the server for too long: {error}") from error

    def _report_other_start(self) -> None:
        # Commands that only find a running server hold the lock for a moment.
        if not self._daemon.is_running():
            print_progress("waiting for another command that is starting the server")

    def _make_folder(self) -> None:
        try:
            if not make_private_folder(self._folder):
                print_progress(
                    f"other users may read the state folder {self._folder}: its mode cannot be changed to 0700"
                )
            make_private_folder(self._folder / "holders")
            ignore_file = self._folder / ".gitignore"
            if not ignore_file.exists():
                write_private(ignore_file, "*\n")
            make_files_private([self._folder, self._folder / "workers"])
        except OSError as error:
            raise ServerUnreachable(f"the state folder {self._folder} cannot be written: {error.strerror}") from error

    async def _release(self, holder: Path, *, descriptor: int | None) -> None:
        holder.unlink(missing_ok=True)
        if descriptor is not None:
            os.close(descriptor)
        if not self.is_persistent() and not self._has_holders():
            await self._daemon.stop()

    def is_persistent(self) -> bool:
        """Return whether the running server continues without holders."""
        try:
            return self._keep_file.read_text(encoding="ascii") == str(self._daemon.pid())
        except FileNotFoundError:
            return False

    def _has_holders(self) -> bool:
        """Return whether a command holds the server; remove the files of commands that were killed."""
        has_holder = False
        for path in sorted((self._folder / "holders").glob("*")):
            if is_locked(path):
                has_holder = True
            else:
                path.unlink(missing_ok=True)
        return has_holder

    async def _find_or_start(self, namespace: str) -> Server:
        record = self._read_record()
        if self._has_open_ui(record):
            return await self._restart_without_ui(record, namespace=namespace)
        if record is not None:
            server = await self._wait_until_ready(record, namespace=namespace, timeout_s=_RESPONSE_TIMEOUT_S)
            if server is not None:
                return server
        if self._daemon.is_running():
            print_progress(f"the server process {self._daemon.pid()} does not respond and is restarted")
            await self._daemon.stop(grace_s=_UNRESPONSIVE_GRACE_S)
        return await self._start_until_ready(await self._binary_for(record), record, namespace=namespace)

    async def close_ui(self, namespace: str = "default") -> bool:
        """Restart the server without its UI if API keys are enabled; return whether a server with a UI was restarted.

        Raises:
            ServerUnreachable: the server cannot be restarted.
        """
        with self._report_unusable_files():
            if not self._has_open_ui(self._read_record()):
                return False
            async with self._start_lock():
                record = self._read_record()
                if not self._has_open_ui(record):
                    return False
                await self._restart_without_ui(record, namespace=namespace)
            return True

    def _has_open_ui(self, record: _Record | None) -> bool:
        """Return whether the server has a UI that would bypass the API keys."""
        has_ui = record is not None and record.ui_url is not None
        return has_ui and self._api_keys.exists() and self._daemon.is_running()

    async def _restart_without_ui(self, record: _Record | None, *, namespace: str) -> Server:
        print_progress(
            "API keys are enabled, and the Temporal UI does not check them: restarting the server without its UI"
        )
        is_persistent = self.is_persistent()
        # A server that cannot be started again must not be stopped.
        binary = await self._binary_for(record)
        await self._daemon.stop()
        server = await self._start_until_ready(binary, record, namespace=namespace)
        if is_persistent:
            self.keep_running()
        return server

    async def _binary_for(self, record: _Record | None) -> Binary:
        """Return the program to start the server with.

        Raises:
            ServerUnreachable: there is no program, or no program of the version that created the state.
        """
        state_version = record.version if record is not None and (self._folder / "temporal.db").exists() else None
        binary = await get_binary(self._cache_home, preferred_version=state_version)
        if state_version not in (None, binary.server_version):
            raise ServerUnreachable(
                f"the runs in {self._folder} were stored by Temporal server {state_version}, and {binary.path} has "
                f"server {binary.server_version}: put a `temporal` program with server {state_version} on the path, or "
                "use another state folder"
            )
        return binary

    async def _start_until_ready(self, binary: Binary, record: _Record | None, *, namespace: str) -> Server:
        for _ in range(_MAX_STARTS):
            record = await self._start(binary, namespace=namespace, previous_record=record)
            server = await self._wait_until_ready(record, namespace=namespace, timeout_s=_START_TIMEOUT_S)
            if server is not None:
                return server
            await self._daemon.stop()
        raise ServerUnreachable(
            f"the Temporal server does not start ({self._daemon.last_log_line()}): see {self._daemon.log_path}"
        )

    async def _start(self, binary: Binary, *, namespace: str, previous_record: _Record | None) -> _Record:
        # Reuse the previous ports, so that running commands find the restarted server.
        addresses = [None, None] if previous_record is None else [previous_record.address, previous_record.ui_url]
        # With API keys, the server has no UI: the UI does not check the keys, and accepts any `Host` header.
        ports = _free_ports(*(addresses[:1] if self._api_keys.exists() else addresses))
        port, ui_url = ports[0], f"http://{_HOST}:{ports[1]}" if len(ports) > 1 else None
        program = str(binary.path)
        record = _Record(address=f"{_HOST}:{port}", ui_url=ui_url, version=binary.server_version, program=program)
        # Write the record before the start: if the command is killed in between, the server can still be found.
        self._write_record(record)
        try:
            await self._daemon.start(self._command(binary, record, namespace=namespace))
        except OSError as error:
            raise ServerUnreachable(f"the Temporal server cannot be started: {error}") from error
        record = record.model_copy(update={"pid": self._daemon.pid()})
        self._write_record(record)
        return record

    def _command(self, binary: Binary, record: _Record, *, namespace: str) -> list[str]:
        command = [str(binary.path), "server", "start-dev", "--ip", _HOST, "--namespace", namespace]
        command += ["--port", str(_port(record.address))]
        command += ["--headless"] if record.ui_url is None else ["--ui-port", str(_port(record.ui_url))]
        command += ["--db-filename", str(self._folder / "temporal.db"), "--color", "never"]
        command += ["--sqlite-pragma", "journal_mode=wal", "--sqlite-pragma", "synchronous=normal"]
        for name, kind in SEARCH_ATTRIBUTES.items():
            command += ["--search-attribute", f"{name}={kind}"]
        for key, value in DYNAMIC_CONFIG.items():
            command += ["--dynamic-config-value", f"{key}={value}"]
        return command

    async def _wait_until_ready(self, record: _Record, *, namespace: str, timeout_s: float) -> Server | None:
        """Prepare the namespace as soon as the server responds. Return the server, or `None` if it does not respond."""
        if not await self._wait_for_response(record, timeout_s=timeout_s):
            return None
        try:
            async with asyncio.timeout(timeout_s):
                return await self._prepare_namespace(record, namespace=namespace)
        except TimeoutError:
            return None

    async def _wait_for_response(self, record: _Record, *, timeout_s: float) -> bool:
        """Wait for a response; False if the process has exited or lost its port, or after `timeout_s` seconds."""
        deadline = time.monotonic() + timeout_s
        while self._daemon.is_running() and time.monotonic() < deadline:
            if await _is_open(record.address):
                # A server chooses ports before it opens them, and continues even if another process has opened them
                # first.
                if not self._daemon.listens(_port(record.address)):
                    return False
                if await _responds(record.address):
                    return True
            await asyncio.sleep(_POLL_INTERVAL_S)
        return False

    async def _prepare_namespace(self, record: _Record, *, namespace: str) -> Server | None:
        """Prepare the namespace; return `None` if the server no longer responds."""
        try:
            client = await dial(record.address, namespace=namespace)
            await prepare_namespace(client)
        except RuntimeError:
            return None
        except RPCError as error:
            if error.status in UNREACHABLE_STATUSES:
                return None
            raise ServerUnreachable(
                f"the server at {record.address} rejects namespace {namespace!r}: {error}"
            ) from error
        return self._server_of(record, namespace=namespace)

    def _server_of(self, record: _Record, *, namespace: str) -> Server:
        return Server(
            address=record.address,
            namespace=namespace,
            ui_url=record.ui_url,
            pid=self._daemon.pid(),
            version=record.version,
        )

    def _read_record(self) -> _Record | None:
        try:
            return _Record.model_validate_json(self._record_path.read_bytes())
        except (FileNotFoundError, ValidationError):
            return None

    def _write_record(self, record: _Record) -> None:
        replace_private(self._record_path, record.model_dump_json(indent=2))


async def dial(address: str, *, namespace: str = "default") -> Client:
    """Connect to a server on this machine without TLS.

    Raises:
        RuntimeError: no server responds at the address.
    """
    return await Client.connect(address, namespace=namespace, data_converter=data_converter, runtime=temporal_runtime())


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])


def _free_ports(*preferred_addresses: str | None) -> list[int]:
    """Return a distinct port for each address: the port of the address if it is free, otherwise any free port."""
    with ExitStack() as listeners:
        return [_find_free_port(address, listeners) for address in preferred_addresses]


def _find_free_port(preferred_address: str | None, listeners: ExitStack) -> int:
    for port in ([_port(preferred_address)] if preferred_address else []) + [0]:
        listener = listeners.enter_context(socket.socket())
        # The server sets this option too: connections of a killed server may remain for a minute.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((_HOST, port))
            # A port that is bound but not listening could be assigned a second time.
            listener.listen()
        except OSError:
            continue
        return int(listener.getsockname()[1])
    raise ServerUnreachable(f"no port of {_HOST} is free")


async def _is_open(address: str) -> bool:
    try:
        _, writer = await asyncio.open_connection(_HOST, _port(address))
    except OSError:
        return False
    writer.close()
    await writer.wait_closed()
    return True


async def _responds(address: str) -> bool:
    try:
        async with asyncio.timeout(_DIAL_TIMEOUT_S):
            client = await dial(address)
            await client.count_workflows()
    except (RPCError, RuntimeError, TimeoutError):
        return False
    return True
