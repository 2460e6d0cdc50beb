"""The event loop of the command line and its handling of Ctrl-C."""

import asyncio
import signal
from collections.abc import Callable, Coroutine
from typing import Any

from dagwright.interfaces.cli.exit_codes import ExitCode
from dagwright.interfaces.cli.output import Output
from dagwright.interfaces.cli.process_exit import ExitWatchdog, end_process_at_once
from dagwright.process import event_loop

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class InterruptHandling:
    """How a command reacts to Ctrl-C.

    The command starts the exit watchdog when it waits only for running steps (activities in this process).

    Args:
        text: message that is shown when the command is interrupted; the command may replace it.
    """

    def __init__(self, text: str = "interrupted") -> None:
        self.text = text
        self.exit_watchdog = ExitWatchdog()
        self.on_next_interrupt: Callable[[], object] | None = None
        """Called once, for the next Ctrl-C, which then does not end the command."""


def run_async(work: Callable[[InterruptHandling], Coroutine[Any, Any, int]], output: Output) -> int:
    """Run a command and return its exit code.

    The first SIGINT or SIGTERM cancels the command, so that running steps (activities in this process) can finish. A
    second signal ends the process immediately. If a step does not finish within some seconds of the first signal, the
    watchdog ends the process.

    Args:
        work: creates the coroutine of the command.
    """
    interrupt_handling = InterruptHandling()
    is_interrupted = False

    async def main() -> int:
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        assert task is not None

        def interrupt(signal_number: int) -> None:
            nonlocal is_interrupted
            if is_interrupted:
                # The second signal arrived before its handler was set.
                end_process_at_once()
            on_next_interrupt, interrupt_handling.on_next_interrupt = interrupt_handling.on_next_interrupt, None
            if on_next_interrupt is not None and signal_number == signal.SIGINT:
                on_next_interrupt()
                return
            is_interrupted = True
            for handled_signal in _SIGNALS:
                # A step may block the event loop, so the handler for the second signal is not a handler of the loop.
                loop.remove_signal_handler(handled_signal)
                signal.signal(handled_signal, end_process_at_once)
            output.log(interrupt_handling.text)
            interrupt_handling.exit_watchdog.start(ExitCode.INTERRUPTED)
            task.cancel()

        for signal_number in _SIGNALS:
            loop.add_signal_handler(signal_number, interrupt, signal_number)
        return await work(interrupt_handling)

    try:
        return event_loop.run(main())
    except asyncio.CancelledError:
        if not is_interrupted:
            raise
        return ExitCode.INTERRUPTED
    finally:
        interrupt_handling.exit_watchdog.close()
