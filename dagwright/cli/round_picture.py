"""The live picture of a question that is answered in rounds: what is meant, each round, and its sub-goals."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from dagwright.cli.output import one_line
from dagwright.contracts.rounds_documents import rounds_document
from dagwright.feed import RunView

_MARKS = {
    "pending": ("·", "dim"),
    "running": ("●", "bold cyan"),
    "success": ("✓", "green"),
    "partial": ("◐", "yellow"),
    "failed": ("✗", "bold red"),
}
"""State of a sub-goal -> its sign and style."""
_PHASES = {
    "idle": "waiting for a worker",
    "planning": "the planner is asked what to do next",
    "executing": "workers are at work",
    "joining": "all of the round has ended",
    "done": "the answer is written",
    "failed": "it came to nothing",
}
_WORDS = 400
"""Characters of one line of what a planner or a worker says."""


def rounds_of(view: RunView) -> Mapping[str, Any] | None:
    """Returns how far a run has come that answers a question in rounds, without results; `None` of any other run."""
    return rounds_document(view.scheduler, lambda _value, _ref: None) if view.scheduler is not None else None


def rounds_table(told: Mapping[str, Any], *, room: int) -> Table:
    """Returns the rounds of a run, as many of the newest lines as there is room for.

    Args:
        told: of `rounds_of`.
        room: lines that fit.
    """
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column()
    rows = [*_rows(told)]
    most = max(room, 4)
    if len(rows) > most:
        table.add_row("", _line(f"{len(rows) - most + 1:,} lines before", style="dim"))
        rows = rows[1 - most :]
    for mark, words in rows:
        table.add_row(mark, words)
    return table


def _rows(told: Mapping[str, Any]) -> Iterator[tuple[Text, Text]]:
    if told.get("intention"):
        yield Text(""), _line(f"What is meant: {told['intention']}")
    sub_goals = {sub_goal["id"]: sub_goal for sub_goal in told.get("sub_goals", ())}
    said = {result["sub_goal_id"]: result for each in told.get("rounds", ()) for result in each["results"]}
    for each in told.get("rounds", ()):
        if each["reasoning"] or each["sub_goals"]:
            yield (
                Text(""),
                _line(f"Round {each['round']} of {told['max_rounds']}: {each['reasoning'] or ''}", style="bold"),
            )
        for number in each["sub_goals"]:
            if (sub_goal := sub_goals.get(number)) is not None:
                yield _row(sub_goal, said.get(number, {}))
    # Of a run whose planner could not be read there is only that.
    words = _PHASES.get(str(told["phase"]), "")
    yield Text(""), _line(words if told["phase"] != "failed" else told.get("planner_reasoning") or words, style="dim")


def _row(sub_goal: Mapping[str, Any], result: Mapping[str, Any]) -> tuple[Text, Text]:
    mark, style = _MARKS.get(sub_goal["status"], ("?", ""))
    words = " — ".join(filter(None, [sub_goal["error"], result.get("message")]))
    told = f"sg{sub_goal['id']} {sub_goal['worker']}: {sub_goal['description']}"
    line = _line(told)
    if words:
        line.append(f"  {one_line(words, limit=_WORDS)}", style="red" if sub_goal["status"] == "failed" else "dim")
    return Text(mark, style=style), line


def _line(text: Any, *, style: str = "") -> Text:
    return Text(one_line(str(text), limit=_WORDS), style=style, no_wrap=True, overflow="ellipsis")


def new_lines(told: Mapping[str, Any] | None, seen: set[str]) -> Sequence[tuple[str, str]]:
    """Returns what is new in the rounds of a run where there is no picture: a word for each line, and the line.

    Args:
        told: of `rounds_of`.
        seen: what was told before; what is told now is added.
    """
    if told is None:
        return ()
    lines = [("meant", str(told["intention"]))] if told.get("intention") else []
    lines += [
        (f"round {each['round']}", str(each["reasoning"])) for each in told.get("rounds", ()) if each["reasoning"]
    ]
    found = [line for line in lines if line[0] not in seen]
    seen.update(word for word, _ in found)
    return [(word, one_line(text, limit=_WORDS)) for word, text in found]
