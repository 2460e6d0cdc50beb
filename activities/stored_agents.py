"""Handle calls of agents that were added at run time, possibly after the worker started.

Each call names the version of the agent card that its plan was checked against. That version is called, even if the
agent was changed or removed later. This module must not import workflows.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from temporalio import activity
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from dagwright.activities.call_headers import checked_version
from dagwright.activities.call_tool import ToolActivity
from dagwright.activities.errors import TOOL_CHANGED
from dagwright.core.boundary.decoding import json_from_bytes
from dagwright.core.boundary.wire import ERROR_NOT_STARTED
from dagwright.core.model.tools import AGENT_PREFIX
from dagwright.tools import ToolSpec
from dagwright.tools.errors import ToolLoadError


class AgentMissing(ApplicationError):
    """The database has no agent of this name and version; nothing was called."""


class AgentFinder(Protocol):
    """Source of stored agents."""

    def spec(self, name: str, version: str | None) -> ToolSpec | None:
        """Return an agent as a tool; `None` if there is no such agent. Without `version`, return the newest version.

        Raises:
            ToolLoadError: the database does not respond, or the agent's class is missing.
        """


def stored_agent_activity(
    agents: AgentFinder, create_activity: Callable[[ToolSpec], ToolActivity]
) -> Callable[[Sequence[RawValue]], Awaitable[RawValue]]:
    """Return the dynamic activity for tools that the worker does not have, which handles calls of stored agents.

    Args:
        create_activity: creates the activity of a tool.
    """
    activities: dict[tuple[str, str], ToolActivity] = {}

    async def activity_of(name: str, version: str | None) -> ToolActivity:
        if (name, version or "") in activities:
            return activities[name, version or ""]
        try:
            spec = await asyncio.to_thread(agents.spec, name, version)
        except ToolLoadError as error:
            raise ApplicationError(str(error), type=ERROR_NOT_STARTED) from None
        if spec is None:
            text = f"There is no agent {name!r} of the version that the plan was checked with; check the plan again"
            raise AgentMissing(text, type=TOOL_CHANGED)
        # A version of a card never changes, so its activity can be cached.
        return activities.setdefault((name, spec.version), create_activity(spec))

    @activity.defn(dynamic=True)
    async def call_stored_agent(arguments: Sequence[RawValue]) -> RawValue:
        """Call the agent whose name is in the activity type."""
        tool = activity.info().activity_type
        if not tool.startswith(AGENT_PREFIX):
            raise ApplicationError(f"The worker knows no tool {tool!r}; check the plan again", type=TOOL_CHANGED)
        call_agent = await activity_of(tool.removeprefix(AGENT_PREFIX), checked_version())
        return await call_agent(*(json_from_bytes(argument.payload.data) for argument in arguments))

    return call_stored_agent
