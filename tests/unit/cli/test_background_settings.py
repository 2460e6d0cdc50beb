"""What is in the background keeps its settings: a command with others is refused, and told which differ."""

import os
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest
from temporalio.client import Client

from dagwright.interfaces.cli import background
from dagwright.interfaces.cli.background import start_worker
from dagwright.interfaces.cli.background_settings import (
    FILES_ROOT,
    keep_settings,
    refuse_other_settings,
    serving_beside,
)
from dagwright.interfaces.cli.exits import CommandRefused, ExitCode
from dagwright.interfaces.cli.hosting import connected_to_run, leave_to_background, served_here_or_elsewhere
from dagwright.server import Daemon, LocalServer
from dagwright.settings import Settings, load_settings
from dagwright.toolset.toolset import load_toolset

pytestmark = pytest.mark.waits


@pytest.fixture
async def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Path]:
    """A folder whose background worker only sleeps."""
    program = tmp_path / "sleeping.py"
    program.write_text("import time; time.sleep(600)", encoding="utf-8")
    monkeypatch.setattr(background, "_file_of", lambda _: str(program))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DAGWRIGHT_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("DAGWRIGHT_DATABASE_URL", "postgresql://ann:hidden@127.0.0.1:9/a")
    monkeypatch.setenv("DAGWRIGHT_SECRET_DESK", "hush")
    monkeypatch.setenv("OPENAI_API_KEY", "key-of-mine")
    yield tmp_path / "state"
    for daemon in LocalServer(load_settings()).workers():
        await daemon.stop()


async def _start() -> tuple[Daemon, bool]:
    settings = load_settings()
    return await start_worker(settings, load_toolset(settings))


