"""A command is rejected if a running worker has other settings. The error names a setting that differs."""

import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, cast

import pytest

from dagwright.interfaces.cli import background
from dagwright.interfaces.cli.background import reject_other_gateway, start_worker
from dagwright.interfaces.cli.background_settings import (
    FILES_ROOT,
    record_settings,
    reject_other_settings,
    serving_with_settings,
)
from dagwright.interfaces.cli.exit_codes import CommandError, ExitCode
from dagwright.interfaces.cli.run_host import (
    continue_in_background,
    open_start_connection,
    serve_unless_served_elsewhere,
)
from dagwright.server import Daemon, LocalServer
from dagwright.settings import Settings, load_settings
from dagwright.toolset.toolset import load_toolset

pytestmark = pytest.mark.waits


OTHER_DATABASE = "postgresql://127.0.0.1:9/b"
"""A database that the background worker does not use."""


@pytest.fixture
async def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Path]:
    """The state folder. A background worker that a test starts in it only sleeps."""
    program = tmp_path / "sleeping.py"
    program.write_text("import time; time.sleep(600)", encoding="utf-8")
    monkeypatch.setattr(background, "_PROGRAM", (sys.executable, str(program)))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DAGWRIGHT_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("DAGWRIGHT_DATABASE_URL", "postgresql://ann:hidden@127.0.0.1:9/a")
    monkeypatch.setenv("DAGWRIGHT_SECRET_DESK", "hush")
    monkeypatch.setenv("OPENAI_API_KEY", "key-of-mine")
    yield tmp_path / "state"
    for daemon in LocalServer(load_settings()).workers():
        await daemon.stop()


def _raises_other_value(name: str) -> Any:
    return pytest.raises(CommandError, match=f"another value of {name}, and")


async def _start_background_worker() -> tuple[Daemon, bool]:
    settings = load_settings()
    return await start_worker(settings, load_toolset(settings))


