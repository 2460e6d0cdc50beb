"""Tools whose calls can be paused or limited."""

from collections.abc import Mapping
from dataclasses import dataclass

from dagwright.client.errors import CommandRejected
from dagwright.core.model.tools import Effects, ToolDeclaration
from dagwright.core.name_hints import suggestion
from dagwright.store import PayloadStore
from dagwright.toolset.tool_directory import find_tool


@dataclass(frozen=True, slots=True)
class KnownTools:
    """Tools of a process, and tools that the workers of a queue have published.

    Args:
        declarations: declarations of the process, by name.
        task_queue: queue of the workers.
    """

    declarations: Mapping[str, ToolDeclaration]
    store: PayloadStore
    task_queue: str

    async def check_service_tool(self, action: str, name: str) -> None:
        """Check that a tool exists and that its calls can be paused or limited.

        Args:
            action: `paused` or `limited`.

        Raises:
            CommandRejected: there is no such tool, or its calls cannot be paused or limited.
        """
        declaration = await find_tool(self.declarations, self.store, name, task_queue=self.task_queue)
        if declaration is None:
            hint = suggestion(name, self.declarations) or "start a worker that has it, or name its file with --tools"
            raise CommandRejected(f"there is no tool {name!r:.80}; {hint}")
        if declaration.effects is Effects.PURE:
            raise CommandRejected(f"{name!r:.80} cannot be {action}: it is pure, so it calls no service")
        if declaration.is_foreign:
            message = (
                "a worker of another application serves the tool; if you stop this worker, the calls wait until it "
                "runs again"
            )
            raise CommandRejected(f"{name!r:.80} cannot be {action}: {message}")
