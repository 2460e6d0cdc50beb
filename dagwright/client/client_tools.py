"""Tools against which a client compiles plans.

They are the built-in tools, the tools of the client's open workers, tools passed to a method, and tools that other
workers have published.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from dagwright.client.connecting import prepare_to_start
from dagwright.core.errors import PlanInvalid
from dagwright.core.model.tools import ToolDeclaration
from dagwright.tools import ToolLoadError
from dagwright.toolset.program_tools import ToolSource, read_program_tools
from dagwright.toolset.tool_directory import find_published_tools, has_unknown_tools, published_tools_of_plan
from dagwright.toolset.toolset import Toolset, load_toolset, merge_toolsets

if TYPE_CHECKING:
    from dagwright.client.services import Services

CompileResult = TypeVar("CompileResult")
Tools = Mapping[str, ToolDeclaration]


class ClientTools:
    """Tools of one client, loaded when they are first used."""

    def __init__(self, services: "Services") -> None:
        self._services = services
        self._base_toolset: Toolset | None = None
        self._served_toolsets: list[Toolset] = []
        self._load_lock = asyncio.Lock()

    @property
    def open_worker_count(self) -> int:
        """Number of open workers of the client."""
        return len(self._served_toolsets)

    @contextmanager
    def register(self, toolset: Toolset) -> Iterator[None]:
        """Register the tools of a worker until the block ends: plans of the client may use them.

        Raises:
            ToolLoadError: another open worker has a different tool of the same name, or serves a queue of this worker
                with different tools.
        """
        for other_toolset in self._served_toolsets:
            _reject_conflict(toolset, other_toolset)
        self._served_toolsets.append(toolset)
        try:
            yield
        finally:
            self._served_toolsets.remove(toolset)

    async def toolset(self, tools: Sequence[ToolSource] = ()) -> Toolset:
        """Return the tools that plans of the client may use.

        Args:
            tools: tools that other processes serve; only their declarations are used.

        Raises:
            ToolLoadError: a tool cannot be used.
            StoreMismatch: the workers use another payload store.
        """
        base_toolset = await self._load_base_toolset()
        passed_toolsets = [await self._load(tools)] if tools else []
        return merge_toolsets(base_toolset, [*passed_toolsets, *self._served_toolsets])

    async def compile_plan(
        self,
        compile_with: Callable[[Tools], CompileResult],
        toolset: Toolset,
        plan: Any,
        *,
        context: Mapping[str, Any],
        dialect: str | None,
    ) -> CompileResult:
        """Compile a plan; if it names unknown tools, look for them among the tools that other workers have published.

        Args:
            compile_with: function that compiles the plan against tools; it runs in a thread.
            plan: the plan as it was written.

        Raises:
            PlanInvalid: the plan is invalid.
        """
        tools = await self._with_published_declarations(toolset)
        try:
            return await asyncio.to_thread(compile_with, tools)
        except PlanInvalid as invalid:
            if not has_unknown_tools(invalid):
                raise
            task_queue = self._services.settings.task_queue
            try:
                published_tools = await published_tools_of_plan(
                    plan, tools, self._services.store, task_queue=task_queue, context=context, dialect=dialect
                )
            except PlanInvalid:
                raise invalid from None
            if not published_tools:
                raise
        return await asyncio.to_thread(compile_with, {**tools, **published_tools})

    async def _with_published_declarations(self, toolset: Toolset) -> Tools:
        """Return the declarations of a toolset; published declarations replace those of passed tools.

        A worker, such as one with a `DagwrightPlugin`, may serve a function on another queue than the queue of the
        function's module. The published declaration has the worker's queue.
        """
        tools = toolset.declarations()
        passed_names = [
            spec.name for spec in toolset.user_tools if spec.function is not None and not self._is_served(spec.name)
        ]
        published_tools = await find_published_tools(
            self._services.store, passed_names, task_queue=self._services.settings.task_queue
        )
        return {
            **tools,
            **{name: tool for name, tool in published_tools.items() if tool.version == tools[name].version},
        }

    def _is_served(self, name: str) -> bool:
        return any(served.user_tools.get(name) is not None for served in self._served_toolsets)

    async def _load_base_toolset(self) -> Toolset:
        async with self._load_lock:
            if self._base_toolset is None:
                services = self._services
                toolset = await self._load(())
                await prepare_to_start(services.connection, services.settings, toolset)
                self._base_toolset = toolset
            return self._base_toolset

    async def _load(self, tools: Sequence[ToolSource]) -> Toolset:
        return await asyncio.to_thread(load_toolset, self._services.settings, program_tools=read_program_tools(tools))


def _reject_conflict(toolset: Toolset, other_toolset: Toolset) -> None:
    """Reject a worker whose calls would fail or wait because of another worker.

    Raises:
        ToolLoadError: there is a conflict.
    """
    for spec in toolset.user_tools:
        # One function may be served on several queues.
        if (other_spec := other_toolset.user_tools.get(spec.name)) is not None and other_spec.version != spec.version:
            raise ToolLoadError(
                f"Duplicate tool {spec.name!r}: another worker of this client has a different tool of this name"
            )
    tools, other_tools = _tools_by_queue(toolset), _tools_by_queue(other_toolset)
    for queue, names in tools.items():
        if queue in other_tools and names != other_tools[queue]:
            # A worker delays calls of unknown tools by up to half a minute.
            differing_names = ", ".join(sorted(names ^ other_tools[queue]))
            raise ToolLoadError(
                f"two workers of this client serve the queue {queue!r} with different tools ({differing_names}): give "
                "all tools to one Worker, or a task_queue to one of them"
            )


def _tools_by_queue(toolset: Toolset) -> dict[str, set[str]]:
    names_by_queue: dict[str, set[str]] = {}
    for spec in toolset.user_tools.python_tools():
        if spec.declaration.task_queue is not None:
            names_by_queue.setdefault(spec.declaration.task_queue, set()).add(spec.name)
    return names_by_queue
