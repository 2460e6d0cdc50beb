"""The check of a whole plan for `Plan.check`, before any run."""

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import JsonValue

from dagwright.core.errors import PlanInvalid, Problem
from dagwright.core.model.document import Document
from dagwright.core.model.tools import ToolDeclaration
from dagwright.core.model.value_schemas import ANY
from dagwright.core.validation.plan_values import PlanValues
from dagwright.core.validation.validation import inspect_document
from dagwright.plans.preparation import check_plan, compile_within_limits
from dagwright.tools.builtin import builtin_tools
from dagwright.tools.environment import ToolEnvironment
from dagwright.tools.errors import ToolLoadError
from dagwright.tools.registry import ToolRegistry
from dagwright.tools.spec import ToolSpec
from dagwright.tools.tool_files import load_tools

Tools = Mapping[str, ToolDeclaration] | Iterable[Callable[..., Any] | ToolSpec | ModuleType | str | Path]


def declarations_of(tools: Tools) -> dict[str, ToolDeclaration]:
    """Return tools by name.

    Args:
        tools: declarations by name; or functions with `@tool`, declared activities, modules, module names and `.py`
            files.

    Raises:
        TypeError: an object is not a tool.
        ToolLoadError: a module cannot be loaded, or has no tool, or two tools have the same name.
    """
    if isinstance(tools, Mapping):
        return dict(tools)
    references, functions = [], list[Callable[..., Any] | ToolSpec]()
    for tool in tools:
        if isinstance(tool, ModuleType):
            references.append(tool.__name__)
        elif isinstance(tool, str | Path):
            references.append(str(tool))
        else:
            functions.append(tool)
    loaded_registry = load_tools(references) if references else ToolRegistry()
    try:
        registry = ToolRegistry.of(*functions)
    except ValueError as error:
        raise ToolLoadError(str(error)) from None
    return loaded_registry.merge(registry).declarations()


@cache
def builtin_declarations() -> Mapping[str, ToolDeclaration]:
    """Return the built-in tools by name."""
    return builtin_tools(ToolEnvironment(Path())).declarations()


def values_of_document(document: Document, *, tools: Mapping[str, ToolDeclaration]) -> PlanValues:
    """Return the schemas of the values of a plan; the plan may be invalid."""
    try:
        checked, _ = inspect_document(document, tools=tools, allow_unknown_tools=True)
    except PlanInvalid:
        checked = None
    values = PlanValues() if checked is None else PlanValues.of_plan(checked)
    nodes = document.plan.get("nodes")
    for node in nodes if isinstance(nodes, list) else ():
        if isinstance(node, dict) and isinstance(node.get("id"), str):
            values.results.setdefault(node["id"], ANY)
    return values


def problems_of_plan(
    document: JsonValue,
    *,
    dialect: str | None,
    plan_tools: Mapping[str, ToolDeclaration],
    tools: Tools,
    allow_unknown_tools: bool,
) -> list[Problem]:
    """Return all problems of a plan; empty if it can run.

    Args:
        plan_tools: built-in tools, and tools that were added to the plan.
        tools: further tools that the plan may call.
    """
    declarations = {**plan_tools, **declarations_of(tools)}
    try:
        checked = check_plan(document, declarations, dialect=dialect, allow_unknown_tools=allow_unknown_tools)
        if not allow_unknown_tools:
            compile_within_limits(checked)
    except PlanInvalid as invalid:
        return list(invalid.problems)
    return []