async def test_worker_with_the_same_settings_is_reused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first_worker, is_new = await _start_background_worker()
    # No run depends on these settings.
    monkeypatch.setenv("DAGWRIGHT_LOG_LEVEL", "debug")
    monkeypatch.setenv("NO_COLOR", "1")
    assert (is_new, await _start_background_worker()) == (True, (first_worker, False))
    reject_other_settings(load_settings())
    settings_file = folder / "workers" / "worker.settings"
    text = settings_file.read_text(encoding="utf-8")
    assert "DAGWRIGHT_SECRET_DESK" in text
    assert not [value for value in ("hidden", "hush", "key-of-mine", "127.0.0.1") if value in text]
    assert settings_file.stat().st_mode & 0o077 == 0
    settings_file.unlink()
    with pytest.raises(CommandError, match="has unknown settings: end it with `dagwright down`"):
        reject_other_settings(load_settings())


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("DAGWRIGHT_DATABASE_URL", "postgresql://ann:other@127.0.0.1:9/a"),
        ("OPENAI_API_KEY", "other"),
        ("OPENAI_BASE_URL", "http://127.0.0.1:9/v1"),
        ("DAGWRIGHT_SECRET_DESK", ""),
        ("DAGWRIGHT_SECRET_NEW", "there was none"),
    ],
)
async def test_command_with_another_setting_is_rejected(
    folder: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    worker, _ = await _start_background_worker()
    monkeypatch.setenv(variable, value)
    settings = load_settings()
    expected = (
        f"the worker in the background of {folder} was started with another value of {variable}, and would take part"
        " in the run: use the same value, or end it with `dagwright down` (`watch --no-worker` still works)"
    )
    with pytest.raises(CommandError) as error:
        async with open_start_connection(settings, load_toolset(settings)):
            pass
    code = (error.value.code, error.value.code.exit_code)
    assert (str(error.value), code) == (expected, ("settings_differ", ExitCode.REJECTED))
    # The tools of the command make no difference.
    with pytest.raises(CommandError) as error:
        await start_worker(settings, load_toolset(settings, ["tests.support.chaos_tools"]))
    assert str(error.value) == expected
    assert [daemon.name for daemon in LocalServer(settings).workers() if daemon.is_running()] == ["worker"]
    # After the end of the worker, a command is accepted, and the next worker has the new settings.
    await worker.stop()
    assert (await _start_background_worker())[1]
    reject_other_settings(settings)


async def test_no_worker_starts_while_a_command_has_other_settings(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving_with_settings(load_settings()):
        monkeypatch.setenv("DAGWRIGHT_DATABASE_URL", OTHER_DATABASE)
        with pytest.raises(CommandError) as error:
            await _start_background_worker()
        assert str(error.value) == (
            f"a command that serves runs of {folder} (process {os.getpid()}) has another value of"
            " DAGWRIGHT_DATABASE_URL, and would take part in the run: end it first, or use the same value"
            " (`watch --no-worker` still works)"
        )
        assert [daemon for daemon in LocalServer(load_settings()).workers() if daemon.is_running()] == []
    assert (await _start_background_worker())[1]
    monkeypatch.setenv("DAGWRIGHT_MODEL", "small")
    with _raises_other_value("DAGWRIGHT_MODEL"):
        async with serving_with_settings(load_settings()):
            pass


async def test_server_keeps_running_only_with_accepted_settings(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep_running_calls: list[bool] = []
    monkeypatch.setattr(LocalServer, "keep_running", lambda _: keep_running_calls.append(True))
    assert not folder.exists()
    async with serving_with_settings(load_settings()):
        monkeypatch.setenv("DAGWRIGHT_MODEL", "small")
        settings = load_settings()
        toolset = load_toolset(settings)
        with _raises_other_value("DAGWRIGHT_MODEL"):
            await continue_in_background(settings, toolset)
    assert not keep_running_calls
    await continue_in_background(settings, toolset)
    assert keep_running_calls


async def test_second_command_with_other_settings_is_rejected(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving_with_settings(load_settings()):
        async with serving_with_settings(load_settings()):
            assert len([*(folder / "serving").glob("*.lock")]) == 2
        monkeypatch.setenv("DAGWRIGHT_DATABASE_URL", OTHER_DATABASE)
        settings = load_settings()
        # `open_start_connection` rejects the settings before a run starts.
        for context in (open_start_connection(settings, load_toolset(settings)), serving_with_settings(settings)):
            with pytest.raises(CommandError, match=r"^a command .* another value of DAGWRIGHT_DATABASE_URL, and"):
                async with context:
                    pass
    assert [*(folder / "serving").iterdir()] == []
    # The next command removes the files of a killed command.
    for name in ("1-dead.lock", "1-dead.settings"):
        (folder / "serving" / name).touch()
    assert (await _start_background_worker())[1]
    async with serving_with_settings(load_settings()):
        assert not (folder / "serving" / "1-dead.lock").exists()


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("DAGWRIGHT_TASK_QUEUE", "other"),
        ("TEMPORAL_ADDRESS", "temporal.example.com:7233"),
        ("TEMPORAL_NAMESPACE", "other"),
    ],
)
async def test_another_queue_or_server_conflicts_with_a_worker_but_not_with_a_serving_command(
    folder: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    async with serving_with_settings(load_settings()):
        with monkeypatch.context() as patch:
            patch.setenv(variable, value)
            patch.setenv("DAGWRIGHT_MODEL", "small")
            async with serving_with_settings(load_settings()):
                assert len([*(folder / "serving").glob("*.lock")]) == 2
    await _start_background_worker()
    monkeypatch.setenv(variable, value)
    settings, reports = load_settings(), list[str]()
    with pytest.raises(CommandError) as error:
        reject_other_settings(settings)
    assert str(error.value) == (
        f"the worker in the background of {folder} was started with another value of {variable}, and serves only"
        " runs with that value: use the same value, or end it with `dagwright down` (`watch --no-worker` still works),"
        " or use another DAGWRIGHT_STATE_DIR"
    )
    client, toolset = cast("Any", None), load_toolset(settings)
    with pytest.raises(CommandError, match="and serves only runs with that value"):
        async with serve_unless_served_elsewhere(client, toolset, settings=settings, report=reports.append):
            pass
    assert reports == []


async def test_error_names_the_gateway_only_if_no_worker_runs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await _start_background_worker()
    settings = load_settings()
    gateway = LocalServer(settings).worker("gateway")
    record_settings(gateway, settings)
    await gateway.start([sys.executable, str(folder.parent / "sleeping.py")])
    monkeypatch.setenv("DAGWRIGHT_MODEL", "small")
    for name, effect in (("worker", "would take part in the run"), ("gateway", "keeps that value")):
        with pytest.raises(CommandError, match=rf"^the {name} in the background .* and {effect}: "):
            reject_other_settings(load_settings())
        await LocalServer(settings).worker(name).stop()


async def test_equivalent_paths_count_as_the_same_setting(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DAGWRIGHT_DATABASE_URL")
    monkeypatch.setenv("DAGWRIGHT_FILES_ROOT", str(folder.parent))
    await _start_background_worker()
    (folder.parent / "link").symlink_to(folder)
    for name, value in (
        ("DAGWRIGHT_STATE_DIR", "link"),
        ("DAGWRIGHT_STATE_DIR", f"../{folder.parent.name}/state"),
        ("DAGWRIGHT_FILES_ROOT", "."),
        ("DAGWRIGHT_DATABASE_URL", f"sqlite:///{folder}/../state/dagwright.db"),
        ("DAGWRIGHT_DATABASE_URL", "sqlite:///state/dagwright.db"),
    ):
        monkeypatch.setenv(name, value)
        reject_other_settings(load_settings())
    monkeypatch.setenv("DAGWRIGHT_DATABASE_URL", "sqlite:///dagwright.db")
    with _raises_other_value("DAGWRIGHT_DATABASE_URL"):
        reject_other_settings(load_settings())


async def test_current_folder_is_named_as_files_root(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await _start_background_worker()
    (other_folder := folder.parent / "other").mkdir()
    monkeypatch.chdir(other_folder)
    message = f"another value of DAGWRIGHT_FILES_ROOT (not set here, so it is the current folder, {other_folder}), and"
    with pytest.raises(CommandError, match=re.escape(message)):
        reject_other_settings(load_settings())
    # A command that executes no runs does not use the files root.
    reject_other_settings(load_settings(), ignored_names=frozenset({FILES_ROOT}))
    monkeypatch.setenv("DAGWRIGHT_FILES_ROOT", str(other_folder))
    with _raises_other_value("DAGWRIGHT_FILES_ROOT"):
        reject_other_settings(load_settings())
    monkeypatch.setenv("DAGWRIGHT_FILES_ROOT", str(folder.parent))
    reject_other_settings(load_settings())
    monkeypatch.setenv("DAGWRIGHT_MODEL", "small")
    with _raises_other_value("DAGWRIGHT_MODEL"):
        reject_other_settings(load_settings(), ignored_names=frozenset({FILES_ROOT}))


async def test_command_serves_runs_even_if_the_state_folder_is_not_writable(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.parent.joinpath("file").touch()
    monkeypatch.setenv("DAGWRIGHT_STATE_DIR", str(folder.parent / "file" / "state"))
    async with serving_with_settings(load_settings()):
        pass


def test_only_settings_that_affect_runs_are_compared() -> None:
    settings_of_runs = Settings(openai_base_url="http://127.0.0.1:9", model="small").settings_of_runs()
    assert {"DAGWRIGHT_DATABASE_URL", "DAGWRIGHT_MODEL", "OPENAI_BASE_URL"} <= {*settings_of_runs}
    omitted_names = ("STATE_DIR", "UI_URL", "LOG_LEVEL", "LOG_FORMAT", "PLANS")
    assert not {"NO_COLOR", "XDG_CACHE_HOME", *(f"DAGWRIGHT_{name}" for name in omitted_names)} & {*settings_of_runs}
    # Settings that only the gateway uses are not compared.
    assert not [name for name in settings_of_runs if name.startswith("DAGWRIGHT_API_")]


@pytest.mark.parametrize(
    ("plans", "port", "rejected_option"),
    [("a", 8000, None), (None, None, None), ("b", None, "--plans"), ("a", 9000, "--port 9000")],
)
def test_other_plans_or_another_port_than_those_of_the_gateway_are_rejected(
    tmp_path: Path, plans: str | None, port: int | None, rejected_option: str | None
) -> None:
    (tmp_path / "workers").mkdir()
    (tmp_path / "workers" / "gateway.plans").write_text(str(tmp_path / "a"))
    settings = Settings(state_dir=tmp_path, plans=None if plans is None else tmp_path / plans)
    expected: Any = nullcontext() if rejected_option is None else pytest.raises(CommandError, match=rejected_option)
    with expected as error:
        reject_other_gateway(settings, "http://127.0.0.1:8000", port=port)
    assert rejected_option is None or error.value.code.exit_code is ExitCode.REJECTED
