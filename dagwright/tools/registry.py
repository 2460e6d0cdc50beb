"""A set of tools by name."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dagwright.core.boundary import wire
from dagwright.core.model.tools import ToolDeclaration
from dagwright.tools.spec import ToolSpec, spec_of

_RESERVED_NAMES = wire.INTERNAL_ACTIVITIES | {wire.ACTIVITY_CALL_MODEL, wire.ACTIVITY_READ_MODEL_PLAN}
BUILTIN_TOOL_NAMES = frozenset(
    {
        "activity_search",
        "calculator",
        "flight_search",
        "hotel_search",
        "http_request",
        "json_query",
        "list_directory",
        "list_files",
        "read_file",
        "render_template",
        "search_files",
        "serper_web_search",
        "summarize",
        "wait",
        "web_search",
        "write_file",
    }
)


@dataclass(frozen=True, slots=True)
class ToolRegistry:
    """Tools by name, in the order in which they were added.

    Args:
        specs: tool name -> tool.
        sources: tool name -> its origin: the value of `--tools`, or the reference of a file of agents.
    """

    specs: Mapping[str, ToolSpec] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, *tools: Callable[..., Any] | ToolSpec, sources: Mapping[str, str] | None = None) -> "ToolRegistry":
        """Build a registry of decorated functions and declared activities.

        Raises:
            TypeError: an argument is not a tool.
            ValueError: two different tools share a name, or a function has the name of an activity of Dagwright.
        """
        specs: dict[str, ToolSpec] = {}
        for candidate in tools:
            spec = spec_of(candidate)
            if spec is None:
                raise TypeError(f"{getattr(candidate, '__name__', candidate)!r} is not a tool; decorate it with @tool")
            if specs.setdefault(spec.name, spec) is not spec:
                raise ValueError(f"Duplicate tool {spec.name!r}: two of the tools have this name; rename one")
        check_tool_names(specs)
        return cls(specs, sources or {})

    def __iter__(self) -> Iterator[ToolSpec]:
        """Iterate over the tools in the order in which they were added."""
        return iter(self.specs.values())

    def __len__(self) -> int:
        return len(self.specs)

    def __contains__(self, name: object) -> bool:
        return name in self.specs

    def __getitem__(self, name: str) -> ToolSpec:
        return self.specs[name]

    def get(self, name: str) -> ToolSpec | None:
        """Return the tool called `name`, `None` if it does not exist."""
        return self.specs.get(name)

    def declarations(self) -> dict[str, ToolDeclaration]:
        """Return the declarations of the tools, by tool name and in order."""
        return {
            spec.name: replace(spec.declaration, aliases=spec.aliases) if spec.aliases else spec.declaration
            for spec in self
        }

    def python_tools(self) -> tuple[ToolSpec, ...]:
        """Return the tools that Dagwright's own workers serve: all except declared activities."""
        return tuple(spec for spec in self if spec.function is not None)

    def merge(self, *others: "ToolRegistry") -> "ToolRegistry":
        """Merge registries; if two tools share a name, the later registry wins."""
        specs, sources = dict(self.specs), dict(self.sources)
        for other in others:
            specs.update(other.specs)
            sources.update(other.sources)
        return ToolRegistry(specs, sources)

    def with_queue(self, task_queue: str) -> "ToolRegistry":
        """Return the same tools, with the Python tools served on `task_queue`."""
        return ToolRegistry({spec.name: spec.with_queue(task_queue) for spec in self}, self.sources)

    def with_queues(self, queue_of: Callable[[str], str]) -> "ToolRegistry":
        """Return the same tools, with each Python tool served on the queue of its source."""
        python_specs = {spec.name: spec.with_queue(queue_of(self.sources[spec.name])) for spec in self.python_tools()}
        return ToolRegistry({spec.name: python_specs.get(spec.name, spec) for spec in self}, self.sources)

    def tools_on_queue(self, task_queue: str) -> "ToolRegistry":
        """Return the Python tools that are served on a queue."""
        specs = {spec.name: spec for spec in self.python_tools() if spec.declaration.task_queue == task_queue}
        return ToolRegistry(specs, self.sources)

    def served_names(self) -> frozenset[str]:
        """Return the names and aliases of the Python tools."""
        return frozenset(name for spec in self.python_tools() for name in (spec.name, *spec.aliases))

    @property
    def queues(self) -> tuple[str, ...]:
        """The queues that serve the Python tools, each once, in the order of the tools."""
        queue_names = (spec.declaration.task_queue for spec in self.python_tools())
        return tuple(dict.fromkeys(filter(None, queue_names)))


def check_tool_names(specs: Mapping[str, ToolSpec]) -> None:
    """Check that no function has the name of an internal activity, and no alias is a name or alias of another tool.

    Raises:
        ValueError: a name is reserved, or an alias is ambiguous; the message names the tools.
    """
    alias_tools: dict[str, str] = {}
    for spec in specs.values():
        if spec.function is not None and spec.name in _RESERVED_NAMES:
            raise ValueError(f"The tool name {spec.name!r} belongs to an activity of Dagwright; rename the tool")
        for alias in spec.aliases:
            tool_name = alias if alias in specs else alias_tools.setdefault(alias, spec.name)
            if tool_name != spec.name:
                raise ValueError(f"Tool {spec.name!r}: its alias {alias!r} also belongs to the tool {tool_name!r}")
