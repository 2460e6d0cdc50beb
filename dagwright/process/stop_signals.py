"""SIGTERM and SIGINT as an event, for a program that serves until it is stopped."""

import asyncio
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def stop_signals() -> Iterator[asyncio.Event]:
    """Yield an event that the first SIGINT or SIGTERM sets; later signals go to the handlers that were set before.

    Only the main thread can handle signals. In another thread the event is never set: cancel the waiting task instead.
    """
    stop_event = asyncio.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop_event
        return
    loop = asyncio.get_running_loop()
    earlier_handlers = {number: signal.getsignal(number) for number in _SIGNALS}

    def restore() -> None:
        for number, handler in earlier_handlers.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)

    def stop() -> None:
        restore()
        stop_event.set()

    for number in _SIGNALS:
        loop.add_signal_handler(number, stop)
    try:
        yield stop_event
    finally:
        if not stop_event.is_set():
            restore()
