"""`tool pause`, `tool resume` and `tool list`: pause and resume tools in all runs."""

from collections.abc import Sequence

from temporalio.client import Client

from dagwright.client.errors import CommandRejected
from dagwright.client.service_tools import KnownTools
from dagwright.core.model.times import format_elapsed_time, parse_duration
from dagwright.core.text import format_count
from dagwright.interfaces.cli.command_arguments import author_name
from dagwright.interfaces.cli.command_connection import command_settings, open_command_connection, open_read_connection
from dagwright.interfaces.cli.command_loop import InterruptHandling, run_async
from dagwright.interfaces.cli.exit_codes import CommandError, CommandErrorCode, ExitCode
from dagwright.interfaces.cli.node_text import local_date_time
from dagwright.interfaces.cli.output import Output, one_line
from dagwright.interfaces.cli.steering_commands import PauseToolArguments, ResumeToolArguments
from dagwright.server.tool_pauses import ResumeResult, ToolPause, list_tool_pauses, pause_tool, resume_tool
from dagwright.settings import Settings
from dagwright.toolset.toolset import load_toolset


def pause(arguments: PauseToolArguments, output: Output) -> int:
    """Pause a tool in all runs.

    Raises:
        CommandError: the tool is unknown or cannot be paused.
    """
    settings = command_settings()

    async def work(_: InterruptHandling) -> int:
        try:
            await known_tools(settings, arguments.tools).check_service_tool("paused", arguments.tool)
        except CommandRejected as error:
            raise CommandError(str(error), code=CommandErrorCode.COMMAND_REJECTED) from None
        async with open_command_connection(settings, output) as connection:
            message = await _pause(
                connection.client, arguments.tool, by=author_name(arguments.by), reason=arguments.reason
            )
        output.outcome(message, tool=arguments.tool)
        return ExitCode.COMPLETED

    return run_async(work, output)


def resume(arguments: ResumeToolArguments, output: Output) -> int:
    """Resume a tool; return 2 if the tool is not paused and none of its calls waits.

    Raises:
        CommandError: `--ramp` is not a duration.
    """
    settings = command_settings()
    ramp_s = _ramp_s(arguments.ramp)

    async def work(_: InterruptHandling) -> int:
        async with open_command_connection(settings, output) as connection:
            result = await resume_tool(connection.client, arguments.tool, by=author_name(arguments.by), ramp_s=ramp_s)
        is_done = result.pause is not None or result.call_count > 0
        code = None if is_done else CommandErrorCode.COMMAND_REJECTED
        output.outcome(_resumed_message(arguments.tool, result), code=code, tool=arguments.tool)
        return ExitCode.COMPLETED if is_done else ExitCode.REJECTED

    return run_async(work, output)


def list_pauses(_: None, output: Output) -> int:
    """List the paused tools."""
    settings = command_settings()

    async def work(_: InterruptHandling) -> int:
        async with open_read_connection(settings, output) as connection:
            pauses = await list_tool_pauses(connection.client)
        if output.is_json:
            output.document([pause.to_json() for pause in pauses])
            return ExitCode.COMPLETED
        for pause in pauses:
            output.print(pause_line(pause))
        if not pauses:
            output.print("no tool is paused")
        return ExitCode.COMPLETED

    return run_async(work, output)


def pause_line(pause: ToolPause) -> str:
    """Describe a paused tool, with the command that resumes it."""
    author_text = f" by {one_line(pause.by, limit=80)}" if pause.by else ""
    reason_text = f": {one_line(pause.reason, limit=200)}" if pause.reason else ""
    pause_text = f"{pause.tool} paused{author_text} since {local_date_time(pause.since)}{reason_text}"
    return f"{pause_text}; `dagwright tool resume {pause.tool}`"


async def _pause(client: Client, tool: str, *, by: str | None, reason: str | None) -> str:
    earlier_pause = await pause_tool(client, tool, by=by, reason=reason)
    if earlier_pause is not None:
        return f"{tool} is already paused: {earlier_pause.message}"
    return f"{tool} is paused: running calls finish, no new calls start; `dagwright tool resume {tool}` resumes it"


def known_tools(settings: Settings, references: Sequence[str]) -> KnownTools:
    """Return the tools of a command, and access to the tools that workers have published.

    Args:
        references: values of `--tools`.
    """
    toolset = load_toolset(settings, references)
    return KnownTools(toolset.declarations(), toolset.store, settings.task_queue)


def _ramp_s(ramp: str | None) -> float | None:
    if ramp is None:
        return None
    try:
        return parse_duration(ramp).total_seconds()
    except ValueError as error:
        raise CommandError(f"--ramp must be a duration such as 2m: {error}") from None


def _resumed_message(tool: str, result: ResumeResult) -> str:
    if result.pause is None and not result.call_count:
        return f"{tool} is not paused, and none of its calls waits"
    state = f"{tool} is resumed" if result.pause is not None else f"{tool} was not paused"
    if not result.call_count:
        return f"{state}; none of its calls waited"
    call_text, run_text = format_count(result.call_count, "call"), format_count(result.run_count, "run")
    verb = "starts" if result.call_count == 1 else "start"
    return f"{state}; {call_text} of {run_text} {verb} within {format_elapsed_time(result.ramp_s)}"
