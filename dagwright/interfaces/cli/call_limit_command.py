"""`call-limits set`, `call-limits remove` and `call-limits list`: limits of calls across all runs."""

from dataclasses import asdict

from dagwright.client.call_limits import Limit, NoSuchLimit, read_limits, remove_limit, set_limit
from dagwright.client.errors import CommandRejected
from dagwright.interfaces.cli.command_arguments import author_name
from dagwright.interfaces.cli.command_connection import command_settings, open_command_connection, open_read_connection
from dagwright.interfaces.cli.command_loop import InterruptHandling, run_async
from dagwright.interfaces.cli.exit_codes import CommandError, CommandErrorCode, ExitCode
from dagwright.interfaces.cli.output import Output, one_line
from dagwright.interfaces.cli.steering_commands import CallLimitArguments
from dagwright.interfaces.cli.tool_command import known_tools


def set_call_limit(arguments: CallLimitArguments, output: Output) -> int:
    """Set a limit at run time.

    Raises:
        OptionInvalid: the subject or the limit is invalid.
        CommandError: there is no such tool, or its calls cannot wait.
    """
    settings = command_settings()
    by = author_name(arguments.by)

    async def work(_: InterruptHandling) -> int:
        tools = known_tools(settings, arguments.tools)
        async with open_command_connection(settings, output) as connection:
            try:
                limit = await set_limit(connection.client, arguments.subject, " ".join(arguments.limits), tools, by=by)
            except CommandRejected as error:
                raise CommandError(str(error), code=CommandErrorCode.COMMAND_REJECTED) from None
        output.outcome(f"{limit.subject} is limited to {limit.limit}", subject=limit.subject)
        return ExitCode.COMPLETED

    return run_async(work, output)


def remove_call_limit(subject: str, output: Output) -> int:
    """Remove a limit; return 2 if there is no such limit.

    Raises:
        OptionInvalid: the subject is invalid.
    """
    settings = command_settings()

    async def work(_: InterruptHandling) -> int:
        async with open_command_connection(settings, output) as connection:
            try:
                removed_limit = await remove_limit(connection.client, subject)
            except NoSuchLimit as error:
                output.outcome(str(error), code=CommandErrorCode.NOT_FOUND, subject=subject)
                return ExitCode.REJECTED
        declared_text = (
            f"; the declared limit {removed_limit.declared_limit} applies again"
            if removed_limit.declared_limit is not None
            else ""
        )
        message = f"the limit {removed_limit.limit} of {removed_limit.subject} is removed{declared_text}"
        output.outcome(message, subject=removed_limit.subject)
        return ExitCode.COMPLETED

    return run_async(work, output)


def list_call_limits(_: None, output: Output) -> int:
    """List the limits and their use."""
    settings = command_settings()

    async def work(_: InterruptHandling) -> int:
        async with open_read_connection(settings, output) as connection:
            limits = await read_limits(connection.client)
        if output.is_json:
            output.document([asdict(limit) for limit in limits])
            return ExitCode.COMPLETED
        for limit in limits:
            output.print(one_line(_limit_line(limit), limit=500))
        if not limits:
            output.print("no limits")
        return ExitCode.COMPLETED

    return run_async(work, output)


def _limit_line(limit: Limit) -> str:
    author_text = f" by {limit.by}" if limit.by else ""
    source = "declared" if limit.is_declared else f"set{author_text}"
    limit_text = f"{limit.subject} {limit.limit} ({source})" if limit.limit is not None else limit.subject
    if limit.waiting is None:
        return f"{limit_text}: the workflow of the limit does not respond; start a worker that serves workflows"
    running_text = f"{limit.running:,} running, " if "concurrency=" in (limit.limit or "") else ""
    hold_text = f"{limit.hold_reason}, " if limit.hold_reason is not None else ""
    daily_usage_text = f"{limit.daily_usage}, " if limit.daily_usage is not None else ""
    return f"{limit_text}: {hold_text}{daily_usage_text}{running_text}{limit.waiting:,} waiting"
