"""Live progress of a run: a table in a terminal, a self-updating drawing in a notebook, otherwise lines."""

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager, aclosing, nullcontext
from importlib import import_module
from typing import Any, Protocol, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from dagwright.core.model.states import NodeStatus
from dagwright.plans.drawing import Drawing, DrawnNode, duration_text
from dagwright.plans.drawing_text import MARKS, shortened, single_line

_MIN_INTERVAL_S = 0.3
"""Minimum interval between two drawings: a run is read as often in any case."""
_LARGE_INTERVAL_S = 2.0
"""Minimum interval for a large graph, whose drawing has over 100 KB."""
_LARGE_NODES = 150
_TICK_S = 1.0
"""Interval at which durations are redrawn without any change."""
_FRAME_ROWS = 5
_BEFORE_START = (NodeStatus.PENDING, NodeStatus.READY)
_FIRST = (NodeStatus.FAILED, NodeStatus.RUNNING, NodeStatus.WAITING, NodeStatus.READY)
"""States of the nodes that are shown first if not all nodes fit, most important first."""


class WatchedRun(Protocol):
    """The methods of `Run` that progress uses."""

    def events(self) -> AsyncIterator[object]:
        """Yield events until the run has ended."""
        ...

    async def draw(self) -> Drawing:
        """Return the current drawing of the run."""
        ...


class ProgressView(Protocol):
    """Displays drawings; each replaces the previous one."""

    def open(self) -> AbstractContextManager[object]:
        """Return the context in which all drawings are shown."""
        ...

    def show(self, drawing: Drawing) -> None:
        """Show a drawing."""
        ...


async def show_progress(run: WatchedRun, *, view: ProgressView | None = None) -> None:
    """Show a run until it has ended, with any outcome; `await run.result()` returns its result.

    Args:
        view: by default the output of a notebook cell, or the terminal.

    Raises:
        RunNotFound: there is no such run.
    """
    display = view or default_view()
    changed = asyncio.Event()
    watching = asyncio.create_task(_watch(run, changed))
    try:
        with display.open():
            while not watching.done():
                changed.clear()
                drawing = await run.draw()
                display.show(drawing)
                await _next_change(changed, drawing, watching)
            await watching
            display.show(await run.draw())
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def _watch(run: WatchedRun, changed: asyncio.Event) -> None:
    try:
        events: Any = run.events()
        async with aclosing(events):
            async for _ in events:
                changed.set()
    finally:
        changed.set()


async def _next_change(changed: asyncio.Event, drawing: Drawing, watching: "asyncio.Task[None]") -> None:
    """Wait for the next change, within the minimum and maximum interval."""
    interval = _LARGE_INTERVAL_S if len(drawing.nodes) > _LARGE_NODES else _MIN_INTERVAL_S
    await asyncio.wait({watching}, timeout=interval)
    try:
        await asyncio.wait_for(changed.wait(), _TICK_S)
    except TimeoutError:
        return


def default_view() -> ProgressView:
    """Return the view of this process: the output of a notebook cell, the terminal, or lines in a file or pipe."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if shell is None or getattr(shell, "kernel", None) is None:
        return TerminalView() if sys.stdout.isatty() else LineView()
    # Not a dependency of the package; notebooks have it installed.
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

    def open(self) -> AbstractContextManager[object]:
        """Return an empty context: a cell needs no clean-up."""
        return nullcontext()

    def show(self, drawing: Drawing) -> None:
        """Replace the drawing shown before."""
        if self._handle is None:
            self._handle = self._display(drawing.to_html())
        else:
            self._handle.update(drawing)


class LineView:
    """A view for logs: a line for each change of a node."""

    def __init__(self, output: TextIO | None = None) -> None:
        """Create a view.

        Args:
            output: standard output by default.
        """
        self._output = output or sys.stdout
        self._displayed: dict[str, tuple[NodeStatus, str]] = {}

    def open(self) -> AbstractContextManager[object]:
        """Return an empty context: lines need no clean-up."""
        return nullcontext()

    def show(self, drawing: Drawing) -> None:
        """Write the changes since the previous drawing."""
        for node in drawing.nodes:
            state = (node.status or NodeStatus.PENDING, node.counts)
            if state[0] in _BEFORE_START or self._displayed.get(node.id) == state:
                continue
            self._displayed[node.id] = state
            took = duration_text(node) if state[0].is_final else ""
            parts = [f"{state[0]:9}", single_line(node.id), single_line(node.work), node.counts, took]
            error = f": {shortened(node.error, 300)}" if node.error else ""
            print("  ".join(filter(None, parts)) + error, file=self._output, flush=True)


class TerminalView:
    """Shows drawings as a table; if the output is not a terminal, only the last drawing."""

    def __init__(self, console: Console | None = None) -> None:
        """Create a view.

        Args:
            console: standard output by default.
        """
        self._console = console or Console()
        self._live = Live(console=self._console, auto_refresh=False)

    def open(self) -> AbstractContextManager[object]:
        """Return the live display."""
        return self._live

    def show(self, drawing: Drawing) -> None:
        """Replace the drawing shown before."""
        self._live.update(progress_table(drawing, rows=max(1, self._console.height - _FRAME_ROWS)), refresh=True)


def progress_table(drawing: Drawing, *, rows: int) -> RenderableType:
    """Return the nodes of a run as a table for a terminal.

    Args:
        rows: maximum number of rows; if there are more nodes, running and failed nodes come first, and the others are
            counted.
    """
    rows_shown = _chosen(drawing.nodes, rows)
    table = Table.grid(padding=(0, 2, 0, 0))
    for node in rows_shown:
        mark, style = MARKS[node.status or NodeStatus.PENDING]
        details = " ".join(filter(None, [single_line(node.work), node.counts]))
        table.add_row(
            Text(mark, style=style),
            Text(shortened(node.id, 40)),
            Text(shortened(node.error, 60) if node.error else details, style="red" if node.error else "dim"),
            Text(str(node.status or ""), style=style),
            Text(duration_text(node), style="dim"),
        )
    counts = Counter(node.status for node in drawing.nodes)
    parts = [f"{counts[status]:,} {status}" for status in NodeStatus if counts[status]]
    title = f"{single_line(drawing.title or 'run')}: {drawing.status}"
    return Group(Text(title, style="bold"), table, Text(", ".join(parts), style="dim"))


def _chosen(nodes: Sequence[DrawnNode], rows: int) -> Sequence[DrawnNode]:
    if len(nodes) <= rows:
        return nodes
    rank = {status: number for number, status in enumerate(_FIRST)}
    indices = sorted(
        range(len(nodes)), key=lambda index: rank.get(nodes[index].status or NodeStatus.PENDING, len(rank))
    )
    return [nodes[index] for index in sorted(indices[:rows])]
