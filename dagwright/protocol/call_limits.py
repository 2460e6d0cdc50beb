"""What Temporal takes as the options of a call; a run that sends anything else would be stuck (docs/guards.md F8).

A plan that was checked keeps within these. A compiled plan may come from anywhere.
"""

import math
from typing import Any

from dagwright.core.model.compiled import CompiledNode, RetryRule
from dagwright.core.model.durations import LONGEST
from dagwright.core.model.tools import ToolDeclaration

NAME_BYTES = 1_000
"""Longest activity type and task queue."""
_LONGEST_S = LONGEST.total_seconds()
_MOST_ATTEMPTS = 1_000_000
_LARGEST_FACTOR = 1_000
_DEFAULT_RULE = CompiledNode("").retry
"""The very object that all nodes have which say nothing of it: it is right, and most calls of a run have it."""


def options_problem(node: CompiledNode, tool: ToolDeclaration) -> str | None:
    """Returns what is wrong with the options of a call, in one sentence, or `None`."""
    checks: list[tuple[str, Any, bool]] = [
        ("the name of the tool", node.tool, _is_name(node.tool)),
        ("the task queue", tool.task_queue, tool.task_queue is None or is_queue(tool.task_queue)),
        ("timeout_s", node.timeout_s, node.timeout_s == 0 or _is_duration(node.timeout_s)),
        ("heartbeat_s", node.heartbeat_s, node.heartbeat_s is None or _is_duration(node.heartbeat_s)),
        ("cache_s", node.cache_s, node.cache_s in (None, 0) or _is_duration(node.cache_s)),
        ("priority", node.priority, _is_within(node.priority, 1, 5)),
        ("the title", node.title, node.title is None or isinstance(node.title, str)),
    ]
    if node.retry is not _DEFAULT_RULE:
        checks += _checks_of_rule(node.retry)
    for name, value, is_right in checks:
        if not is_right:
            return f"{name} is {value!r:.60}, which Temporal would not take"
    return None


def _checks_of_rule(rule: RetryRule) -> list[tuple[str, Any, bool]]:
    return [
        ("max_attempts", rule.max_attempts, _is_within(rule.max_attempts, 1, _MOST_ATTEMPTS)),
        ("first_delay_s", rule.first_delay_s, _is_duration(rule.first_delay_s)),
        ("factor", rule.factor, _is_number(rule.factor) and 1 <= rule.factor <= _LARGEST_FACTOR),
        ("max_delay_s", rule.max_delay_s, rule.max_delay_s is None or _is_duration(rule.max_delay_s)),
    ]


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value.encode(errors="replace")) <= NAME_BYTES


def is_queue(value: Any) -> bool:
    """Return whether Temporal accepts a value as the name of a task queue."""
    return _is_name(value) and not value.startswith("/_sys/")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_duration(value: Any) -> bool:
    return _is_number(value) and 0 < value <= _LONGEST_S


def _is_within(value: Any, lowest: int, highest: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and lowest <= value <= highest
