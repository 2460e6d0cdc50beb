"""The tables of limits, from constants in the code."""

import importlib
from collections.abc import Iterator, Mapping, Sequence

from scripts.reference.markdown import code, constants, section, sentence, table

_GROUPS: Mapping[str, Sequence[str]] = {
    "Runs and histories": ("dagwright.core.boundary.limits",),
    "Plans as written": (
        "dagwright.dialects.reading",
        "dagwright.dialects.json_reader",
        "dagwright.dialects.yaml_reader",
        "dagwright.core.errors",
        "dagwright.core.expressions.references",
        "dagwright.core.name_hints",
    ),
    "Plans of models": (
        "dagwright.planner.goal_validation",
        "dagwright.planner.schema",
        "dagwright.planner.plan_parser",
        "dagwright.planning.plan_and_execute.goal_spec",
    ),
    "Agents": ("dagwright.planning.agent_loop.spec",),
    "Rounds": ("dagwright.planning.rounds.rounds_spec", "dagwright.planner.rounds_schema"),
}
"""Heading -> modules whose described numbers are limits."""
_KIB, _MIB = 1024, 1024 * 1024


def limits_tables() -> str:
    """Return a section with a table for each group of limits."""
    heads = ("Limit", "Value", "Meaning")
    return "".join(
        section(title, table(heads, [row for each in modules for row in _rows(each)]))
        for title, modules in _GROUPS.items()
    )


def _rows(module: str) -> Iterator[tuple[str, str, str]]:
    values = vars(importlib.import_module(module))
    for name, meaning in constants(f"{module.replace('.', '/')}.py").items():
        value = values[name]
        if not name.startswith("_") and isinstance(value, int | float) and not isinstance(value, bool):
            yield code(name), with_unit(name, value), sentence(meaning)


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
