"""Answers calls of tools that the worker does not have.

The queue of MCP servers and agents is named after the servers and files and not after what is in them, so a call may
come to a worker whose server has lost the tool, or whose file the agent. Without an answer of ours the SDK's own,
which lists all that the worker has, would be told.
"""

from collections.abc import Sequence

from temporalio import activity
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from activities.errors import TOOL_CHANGED


@activity.defn(dynamic=True)
async def call_gone_tool(arguments: Sequence[RawValue]) -> RawValue:  # noqa: ARG001 - the SDK's signature
    """Fails, to be tried again: nothing was done, and another worker of the queue may have the tool."""
    tool = activity.info().activity_type
    raise ApplicationError(
        f"The worker knows no tool {tool!r}: when it started, no MCP server or agent of its files was one; "
        "check the plan again",
        type=TOOL_CHANGED,
    )
