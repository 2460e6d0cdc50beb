"""What a person is told of a question that was answered in rounds: what it means, and what each round brought."""

from collections.abc import Iterator, Mapping
from typing import Any

from dagwright.cli.output import one_line

_WORDS = 600
"""Characters of one line of what a planner or a worker says."""


def round_lines(document: Mapping[str, Any]) -> Iterator[str]:
    """Yields what a question means, and what each round planned and brought; nothing of any other run."""
    told = document.get("rounds")
    if not isinstance(told, Mapping):
        return
    if told.get("intention"):
        yield f"What is meant: {one_line(str(told['intention']), limit=_WORDS)}"
    sub_goals = {sub_goal["id"]: sub_goal for sub_goal in told.get("sub_goals", ())}
    for each in told.get("rounds", ()):
        yield f"Round {each['round']} ({each['action'] or 'no plan'}): {_said(each['reasoning']) or 'no reason given'}"
        for result in each["results"]:
            yield _result_line(result, sub_goals)
    waiting = [f"sg{number}" for number, each in sub_goals.items() if each["status"] == "pending"]
    if waiting:
        yield f"Never begun: {', '.join(waiting)}"


def _result_line(result: Mapping[str, Any], sub_goals: Mapping[int, Mapping[str, Any]]) -> str:
    number = result["sub_goal_id"]
    sub_goal = sub_goals.get(number, {})
    words = " — ".join(filter(None, [_said(result["error"]), _said(result["message"])]))
    told = f"  sg{number} {one_line(str(sub_goal.get('worker', '')))}: {result['status']}"
    return f"{told}: {words}" if words else told


def _said(text: Any) -> str:
    return one_line(str(text), limit=_WORDS) if text else ""
