"""Figures of a benchmark with their goals and verdicts, as JSON and as a table."""

import json
import os
import platform
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

SLACK = 1.5
"""A figure fails only if it misses its goal by more than this factor: build machines are noisy, and a slow minute must
not stop a change."""

Verdict = Literal["reached", "missed_within_slack", "failed", "reported"]


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured number and its goal.

    Args:
        name: the measured quantity.
        value: the number.
        goal: the bound to reach; `None` for a number without a goal.
        is_floor: whether the goal is a lower bound instead of an upper bound.
        unit: unit of number and goal; `x` for a ratio.
        measured: the medians and samples from which the number is computed.
    """

    name: str
    value: float
    goal: float | None
    is_floor: bool = False
    unit: str = "x"
    measured: Mapping[str, Any] = field(default_factory=dict)

    @property
    def verdict(self) -> Verdict:
        """`reached`, `missed_within_slack` (by at most the factor `SLACK`) or `failed`; `reported` without a goal."""
        if self.goal is None:
            return "reported"
        ratio_to_goal = self.goal / self.value if self.is_floor else self.value / self.goal
        return "reached" if ratio_to_goal <= 1 else "missed_within_slack" if ratio_to_goal <= SLACK else "failed"


def ratio_figure(
    name: str,
    numerators: Sequence[float],
    denominators: Sequence[float],
    *,
    goal: float | None = None,
    is_floor: bool = False,
) -> Figure:
    """Return the ratio of two medians as a figure, with the samples."""
    numerator, denominator = statistics.median(numerators), statistics.median(denominators)
    samples = {
        "median": [_round_sample(numerator), _round_sample(denominator)],
        "samples": [_round_samples(numerators), _round_samples(denominators)],
    }
    return Figure(name, numerator / denominator, goal, is_floor=is_floor, measured=samples)


def median_figure(name: str, samples: Sequence[float], *, goal: float, unit: str) -> Figure:
    """Return a median as a figure, with the samples."""
    return Figure(name, statistics.median(samples), goal, unit=unit, measured={"samples": _round_samples(samples)})


def format_table(figures: Sequence[Figure]) -> str:
    """Format the figures as a Markdown table."""
    lines = ["| figure | measured | goal | |", "|---|---|---|---|"]
    for figure in figures:
        bound_word = "at least" if figure.is_floor else "at most"
        goal_text = f"{bound_word} {figure.goal:g} {figure.unit}" if figure.goal is not None else ""
        value_text = f"{figure.value:.3g} {figure.unit}{_medians_text(figure)}"
        lines.append(f"| {figure.name} | {value_text} | {goal_text} | {figure.verdict} |")
    return "\n".join(lines)


def save_figures(figures: Sequence[Figure], folder: Path, *, name: str, pair_count: int) -> None:
    """Write `<name>.json` and `<name>.md`.

    Args:
        pair_count: number of pairs; each pair has one measurement of each of the two sides that are compared.
    """
    rows = [figure_to_json(figure) for figure in figures]
    save_document(
        folder,
        name,
        text=format_table(figures),
        document={"pairs": pair_count, "figures": rows},
        workload_text=f"{pair_count} pairs",
    )


def figure_to_json(figure: Figure) -> dict[str, Any]:
    """Return the JSON of a figure."""
    return {**asdict(figure), "verdict": figure.verdict}


def save_document(folder: Path, name: str, *, text: str, document: Mapping[str, Any], workload_text: str) -> None:
    """Write `<name>.json` with a document and `<name>.md` with a text; add details of the machine to both files.

    Args:
        workload_text: size of the measured workload as a text, such as `20 pairs`.
    """
    load = round(os.getloadavg()[0], 1)
    machine = {
        "cores": os.cpu_count(),
        "load_at_end": load,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
    }
    folder.mkdir(exist_ok=True)
    json_text = json.dumps({"machine": machine, **document}, indent=1)
    (folder / f"{name}.json").write_text(json_text + "\n", encoding="utf-8")
    note = f"{machine['cores']} cores, Python {machine['python']}, {workload_text}, load {load} at the end."
    (folder / f"{name}.md").write_text(f"{text}\n\n{note}\n", encoding="utf-8")


def _medians_text(figure: Figure) -> str:
    medians = figure.measured.get("median")
    return f" ({medians[0]:g} : {medians[1]:g})" if medians else ""


def _round_sample(value: float) -> float:
    return round(value, 4)


def _round_samples(samples: Sequence[float]) -> list[float]:
    return [_round_sample(sample) for sample in samples]
