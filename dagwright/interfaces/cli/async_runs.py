"""The one event loop of the command line, and what Ctrl-C does to it."""

import asyncio
import signal
from collections.abc import Callable, Coroutine
from typing import Any

from dagwright.interfaces.cli.exits import ExitCode
from dagwright.interfaces.cli.leaving import WayOut, leave_at_once
from dagwright.interfaces.cli.output import Output
from dagwright.process import event_loop

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Farewell:
    """What is said when the command is interrupted; the command sets it when there is more to say.

    Its way out is opened when nothing is left but to wait for the end of what the command has started.

    Args:
        text: one sentence.
    """

    def __init__(self, text: str = "interrupted") -> None:
        self.text = text
        self.way_out = WayOut()
        self.instead: Callable[[], object] | None = None
        """What the next Ctrl-C does in place of ending the command; it does so once."""


def run_async(work: Callable[[Farewell], Coroutine[Any, Any, int]], output: Output) -> int:
    """Runs a command to its end and returns its exit code.

    The first SIGINT or SIGTERM cancels it in good order, so that steps in flight may end; the second leaves at once,
    and so does the first after some seconds if a step does not end.

    Args:
        work: makes the coroutine of the command.
        output: of the command.
    """
    farewell = Farewell()
    is_interrupted = False

    async def main() -> int:
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        assert task is not None

        def interrupt(number: int) -> None:
            nonlocal is_interrupted
            if is_interrupted:
                # It came while the loop was at something else, and before what is set below.
                leave_at_once()
            instead, farewell.instead = farewell.instead, None
            if instead is not None and number == signal.SIGINT:
                instead()
                return
            is_interrupted = True
            for each in _SIGNALS:
                # Not by the loop, which a step that blocks keeps from its turn.
                loop.remove_signal_handler(each)
                signal.signal(each, leave_at_once)
            output.tell(farewell.text)
            farewell.way_out.open(ExitCode.INTERRUPTED)
            task.cancel()

        for number in _SIGNALS:
            loop.add_signal_handler(number, interrupt, number)
        return await work(farewell)

    try:
        return event_loop.run(main())
    except asyncio.CancelledError:
        if not is_interrupted:
            raise
        return ExitCode.INTERRUPTED
    finally:
        farewell.way_out.close()
