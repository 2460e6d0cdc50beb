"""Tools for the nodes that a program adds to a run or to a fork."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from dagwright.core.model.tools import ToolDeclaration
from dagwright.features.plan_edits.sent_tools import find_tool_names
from dagwright.tools import ToolLoadError
from dagwright.toolset.tool_directory import find_published_tools, publish_cards
from dagwright.toolset.toolset import Toolset, load_toolset

if TYPE_CHECKING:
    from dagwright.client.services import Services


class ToolsetSource(Protocol):
    """Provides the tools of a client: built-in tools and the tools of its open workers."""

    async def toolset(self) -> Toolset:
        """Return the currently known tools."""
        ...


class RunTools:
    """Tools of one run: tools of the client, tools of the start request, and tools that workers have published.

    Args:
        source: tools of the client, in addition to the tools that the run was started with; `None` without a client.
    """

    def __init__(self, services: "Services", run_id: str, source: ToolsetSource | None) -> None:
        self._services = services
        self._run_id = run_id
        self._source = source

    async def tool_references(self) -> Sequence[str]:
        """Return the values of `--tools` and `--agents` that the run was started with.

        Raises:
            RunNotFound: there is no such run.
        """
        return await self._services.runs.tools_of(self._run_id)

    async def publish_and_declare(self, nodes: Sequence[Any] = ()) -> Mapping[str, ToolDeclaration]:
        """Publish the agent cards of the tools, and return the tools that nodes can call: tool name -> declaration.

        Args:
            nodes: as in a plan. Tools that the nodes name and that are not known here are read from the tool directory.

        Raises:
            RunNotFound: there is no such run.
            ToolLoadError: the tools that the run was started with cannot be loaded, and there is no client.
        """
        declarations: dict[str, ToolDeclaration] = {}
        for toolset in await self._toolsets():
            await publish_cards(toolset.store, toolset.agents)
            declarations |= toolset.declarations()
        missing_names = [name for name in dict.fromkeys(find_tool_names(nodes)) if name not in declarations]
        settings = self._services.settings
        return declarations | dict(
            await find_published_tools(self._services.store, missing_names, task_queue=settings.task_queue)
        )

    async def _toolsets(self) -> Sequence[Toolset]:
        tool_references = await self.tool_references()
        load = asyncio.to_thread(load_toolset, self._services.settings, tool_references)
        if self._source is None:
            return [await load]
        toolsets = []
        # The modules of another process may not be importable here.
        with suppress(ToolLoadError):
            toolsets.append(await load)
        return [*toolsets, await self._source.toolset()]
