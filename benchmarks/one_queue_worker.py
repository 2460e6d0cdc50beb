"""Dagwright's own worker with the benchmark tools on the queue of its workflows, like built-in tools.

The baseline has its workflows and activities on one queue too, as hand-written code would. Temporal starts activities
eagerly only on the queue of their workflow.
`python -m benchmarks.one_queue_worker ADDRESS [QUEUE]` serves until it is stopped.
"""

import asyncio
import signal
import sys
from dataclasses import replace

from benchmarks.processes import ONE_QUEUE, TOOLS_FILE
from dagwright.logging import configure_logging
from dagwright.process import event_loop
from dagwright.server.local import dial
from dagwright.settings import Settings, load_settings
from dagwright.tools import ToolRegistry, load_tools
from dagwright.toolset.toolset import Toolset, load_toolset
from dagwright.worker import serving as worker


def one_queue_toolset(settings: Settings) -> Toolset:
    """Return the toolset, with the tools of the benchmarks as built-in tools."""
    toolset = load_toolset(settings)
    return replace(toolset, built_in=toolset.built_in.merge(load_tools([TOOLS_FILE])), user_tools=ToolRegistry())


async def serve(address: str, task_queue: str = ONE_QUEUE) -> None:
    """Serve plans and tools until SIGINT or SIGTERM."""
    settings = load_settings()
    configure_logging(settings)
    stop_requested = asyncio.Event()
    for signal_number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(signal_number, stop_requested.set)
    async with worker.serving(await dial(address), one_queue_toolset(settings), task_queue=task_queue):
        await stop_requested.wait()


if __name__ == "__main__":
    event_loop.run(serve(*sys.argv[1:]))
