"""Live progress of a run on a terminal: header, tree of nodes with states and times, counts, remaining time."""

import time
from collections.abc import Sequence
from textwrap import wrap
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from dagwright.core.model.compiled import CompiledPlan
from dagwright.core.model.states import NodeStatus
from dagwright.core.model.times import format_elapsed_time
from dagwright.interfaces.cli.output import one_line, terminal_text
from dagwright.interfaces.cli.progress_tree import Row, RunRows, TreeNode, progress_of, tree_of
from dagwright.interfaces.cli.request_text import Request, answer_command, deadline_text, option_lines, request_line
from dagwright.interfaces.cli.round_text import call_texts_of, rounds_of
from dagwright.interfaces.cli.rounds_display import rounds_table
from dagwright.plans.drawing_text import MARKS

if TYPE_CHECKING:
    from dagwright.history.run_view import RunView

RUN_STYLES = {"completed": "green", "running": "cyan", "cancelled": "yellow", "waiting": "yellow"}
"""State of a run -> style of the state."""
_FRAME_ROWS = 6
"""Lines for the header, the footer and margins."""
_BAR_CELLS = 20
_NOTES_SHOWN = 2
_REQUESTS_SHOWN = 3
_COMMAND_ROWS = 2
"""Lines of the command that answers a request. The command must not be cut."""
_QUESTION_ROWS = 4
"""Maximum lines of a question. The names or facts that distinguish entities are at the end of a question."""
_MAX_ROWS_PER_OPTION = 2
_INDENT = "  "
_MIN_WIDTH = 20
"""Minimum number of columns to which a text is wrapped, even on a narrower terminal."""
_MIN_OPTION_ROWS = 2
"""Minimum number of lines for the options of a request."""
_ANSWER_HEIGHT_DIVISOR = 3
"""A partial answer of a model is shown on at most a third of the lines."""
_NOTE_ROWS = 3
"""Lines for a note: the problem, and the command that fixes it. The command must not be cut."""


class RunDisplay:
    """Draws a run repeatedly; the tree of nodes is computed once per plan."""

    def __init__(self) -> None:
        self._tree: tuple[CompiledPlan, Sequence[TreeNode]] | None = None

    def draw(
        self,
        view: "RunView",
        requests: Sequence[Request] = (),
        *,
        now: float,
        height: int,
        width: int = 80,
        answer_lines: Sequence[Text] = (),
    ) -> RenderableType:
        """Draw a run.

        Args:
            requests: open requests; the oldest are shown with the commands that answer them.
            answer_lines: the last lines of an answer that a model is writing; the complete answer is shown at the end.
            now: seconds since the epoch.
            height, width: lines and columns of the terminal.
        """
        if view.scheduler is None:
            run_input = view.run_input
            # Only large plans, and plans that were sent as text, are read by an activity.
            is_reading = run_input is not None and (run_input.plan is not None or bool(run_input.pages))
            return Group(_header(view, now=now), Text("reading the plan" if is_reading else "starting", style="dim"))
        notes = [Text(one_line(str(note["message"])), style="yellow") for note in view.notes[:_NOTES_SHOWN]]
        listed_requests = requests[:_REQUESTS_SHOWN]
        # Requests may use half of the lines of the terminal.
        rows_per_request = height // 2 // max(1, len(listed_requests))
        question_rows = [
            _question_rows(request, now=now, width=width, max_rows=rows_per_request - _COMMAND_ROWS)
            for request in listed_requests
        ]
        option_rows = [
            _option_rows(request, width=width, max_rows=rows_per_request - _COMMAND_ROWS - len(rows))
            for request, rows in zip(listed_requests, question_rows, strict=True)
        ]
        request_blocks = _request_blocks(requests, question_rows, option_rows)
        request_height = (
            sum(map(len, question_rows)) + sum(map(len, option_rows)) + _COMMAND_ROWS * len(listed_requests)
        )
        shown_answer_lines = () if view.is_closed else answer_lines
        max_rows = height - _FRAME_ROWS - _NOTE_ROWS * len(notes) - request_height - len(shown_answer_lines)
        if (rounds := rounds_of(view)) is not None:
            # At the end of a run, the rounds are written in full after the progress.
            tables = (
                ()
                if view.is_closed
                else (rounds_table(rounds, max_rows=max_rows, call_texts=call_texts_of(view, now=now)),)
            )
            return Group(_header(view, now=now), *tables, *request_blocks, *notes, *shown_answer_lines)
        if self._tree is None or self._tree[0] is not view.scheduler.plan:
            self._tree = view.scheduler.plan, tree_of(view.scheduler.plan)
        progress = progress_of(view, self._tree[1], now=now, max_rows=max_rows)
        return Group(
            _header(view, now=now), _table(progress), _footer(progress), *request_blocks, *notes, *shown_answer_lines
        )


