"""Times from a request to its answer, as a table and as JSON."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.figures import Figure, figure_to_json, format_table

MAX_WRITTEN_PERCENT = 40.0
"""Maximum share of a plan that is written when its first tool starts."""


@dataclass(frozen=True, slots=True)
class RunTimes:
    """Times of one run.

    Args:
        first_call_s: from the start of the run to the start of its first tool.
        end_s: from the start of the run to its end.
        written: share of the plan that had been sent when the first tool started; `None` without a streamed plan.
    """

    first_call_s: float
    end_s: float
    written: float | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """Times of the runs for one request.

    Args:
        shape: shape of the plan.
        nodes: number of its nodes.
        tokens: number of its tokens.
        streamed: runs whose nodes start while the model writes the plan.
        whole: runs that start with the complete plan.
        turns: runs of an agent that calls one tool per turn.
    """

    shape: str
    nodes: int
    tokens: int
    streamed: Sequence[RunTimes]
    whole: Sequence[RunTimes]
    turns: Sequence[RunTimes]

    @property
    def written_percent(self) -> float:
        """Return the median share of the plan that was written when its first tool started."""
        return 100 * statistics.median(each.written for each in self.streamed if each.written is not None)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON with every sample."""
        return asdict(self)


_HEAD = (
    "| plan | nodes | tokens | written at the first tool | first tool: streamed | whole plan | ReAct "
    "| end: streamed | whole plan | ReAct |"
)


def comparison_table(comparisons: Sequence[Comparison]) -> str:
    """Format the medians as a Markdown table in seconds, followed by the goal."""
    lines = [_HEAD, "|---|" + "---:|" * 9]
    for comparison in comparisons:
        cells = [
            comparison.shape,
            f"{comparison.nodes}",
            f"{comparison.tokens}",
            f"{comparison.written_percent:.0f} %",
        ]
        cells += [_median(runs, _first_call_s) for runs in (comparison.streamed, comparison.whole, comparison.turns)]
        cells += [_median(runs, _end_s) for runs in (comparison.streamed, comparison.whole, comparison.turns)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", format_table([written_figure(comparisons)])])


def written_figure(comparisons: Sequence[Comparison]) -> Figure:
    """Return the largest written share of all plans as a figure with a goal."""
    percent_by_plan = {f"{each.shape} of {each.nodes}": round(each.written_percent, 1) for each in comparisons}
    name = "largest share of a plan written when its first tool starts"
    return Figure(name, max(percent_by_plan.values()), MAX_WRITTEN_PERCENT, unit="%", measured=percent_by_plan)


def report_to_json(comparisons: Sequence[Comparison]) -> dict[str, Any]:
    """Return the JSON report."""
    return {
        "figures": [figure_to_json(written_figure(comparisons))],
        "plans": [each.to_json() for each in comparisons],
    }


def _first_call_s(times: RunTimes) -> float:
    return times.first_call_s


def _end_s(times: RunTimes) -> float:
    return times.end_s


def _median(runs: Sequence[RunTimes], value_of: Callable[[RunTimes], float]) -> str:
    return f"{statistics.median(value_of(each) for each in runs):.2f} s"
