"""Commands that change an open run: pause, resume, cancel, retry, set a result, add nodes."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from dagwright.client.errors import CommandRejected, ServerRejected
from dagwright.client.runs import namespace_runs
from dagwright.client.steering import PAUSE, RESUME, Command, CommandAuthor, Steering
from dagwright.core.errors import PlanInvalid
from dagwright.history.executions import RunClosed
from dagwright.interfaces.cli.command_arguments import (
    AddNodesArguments,
    LimitsArguments,
    NodeActionArguments,
    RunActionArguments,
    account_name,
)
from dagwright.interfaces.cli.command_connection import command_settings, open_command_connection
from dagwright.interfaces.cli.command_loop import InterruptHandling, run_async
from dagwright.interfaces.cli.exit_codes import CommandError, CommandErrorCode, ExitCode
from dagwright.interfaces.cli.output import Output, one_line, run_outcome
from dagwright.interfaces.cli.plan_input import (
    PlanSource,
    invalid_plan_document,
    parse_json_option,
    problem_lines,
    read_plan,
)
from dagwright.server import Connection
from dagwright.toolset.tool_directory import publish_cards
from dagwright.toolset.toolset import load_toolset


def pause(arguments: RunActionArguments, output: Output) -> int:
    """Pause a run; return 2 if the run rejects the command."""
    return send(arguments.run_id, PAUSE, author_of(arguments), output)


def resume(arguments: RunActionArguments, output: Output) -> int:
    """Resume a paused run; return 2 if the run rejects the command."""
    return send(arguments.run_id, RESUME, author_of(arguments), output)


def cancel(arguments: RunActionArguments, output: Output) -> int:
    """Request the cancellation of a run without waiting for its end; return 2 if the run rejects the command.

    Cancellation also works for a run that accepts no more messages.
    """

    async def change(steering: Steering, _: Connection) -> str:
        return await steering.cancel(arguments.run_id, author_of(arguments))

    return change_run(arguments.run_id, output, change)


def cancel_node(arguments: NodeActionArguments, output: Output) -> int:
    """Cancel a node, and with `--branch` its dependents; return 2 if the run rejects the command."""
    return _change_node(arguments, Command.cancel_node(arguments.node, branch=arguments.includes_branch), output)


def retry(arguments: NodeActionArguments, output: Output) -> int:
    """Retry a node; return 2 if the run rejects the command.

    Raises:
        CommandError: the arguments are not a JSON object.
    """
    new_arguments = (
        None if arguments.arguments is None else parse_json_option(arguments.arguments, option="--arguments")
    )
    if new_arguments is not None and not isinstance(new_arguments, dict):
        raise CommandError("--arguments must be a JSON object")
    return _change_node(arguments, Command.retry_node(arguments.node, arguments=new_arguments), output)


def set_result(arguments: NodeActionArguments, output: Output) -> int:
    """Set the result of a node; return 2 if the run rejects the command.

    Raises:
        CommandError: the result is invalid JSON.
    """
    result = parse_json_option(arguments.result or "", option="set-result")
    return _change_node(arguments, Command.set_result(arguments.node, result=result), output)


def _change_node(arguments: NodeActionArguments, command: Command, output: Output) -> int:
    async def change(steering: Steering, _: Connection) -> str:
        try:
            return await steering.send(arguments.run_id, command, author_of(arguments))
        except RunClosed as error:
            raise RunClosed(f"{error}; `fork` starts a new run that reuses its results") from None

    return change_run(arguments.run_id, output, change)


def author_of(arguments: RunActionArguments | NodeActionArguments | LimitsArguments) -> CommandAuthor:
    """Return the person who gives a command, with the reason."""
    return CommandAuthor(arguments.by or account_name(), arguments.reason)


def send(run_id: str, command: Command, author: CommandAuthor, output: Output) -> int:
    """Send a command to a run; return 2 if the run rejects the command."""

    async def change(steering: Steering, _: Connection) -> str:
        return await steering.send(run_id, command, author)

    return change_run(run_id, output, change)


def change_run(run_id: str, output: Output, change: Callable[[Steering, Connection], Awaitable[str]]) -> int:
    """Change a run and report the outcome; return 2 if the run rejects the change."""
    settings = command_settings()

    async def work(_: InterruptHandling) -> int:
        async with open_command_connection(settings, output) as connection:
            try:
                message = await change(Steering(connection), connection)
            except (RunClosed, CommandRejected) as error:
                if output.is_json:
                    output.document(run_outcome(run_id, str(error), code=_code_of(error)))
                output.log(str(error))
                return ExitCode.REJECTED
        if output.is_json:
            output.document(run_outcome(run_id, message))
        else:
            output.print(f"{run_id}: {message}")
        return ExitCode.COMPLETED

    return run_async(work, output)


def _code_of(error: RunClosed | CommandRejected) -> CommandErrorCode:
    match error:
        case RunClosed():
            return CommandErrorCode.RUN_ENDED
        case ServerRejected():
            return CommandErrorCode.SERVER_REJECTED
    return CommandErrorCode.COMMAND_REJECTED


def add_nodes(arguments: AddNodesArguments, output: Output) -> int:
    """Add nodes; return 2 if the nodes are invalid or the run rejects them.

    Raises:
        CommandError: the file has no nodes.
    """
    try:
        return _add_nodes(read_nodes(arguments.file), arguments, output)
    except PlanInvalid as invalid:
        return print_invalid_nodes(arguments.file, invalid, output)


def read_nodes(file: str) -> list[Any]:
    """Return the nodes of a file with a plan or a list of nodes.

    Raises:
        PlanInvalid: the file cannot be read.
        CommandError: the file has no nodes.
    """
    plan = read_plan(file)
    if isinstance(plan, PlanInvalid):
        raise plan
    nodes = plan.get("nodes") if isinstance(plan, dict) else plan
    if not isinstance(nodes, list) or not nodes:
        raise CommandError(f"{one_line(file)} has no nodes: give a plan or a list of nodes")
    return nodes


def print_invalid_nodes(file: str, invalid: PlanInvalid, output: Output) -> ExitCode:
    """Report the problems of the nodes of a file."""
    source = PlanSource(file, None, invalid)
    if output.is_json:
        output.document(invalid_plan_document(source, invalid))
    for line in problem_lines(source, invalid):
        output.log(line)
    return ExitCode.REJECTED


def _add_nodes(nodes: Sequence[Any], arguments: AddNodesArguments, output: Output) -> int:
    settings = command_settings()

    async def change(steering: Steering, connection: Connection) -> str:
        references = await namespace_runs(connection, settings).tools_of(arguments.run_id)
        toolset = load_toolset(settings, references)
        await publish_cards(toolset.store, toolset.agents)
        tools = toolset.declarations()
        return await steering.add_nodes(arguments.run_id, nodes, tools=tools, by=arguments.by or account_name())

    return change_run(arguments.run_id, output, change)
