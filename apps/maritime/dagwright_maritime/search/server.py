"""The search server of one state folder: found if it runs, started if not, ended by its process id.

Files in the state folder: `search.lock` (owned by the server process itself), `search.json` (address and pid),
`search.pid`, `search.log`, `search-start.lock` (owned by the command that starts or ends it) and `search/` (its data).
It stays until it is told to end; `hold` ends what it has started.
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

from dagwright.plugins.commands import CommandRefused, ExitCode
from dagwright.plugins.servers import UMASK, Daemon, locked, make_private_folder, tell, write_private
from dagwright.settings import Settings
from dagwright_maritime.search.errors import NeverStarted, NoSearchServer, NotRunning, StartFailed
from dagwright_maritime.search.program import SearchProgram, get_program
from dagwright_maritime.settings import MaritimeSettings

_HOST = "127.0.0.1"
_START_TIMEOUT_S = 120.0
"""It takes 4 s on a free machine; this leaves room for a slow one on which tests run."""

_ANSWER_TIMEOUT_S = 30.0
"""How long a server that runs may leave us without an answer before it is ended and started again."""

_TURN_TIMEOUT_S = 1200.0
"""How long to wait for another command that starts the server: it may have to fetch it first."""

_POLL_S = 0.1
_LAST_LINES = 12
_MEMORY = ("-Xms256m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""The least heap that a million shipments are loaded with in good time; the other two make it start in 4 s, not 5.4."""


class RunningSearch(BaseModel):
    """Says where a search server is: what `search.json` holds; the file stays when the server ends, for its port."""

    address: str = Field(pattern=r"^http://127\.0\.0\.1:\d+$")
    pid: int


@dataclass(frozen=True, slots=True)
class LocalSearch:
    """Finds, starts and ends the search server of one state folder; holds nothing open itself."""

    folder: Path
    cache_home: Path

    @classmethod
    def of(cls, settings: Settings) -> "LocalSearch":
        """Returns that of the settings' state folder."""
        return cls(settings.state_dir, settings.cache_home)

    @property
    def log_path(self) -> Path:
        return self._daemon.log_path

    def find(self) -> RunningSearch | None:
        """Returns where the server is, or None if its process does not live.

        Raises:
            NoSearchServer: the state folder cannot be read.
        """
        with _state_folder():
            pid = self._daemon.pid()
            record = self._read()
        # A file that a killed server left behind names another process.
        return record if record is not None and record.pid == pid else None

    @property
    def was_started(self) -> bool:
        """Whether a server has ever run here, or is being started; raises as `find`."""
        with _state_folder():
            return self._record_path.exists() or self._daemon.is_running()

    async def start(self) -> RunningSearch:
        """Returns the server that runs, started first if none does; two commands at once start one.

        Raises:
            NoSearchServer: it cannot be made or started.
        """
        with _state_folder():
            make_private_folder(self.folder)
            async with locked(self.folder / "search-start.lock", timeout_s=_TURN_TIMEOUT_S, on_wait=_tell_of_other):
                return await self._find_or_start()

    async def stop(self) -> bool:
        """Ends the server, in good order if it does so within seconds; tells whether it ran.

        Raises:
            NoSearchServer: the state folder cannot be used, or another command holds on to it.
        """
        if not self.folder.is_dir() or not self.was_started:
            return False
        with _state_folder():
            async with locked(self.folder / "search-start.lock", timeout_s=_TURN_TIMEOUT_S, on_wait=_tell_of_other):
                return await self._daemon.stop()

    @asynccontextmanager
    async def hold(self) -> AsyncIterator[RunningSearch]:
        """Has the server run inside the block; ends it then if the block has started it.

        Raises:
            NoSearchServer: it cannot be made or started.
        """
        before = self.find()
        running = await self.start()
        try:
            yield running
        finally:
            if before is None or before.pid != running.pid:
                await self.stop()

    @property
    def _daemon(self) -> Daemon:
        return Daemon(self.folder, "search", umask=UMASK)

    @property
    def _home(self) -> Path:
        return self.folder / "search"

    async def _find_or_start(self) -> RunningSearch:
        if (running := self.find()) is not None:
            if await self._is_answering(running.address, timeout_s=_ANSWER_TIMEOUT_S):
                return running
            tell(f"the search server, process {running.pid}, does not answer and is started again")
        # One whose command was killed before it could write where it is.
        await self._daemon.stop()
        return await self._start(await get_program(self.cache_home))

    async def _start(self, program: SearchProgram) -> RunningSearch:
        before = self._read()
        ports = self._home / "logs" / "http.ports"
        make_private_folder(ports.parent)
        ports.unlink(missing_ok=True)
        written = self.log_path.stat().st_size if self.log_path.exists() else 0
        await self._daemon.start(self._command(program, port=_port_again(before)))
        address = await self._address(ports)
        if address is None or not await self._is_answering(address, timeout_s=_START_TIMEOUT_S):
            what = "does not answer" if self._daemon.is_running() else "has ended"
            await self._daemon.stop()
            raise StartFailed(
                f"the search server {what}: see {self.log_path}; it needs Java 17 or newer", self._lines(written)
            )
        running = RunningSearch(address=address, pid=self._daemon.pid() or 0)
        self._write(running)
        return running

    def _command(self, program: SearchProgram, *, port: int) -> list[str]:
        command = [program.java, *_MEMORY, "-cp", program.class_path, "SearchServer"]
        command += [str(self._home), str(program.configuration)]
        command += [f"path.data={self._home}/data", f"path.logs={self._home}/logs"]
        return [*command, f"http.port={port}", "transport.port=0"]

    async def _address(self, ports: Path) -> str | None:
        """Waits for the file in which the server names its port; None if the process ends, or takes too long."""
        deadline = time.monotonic() + _START_TIMEOUT_S
        while self._daemon.is_running() and time.monotonic() < deadline:
            if ports.exists() and (text := ports.read_text(encoding="ascii")).endswith("\n"):
                return f"http://{text.split()[0]}"
            await asyncio.sleep(_POLL_S)
        return None

    async def _is_answering(self, address: str, *, timeout_s: float) -> bool:
        """Waits until the server can search; False as soon as its process is gone, or after `timeout_s` seconds."""
        deadline = time.monotonic() + timeout_s
        # Whatever proxy the machine has is not meant for this.
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

    def _lines(self, written: int) -> list[str]:
        """Returns the last lines of the log behind its first `written` bytes."""
        try:
            text = self.log_path.read_bytes()
        except FileNotFoundError:
            return []
        # A log that had grown too long has started afresh.
        fresh = text[written:] if len(text) >= written else text
        return fresh.decode("utf-8", "replace").strip().splitlines()[-_LAST_LINES:]

    @property
    def _record_path(self) -> Path:
        return self.folder / "search.json"

    def _read(self) -> RunningSearch | None:
        try:
            return RunningSearch.model_validate_json(self._record_path.read_bytes())
        except (FileNotFoundError, ValidationError):
            return None

    def _write(self, running: RunningSearch) -> None:
        fresh = self._record_path.with_suffix(".new")
        write_private(fresh, running.model_dump_json(indent=2))
        fresh.replace(self._record_path)


