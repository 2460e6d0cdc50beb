"""Live progress of a run that answers a question in rounds: interpretation, rounds and sub-goals."""

from collections.abc import Iterator, Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

from dagwright.interfaces.cli.output import one_line
from dagwright.interfaces.cli.round_text import (
    MAX_TEXT_CHARACTERS,
    NO_CALL_TEXTS,
    OMITTED,
    RoundLine,
    decode_rounds,
    phase_text,
)
from dagwright.planning.rounds.rounds_spec import ANSWER, INTENTION, PLAN

_MARKS = {
    "pending": ("·", "dim"),
    "running": ("●", "bold cyan"),
    "success": ("✓", "green"),
    "partial": ("◐", "yellow"),
    "failed": ("✗", "bold red"),
    OMITTED: ("…", "dim"),
}
"""State of a sub-goal -> mark and style."""


def rounds_table(
    rounds_part: Mapping[str, Any], *, max_rows: int, call_texts: Mapping[str, str] = NO_CALL_TEXTS
) -> Table:
    """Return a table of the newest lines about the rounds of a run, as many as fit.

    Args:
        rounds_part: the part `rounds` of a document.
        max_rows: number of lines that fit.
        call_texts: result of `call_texts_of`.
    """
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column()
    rows = [*_rows(rounds_part, call_texts)]
    max_shown_rows = max(max_rows, 4)
    if len(rows) > max_shown_rows:
        table.add_row("", _text(f"{len(rows) - max_shown_rows + 1:,} earlier lines", style="dim"))
        rows = rows[1 - max_shown_rows :]
    for mark, line_text in rows:
        table.add_row(mark, line_text)
    return table


def _rows(rounds_part: Mapping[str, Any], call_texts: Mapping[str, str]) -> Iterator[tuple[Text, Text]]:
    for line in decode_rounds(rounds_part):
        if line.status:
            yield _row(line, call_texts.get(line.key, "") if line.status == "running" else "")
        elif line.action:
            heading = f"{line.name} of {rounds_part['max_rounds']}"
            yield (
                Text(""),
                _text(f"{heading}: {line.text}" if line.is_accepted else f"{heading}, rejected: {line.text}", "bold"),
            )
        else:
            yield Text(""), _text(f"{line.name}: {line.text}")
    # If the first call of the planner failed, there is no other line about the run.
    text = _text(phase_text(rounds_part), "dim")
    # At most one of these calls is open.
    if call_text := next(filter(None, map(call_texts.get, (INTENTION, PLAN, ANSWER))), ""):
        text.append(f"  {call_text}", style="yellow")
    yield Text(""), text


def _row(line: RoundLine, call_text: str) -> tuple[Text, Text]:
    mark, style = _MARKS.get(line.status, ("?", ""))
    text = _text(f"{line.name}: {line.description}" if line.description else line.name)
    if line.text:
        text.append(f"  {line.text}", style="red" if line.status == "failed" else "dim")
    if call_text:
        text.append(f"  {call_text}", style="yellow")
    return Text(mark, style=style), text


def _text(text: str, style: str = "") -> Text:
    return Text(one_line(text, limit=MAX_TEXT_CHARACTERS), style=style, no_wrap=True, overflow="ellipsis")
