"""Background workers and gateway: `--detach` and `up` start them, `down` ends them."""

import asyncio
import hashlib
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import httpx

from dagwright.interfaces.cli.background_settings import (
    GATEWAY,
    record_settings,
    reject_other_settings,
    start_lock,
)
from dagwright.interfaces.cli.exit_codes import CommandError, CommandErrorCode
from dagwright.server import Daemon, LocalServer
from dagwright.settings import Settings
from dagwright.store.private_files import make_private_folder, write_private
from dagwright.tools.tool_references import options_of_references
from dagwright.toolset.toolset import Toolset

WORKER_START_TIMEOUT_S = 60.0
"""How long a worker may take to start, in seconds; on an idle machine it takes a few seconds."""
GATEWAY_START_TIMEOUT_S = 60.0
"""How long the gateway may take until it responds, in seconds."""

_PROGRAM = (sys.executable, "-P", "-m", "dagwright")
"""Command that runs this program. With `-P`, Python ignores a folder `dagwright` in the working directory."""


async def start_worker(settings: Settings, toolset: Toolset) -> tuple[Daemon, bool]:
    """Start a worker with these tools in the background; return the worker and whether it is new.

    The worker has the environment of this process, keeps the server running, and runs until `LocalServer.stop`.

    Raises:
        CommandError: a process that serves runs of this state folder has other settings.
    """
    daemon = LocalServer(settings).worker(_worker_name(toolset))
    command = [*_PROGRAM, "worker", "--task-queue", settings.task_queue, *options_of(toolset)]
    async with start_lock(settings):
        return daemon, await _start_if_needed(daemon, command, settings=settings)


async def start_gateway(settings: Settings, toolset: Toolset, *, port: int | None) -> tuple[str, bool]:
    """Start the gateway of this folder in the background; return the address and whether the gateway is new.

    The gateway has the environment of this process, serves no runs itself, and runs until `LocalServer.stop`.

    Args:
        port: 0 for any free port; `None` for the default port, or any free port if the default port is taken.

    Raises:
        CommandError: the gateway does not start, or a process that serves runs of this state folder has other settings.
    """
    daemon = LocalServer(settings).worker(GATEWAY)
    address_file = settings.state_dir / "workers" / f"{GATEWAY}.json"
    command = [*_PROGRAM, "serve", "--no-worker", "--address-file", str(address_file), *options_of(toolset)]
    command += [] if port is None else ["--port", str(port)]
    command += [] if settings.plans is None else ["--plans", str(settings.plans)]
    async with start_lock(settings):
        if not daemon.is_running():
            address_file.unlink(missing_ok=True)
            make_private_folder(settings.state_dir / "workers")
            write_private(_plans_path(settings), _plans_text(settings))
        is_new = await _start_if_needed(daemon, command, settings=settings)
    deadline = time.monotonic() + GATEWAY_START_TIMEOUT_S
    while daemon.is_running() and time.monotonic() < deadline:
        if (address := await _ready_address(address_file)) is not None:
            if not is_new:
                reject_other_gateway(settings, address, port=port)
            return address, is_new
        await asyncio.sleep(0.05)
    message = f"the gateway does not start ({daemon.last_log_line()}): see {daemon.log_path}"
    raise CommandError(message, code=CommandErrorCode.GATEWAY_UNAVAILABLE)


def reject_other_gateway(settings: Settings, address: str, *, port: int | None) -> None:
    """Reject a port or a folder of plans that the running gateway does not have.

    Raises:
        CommandError: the gateway has another port or folder.
    """
    differences = [] if not port or httpx.URL(address).port == port else [f"--port {port}"]
    path = _plans_path(settings)
    if settings.plans is not None and path.exists() and path.read_text(encoding="utf-8") != _plans_text(settings):
        differences.append(f"--plans {settings.plans}")
    if differences:
        message = f"the gateway already runs at {address}, without {' and '.join(differences)}"
        raise CommandError(f"{message}: end it with `dagwright down` first", code=CommandErrorCode.SETTINGS_DIFFER)


def _plans_path(settings: Settings) -> Path:
    return settings.state_dir / "workers" / f"{GATEWAY}.plans"


def _plans_text(settings: Settings) -> str:
    return "" if settings.plans is None else str(settings.plans.resolve())


async def _start_if_needed(daemon: Daemon, command: Sequence[str], *, settings: Settings) -> bool:
    """Start a process unless it runs, and return whether it is new; the caller holds the start lock."""
    reject_other_settings(settings)
    if daemon.is_running():
        return False
    record_settings(daemon, settings)
    await daemon.start(command)
    return True


async def _ready_address(address_file: Path) -> str | None:
    """Return the address that a gateway has published; `None` if the gateway is not ready yet."""
    try:
        address = address_file.read_text(encoding="utf-8").strip()
        async with httpx.AsyncClient(trust_env=False) as client:
            (await client.get(f"{address}/readyz", timeout=2)).raise_for_status()
    except (OSError, httpx.HTTPError, httpx.InvalidURL):
        return None
    return address


STARTING_MESSAGE = "the worker in the background is starting"


def is_worker_starting(settings: Settings) -> bool:
    """Return whether a worker in the background of this folder was started less than `WORKER_START_TIMEOUT_S` ago."""
    daemons = LocalServer(settings).workers()
    ages = [daemon.age_s() for daemon in daemons if daemon.name != GATEWAY]
    return any(age is not None and age < WORKER_START_TIMEOUT_S for age in ages)


def will_start_worker(settings: Settings, toolset: Toolset) -> bool:
    """Return whether `start_worker` would start a worker, which then has the environment of this process."""
    return not LocalServer(settings).worker(_worker_name(toolset)).is_running()


def _worker_name(toolset: Toolset) -> str:
    """Return the name of the worker with these tools; runs with equal tools share a worker."""
    if not toolset.references:
        return "worker"
    return f"worker-{hashlib.sha256(repr(toolset.references).encode()).hexdigest()[:12]}"


def options_of(toolset: Toolset) -> list[str]:
    """Return the options with which another process loads the same tools."""
    return options_of_references(toolset.references)
