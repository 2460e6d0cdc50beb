"""Find, start and stop the search server of one state folder.

Files in the state folder: `search.lock` (locked by the server process), `search.json` (address and pid),
`search.pid`, `search.log`, `search-start.lock` (locked by the command that starts or stops the server) and
`search/` (data of the server). The server runs until it is stopped; `hold` stops a server that it has started.
"""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
from pydantic import BaseModel, Field, ValidationError

from dagwright.plugins.commands import CommandError, CommandErrorCode
from dagwright.plugins.servers import UMASK, Daemon, holding_lock, make_private_folder, print_progress, replace_private
from dagwright.settings import Settings
from dagwright_maritime.search.errors import NeverStarted, NoSearchServer, NotRunning, StartFailed
from dagwright_maritime.search.program import SearchProgram, get_program
from dagwright_maritime.settings import MaritimeSettings

_HOST = "127.0.0.1"
_START_TIMEOUT_S = 120.0
"""A start takes 4 s on an idle machine; slow test machines take longer."""

_UNRESPONSIVE_TIMEOUT_S = 30.0
"""How long a running server may be unresponsive before it is restarted."""

_LOCK_TIMEOUT_S = 1200.0
"""How long to wait for another command that starts the server and may have to download it."""

_POLL_S = 0.1
_LAST_LINES = 12
_JVM_OPTIONS = ("-Xms256m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""The smallest heap that loads a million shipments in reasonable time. The other two options shorten the start from 5.4
to 4 s."""


class RunningSearch(BaseModel):
    """The content of `search.json`; the file stays when the server stops, so that the port can be reused."""

    address: str = Field(pattern=r"^http://127\.0\.0\.1:\d+$")
    pid: int


@dataclass(frozen=True, slots=True)
class LocalSearch:
    """Finds, starts and stops the search server of one state folder; holds no resources itself."""

    folder: Path
    cache_home: Path

    @classmethod
    def from_settings(cls, settings: Settings) -> "LocalSearch":
        """Return the server of the settings' state folder."""
        return cls(settings.state_dir, settings.cache_home)

    @property
    def log_path(self) -> Path:
        return self._daemon.log_path

    def find(self) -> RunningSearch | None:
        """Return the running server; `None` if the process of the server does not run.

        Raises:
            NoSearchServer: the state folder cannot be read.
        """
        with _map_folder_errors():
            pid = self._daemon.pid()
            record = self._read()
        # After a kill, the file has an outdated pid.
        return record if record is not None and record.pid == pid else None

    @property
    def was_started(self) -> bool:
        """Whether a server has ever run here, or is being started; raises the same errors as `find`."""
        with _map_folder_errors():
            return self._record_path.exists() or self._daemon.is_running()

    async def start(self) -> RunningSearch:
        """Return the running server; start it first if needed. Concurrent calls start one server.

        Raises:
            NoSearchServer: the server cannot be installed or started.
        """
        with _map_folder_errors():
            make_private_folder(self.folder)
            async with holding_lock(
                self.folder / "search-start.lock", timeout_s=_LOCK_TIMEOUT_S, on_wait=_report_other_start
            ):
                return await self._find_or_start()

    async def stop(self) -> bool:
        """Stop the server, gracefully if it ends within seconds; return whether the server was running.

        Raises:
            NoSearchServer: the state folder cannot be used, or another command has locked it.
        """
        if not self.folder.is_dir() or not self.was_started:
            return False
        with _map_folder_errors():
            async with holding_lock(
                self.folder / "search-start.lock", timeout_s=_LOCK_TIMEOUT_S, on_wait=_report_other_start
            ):
                return await self._daemon.stop()

    @asynccontextmanager
    async def hold(self) -> AsyncIterator[RunningSearch]:
        """Keep the server running inside the block; stop it afterwards if this call has started it.

        Raises:
            NoSearchServer: the server cannot be installed or started.
        """
        previous_server = self.find()
        server = await self.start()
        try:
            yield server
        finally:
            if previous_server is None or previous_server.pid != server.pid:
                await self.stop()

    @property
    def _daemon(self) -> Daemon:
        return Daemon(self.folder, "search", umask=UMASK)

    @property
    def _home(self) -> Path:
        return self.folder / "search"

    async def _find_or_start(self) -> RunningSearch:
        if (server := self.find()) is not None:
            if await self._wait_until_responsive(server.address, timeout_s=_UNRESPONSIVE_TIMEOUT_S):
                return server
            print_progress(f"the search server, process {server.pid}, does not answer and is started again")
        # Stop a server whose start was interrupted before the address was written.
        await self._daemon.stop()
        return await self._start(await get_program(self.cache_home))

    async def _start(self, program: SearchProgram) -> RunningSearch:
        previous_server = self._read()
        ports_file = self._home / "logs" / "http.ports"
        make_private_folder(ports_file.parent)
        ports_file.unlink(missing_ok=True)
        log_size = self.log_path.stat().st_size if self.log_path.exists() else 0
        await self._daemon.start(self._command(program, port=_previous_port(previous_server)))
        address = await self._wait_for_address(ports_file)
        if address is None or not await self._wait_until_responsive(address, timeout_s=_START_TIMEOUT_S):
            state = "does not answer" if self._daemon.is_running() else "has ended"
            await self._daemon.stop()
            raise StartFailed(
                f"the search server {state}: see {self.log_path}; it needs Java 17 or newer", self._log_lines(log_size)
            )
        server = RunningSearch(address=address, pid=self._daemon.pid() or 0)
        replace_private(self._record_path, server.model_dump_json(indent=2))
        return server

    def _command(self, program: SearchProgram, *, port: int) -> list[str]:
        command = [program.java, *_JVM_OPTIONS, "-cp", program.class_path, "SearchServer"]
        command += [str(self._home), str(program.configuration)]
        command += [f"path.data={self._home}/data", f"path.logs={self._home}/logs"]
        return [*command, f"http.port={port}", "transport.port=0"]

    async def _wait_for_address(self, ports_file: Path) -> str | None:
        """Wait for the file with the server's port, and return the address; `None` if there is no file in time."""
        deadline = time.monotonic() + _START_TIMEOUT_S
        while self._daemon.is_running() and time.monotonic() < deadline:
            if ports_file.exists() and (text := ports_file.read_text(encoding="ascii")).endswith("\n"):
                return f"http://{text.split()[0]}"
            await asyncio.sleep(_POLL_S)
        return None

    async def _wait_until_responsive(self, address: str, *, timeout_s: float) -> bool:
        """Wait until the server can search; return `False` if its process ends, or after `timeout_s` seconds."""
        deadline = time.monotonic() + timeout_s
        # A proxy from the environment must not be used for this address.
        async with httpx.AsyncClient(base_url=address, timeout=10, trust_env=False) as client:
            while self._daemon.is_running() and time.monotonic() < deadline:
                try:
                    health = await client.get("/_cluster/health", params={"wait_for_status": "yellow", "timeout": "5s"})
                except httpx.HTTPError:
                    await asyncio.sleep(_POLL_S)
                    continue
                if health.status_code == httpx.codes.OK:
                    return True
                await asyncio.sleep(_POLL_S)
        return False

    def _log_lines(self, log_size: int) -> list[str]:
        """Return the last lines of the log after its first `log_size` bytes."""
        try:
            log = self.log_path.read_bytes()
        except FileNotFoundError:
            return []
        # A log that was rotated is shorter.
        new_log = log[log_size:] if len(log) >= log_size else log
        return new_log.decode("utf-8", "replace").strip().splitlines()[-_LAST_LINES:]

    @property
    def _record_path(self) -> Path:
        return self.folder / "search.json"

    def _read(self) -> RunningSearch | None:
        try:
            return RunningSearch.model_validate_json(self._record_path.read_bytes())
        except (FileNotFoundError, ValidationError):
            return None


async def stop_search(settings: Settings) -> list[str]:
    """Stop the search server of the state folder; `dagwright down` calls this.

    Raises:
        CommandError: the state folder cannot be used, or another command starts the server.
    """
    try:
        return ["search"] if await LocalSearch.from_settings(settings).stop() else []
    except NoSearchServer as error:
        raise CommandError(str(error), code=CommandErrorCode.SERVER_UNAVAILABLE) from error


def find_address(settings: MaritimeSettings) -> str:
    """Return the address of the server: the configured address, otherwise the address of the state folder's server.

    Raises:
        NotRunning: there is no server; `NeverStarted` if none ever ran in the state folder.
    """
    if settings.opensearch_url is not None:
        return settings.opensearch_url
    local_search = LocalSearch.from_settings(settings)
    server = local_search.find()
    if server is None:
        error_class = NotRunning if local_search.was_started else NeverStarted
        raise error_class(
            f"no search server runs in {settings.state_dir}: start one with `make search-server`, or set "
            "DAGWRIGHT_OPENSEARCH_URL to a running server"
        )
    return server.address


@contextmanager
def _map_folder_errors() -> Iterator[None]:
    """Map errors of the state folder inside the block to `NoSearchServer`."""
    try:
        yield
    except TimeoutError as error:
        raise NoSearchServer(f"another command has been starting the server for too long: {error}") from error
    except OSError as error:
        raise NoSearchServer(f"the state folder cannot be used: {error.filename}: {error.strerror}") from error


def _previous_port(previous_server: RunningSearch | None) -> int:
    """Return the previous port if it is free, so that clients find the server again; otherwise 0."""
    port = int(previous_server.address.rpartition(":")[2]) if previous_server is not None else 0
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((_HOST, port))
        except OSError:
            return 0
    return port


def _report_other_start() -> None:
    print_progress("waiting for another command that starts the search server")
