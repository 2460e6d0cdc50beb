"""The check of a whole plan for `Plan.check`, before any run."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from dagwright.core.model.errors import PlanInvalid, Problem
from dagwright.core.model.tools import ToolDeclaration
from dagwright.plans.preparation import check_plan, check_size
from dagwright.tools.builtin import builtin_tools
from dagwright.tools.environment import ToolEnvironment
from dagwright.tools.registry import ToolRegistry
from dagwright.tools.spec import ToolSpec

Tools = Mapping[str, ToolDeclaration] | Iterable[Callable[..., Any] | ToolSpec]


def declarations_of(tools: Tools) -> dict[str, ToolDeclaration]:
    """Return tools by name.

    Args:
        tools: declarations by name, or functions with `@tool` and declared activities.

    Raises:
        TypeError: one of them is not a tool.
        ValueError: two tools have one name.
    """
    return dict(tools) if isinstance(tools, Mapping) else ToolRegistry.of(*tools).declarations()


def problems_of_plan(
    document: JsonValue,
    *,
    dialect: str | None,
    own: Mapping[str, ToolDeclaration],
    tools: Tools,
    allow_unknown_tools: bool,
) -> list[Problem]:
    """Return everything that is wrong with a plan; an empty list if it can run.

    Args:
        own: tools that the plan brings.
        tools: that it may call beside those and the built-in ones.
    """
    builtin = builtin_tools(ToolEnvironment(Path())).declarations()
    known = {**builtin, **own, **declarations_of(tools)}
    try:
        checked = check_plan(document, known, dialect=dialect, any_tool=allow_unknown_tools)
        if not allow_unknown_tools:
            check_size(checked)
    except PlanInvalid as invalid:
        return list(invalid.problems)
    return []
