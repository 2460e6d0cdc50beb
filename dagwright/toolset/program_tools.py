"""Tools and agents that a Python program passes as objects: functions, modules, files and agent cards.

Each function belongs to the task queue of its module: the queue that the module would have as a value of `--tools`.
Therefore, a process that starts runs and a process that serves the tools use the same queue if both have the same code.
"""

import inspect
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from dagwright.agents.registry import AgentRegistry
from dagwright.core.model.agents import AgentCard
from dagwright.tools import ToolLoadError, ToolRegistry, ToolSpec
from dagwright.tools.spec import spec_of
from dagwright.tools.tool_references import absolute_path, agents_reference, is_path, tools_queue_reference

ToolSource = Callable[..., Any] | ToolSpec | ModuleType | str | Path
"""A function decorated with `@tool`, a `ToolSpec` that declares an activity of another program, a module with tools, a
module name, or a file (.py with tools, .json with MCP servers)."""
AgentSource = AgentCard | str | Path
"""An agent card, or a file of agents."""

_MAIN = "__main__"
_FILE_MODULE_PREFIX = "dagwright_tools_"
"""Prefix of the module names that `tools.tool_files` gives to files."""
_NO_SOURCE = ""
"""Source of a tool that another worker serves."""


@dataclass(frozen=True, slots=True)
class ProgramTools:
    """Tools and agents of a program, grouped by how they are loaded.

    Args:
        functions: tools that are passed as objects; the source of a tool is its module or file.
        references: the passed module names and files, and the queue if `task_queue` is passed, in the form that
            `load_toolset` accepts.
        agents: cards that are passed as objects.
    """

    functions: ToolRegistry = field(default_factory=ToolRegistry)
    references: tuple[str, ...] = ()
    agents: AgentRegistry = field(default_factory=AgentRegistry)

    @property
    def importable_modules(self) -> tuple[str, ...]:
        """Names of the modules of the functions.

        The source of a function in the main program is a file, not a module name. Files are omitted, because importing
        the main program would run it.
        """
        sources = dict.fromkeys(self.functions.sources.values())
        return tuple(source for source in sources if source != _NO_SOURCE and not is_path(source))


def read_program_tools(
    tools: Sequence[ToolSource] = (), agents: Sequence[AgentSource] = (), *, task_queue: str | None = None
) -> ProgramTools:
    """Group the tools and agents of a program by how they are loaded.

    Args:
        task_queue: queue on which they are served; `None` for one queue per module or file.

    Raises:
        ToolLoadError: an object is not a tool or an agent, or two objects have the same name.
    """
    references = [str(tool) for tool in tools if isinstance(tool, str | Path)]
    files = [agents_reference(str(agent)) for agent in agents if isinstance(agent, str | Path)]
    queue_references = [] if task_queue is None else [tools_queue_reference(task_queue)]
    return ProgramTools(_functions_of(tools), (*references, *files, *queue_references), _cards_of(agents))


def _functions_of(tools: Sequence[ToolSource]) -> ToolRegistry:
    specs = [spec for tool in tools if not isinstance(tool, str | Path) for spec in _specs_in(tool)]
    sources = {spec.name: _source_of(spec) for spec in specs}
    try:
        return ToolRegistry.of(*specs, sources=sources)
    except ValueError as error:
        raise ToolLoadError(str(error)) from None


def _specs_in(value: object) -> Sequence[ToolSpec]:
    """Return a passed tool, or the tools of a passed module.

    Raises:
        ToolLoadError: the object is not a tool, or the module has no tool.
    """
    candidates = vars(value).values() if isinstance(value, ModuleType) else [value]
    specs = [spec for spec in map(spec_of, candidates) if spec is not None]
    if not specs:
        raise ToolLoadError(_not_a_tool_message(value))
    return specs


def _not_a_tool_message(value: object) -> str:
    name = getattr(value, "__name__", None) or repr(value)[:80]
    if isinstance(value, ModuleType):
        return f"the module {name} has no tool: decorate a function with @tool"
    if inspect.isfunction(value):
        return f"the function {name!r} is not a tool: decorate it with @tool"
    return (
        f"{name!r} has the type {type(value).__name__} and is not a tool: pass functions with @tool, modules or files"
    )


def _source_of(spec: ToolSpec) -> str:
    """Return the module of a tool; its file if the module has no importable name."""
    if spec.function is None:
        # Another worker serves the tool, on the queue of its declaration.
        return _NO_SOURCE
    module = str(getattr(spec.function, "__module__", None) or _MAIN)
    if module != _MAIN and not module.startswith(_FILE_MODULE_PREFIX):
        return module
    file = getattr(sys.modules.get(module), "__file__", None)
    # A notebook has no file. A file name in the working folder takes its place, so that the folder determines the name
    # of the queue.
    return str(absolute_path(file or f"{_MAIN}.py"))


def _cards_of(agents: Sequence[AgentSource]) -> AgentRegistry:
    cards = [agent for agent in agents if not isinstance(agent, str | Path)]
    for card in cards:
        if not isinstance(card, AgentCard):
            raise ToolLoadError(f"{card!r:.80} is not an agent: pass an AgentCard or a file of agents")
    try:
        return AgentRegistry.of(*cards)
    except ValueError as error:
        raise ToolLoadError(str(error)) from None
