"""`park`, `unpark`: commands that hold the calls of a tool back in all runs, and let them go."""

import asyncio
from collections.abc import Sequence

from temporalio.client import Client

from dagwright.core.expressions.references import suggestion
from dagwright.core.model.times import format_elapsed, parse_duration
from dagwright.core.model.tools import Effects, ToolDeclaration
from dagwright.interfaces.cli.account import account_name
from dagwright.interfaces.cli.async_runs import Farewell, run_async
from dagwright.interfaces.cli.connecting import command_settings, connected_to_read
from dagwright.interfaces.cli.exits import CommandRefused, ExitCode
from dagwright.interfaces.cli.output import Output, one_line
from dagwright.interfaces.cli.requests import ParkRequest
from dagwright.interfaces.cli.wording import local_date
from dagwright.server import open_connection
from dagwright.server.tool_pauses import SETTLED_S, Released, ToolPause, pause_tool, paused_tools, resume_tool
from dagwright.settings import Settings
from dagwright.toolset.tool_directory import told_tools
from dagwright.toolset.toolset import load_toolset


def park(request: ParkRequest, output: Output) -> int:
    """Parks a tool in all runs; without a tool tells which are parked."""
    settings = command_settings()

    async def work(_: Farewell) -> int:
        if request.tool is None:
            async with connected_to_read(settings, output) as connection:
                _tell_all(await paused_tools(connection.client), output)
            return ExitCode.COMPLETED
        await _refuse_what_cannot_be_parked(request.tool, settings, request.tools)
        async with open_connection(settings) as connection:
            message = await _park(connection.client, request.tool, by=_who(request), reason=request.reason)
        _tell(request.tool, message, output)
        return ExitCode.COMPLETED

    return run_async(work, output)


def unpark(request: ParkRequest, output: Output) -> int:
    """Lets the calls of a tool go; 2 if it is not parked and none of them waits."""
    settings = command_settings()
    tool = request.tool or ""
    spread_s = _spread_s(request.over)

    async def work(_: Farewell) -> int:
        async with open_connection(settings) as connection:
            released = await resume_tool(connection.client, tool, by=_who(request), spread_s=spread_s)
        is_done = released.parked is not None or released.calls > 0
        _tell(tool, _released_words(tool, released), output, ok=is_done)
        return ExitCode.COMPLETED if is_done else ExitCode.REFUSED

    return run_async(work, output)


async def _park(client: Client, tool: str, *, by: str | None, reason: str | None) -> str:
    before = await pause_tool(client, tool, by=by, reason=reason)
    if before is not None:
        return f"{tool} is parked already: {before.words}"
    await asyncio.sleep(SETTLED_S)
    return (
        f"{tool} is parked: no call of it begins any more, and those that run, run to their end; "
        f"`dagwright unpark {tool}` lets them go"
    )


async def _refuse_what_cannot_be_parked(tool: str, settings: Settings, references: Sequence[str]) -> None:
    toolset = load_toolset(settings, references)
    known = toolset.declarations()
    declared = known.get(tool)
    if declared is None:
        declared = (await told_tools(toolset.store, [tool], task_queue=settings.task_queue)).get(tool)
    if declared is None:
        near = suggestion(tool, known)
        raise CommandRefused(
            f"no tool is called {tool!r}; {near or 'if it is one of your own, name its file or module with --tools'}"
        )
    if (why := _why_not(declared)) is not None:
        raise CommandRefused(f"{tool!r} cannot be parked: {why}")


def _why_not(tool: ToolDeclaration) -> str | None:
    if tool.effects is Effects.PURE:
        return "it is pure, so it calls nobody who could fail for all runs; `pause` holds a run, `cancel` ends it"
    if tool.is_foreign:
        return "its calls go to a worker that is not Dagwright's; stop that worker, and its calls wait for it"
    return None


def _spread_s(over: str | None) -> float | None:
    if over is None:
        return None
    try:
        return parse_duration(over).total_seconds()
    except ValueError as error:
        raise CommandRefused(f"--over must be a duration such as 2m: {error}") from None


def _released_words(tool: str, released: Released) -> str:
    if released.parked is None and not released.calls:
        return f"{tool} is not parked, and no call of it waits"
    first = f"{tool} is not parked any more" if released.parked is not None else f"{tool} was not parked"
    if not released.calls:
        return f"{first}; no call of it waited"
    calls = f"{released.calls:,} {'call' if released.calls == 1 else 'calls'}"
    runs = f"{released.runs:,} {'run' if released.runs == 1 else 'runs'}"
    verb = "starts" if released.calls == 1 else "start"
    return f"{first}; {calls} of {runs} {verb} within {format_elapsed(released.spread_s)}"


def _tell(tool: str, message: str, output: Output, *, ok: bool = True) -> None:
    if output.is_json:
        output.document({"tool": tool, "ok": ok, "message": message})
    elif ok:
        output.say(one_line(message, limit=1_000))
    else:
        output.tell(message)


def _tell_all(found: Sequence[ToolPause], output: Output) -> None:
    if output.is_json:
        output.document([parked.to_json() for parked in found])
        return
    for parked in found:
        output.say(parked_line(parked))
    if not found:
        output.say("no tool is paused")


def parked_line(parked: ToolPause) -> str:
    """Returns what people are told of a parked tool, with the command that takes it back."""
    by = f" by {one_line(parked.by, limit=80)}" if parked.by else ""
    reason = f": {one_line(parked.reason, limit=200)}" if parked.reason else ""
    return f"{parked.tool} parked{by} since {local_date(parked.since)}{reason}; `dagwright unpark {parked.tool}`"


def _who(request: ParkRequest) -> str | None:
    return request.by if request.by is not None else account_name()
