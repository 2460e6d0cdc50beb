"""Only the owner can access the state folder and its files."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from dagwright.agents.stored_agents import AGENTS
from dagwright.database.database import Database
from dagwright.server import Daemon, LocalServer
from dagwright.settings import Settings
from dagwright.store.private_files import UMASK, make_files_private, make_private_folder, replace_private
from dagwright.toolset.file_protection import protected_paths, record_protected_paths
from tests.support.eventually import eventually


@pytest.fixture(autouse=True)
def _permissive_umask() -> Iterator[None]:
    umask_before = os.umask(0o022)
    yield
    os.umask(umask_before)


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_folder_is_made_private_unless_it_is_writable_for_all_users(tmp_path: Path) -> None:
    readable_folder, shared_folder = tmp_path / "open", tmp_path / "shared"
    readable_folder.mkdir()
    shared_folder.mkdir()
    shared_folder.chmod(0o1777)
    is_private = [make_private_folder(path) for path in (tmp_path / "a" / "state", readable_folder, shared_folder)]
    modes = [_mode(path) for path in (tmp_path / "a", tmp_path / "a" / "state", readable_folder)]
    assert (is_private, modes, _mode(shared_folder)) == ([True, True, False], [0o755, 0o700, 0o700], 0o1777)


def test_existing_files_become_private_and_links_are_not_followed(tmp_path: Path) -> None:
    outside_file = tmp_path / "outside"
    outside_file.write_text("x")
    state = tmp_path / "state"
    (state / "inside").mkdir(parents=True)
    (state / "temporal.db").write_text("x")
    (state / "link").symlink_to(outside_file)
    (state / "broken_link").symlink_to(tmp_path / "nothing")
    replace_private(state / "server.json", "{}")
    make_files_private([state, state / "none"])
    modes = [_mode(path) for path in (state / "temporal.db", state / "server.json", outside_file, state / "inside")]
    assert modes == [0o600, 0o600, 0o644, 0o755]


@pytest.mark.parametrize(("umask", "mode"), [(UMASK, 0o600), (None, 0o644)])
async def test_log_of_a_daemon_is_private(tmp_path: Path, umask: int | None, mode: int) -> None:
    created_file = tmp_path / "created"
    daemon = Daemon(tmp_path / "state", "job", umask=umask)
    await daemon.start(["sh", "-c", f"echo ready; touch {created_file}; exec sleep 60"])
    try:
        await eventually(created_file.exists)
        assert (_mode(daemon.log_path), _mode(created_file), _mode(daemon.folder)) == (0o600, mode, 0o700)
        assert [_mode(path) for path in daemon.folder.iterdir()] == [0o600] * 3
        assert (daemon.is_running(), daemon.last_log_line()) == (True, "ready")
    finally:
        assert await daemon.stop()


def test_database_of_the_state_folder_is_private(tmp_path: Path) -> None:
    file = tmp_path / "state" / "dagwright.db"
    database = Database(f"sqlite:///{file}", AGENTS)
    modes = database.read(lambda _: {path.name: _mode(path) for path in file.parent.iterdir()})
    database.dispose()
    assert set(modes) >= {"dagwright.db", "dagwright.db-wal"}
    assert (_mode(file.parent), set(modes.values())) == (0o700, {0o600})


def test_server_and_record_of_protected_paths_make_the_state_folder_private(tmp_path: Path) -> None:
    state = tmp_path / "state"
    (state / "workers").mkdir(parents=True)
    existing_files = [state / "temporal.db", state / "server.log", state / "workers" / "worker.log"]
    for path in existing_files:
        path.write_text("x")
    LocalServer(Settings(state_dir=state))._make_folder()
    assert (_mode(state), [_mode(path) for path in existing_files]) == (0o700, [0o600] * 3)
    settings = Settings(state_dir=tmp_path / "new", plans=tmp_path / "plans")
    record_protected_paths(settings, protected_paths(settings))
    modes = [_mode(path) for path in (settings.state_dir, *settings.state_dir.iterdir())]
    assert modes == [0o700, 0o600, 0o600]
