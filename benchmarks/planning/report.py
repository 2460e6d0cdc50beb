"""Scores of a model's plans, as a table and as JSON."""

from collections.abc import Sequence
from functools import reduce
from operator import add
from typing import Any

from benchmarks.planning.planned_requests import PlannedRequest
from benchmarks.planning.score import Scores, score
from dagwright.core.model.states import NO_USAGE, Usage

_SCORE_LABELS = {
    "node_f1": "node F1",
    "edge_f1": "edge F1",
    "argument_name_f1": "argument F1, names",
    "argument_value_f1": "argument F1, names and values",
}


def scores_of(planned_requests: Sequence[PlannedRequest]) -> tuple[Scores, Scores]:
    """Return the scores of the first plans, and of the plans after repair."""
    return (
        score((each.case.facts, each.first_facts) for each in planned_requests),
        score((each.case.facts, each.last_facts) for each in planned_requests),
    )


def usage_of(planned_requests: Sequence[PlannedRequest]) -> Usage:
    """Return the token usage of all calls."""
    return reduce(add, (each.usage for each in planned_requests), NO_USAGE)


def score_table(planned_requests: Sequence[PlannedRequest]) -> str:
    """Format the scores as a Markdown table, followed by the usage and the failures."""
    first_scores, last_scores = scores_of(planned_requests)
    first_json, last_json = first_scores.to_json(), last_scores.to_json()
    lines = ["| | first plans | after repair |", "|---|---|---|"]
    valid_plans = [f"{scores.valid_count} of {scores.response_count}" for scores in (first_scores, last_scores)]
    lines.append(f"| plans that can be run | {' | '.join(valid_plans)} |")
    lines += [
        f"| {name} | {_number(first_json[key])} | {_number(last_json[key])} |" for key, name in _SCORE_LABELS.items()
    ]
    usage = usage_of(planned_requests)
    usage_text = f"{usage.calls} calls, {usage.prompt_tokens:,} tokens read, {usage.completion_tokens:,} written"
    failure_lines = _failure_lines(planned_requests)
    return "\n".join(
        [*lines, "", usage_text + ".", *(["", "Without a plan:", *failure_lines] if failure_lines else [])]
    )


def report_to_json(planned_requests: Sequence[PlannedRequest], *, model: str) -> dict[str, Any]:
    """Return the JSON report: the scores, and each request with all responses."""
    first_scores, last_scores = scores_of(planned_requests)
    return {
        "model": model,
        "first": first_scores.to_json(),
        "after_repair": last_scores.to_json(),
        "usage": usage_of(planned_requests).to_json(),
        "requests": [each.to_json() for each in planned_requests],
    }


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _failure_lines(planned_requests: Sequence[PlannedRequest]) -> list[str]:
    """Return a line for each request without a plan; a single line if all have the same reason."""
    reasons = {each.case.text: _failure_reason(each) for each in planned_requests if each.last_facts is None}
    if len(reasons) == len(planned_requests) > 1 and len(distinct_reasons := set(reasons.values())) == 1:
        return [f"- all {len(reasons)} requests: {distinct_reasons.pop()}"]
    return [f"- {text}: {reason}" for text, reason in reasons.items()]


def _failure_reason(planned_request: PlannedRequest) -> str:
    if planned_request.failure is not None:
        return str(planned_request.failure)
    problem = planned_request.attempts[-1].problems[0]
    return f"{problem.code}: {problem.message}"