def _header(view: "RunView", *, now: float) -> Table:
    """Return the first line. A long title is cut; the state and the time are never cut."""
    header = Table.grid(padding=(0, 2, 0, 0))
    header.add_column()
    header.add_column(no_wrap=True)
    elapsed_s = (view.ended_at or now) - view.started_at if view.started_at is not None else None
    header.add_row(
        _cut(one_line(view.title or view.run_id), style="bold"),
        Text.assemble(
            (view.status.replace("_", " "), RUN_STYLES.get(view.status, "red")),
            ("" if elapsed_s is None else f"  {format_elapsed_time(max(0.0, elapsed_s))}", "dim"),
        ),
    )
    return header


def _table(progress: RunRows) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 1, 0, 0), expand=False)
    # Without enough room, rich narrows the widest column that may wrap. Mark and time must not be cut, so their columns
    # do not wrap. The texts of the other columns are cut.
    table.add_column(width=1, no_wrap=True)
    table.add_column(max_width=44)
    table.add_column(max_width=40)
    table.add_column(justify="right", no_wrap=True)
    table.add_column()
    for row in [*progress.rows, *progress.groups]:
        mark, style = MARKS[row.status]
        table.add_row(
            Text(mark, style=style),
            _cut("  " * row.indent + one_line(row.name), style=style if row.status is NodeStatus.FAILED else ""),
            _cut(one_line(row.tool_text), style="dim"),
            Text("" if row.elapsed_s is None else format_elapsed_time(row.elapsed_s), style="dim"),
            _cut(_row_text(row), style="red" if row.status is NodeStatus.FAILED else "dim"),
        )
    return table


def _cut(text: str, *, style: str) -> Text:
    """Return a text that ends with `…` if its column is too narrow."""
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")


def _row_text(row: Row) -> str:
    parts = []
    if row.total is not None and row.done is not None:
        parts.append(f"{_bar(row.done, row.total)} {row.done:,}/{row.total:,}")
    if row.eta_s is not None:
        parts.append(f"about {format_elapsed_time(row.eta_s)} left")
    if row.attempts > 1:
        parts.append(f"attempt {row.attempts}")
    if row.detail:
        parts.append(one_line(row.detail))
    return "  ".join(parts)


def _bar(done: int, total: int) -> str:
    filled_cells = _BAR_CELLS * done // total if total else _BAR_CELLS
    return "█" * filled_cells + "░" * (_BAR_CELLS - filled_cells)


def _footer(progress: RunRows) -> Text:
    parts = [f"{progress.done:,} of {progress.total:,} nodes"]
    parts += [f"{count:,} {status.value}" for status, count in progress.counts.items() if count]
    if progress.eta_s is not None:
        parts.append(f"about {format_elapsed_time(progress.eta_s)} left")
    return Text("  ".join([parts[0], *sorted(parts[1:], reverse=True)]), style="dim", no_wrap=True)


