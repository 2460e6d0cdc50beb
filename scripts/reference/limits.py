"""The tables of limits, from constants in the code."""

import importlib
from collections.abc import Iterator, Mapping, Sequence

from scripts.reference.markdown import code, constant_descriptions, constant_names, section, sentence, table

_GROUPS: Mapping[str, Sequence[str]] = {
    "Runs and histories": (
        "dagwright.core.boundary.limits",
        "dagwright.core.scheduler.readiness",
        "dagwright.core.scheduler.map_items",
    ),
    "Requests and commands": (
        "dagwright.core.model.answers",
        "dagwright.features.feedback.questions",
        "dagwright.features.feedback.feedback_state",
        "dagwright.features.feedback.request_opening",
        "dagwright.features.commands.steering",
        "dagwright.core.expressions.compute_budget",
        "dagwright.features.plan_edits.edits",
        "dagwright.protocol.command_messages",
        "dagwright.protocol.run_labels",
    ),
    "Sessions": ("dagwright.protocol.sessions", "dagwright.protocol.turns"),
    "Plans as written": (
        "dagwright.dialects.reading",
        "dagwright.dialects.json_reader",
        "dagwright.dialects.yaml_reader",
        "dagwright.core.errors",
        "dagwright.core.expressions.references",
        "dagwright.core.name_hints",
        "dagwright.core.validation.validation",
    ),
    "Plans written by models": (
        "dagwright.planner.goal_validation",
        "dagwright.planner.schema",
        "dagwright.planner.plan_parser",
        "dagwright.planning.plan_and_execute.goal_spec",
    ),
    "Agents": ("dagwright.planning.agent_loop.spec",),
    "Rounds": ("dagwright.planning.rounds.rounds_spec", "dagwright.planner.rounds_schema"),
}
"""Heading -> modules whose public numeric constants are limits."""
_KIB, _MIB = 1024, 1024 * 1024


def limits_tables() -> str:
    """Return a section with a table for each group of limits.

    Raises:
        ValueError: a limit has no description.
    """
    return "".join(section(title, _table(modules)) for title, modules in _GROUPS.items())


def rounds_sizes_table() -> str:
    """Return a row for each limit of the `rounds` in the document of a run; raises like `limits_tables`."""
    return _table(["dagwright.planning.rounds.rounds_documents"])


def _table(modules: Sequence[str]) -> str:
    return table(("Limit", "Value", "Meaning"), [row for module in modules for row in _rows(module)])


def _rows(module: str) -> Iterator[tuple[str, str, str]]:
    path = f"{module.replace('.', '/')}.py"
    descriptions, values = constant_descriptions(path), vars(importlib.import_module(module))
    for name in constant_names(path):
        value = values[name]
        if name.startswith("_") or not isinstance(value, int | float) or isinstance(value, bool):
            continue
        if name not in descriptions:
            raise ValueError(f"{path}: the limit {name} needs a description after its definition")
        yield code(name), with_unit(name, value), sentence(descriptions[name])


def with_unit(name: str, value: float) -> str:
    """Return a value with the unit that the name of its constant ends with."""
    if name.endswith("_BYTES"):
        return _bytes(int(value))
    if name.endswith("_S"):
        return duration(value)
    return f"{value:,}"


def _bytes(value: int) -> str:
    for size, unit in ((10**9, "GB"), (10**6, "MB"), (_MIB, "MiB"), (_KIB, "KiB")):
        if value >= size and value % size == 0:
            return f"{value // size:,} {unit}"
    return f"{value / 10**6:g} MB" if value >= 10**6 else f"{value:,} bytes"


def duration(value: float) -> str:
    """Return a number of seconds with a unit."""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if value >= size and value % size == 0:
            return f"{value // size:,.0f} {unit}"
    return f"{value:g} s"
