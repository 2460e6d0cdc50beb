"""What the ways from a request to its answer take, as a table and as JSON."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.figures import Figure, figure_to_json, table

MOST_WRITTEN_PERCENT = 40.0
"""Of a plan that is written when its first tool starts."""


@dataclass(frozen=True, slots=True)
class Taken:
    """What one run took.

    Args:
        first_call_s: from its start to the start of its first tool.
        end_s: from its start to its end.
        written: share of the plan that had been sent when the first tool started; `None` where no plan is streamed.
    """

    first_call_s: float
    end_s: float
    written: float | None = None


@dataclass(frozen=True, slots=True)
class Compared:
    """What the runs for one request took.

    Args:
        shape: of the plan.
        nodes: of the plan.
        tokens: of the plan.
        streamed: runs whose nodes start while the plan is written.
        whole: runs that start with the whole plan.
        turns: runs of an agent that calls one tool a turn.
    """

    shape: str
    nodes: int
    tokens: int
    streamed: Sequence[Taken]
    whole: Sequence[Taken]
    turns: Sequence[Taken]

    @property
    def written_percent(self) -> float:
        """Returns the median of what was written of the plan when its first tool started."""
        return 100 * statistics.median(each.written for each in self.streamed if each.written is not None)

    def to_json(self) -> dict[str, Any]:
        """Returns every sample for a file."""
        return asdict(self)


_HEAD = (
    "| plan | nodes | tokens | written at the first tool | first tool: streamed | whole plan | ReAct "
    "| end: streamed | whole plan | ReAct |"
)


def comparison(compared: Sequence[Compared]) -> str:
    """Returns the medians as a Markdown table, in seconds, and how the goal stands below it."""
    lines = [_HEAD, "|---|" + "---:|" * 9]
    for each in compared:
        cells = [each.shape, f"{each.nodes}", f"{each.tokens}", f"{each.written_percent:.0f} %"]
        cells += [_median(runs, _first_call_s) for runs in (each.streamed, each.whole, each.turns)]
        cells += [_median(runs, _end_s) for runs in (each.streamed, each.whole, each.turns)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", table([written_figure(compared)])])


def written_figure(compared: Sequence[Compared]) -> Figure:
    """Returns the worst of all plans beside the goal."""
    measured = {f"{each.shape} of {each.nodes}": round(each.written_percent, 1) for each in compared}
    name = "written of a plan when its first tool starts, the most"
    return Figure(name, max(measured.values()), MOST_WRITTEN_PERCENT, unit="%", measured=measured)


def report(compared: Sequence[Compared]) -> dict[str, Any]:
    """Returns everything for a file."""
    return {
        "figures": [figure_to_json(written_figure(compared))],
        "plans": [each.to_json() for each in compared],
    }


def _first_call_s(taken: Taken) -> float:
    return taken.first_call_s


def _end_s(taken: Taken) -> float:
    return taken.end_s


def _median(runs: Sequence[Taken], part: Callable[[Taken], float]) -> str:
    return f"{statistics.median(part(each) for each in runs):.2f} s"
