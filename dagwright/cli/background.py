"""Workers in the background: started for `--detach` and `up`, ended by `down`."""

import hashlib
import importlib.util
import sys

from dagwright.agents import file_of_reference
from dagwright.server import Daemon, LocalServer
from dagwright.settings import Settings
from dagwright.toolset import Toolset


async def start_worker(settings: Settings, toolset: Toolset) -> tuple[Daemon, bool]:
    """Starts a worker with these tools in the background; returns it and whether it is a new one.

    It reads the same environment as this process, holds the server, and stays until `LocalServer.stop`.
    """
    daemon = LocalServer(settings).worker(_name(toolset))
    if daemon.is_running():
        return daemon, False
    command = [sys.executable, _worker_file(), "--task-queue", settings.task_queue]
    for reference in toolset.references:
        agents = file_of_reference(reference)
        command += ["--tools", reference] if agents is None else ["--agents", agents]
    try:
        await daemon.start(command)
    except TimeoutError:
        # Another command started the same one in this moment.
        return daemon, False
    return daemon, True


def will_start_worker(settings: Settings, toolset: Toolset) -> bool:
    """Tells whether `start_worker` would start one, which then has the environment of this process."""
    return not LocalServer(settings).worker(_name(toolset)).is_running()


def _name(toolset: Toolset) -> str:
    """Returns a name that is the same for the same tools, so that two runs share a worker."""
    if not toolset.references:
        return "worker"
    return f"worker-{hashlib.sha256(repr(toolset.references).encode()).hexdigest()[:12]}"


def _worker_file() -> str:
    # By its file: `python -m worker` would take a worker.py of the user's folder.
    found = importlib.util.find_spec("worker")
    assert found is not None
    assert found.origin is not None
    return found.origin
