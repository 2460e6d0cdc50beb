"""Management of the local server: locks, background processes, and the search for the server program."""

import asyncio
import json
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from dagwright.server import Daemon, LocalServer, Server, ServerUnreachable
from dagwright.server.binary import Binary, get_binary
from dagwright.server.locks import acquire_lock, holding_lock, is_locked, try_lock
from dagwright.settings import Settings
from tests.support.eventually import eventually
from tests.support.programs import write_script

pytestmark = pytest.mark.waits


def _write_program(path: Path, version: str, *, body: str = "") -> Path:
    return write_script(path, f"{body}\necho 'temporal version 1 (Server {version}, UI 2.42.1)'")


@pytest.fixture
def path_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder in PATH, without `temporal` and `go`."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in ("sh", "env", "cat", "mkdir", "cp", "chmod"):
        (folder / tool).symlink_to(f"/bin/{tool}" if Path(f"/bin/{tool}").exists() else f"/usr/bin/{tool}")
    monkeypatch.setenv("PATH", str(folder))
    return folder


@pytest.fixture
def no_download(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the download site unreachable, independently of the network of this machine."""
    monkeypatch.setattr("dagwright.server.binary._DOWNLOAD_SITE", "http://127.0.0.1:9/")


_WORKER_THAT_ACQUIRES_THE_LOCK = """
import fcntl, signal, sys
from pathlib import Path

def end_worker(*_):
    with Path(sys.argv[1], "start.lock").open("a") as lock_file:
        fcntl.flock(lock_file, fcntl.LOCK_EX)
    Path(sys.argv[1], "lock-acquired").touch()
    sys.exit()

signal.signal(signal.SIGTERM, end_worker)
Path(sys.argv[1], "ready").touch()
signal.pause()
"""
"""Program that acquires the start lock before it ends. A worker that uses the server does the same."""


async def test_worker_that_is_being_stopped_can_acquire_the_start_lock(tmp_path: Path) -> None:
    local_server = LocalServer(Settings(state_dir=tmp_path))
    for name in ("worker-a", "worker-b"):
        await local_server.worker(name).start([sys.executable, "-c", _WORKER_THAT_ACQUIRES_THE_LOCK, str(tmp_path)])
        await eventually((tmp_path / "ready").exists)
        (tmp_path / "ready").unlink()
    assert await local_server.stop() == ["worker-a", "worker-b"]
    assert (tmp_path / "lock-acquired").exists()


def test_lock_has_one_owner_and_is_released_when_its_descriptor_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert not is_locked(path)
    descriptor = try_lock(path)
    assert descriptor is not None
    assert is_locked(path)
    assert try_lock(path) is None
    os.close(descriptor)
    assert not is_locked(path)


async def test_second_owner_waits_for_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    order: list[str] = []

    async def append_second() -> None:
        async with holding_lock(path, timeout_s=120):
            order.append("second")

    async with holding_lock(path, timeout_s=120):
        second_task = asyncio.create_task(append_second())
        with pytest.raises(TimeoutError):
            await acquire_lock(path, timeout_s=0.1)
        order.append("first")
    await second_task
    assert order == ["first", "second"]


async def test_daemon_outlives_its_starter_and_is_stopped_by_name(tmp_path: Path) -> None:
    starter = (
        "import asyncio, sys; from pathlib import Path; from dagwright.server import Daemon\n"
        "asyncio.run(Daemon(Path(sys.argv[1]), 'job').start(['sleep', '60']))"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-W", "error", "-c", starter, str(tmp_path))
    assert await process.wait() == 0
    daemon = Daemon(tmp_path, "job")
    pid = daemon.pid()
    assert pid is not None
    assert os.getpgid(pid) != os.getpgid(0)
    assert await daemon.stop()
    assert (daemon.is_running(), daemon.pid(), await daemon.stop()) == (False, None, False)


async def test_port_belongs_to_the_process_that_listens_on_it(tmp_path: Path) -> None:
    program = (
        "import socket, time; listening_socket = socket.create_server(('127.0.0.1', 0))\n"
        "print(listening_socket.getsockname()[1], flush=True); time.sleep(60)"
    )
    daemon, sleeping_daemon = Daemon(tmp_path, "listener"), Daemon(tmp_path, "sleeper")
    # The port of a child process is also found.
    await daemon.start(["sh", "-c", f'{sys.executable} -c "{program}"; true'])
    await sleeping_daemon.start(["sleep", "60"])
    await eventually(lambda: daemon.last_log_line().isdecimal())
    port = int(daemon.last_log_line())
    assert (daemon.listens(port), daemon.listens(1), sleeping_daemon.listens(port)) == (True, False, False)
    assert await daemon.stop()
    assert await sleeping_daemon.stop()
    assert not daemon.listens(port)


async def test_killed_daemon_can_be_started_again(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path, "job")
    await daemon.start(["sleep", "60"])
    first_pid = daemon.pid()
    assert first_pid is not None
    with pytest.raises(TimeoutError):
        await daemon.start(["sleep", "60"])
    os.kill(first_pid, signal.SIGKILL)
    await eventually(lambda: not daemon.is_running())
    # The next daemon ignores SIGTERM and is killed.
    await daemon.start(["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 1; done"])
    assert daemon.pid() not in (None, first_pid)
    await eventually(lambda: daemon.last_log_line() == "ready")
    assert await daemon.stop(grace_s=0.2)
    assert not daemon.is_running()


@pytest.mark.parametrize(
    ("path_version", "preferred_version", "is_cache_used"),
    [("1.30.2", None, False), ("1.30.2", "1.29.1", True), ("1.26.2", None, True), ("none", None, True)],
)
async def test_program_in_path_is_preferred_unless_another_version_is_needed(
    path_version: str, preferred_version: str | None, is_cache_used: bool, tmp_path: Path, path_folder: Path
) -> None:
    binary_in_path = Binary(_write_program(path_folder / "temporal", path_version), path_version)
    cached_binary = Binary(_write_program(tmp_path / "dagwright/temporal-1.5.1/temporal", "1.29.1"), "1.29.1")
    expected = cached_binary if is_cache_used else binary_in_path
    assert await get_binary(tmp_path, preferred_version=preferred_version) == expected


@pytest.mark.usefixtures("no_download", "path_folder")
async def test_missing_server_is_reported_with_the_ways_to_get_a_server(tmp_path: Path) -> None:
    with pytest.raises(ServerUnreachable) as caught:
        await get_binary(tmp_path, preferred_version=None)
    assert str(caught.value) == (
        "no Temporal server is available: install the Temporal CLI (https://docs.temporal.io/cli) or Go 1.25 or "
        "newer, or set TEMPORAL_ADDRESS to a running server"
    )


@pytest.mark.usefixtures("no_download")
async def test_server_program_is_built_once_with_go(
    tmp_path: Path, path_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    build_log, program = tmp_path / "builds", _write_program(tmp_path / "program", "1.29.1")
    write_script(path_folder / "go", f'echo "$*" >>{build_log}\ncp {program} "$GOBIN/temporal"')
    binaries = await asyncio.gather(*(get_binary(tmp_path, preferred_version=None) for _ in range(2)))
    assert binaries == [Binary(tmp_path / "dagwright/temporal-1.5.1/temporal", "1.29.1")] * 2
    assert build_log.read_text(encoding="ascii") == "install github.com/temporalio/cli/cmd/temporal@v1.5.1\n"
    assert sorted(path.name for path in (tmp_path / "dagwright").iterdir()) == ["get.lock", "temporal-1.5.1"]
    assert "building the Temporal server with Go (once, about 3 minutes)" in capsys.readouterr().err


@pytest.mark.usefixtures("no_download")
async def test_failed_build_is_reported_with_its_last_line(tmp_path: Path, path_folder: Path) -> None:
    write_script(path_folder / "go", "echo 'downloading' >&2\necho 'no such host' >&2\nexit 1")
    message = r"^go install .*@v1\.5\.1 failed \(no such host\); no Temporal server is available"
    with pytest.raises(ServerUnreachable, match=message):
        await get_binary(tmp_path, preferred_version=None)
    assert sorted(path.name for path in (tmp_path / "dagwright").iterdir()) == ["get.lock"]


async def _start_error_message(**settings: Any) -> str:
    """Start the server, and return the message of the error that the start must raise."""
    with pytest.raises(ServerUnreachable) as caught:
        async with LocalServer(Settings(**settings)).hold():
            pass
    return str(caught.value)


async def test_state_folder_that_cannot_be_created_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="ascii")
    state_dir = tmp_path / "file" / ".dagwright"
    assert (
        await _start_error_message(state_dir=state_dir)
        == f"the state folder {state_dir} cannot be written: Not a directory"
    )


@pytest.mark.parametrize("name", ["server.lock", "start.lock", "server.json"])
async def test_folder_in_place_of_a_state_file_is_reported(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    advice = "remove it, or name another folder in DAGWRIGHT_STATE_DIR"
    message = f"the state folder cannot be used: {tmp_path / name}: Is a directory; {advice}"
    assert await _start_error_message(state_dir=tmp_path) == message


@pytest.mark.usefixtures("path_folder")
async def test_failed_start_is_reported_with_the_last_output_of_the_server(tmp_path: Path) -> None:
    body = '[ "$1" = server ] && { echo "disk is full"; exit 1; }'
    _write_program(tmp_path / "dagwright/temporal-1.5.1/temporal", "1.29.1", body=body)
    log = tmp_path / "state" / "server.log"
    message = f"the Temporal server does not start (disk is full): see {log}"
    assert await _start_error_message(state_dir=tmp_path / "state", cache_home=tmp_path) == message


async def test_daemon_with_deleted_files_can_be_stopped_by_its_handle(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path / "state", "napping")
    await daemon.start(["sleep", "60"])
    handle = daemon.open_handle()
    assert handle is not None
    assert not handle.is_lost()
    shutil.rmtree(tmp_path / "state")
    assert (daemon.is_running(), handle.is_lost()) == (False, True)
    await handle.stop()
    assert not handle.is_lost()
    handle.close()


async def test_stop_ends_background_workers_and_creates_no_state_folder(tmp_path: Path) -> None:
    server_without_folder = LocalServer(Settings(state_dir=tmp_path / "nowhere"))
    assert (await server_without_folder.stop(), server_without_folder.find()) == ([], None)
    assert not (tmp_path / "nowhere").exists()
    local_server = LocalServer(Settings(state_dir=tmp_path))
    for name in ("worker-a", "worker-b"):
        await local_server.worker(name).start(["sleep", "60"])
    assert await local_server.stop() == ["worker-a", "worker-b"]
    assert [worker.is_running() for worker in local_server.workers()] == [False, False]


def test_ids_in_the_url_of_a_run_are_quoted() -> None:
    server = Server("127.0.0.1:7233", namespace="a b", ui_url="http://127.0.0.1:8233")
    url = "http://127.0.0.1:8233/namespaces/a%20b/workflows/x%2Fy%20z/r-1/history"
    assert server.run_url("x/y z", execution_id="r-1") == url
    assert Server("example.com:7233", namespace="default").run_url("x", execution_id="r") is None


async def test_server_that_cannot_be_started_again_is_not_stopped(tmp_path: Path, path_folder: Path) -> None:
    settings = Settings(state_dir=tmp_path / "state", cache_home=tmp_path / "cache")
    local_server, daemon = LocalServer(settings), Daemon(settings.state_dir, "server")
    await daemon.start([shutil.which("sleep", path="/bin:/usr/bin") or "sleep", "60"])
    record = {"address": "127.0.0.1:1", "ui_url": "http://127.0.0.1:2", "version": "1.0.0", "pid": daemon.pid()}
    (settings.state_dir / "server.json").write_text(json.dumps(record), encoding="ascii")
    settings.api_keys.write_text("{}", encoding="ascii")
    with pytest.raises(ServerUnreachable):
        await local_server.close_ui()
    assert daemon.is_running()
    await daemon.stop()