async def test_worker_of_the_same_settings_is_used_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, is_new = await _start()
    # Nothing that a run depends on.
    monkeypatch.setenv("DAGWRIGHT_LOG_LEVEL", "debug")
    monkeypatch.setenv("NO_COLOR", "1")
    again, is_newer = await _start()
    assert (first, is_new, is_newer) == (again, True, False)
    refuse_other_settings(load_settings())
    assert folder.is_dir()


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("DAGWRIGHT_DATABASE_URL", "postgresql://ann:other@127.0.0.1:9/a"),
        ("OPENAI_API_KEY", "other"),
        ("OPENAI_BASE_URL", "http://127.0.0.1:9/v1"),
        ("DAGWRIGHT_OPENSEARCH_URL", "http://127.0.0.1:9200"),
        ("DAGWRIGHT_MODEL", "small"),
        ("DAGWRIGHT_SECRET_DESK", ""),
        ("DAGWRIGHT_SECRET_NEW", "there was none"),
    ],
)
async def test_command_with_another_setting_is_refused_and_told_which(
    folder: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    worker, _ = await _start()
    monkeypatch.setenv(variable, value)
    settings = load_settings()
    expected = (
        f"the worker in the background of {folder} was started with another value of {variable}, and would take a part"
        " of the work: give the same, or end it with `dagwright down` (`watch --no-serve` only looks)"
    )
    with pytest.raises(CommandRefused) as refused:
        async with connected_to_run(settings, load_toolset(settings)):
            pass
    assert (str(refused.value), refused.value.status, refused.value.code) == (
        expected,
        "other_settings",
        ExitCode.REFUSED,
    )
    with pytest.raises(CommandRefused) as refused:
        await _start()
    assert str(refused.value) == expected
    # When it has ended, nothing is in the way, and the next one has the new settings.
    await worker.stop()
    assert (await _start())[1]
    refuse_other_settings(settings)


async def test_worker_with_other_tools_counts_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await _start()
    monkeypatch.setenv("DAGWRIGHT_DATABASE_URL", "postgresql://127.0.0.1:9/b")
    settings = load_settings()
    with pytest.raises(CommandRefused, match="another value of DAGWRIGHT_DATABASE_URL"):
        await start_worker(settings, load_toolset(settings, ["tests.support.chaos_tools"]))
    assert [daemon.name for daemon in LocalServer(settings).workers() if daemon.is_running()] == ["worker"]
    assert folder.is_dir()


async def test_no_setting_stands_in_the_folder_in_clear(folder: Path) -> None:
    await _start()
    record = folder / "workers" / "worker.settings"
    text = record.read_text(encoding="utf-8")
    assert "DAGWRIGHT_SECRET_DESK" in text
    assert not [value for value in ("hidden", "hush", "key-of-mine", "127.0.0.1") if value in text]
    assert record.stat().st_mode & 0o077 == 0


async def test_worker_whose_settings_are_not_known_is_not_run_on(folder: Path) -> None:
    await _start()
    (folder / "workers" / "worker.settings").unlink()
    with pytest.raises(CommandRefused, match="does not say which settings it has: end it with `dagwright down`"):
        refuse_other_settings(load_settings())


async def test_nothing_is_started_in_the_background_beside_a_command_with_other_settings(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving_beside(load_settings()):
        monkeypatch.setenv("DAGWRIGHT_DATABASE_URL", "postgresql://127.0.0.1:9/b")
        with pytest.raises(CommandRefused) as refused:
            await _start()
        assert str(refused.value) == (
            f"a command that serves runs of {folder} (process {os.getpid()}) has another value of"
            " DAGWRIGHT_DATABASE_URL, and would take a part of the work: end it first, or give the same"
            " (`watch --no-serve` only looks)"
        )
        assert [daemon for daemon in LocalServer(load_settings()).workers() if daemon.is_running()] == []
    assert (await _start())[1]
    monkeypatch.setenv("DAGWRIGHT_MODEL", "small")
    with pytest.raises(CommandRefused, match="another value of DAGWRIGHT_MODEL"):
        async with serving_beside(load_settings()):
            pass


async def test_server_stays_only_with_a_worker_that_is_not_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[bool] = []
    monkeypatch.setattr(LocalServer, "keep", lambda _: kept.append(True))
    assert not folder.exists()
    async with serving_beside(load_settings()):
        monkeypatch.setenv("DAGWRIGHT_MODEL", "small")
        settings = load_settings()
        toolset = load_toolset(settings)
        with pytest.raises(CommandRefused, match="another value of DAGWRIGHT_MODEL"):
            await leave_to_background(settings, toolset)
    assert not kept
    await leave_to_background(settings, toolset)
    assert kept


async def test_command_is_refused_beside_one_with_other_settings(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving_beside(load_settings()):
        async with serving_beside(load_settings()):
            assert len([*(folder / "serving").glob("*.lock")]) == 2
        monkeypatch.setenv("DAGWRIGHT_DATABASE_URL", "postgresql://127.0.0.1:9/b")
        settings = load_settings()
        # The first before there is a run.
        for block in (connected_to_run(settings, load_toolset(settings)), serving_beside(settings)):
            with pytest.raises(CommandRefused, match=r"^a command .* another value of DAGWRIGHT_DATABASE_URL, and"):
                async with block:
                    pass
    assert [*(folder / "serving").iterdir()] == []


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("DAGWRIGHT_TASK_QUEUE", "other"),
        ("TEMPORAL_ADDRESS", "temporal.example.com:7233"),
        ("TEMPORAL_NAMESPACE", "other"),
    ],
)
async def test_processes_that_serve_other_runs_are_told_so(
    folder: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    async with serving_beside(load_settings()):
        with monkeypatch.context() as changed:
            changed.setenv(variable, value)
            changed.setenv("DAGWRIGHT_MODEL", "small")
            async with serving_beside(load_settings()):
                assert len([*(folder / "serving").glob("*.lock")]) == 2
    await _start()
    monkeypatch.setenv(variable, value)
    with pytest.raises(CommandRefused) as refused:
        refuse_other_settings(load_settings())
    assert str(refused.value) == (
        f"the worker in the background of {folder} was started with another value of {variable}, and serves that"
        " alone: give the same, or end it with `dagwright down` (`watch --no-serve` only looks), or take another"
        " DAGWRIGHT_STATE_DIR"
    )


async def test_worker_is_named_before_the_gateway(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await _start()
    settings = load_settings()
    gateway = LocalServer(settings).worker("gateway")
    keep_settings(gateway, settings)
    await gateway.start([sys.executable, str(folder.parent / "sleeping.py")])
    monkeypatch.setenv("DAGWRIGHT_MODEL", "small")
    with pytest.raises(CommandRefused, match=r"^the worker in the background .* and would take a part of the work: "):
        refuse_other_settings(load_settings())
    await LocalServer(settings).worker("worker").stop()
    with pytest.raises(CommandRefused, match=r"^the gateway in the background .* and continues with it: "):
        refuse_other_settings(load_settings())


async def test_folder_that_is_written_otherwise_is_the_same(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DAGWRIGHT_DATABASE_URL")
    monkeypatch.setenv("DAGWRIGHT_FILES_ROOT", str(folder.parent))
    await _start()
    (folder.parent / "link").symlink_to(folder)
    for path in ("link", f"../{folder.parent.name}/state"):
        monkeypatch.setenv("DAGWRIGHT_STATE_DIR", path)
        refuse_other_settings(load_settings())
    monkeypatch.setenv("DAGWRIGHT_FILES_ROOT", ".")
    for url in (f"{folder}/../state/dagwright.db", "state/dagwright.db"):
        monkeypatch.setenv("DAGWRIGHT_DATABASE_URL", f"sqlite:///{url}")
        refuse_other_settings(load_settings())
    monkeypatch.setenv("DAGWRIGHT_DATABASE_URL", "sqlite:///dagwright.db")
    with pytest.raises(CommandRefused, match="another value of DAGWRIGHT_DATABASE_URL, and"):
        refuse_other_settings(load_settings())


async def test_current_folder_is_told_where_it_is_what_differs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await _start()
    (other := folder.parent / "other").mkdir()
    monkeypatch.chdir(other)
    words = f"another value of DAGWRIGHT_FILES_ROOT (not set here, so it is the current folder, {other}), and"
    with pytest.raises(CommandRefused, match=re.escape(words)):
        refuse_other_settings(load_settings())
    monkeypatch.setenv("DAGWRIGHT_FILES_ROOT", str(other))
    with pytest.raises(CommandRefused, match="another value of DAGWRIGHT_FILES_ROOT, and"):
        refuse_other_settings(load_settings())
    monkeypatch.setenv("DAGWRIGHT_FILES_ROOT", str(folder.parent))
    refuse_other_settings(load_settings())


async def test_files_root_may_differ_for_a_command_that_takes_no_work(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _start()
    (other := folder.parent / "other").mkdir()
    monkeypatch.chdir(other)
    refuse_other_settings(load_settings(), ignored=frozenset({FILES_ROOT}))
    monkeypatch.setenv("DAGWRIGHT_MODEL", "small")
    with pytest.raises(CommandRefused, match="another value of DAGWRIGHT_MODEL, and"):
        refuse_other_settings(load_settings(), ignored=frozenset({FILES_ROOT}))


async def test_process_that_serves_another_queue_is_not_left_the_work(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _start()
    monkeypatch.setenv("DAGWRIGHT_TASK_QUEUE", "other")
    settings = load_settings()
    told: list[str] = []
    with pytest.raises(CommandRefused, match="and serves that alone"):
        async with served_here_or_elsewhere(
            cast(Client, None), load_toolset(settings), settings=settings, report=told.append
        ):
            pass
    assert told == []


async def test_command_that_was_killed_is_in_nobodys_way(folder: Path) -> None:
    (folder / "serving").mkdir(parents=True)
    for name in ("1-dead.lock", "1-dead.settings"):
        (folder / "serving" / name).touch()
    assert (await _start())[1]
    async with serving_beside(load_settings()):
        assert not (folder / "serving" / "1-dead.lock").exists()


async def test_command_whose_state_folder_cannot_be_written_serves(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.parent.joinpath("file").touch()
    monkeypatch.setenv("DAGWRIGHT_STATE_DIR", str(folder.parent / "file" / "state"))
    async with serving_beside(load_settings()):
        pass


def test_every_setting_that_is_not_left_out_is_compared() -> None:
    of_runs = Settings(openai_base_url="http://127.0.0.1:9", model="small").of_runs()
    assert {"DAGWRIGHT_DATABASE_URL", "DAGWRIGHT_MODEL", "DAGWRIGHT_OPENSEARCH_PREFIX", "OPENAI_BASE_URL"} <= {*of_runs}
    left_out = ("STATE_DIR", "UI_URL", "LOG_LEVEL", "LOG_FORMAT", "PLANS")
    assert not {"NO_COLOR", "XDG_CACHE_HOME", *(f"DAGWRIGHT_{name}" for name in left_out)} & {*of_runs}
    # What the gateway alone reads.
    assert not [name for name in of_runs if name.startswith("DAGWRIGHT_API_")]
