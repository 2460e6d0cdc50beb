"""Pauses of tools: no run calls a paused tool until it is resumed."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from dagwright.client.errors import CommandRejected
from dagwright.core.model.times import utc_datetime
from dagwright.server import tool_pauses

if TYPE_CHECKING:
    from dagwright.client.service_tools import KnownTools
    from dagwright.client.services import Services


@dataclass(frozen=True, slots=True)
class PausedTool:
    """A tool that no run calls until it is resumed.

    Args:
        since: time of the pause.
        by: person who paused the tool, if given.
        reason: reason of the pause, if given.
    """

    tool: str
    since: datetime
    by: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class ResumedTool:
    """A resumed tool, and its calls that waited.

    Args:
        calls: number of calls that waited.
        runs: number of runs and sub-plans with these calls.
        ramp: period over which these calls start.
    """

    tool: str
    calls: int
    runs: int
    ramp: timedelta


async def pause_tool(
    services: "Services", tool: str, tools: "KnownTools", *, reason: str | None, by: str | None
) -> PausedTool:
    """Pause a tool and wait until all workers apply the pause; no effect if the tool is paused already.

    Raises:
        CommandRejected: there is no such tool, or it cannot be paused.
    """
    await tools.check_service_tool("paused", tool)
    client = services.connection.client
    earlier_pause = await tool_pauses.pause_tool(client, tool, by=by, reason=reason)
    pause = earlier_pause or await tool_pauses.find_tool_pause(client, tool)
    if pause is None:
        raise CommandRejected(f"{tool!r} was resumed meanwhile")
    return _to_paused_tool(pause)


async def resume_tool(services: "Services", tool: str, *, ramp_s: float | None, by: str | None) -> ResumedTool:
    """Resume a paused tool, and let its waiting calls start over a period.

    Args:
        ramp_s: the period in seconds; `None` for 0.1 s for each waiting call, but at least 10 s.

    Raises:
        CommandRejected: the tool is not paused, and none of its calls waits.
    """
    result = await tool_pauses.resume_tool(services.connection.client, tool, by=by, ramp_s=ramp_s)
    if result.pause is None and not result.call_count:
        raise CommandRejected(f"{tool!r:.80} is not paused, and none of its calls waits")
    return ResumedTool(tool, result.call_count, result.run_count, timedelta(seconds=result.ramp_s))


async def paused_tools(services: "Services") -> list[PausedTool]:
    """Return all paused tools, by name."""
    return [_to_paused_tool(pause) for pause in await tool_pauses.list_tool_pauses(services.connection.client)]


def _to_paused_tool(pause: tool_pauses.ToolPause) -> PausedTool:
    return PausedTool(pause.tool, utc_datetime(pause.since), pause.by, pause.reason)
