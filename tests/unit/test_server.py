"""The parts below the server: locks, background processes, and the search for a program."""

import asyncio
import json
import os
import shutil
import signal
import sys
from pathlib import Path

import pytest

from dagwright.server import Daemon, LocalServer, NoServer, Server
from dagwright.server.binary import Binary, get_binary
from dagwright.server.locks import is_locked, locked, take_lock, try_lock
from dagwright.settings import Settings
from tests.support.eventually import eventually

pytestmark = pytest.mark.waits


def _program(path: Path, version: str, *, body: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\necho 'temporal version 1 (Server {version}, UI 2.42.1)'\n", encoding="ascii")
    path.chmod(0o755)
    return path


@pytest.fixture
def path_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder on the path that may hold `temporal` or `go`."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in ("sh", "env", "cat", "mkdir", "cp", "chmod"):
        (folder / tool).symlink_to(f"/bin/{tool}" if Path(f"/bin/{tool}").exists() else f"/usr/bin/{tool}")
    monkeypatch.setenv("PATH", str(folder))
    return folder


@pytest.fixture
def no_download(monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts the download site out of reach, whatever the network of this machine is."""
    monkeypatch.setattr("dagwright.server.binary._DOWNLOAD_SITE", "http://127.0.0.1:9/")


_LETS_GO = """
import fcntl, signal, sys
from pathlib import Path

def let_go(*_):
    with Path(sys.argv[1], "start.lock").open("a") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
    Path(sys.argv[1], "let-go").touch()
    sys.exit()

signal.signal(signal.SIGTERM, let_go)
Path(sys.argv[1], "ready").touch()
signal.pause()
"""
"""A worker that needs a turn before it ends, as one that holds the server does."""


async def test_workers_are_given_their_turn_to_let_go_of_the_server(tmp_path: Path) -> None:
    local = LocalServer(Settings(state_dir=tmp_path))
    for name in ("worker-a", "worker-b"):
        await local.worker(name).start([sys.executable, "-c", _LETS_GO, str(tmp_path)])
        await eventually((tmp_path / "ready").exists)
        (tmp_path / "ready").unlink()

    assert await local.stop() == ["worker-a", "worker-b"]
    assert (tmp_path / "let-go").exists()


def test_lock_is_owned_by_one_and_freed_by_closing(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert not is_locked(path)
    descriptor = try_lock(path)
    assert descriptor is not None
    assert is_locked(path)
    assert try_lock(path) is None
    os.close(descriptor)
    assert not is_locked(path)


async def test_lock_of_another_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    order: list[str] = []

    async def second() -> None:
        async with locked(path, timeout_s=120):
            order.append("second")

    async with locked(path, timeout_s=120):
        waiting = asyncio.create_task(second())
        with pytest.raises(TimeoutError):
            await take_lock(path, timeout_s=0.1)
        order.append("first")
    await waiting
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


async def test_killed_daemon_is_seen_as_ended_and_can_be_started_again(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path, "job")
    await daemon.start(["sleep", "60"])
    first = daemon.pid()
    assert first is not None
    with pytest.raises(TimeoutError):
        await daemon.start(["sleep", "60"])

    os.kill(first, signal.SIGKILL)
    await eventually(lambda: not daemon.is_running())

    await daemon.start(["sleep", "60"])
    assert daemon.pid() not in (None, first)
    await daemon.stop()


async def test_daemon_that_does_not_listen_is_killed(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path, "stubborn")
    await daemon.start(["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 1; done"])
    await eventually(lambda: daemon.last_words() == "ready")
    assert await daemon.stop(grace_s=0.2)
    assert not daemon.is_running()


async def test_program_on_the_path_comes_first(tmp_path: Path, path_folder: Path) -> None:
    on_path = _program(path_folder / "temporal", "1.30.2")
    _program(tmp_path / "dagwright/temporal-1.5.1/temporal", "1.29.1")
    assert await get_binary(tmp_path, wanted_version=None) == Binary(on_path, "1.30.2")


async def test_program_of_the_version_that_made_the_state_comes_first(tmp_path: Path, path_folder: Path) -> None:
    _program(path_folder / "temporal", "1.30.2")
    cached = _program(tmp_path / "dagwright/temporal-1.5.1/temporal", "1.29.1")
    assert await get_binary(tmp_path, wanted_version="1.29.1") == Binary(cached, "1.29.1")


@pytest.mark.parametrize("version", ["1.26.2", "none"])
async def test_program_that_is_too_old_or_something_else_is_passed_over(
    version: str, tmp_path: Path, path_folder: Path
) -> None:
    _program(path_folder / "temporal", version)
    cached = _program(tmp_path / "dagwright/temporal-1.5.1/temporal", "1.29.1")
    assert await get_binary(tmp_path, wanted_version=None) == Binary(cached, "1.29.1")


@pytest.mark.usefixtures("no_download")
async def test_machine_where_no_server_can_be_had_gets_one_sentence(tmp_path: Path, path_folder: Path) -> None:
    assert path_folder.is_dir()
    with pytest.raises(NoServer) as refusal:
        await get_binary(tmp_path, wanted_version=None)
    assert str(refusal.value) == (
        "no Temporal server could be had: install the Temporal CLI (https://docs.temporal.io/cli) or Go 1.25 or "
        "newer, or set TEMPORAL_ADDRESS to a server that runs"
    )


@pytest.mark.usefixtures("no_download")
async def test_program_is_built_once_with_go(
    tmp_path: Path, path_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    builds = tmp_path / "builds"
    program = _program(tmp_path / "made", "1.29.1")
    go = path_folder / "go"
    go.write_text(
        f'#!/bin/sh\necho "$*" >>{builds}\ncp {program} "$GOBIN/temporal"\n',
        encoding="ascii",
    )
    go.chmod(0o755)

    first, second = await asyncio.gather(
        get_binary(tmp_path, wanted_version=None), get_binary(tmp_path, wanted_version=None)
    )

    assert first == second == Binary(tmp_path / "dagwright/temporal-1.5.1/temporal", "1.29.1")
    assert builds.read_text(encoding="ascii") == "install github.com/temporalio/cli/cmd/temporal@v1.5.1\n"
    assert sorted(path.name for path in (tmp_path / "dagwright").iterdir()) == ["get.lock", "temporal-1.5.1"]
    assert "building the Temporal server with Go (once, about 3 minutes)" in capsys.readouterr().err


@pytest.mark.usefixtures("no_download")
async def test_build_that_fails_is_told_with_its_last_line(tmp_path: Path, path_folder: Path) -> None:
    go = path_folder / "go"
    go.write_text("#!/bin/sh\necho 'downloading' >&2\necho 'no such host' >&2\nexit 1\n", encoding="ascii")
    go.chmod(0o755)
    with pytest.raises(NoServer, match=r"^go install .*@v1\.5\.1 failed \(no such host\); no Temporal server could"):
        await get_binary(tmp_path, wanted_version=None)
    assert sorted(path.name for path in (tmp_path / "dagwright").iterdir()) == ["get.lock"]


async def test_state_folder_that_can_not_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="ascii")
    state_dir = tmp_path / "file" / ".dagwright"
    with pytest.raises(NoServer) as refusal:
        async with LocalServer(Settings(state_dir=state_dir)).hold():
            pass
    assert str(refusal.value) == f"the state folder {state_dir} can not be written: Not a directory"


@pytest.mark.parametrize("name", ["server.lock", "start.lock", "server.json"])
async def test_file_of_the_state_folder_that_is_none_is_told(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    local = LocalServer(Settings(state_dir=tmp_path))
    with pytest.raises(NoServer) as refusal:
        async with local.hold():
            pass
    advice = "remove it, or name another folder in DAGWRIGHT_STATE_DIR"
    assert str(refusal.value) == f"the state folder can not be used: {tmp_path / name}: Is a directory; {advice}"


async def test_process_whose_files_were_deleted_is_still_reached(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path / "state", "napping")
    await daemon.start(["sleep", "60"])
    grip = daemon.grip()
    assert grip is not None
    assert not grip.is_lost()

    shutil.rmtree(tmp_path / "state")
    assert (daemon.is_running(), grip.is_lost()) == (False, True)
    await grip.end()
    assert not grip.is_lost()
    grip.close()


async def test_server_that_can_not_start_is_told_with_its_last_words(tmp_path: Path, path_folder: Path) -> None:
    assert path_folder.is_dir()
    version = '[ "$1" = server ] && { echo "disk is full"; exit 1; }'
    _program(tmp_path / "dagwright/temporal-1.5.1/temporal", "1.29.1", body=version)
    state_dir = tmp_path / "state"
    with pytest.raises(NoServer) as refusal:
        async with LocalServer(Settings(state_dir=state_dir, cache_home=tmp_path)).hold():
            pass
    assert str(refusal.value) == (f"the Temporal server does not start (disk is full): see {state_dir / 'server.log'}")


async def test_stop_of_a_folder_without_a_server_makes_nothing(tmp_path: Path) -> None:
    local = LocalServer(Settings(state_dir=tmp_path / "nowhere"))
    assert (await local.stop(), local.find(), (tmp_path / "nowhere").exists()) == ([], None, False)


async def test_stop_ends_the_background_workers_too(tmp_path: Path) -> None:
    local = LocalServer(Settings(state_dir=tmp_path))
    await local.worker("worker-a").start(["sleep", "60"])
    await local.worker("worker-b").start(["sleep", "60"])
    assert await local.stop() == ["worker-a", "worker-b"]
    assert [worker.is_running() for worker in local.workers()] == [False, False]


def test_page_of_a_run_is_quoted() -> None:
    server = Server("127.0.0.1:7233", namespace="a b", ui_url="http://127.0.0.1:8233")
    assert server.run_url("x/y z", run_id="r-1") == (
        "http://127.0.0.1:8233/namespaces/a%20b/workflows/x%2Fy%20z/r-1/history"
    )
    assert Server("example.com:7233", namespace="default").run_url("x", run_id="r") is None


async def test_server_that_cannot_be_started_again_is_not_stopped(tmp_path: Path, path_folder: Path) -> None:
    settings = Settings(state_dir=tmp_path / "state", cache_home=tmp_path / "cache")
    local, daemon = LocalServer(settings), Daemon(settings.state_dir, "server")
    await daemon.start([shutil.which("sleep", path="/bin:/usr/bin") or "sleep", "60"])
    record = {"address": "127.0.0.1:1", "ui_url": "http://127.0.0.1:2", "version": "1.0.0", "pid": daemon.pid()}
    (settings.state_dir / "server.json").write_text(json.dumps(record), encoding="ascii")
    settings.api_keys.write_text("{}", encoding="ascii")
    with pytest.raises(NoServer):
        await local.close_ui()
    assert daemon.is_running()
    await daemon.stop()
