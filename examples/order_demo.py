"""`make demo`: run an order on a real Temporal server, kill it in the middle, and run it again.

The order is `examples/order`, copied to a new folder in the state folder, where the shop writes `shop.log`.
If you interrupt the demo, the next `make demo` continues that order in its folder.
"""

import os
import shutil
import subprocess
import time
from pathlib import Path

from dagwright import SyncClient
from dagwright.plugins.commands import ExitCode, Output, end_process, run_guarded
from dagwright.settings import load_settings
from examples.command_line import choose_id, running_command

EXAMPLE_FOLDER = Path(__file__).parent / "order"
ID_PREFIX = "demo-order-"
PACKED_BEFORE_KILL = 2
KILL_DELAY_S = 1.0
"""Time from the end of packing a lamp to the kill. At that time, the tool is packing the next lamp."""


def demo(output: Output) -> int:
    """Run the order, kill the command, run it again, show the log of the shop, and return the exit code."""
    settings = load_settings()
    with SyncClient.connect(settings=settings, keep_server=True) as client:
        run_id = choose_id(client, ID_PREFIX, output)
    folder = settings.state_dir.resolve() / "orders" / run_id
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("order.yaml", "shop.py"):
        shutil.copy(EXAMPLE_FOLDER / name, folder)
    command = ("dagwright", "run", "order.yaml", "--tools", "shop.py", "--id", run_id)
    output.print(f"\n$ cd {os.path.relpath(folder)}\n$ {' '.join(command)}")
    environment = {"DAGWRIGHT_STATE_DIR": str(settings.state_dir.resolve())}
    with running_command(*command[1:], environment=environment, folder=folder) as process:
        is_killed = _kill_while_packing(process, folder / "shop.log")
        if is_killed:
            output.print(f"\n$ kill -9 {process.pid}\n\n$ {' '.join(command)}")
    if is_killed:
        with running_command(*command[1:], environment=environment, folder=folder) as process:
            pass
    if process.returncode == ExitCode.COMPLETED:
        output.print(f"\n$ cat shop.log\n{(folder / 'shop.log').read_text()}")
        explanation = (
            "the second command continued the run of the first" if is_killed else "this command continued the run"
        )
        output.print(f"Each lamp was packed once: {explanation}.")
    output.print("The server keeps running for its UI; `.venv/bin/dagwright down` stops it.")
    code: int = process.returncode
    return code


def _kill_while_packing(process: "subprocess.Popen[bytes]", log: Path) -> bool:
    """Kill the process while it packs the third lamp, and return whether it was killed.

    The process is not killed if two lamps were packed before its start, or if it ends first.
    """
    if _count_packed(log) >= PACKED_BEFORE_KILL:
        return False
    while process.poll() is None:
        if _count_packed(log) >= PACKED_BEFORE_KILL:
            time.sleep(KILL_DELAY_S)
            process.kill()
            process.wait()
            return True
        time.sleep(0.05)
    return False


def _count_packed(log: Path) -> int:
    return len(log.read_text().splitlines()) if log.exists() else 0


if __name__ == "__main__":
    end_process(run_guarded(lambda: demo(Output()), Output(), load_settings=load_settings))
