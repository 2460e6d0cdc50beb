"""Functions that the demos share: they choose run IDs, run commands of `dagwright`, and serve a scripted model."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from dagwright import SyncClient
from dagwright.plugins.commands import Output

MODEL_VARIABLES = ("OPENAI_API_KEY", "OPENAI_BASE_URL", "LITELLM_PROXY_API_KEY", "LITELLM_PROXY_BASE_URL")
DEFAULT_MODEL = "gpt-4o-mini"


def choose_id(client: SyncClient, prefix: str, output: Output) -> str:
    """Return the ID of the newest run if it was interrupted, else a new ID: the prefix with the next number."""
    # `title` also selects the runs whose ID has this prefix.
    runs = {
        int(number): run
        for run in client.list_runs(title=prefix, limit=1_000)
        if (number := run.run_id.removeprefix(prefix)).isdecimal()
    }
    newest_number = max(runs, default=0)
    if newest_number in runs and runs[newest_number].ended_at is None:
        run_id = f"{prefix}{newest_number}"
        output.print(f"run {run_id} was interrupted and continues")
    else:
        run_id = f"{prefix}{newest_number + 1}"
        output.print(f"run {run_id} starts")
    return run_id


def run_command(*arguments: str, environment: Mapping[str, str] | None = None) -> int:
    """Run a command of `dagwright` on this terminal and return its exit code."""
    with running_command(*arguments, environment=environment) as process:
        return _wait_for_exit(process)


@contextmanager
def running_command(
    *arguments: str, environment: Mapping[str, str] | None = None, folder: Path | None = None
) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a command of `dagwright` on this terminal inside the block; at the end of the block, wait until it ends.

    Args:
        environment: variables that differ from those of this process.
        folder: the working directory of the command; default: that of this process.
    """
    command = [sys.executable, "-P", "-m", "dagwright", *arguments]
    with subprocess.Popen(command, cwd=folder, env={**os.environ, **(environment or {})}) as process:

        def terminate(_signal: int, _frame: FrameType | None) -> None:
            process.terminate()

        previous_handler = signal.signal(signal.SIGTERM, terminate)
        try:
            yield process
        finally:
            _wait_for_exit(process)
            signal.signal(signal.SIGTERM, previous_handler)


def _wait_for_exit(process: "subprocess.Popen[bytes]") -> int:
    """Wait until a command ends, and return its exit code.

    Ctrl-C does not end the wait: the command gets the signal too.
    """
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            continue


@contextmanager
def scripted_model(script: Path) -> Iterator[Mapping[str, str]]:
    """Serve a script inside the block, and yield the environment variables for commands."""
    command = [sys.executable, "-m", "dagwright.testing", str(script)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        address = server.stdout.readline().strip()
        try:
            yield {"OPENAI_BASE_URL": address, "OPENAI_API_KEY": "none", "DAGWRIGHT_MODEL": "scripted-model"}
        finally:
            server.terminate()


def names_of_model_variables() -> str:
    """Return the names of the variables that select a model service and are set in this environment."""
    return " and ".join(name for name in MODEL_VARIABLES if os.environ.get(name))
