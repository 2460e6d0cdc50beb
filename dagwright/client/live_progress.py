"""Live progress of a run: in a notebook, a drawing that updates itself; otherwise, a line for each change.

`dagwright watch` shows a run as a live tree on a terminal.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from importlib import import_module
from typing import Any, Protocol, TextIO

from dagwright.core.model.states import NodeStatus
from dagwright.plans.drawing import Drawing, duration_text
from dagwright.plans.drawing_text import shorten_line, single_line

_MIN_INTERVAL_S = 0.3
"""Minimum interval between two drawings."""
_LARGE_GRAPH_INTERVAL_S = 2.0
"""Minimum interval for a large graph, whose drawing has over 100 KB."""
_MAX_SMALL_GRAPH_NODES = 150
"""Graphs with more nodes are large."""
_TICK_S = 1.0
"""Interval at which durations are redrawn if nothing else changes."""
_NOT_STARTED_STATUSES = (NodeStatus.PENDING, NodeStatus.READY)


class WatchedRun(Protocol):
    """The methods of `Run` that `show_progress` calls."""

    def events(self) -> AsyncIterator[object]:
        """Yield events until the run has ended."""
        ...

    async def draw(self) -> Drawing:
        """Return the current drawing of the run."""
        ...


class ProgressView(Protocol):
    """Displays drawings. Each replaces the previous one."""

    def show(self, drawing: Drawing) -> None:
        """Show a drawing."""
        ...


async def show_progress(run: WatchedRun, *, view: ProgressView | None = None) -> None:
    """Show a run until it has ended. Raise no error if the run fails.

    Args:
        view: by default the view of `default_view`.

    Raises:
        RunNotFound: there is no such run.
    """
    progress_view = view or default_view()
    change_event = asyncio.Event()
    watcher = asyncio.create_task(_watch(run, change_event))
    try:
        while not watcher.done():
            change_event.clear()
            drawing = await run.draw()
            progress_view.show(drawing)
            await _wait_for_change(change_event, drawing, watcher)
        await watcher
        progress_view.show(await run.draw())
    finally:
        watcher.cancel()
        await asyncio.gather(watcher, return_exceptions=True)


async def _watch(run: WatchedRun, change_event: asyncio.Event) -> None:
    try:
        events: Any = run.events()
        async with aclosing(events):
            async for _ in events:
                change_event.set()
    finally:
        change_event.set()


async def _wait_for_change(change_event: asyncio.Event, drawing: Drawing, watcher: "asyncio.Task[None]") -> None:
    """Wait for the minimum interval, and then for the next change, but at most `_TICK_S` for the change."""
    interval_s = _LARGE_GRAPH_INTERVAL_S if len(drawing.nodes) > _MAX_SMALL_GRAPH_NODES else _MIN_INTERVAL_S
    await asyncio.wait({watcher}, timeout=interval_s)
    try:
        await asyncio.wait_for(change_event.wait(), _TICK_S)
    except TimeoutError:
        return


def default_view() -> ProgressView:
    """Return the view of this process: the output of a notebook cell, or lines."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if shell is None or getattr(shell, "kernel", None) is None:
        return LineView()
    # IPython is not a dependency of the package; notebooks have it installed.
    display: Any = import_module("IPython.display")
    return NotebookView(lambda html: display.display(display.HTML(html), display_id=True))


class NotebookView:
    """Shows drawings in the output of a cell."""

    def __init__(self, display: Callable[[str], Any]) -> None:
        """Create a view.

        Args:
            display: shows HTML and returns a handle whose `update` accepts an object with `_repr_html_`.
        """
        self._display = display
        self._handle: Any = None

    def show(self, drawing: Drawing) -> None:
        """Replace the previous drawing."""
        if self._handle is None:
            self._handle = self._display(drawing.to_html())
        else:
            self._handle.update(drawing)


class LineView:
    """View with a line for each change of a node."""

    def __init__(self, output: TextIO | None = None) -> None:
        """Create a view.

        Args:
            output: standard output by default.
        """
        self._output = output or sys.stdout
        self._displayed_states: dict[str, tuple[NodeStatus, str]] = {}

    def show(self, drawing: Drawing) -> None:
        """Write the changes since the previous drawing."""
        for node in drawing.nodes:
            state = (node.status or NodeStatus.PENDING, node.counts)
            if state[0] in _NOT_STARTED_STATUSES or self._displayed_states.get(node.id) == state:
                continue
            self._displayed_states[node.id] = state
            duration = duration_text(node) if state[0].is_final else ""
            parts = [f"{state[0]:9}", single_line(node.id), single_line(node.executor), node.counts, duration]
            error = f": {shorten_line(node.error, 300)}" if node.error else ""
            print("  ".join(filter(None, parts)) + error, file=self._output, flush=True)
