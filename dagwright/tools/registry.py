"""A set of tools by name."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from dagwright.plan.tools import ToolDeclaration
from dagwright.tools.spec import ToolSpec, spec_of


@dataclass(frozen=True, slots=True)
class ToolRegistry:
    """Holds tools by name, in the order they were given.

    Args:
        specs: tool name -> tool.
        origins: module names and resolved file paths they came from; part of their queue's name.
    """

    specs: Mapping[str, ToolSpec] = field(default_factory=dict)
    origins: tuple[str, ...] = ()

    @classmethod
    def of(cls, *tools: Callable[..., Any] | ToolSpec, origins: tuple[str, ...] = ()) -> "ToolRegistry":
        """Returns a registry of decorated functions and declared activities.

        Raises:
            TypeError: one of them is no tool.
            ValueError: two different tools have one name.
        """
        specs: dict[str, ToolSpec] = {}
        for candidate in tools:
            spec = spec_of(candidate)
            if spec is None:
                raise TypeError(f"{getattr(candidate, '__name__', candidate)!r} is not a tool; decorate it with @tool")
            if specs.setdefault(spec.name, spec) is not spec:
                raise ValueError(f"Two tools are called {spec.name!r}")
        return cls(specs, origins)

    def __iter__(self) -> Iterator[ToolSpec]:
        """Goes through the tools in the order they were given."""
        return iter(self.specs.values())

    def __len__(self) -> int:
        return len(self.specs)

    def __contains__(self, name: object) -> bool:
        return name in self.specs

    def __getitem__(self, name: str) -> ToolSpec:
        return self.specs[name]

    def get(self, name: str) -> ToolSpec | None:
        """Returns the tool called `name`, `None` if there is none."""
        return self.specs.get(name)

    def declarations(self) -> dict[str, ToolDeclaration]:
        """Returns what a plan knows of each tool: tool name -> declaration, in order."""
        return {spec.name: spec.declaration for spec in self}

    def python_tools(self) -> tuple[ToolSpec, ...]:
        """Returns the tools that a worker of ours serves: all but the declared activities of others."""
        return tuple(spec for spec in self if spec.function is not None)

    def merged(self, *others: "ToolRegistry") -> "ToolRegistry":
        """Returns the tools of all; of two with one name the later registry's stays."""
        specs = dict(self.specs)
        for other in others:
            specs.update(other.specs)
        origins = (*self.origins, *(origin for other in others for origin in other.origins))
        return ToolRegistry(specs, tuple(dict.fromkeys(origins)))

    def on_queue(self, task_queue: str) -> "ToolRegistry":
        """Returns the same tools, those of Python served on `task_queue`."""
        return ToolRegistry({spec.name: spec.on_queue(task_queue) for spec in self}, self.origins)


def queue_name(registry: ToolRegistry) -> str:
    """Returns the task queue for the tools of `--tools`: the same for the same origins and names."""
    # A server has other tools tomorrow; runs that are going on must still find a worker.
    names = sorted(spec.name for spec in registry.python_tools() if not spec.declaration.is_pinned)
    named = [sorted(registry.origins), names]
    text = json.dumps(named, ensure_ascii=True, separators=(",", ":"))
    return "dagwright-" + hashlib.sha256(text.encode()).hexdigest()[:16]