def _question_rows(request: Request, *, now: float, width: int, max_rows: int) -> list[str]:
    """Return the question of a request on at most `max_rows` lines, and at least one."""
    deadline = deadline_text(request, now=now)
    text = f"{request_line(request)}  {deadline}" if deadline else request_line(request)
    return _wrap_lines(text, width=width, max_rows=max(1, min(_QUESTION_ROWS, max_rows)))


def _option_rows(request: Request, *, width: int, max_rows: int) -> list[str]:
    """Return the lines of the labelled options of a request, as many as fit.

    Args:
        max_rows: maximum number of lines; `_MIN_OPTION_ROWS` if the value is smaller.
    """
    options = [
        _wrap_lines(
            line, width=width - len(_INDENT), max_rows=_MAX_ROWS_PER_OPTION if max_rows > _MIN_OPTION_ROWS else 1
        )
        for line in option_lines(request)
    ]
    rows = [row for option in options for row in option]
    max_rows = max(_MIN_OPTION_ROWS, max_rows)
    if len(rows) <= max_rows:
        return rows
    shown_rows: list[str] = []
    omitted_count = len(options)
    for option in options:
        if len(shown_rows) + len(option) >= max_rows:
            break
        shown_rows += option
        omitted_count -= 1
    return [*shown_rows, f"and {omitted_count:,} more: dagwright inbox"]


def _wrap_lines(text: str, *, width: int, max_rows: int) -> list[str]:
    """Wrap a text to at most `max_rows` lines.

    The last line of a longer text is wider than `width`, so that `_cut` ends this line with `…`.
    """
    rows = wrap(text, max(width, _MIN_WIDTH), break_on_hyphens=False)
    return rows if len(rows) <= max_rows else [*rows[: max_rows - 1], " ".join(rows[max_rows - 1 : max_rows + 1])]


def _request_blocks(
    requests: Sequence[Request], question_rows: Sequence[Sequence[str]], option_rows: Sequence[Sequence[str]]
) -> list[RenderableType]:
    """Return the open requests, each with the command that answers it. The command is never cut.

    Args:
        question_rows, option_rows: lines of each displayed request's question and options.
    """
    blocks: list[RenderableType] = []
    for request, question, options in zip(requests, question_rows, option_rows, strict=False):
        question_lines = [_cut(line, style="yellow") for line in question]
        choices = [_cut(f"{_INDENT}{line}", style="") for line in options]
        blocks.append(Group(*question_lines, *choices, Text(f"{_INDENT}{answer_command(request)}", style="bold")))
    if len(requests) > _REQUESTS_SHOWN:
        omitted_count = len(requests) - _REQUESTS_SHOWN
        blocks.append(Text(f"and {omitted_count:,} more requests: dagwright inbox", style="yellow"))
    return blocks


class LiveDisplay:
    """Shows the progress on a terminal and updates it; log lines are written above the progress."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._run_display = RunDisplay()
        self._live = Live(console=console, auto_refresh=False, vertical_overflow="crop", transient=False)
        self._last_state: tuple[RunView, Sequence[Request]] | None = None
        self._answer_text = ""

    def __enter__(self) -> "LiveDisplay":
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, view: "RunView", requests: Sequence[Request] = ()) -> None:
        """Draw the current state of the run, with its open requests."""
        self._last_state = view, requests
        drawing = self._run_display.draw(
            view,
            requests,
            now=time.time(),
            height=self._console.height,
            width=self._console.width,
            answer_lines=self._last_answer_lines(),
        )
        self._live.update(drawing, refresh=True)

    def show_answer(self, text: str) -> None:
        """Draw the run with the last lines of its answer so far."""
        self._answer_text = text
        if self._last_state is not None:
            self.show(*self._last_state)

    def _last_answer_lines(self) -> Sequence[Text]:
        width, rows = self._console.width, self._console.height // _ANSWER_HEIGHT_DIVISOR
        answer_end = terminal_text(self._answer_text[-width * rows :])
        return [*Text(answer_end).wrap(self._console, width)][-rows:] if answer_end else ()