async def stop_search(settings: Settings) -> list[str]:
    """End the search server of the state folder; `dagwright down` calls this.

    Raises:
        CommandRefused: the state folder cannot be used, or another command starts the server.
    """
    try:
        return ["search"] if await LocalSearch.of(settings).stop() else []
    except NoSearchServer as error:
        raise CommandRefused(str(error), status="no_server", code=ExitCode.NO_SERVER) from error


def find_address(settings: MaritimeSettings) -> str:
    """Returns the address of the server to search: the one that the settings name, else that of the state folder.

    Raises:
        NotRunning: there is neither; `NeverStarted` if there never was one in the state folder.
    """
    if settings.opensearch_url is not None:
        return settings.opensearch_url
    local = LocalSearch.of(settings)
    running = local.find()
    if running is None:
        kind = NotRunning if local.was_started else NeverStarted
        raise kind(
            f"no search server runs in {settings.state_dir}: start one with `make search-server`, or set "
            "DAGWRIGHT_OPENSEARCH_URL to one that runs"
        )
    return running.address


@contextmanager
def _state_folder() -> Iterator[None]:
    """Turns what goes wrong with the state folder inside the block into a sentence."""
    try:
        yield
    except TimeoutError as error:
        raise NoSearchServer(f"another command has been starting the server for too long: {error}") from error
    except OSError as error:
        raise NoSearchServer(f"the state folder can not be used: {error.filename}: {error.strerror}") from error


def _port_again(before: RunningSearch | None) -> int:
    """Returns the port of the last time if nobody listens there, so that clients find the server again; else 0."""
    port = int(before.address.rpartition(":")[2]) if before is not None else 0
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((_HOST, port))
        except OSError:
            return 0
    return port


def _tell_of_other() -> None:
    tell("waiting for another command that starts the search server")
