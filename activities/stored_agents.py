"""Answers calls of agents that were added at run time: the worker need not have known them when it started.

Each call names the version of the card that its plan was checked with, and that version is called, whatever was added
or removed since. This module must not import workflows.
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
from dagwright.tools.errors import ToolsUnreadable


class AgentMissing(ApplicationError):
    """No agent of the name and version was added to the database; nothing was called."""


class FindsAgents(Protocol):
    """Where stored agents are."""

    def spec(self, name: str, version: str | None) -> ToolSpec | None:
        """Returns an agent as a tool, `None` if nobody has added it; `version` `None` is the newest.

        Raises:
            ToolsUnreadable: it cannot be found out now, or its class is not there.
        """


def stored_agent_activity(
    agents: FindsAgents, make: Callable[[ToolSpec], ToolActivity]
) -> Callable[[Sequence[RawValue]], Awaitable[RawValue]]:
    """Returns the activity for all calls of tools that the worker does not have: those of stored agents are answered.

    Args:
        make: makes the activity of a tool.
    """
    made: dict[tuple[str, str], ToolActivity] = {}

    async def found(name: str, version: str | None) -> ToolActivity:
        if (name, version or "") in made:
            return made[name, version or ""]
        try:
            spec = await asyncio.to_thread(agents.spec, name, version)
        except ToolsUnreadable as error:
            raise ApplicationError(str(error), type=ERROR_NOT_STARTED) from None
        if spec is None:
            words = f"There is no agent {name!r} of the version that the plan was checked with; check the plan again"
            raise AgentMissing(words, type=TOOL_CHANGED)
        # A card never changes, so neither does what answers for it.
        return made.setdefault((name, spec.version), make(spec))

    @activity.defn(dynamic=True)
    async def call_stored_agent(arguments: Sequence[RawValue]) -> RawValue:
        """Calls the agent that the activity is named after."""
        tool = activity.info().activity_type
        if not tool.startswith(AGENT_PREFIX):
            raise ApplicationError(f"The worker knows no tool {tool!r}; check the plan again", type=TOOL_CHANGED)
        call = await found(tool.removeprefix(AGENT_PREFIX), checked_version())
        return await call(*(json_from_bytes(argument.payload.data) for argument in arguments))

    return call_stored_agent
