"""Commands that steer a running plan: pause, resume, cancel, retry, set a result, add nodes."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from dagwright.client.runs import open_runs
from dagwright.client.steering import PAUSE, RESUME, Actor, Command, CommandRejected, Steering
from dagwright.core.model.errors import PlanInvalid
from dagwright.history.run_reader import RunClosed
from dagwright.interfaces.cli.account import account_name
from dagwright.interfaces.cli.async_runs import Farewell, run_async
from dagwright.interfaces.cli.connecting import command_settings
from dagwright.interfaces.cli.exits import CommandRefused, ExitCode
from dagwright.interfaces.cli.json_texts import json_of
from dagwright.interfaces.cli.output import Output, acted, one_line
from dagwright.interfaces.cli.plans import PlanSource, read_plan, refusal, refusal_lines
from dagwright.interfaces.cli.requests import AppendRequest, CancelRequest, NodeRequest
from dagwright.server import Connection, open_connection
from dagwright.toolset.tool_directory import tell_cards
from dagwright.toolset.toolset import load_toolset


def pause(request: CancelRequest, output: Output) -> int:
    """Lets nothing new start in a run; 2 if it is refused."""
    return send(request.workflow_id, PAUSE, _actor(request), output)


def resume(request: CancelRequest, output: Output) -> int:
    """Lets a paused run go on; 2 if it is refused."""
    return send(request.workflow_id, RESUME, _actor(request), output)


def cancel(request: CancelRequest, output: Output) -> int:
    """Asks a run to stop and returns at once: its steps are told, and clean up in their own time; 2 if it is refused.

    A run that has had so many messages that it takes no more is stopped as well.
    """

    async def act(steering: Steering, _: Connection) -> str:
        return await steering.cancel(request.workflow_id, _actor(request))

    return act_on(request.workflow_id, output, act)


def cancel_node(request: NodeRequest, output: Output) -> int:
    """Stops a node, and with `--branch` what needs it; 2 if it is refused."""
    return _change_node(request, Command.cancel_node(request.node, branch=request.is_branch), output)


def retry(request: NodeRequest, output: Output) -> int:
    """Has a node tried again; 2 if it is refused.

    Raises:
        CommandRefused: the arguments are no JSON object.
    """
    arguments = None if request.arguments is None else json_of(request.arguments, option="--arguments")
    if arguments is not None and not isinstance(arguments, dict):
        raise CommandRefused("--arguments must be a JSON object")
    return _change_node(request, Command.retry_node(request.node, arguments=arguments), output)


def set_result(request: NodeRequest, output: Output) -> int:
    """Gives a node its result; 2 if it is refused.

    Raises:
        CommandRefused: the result is no JSON.
    """
    result = json_of(request.result or "", option="set-result")
    return _change_node(request, Command.set_result(request.node, result=result), output)


def _change_node(request: NodeRequest, command: Command, output: Output) -> int:
    async def act(steering: Steering, _: Connection) -> str:
        try:
            return await steering.send(request.workflow_id, command, _actor(request))
        except RunClosed as error:
            raise RunClosed(f"{error}; `fork` makes a new run that takes over what is done") from None

    return act_on(request.workflow_id, output, act)


def _actor(request: CancelRequest | NodeRequest) -> Actor:
    return Actor(request.by or account_name(), request.reason)


def send(workflow_id: str, command: Command, actor: Actor, output: Output) -> int:
    """Send a command to a run; 2 if it is refused."""

    async def act(steering: Steering, _: Connection) -> str:
        return await steering.send(workflow_id, command, actor)

    return act_on(workflow_id, output, act)


def act_on(workflow_id: str, output: Output, act: Callable[[Steering, Connection], Awaitable[str]]) -> int:
    """Does something to a run and tells it; what is refused is told with exit code 2."""
    settings = command_settings()

    async def work(_: Farewell) -> int:
        async with open_connection(settings) as connection:
            try:
                message = await act(Steering(connection), connection)
            except (RunClosed, CommandRejected) as error:
                if output.is_json:
                    output.document(acted(workflow_id, str(error), ok=False))
                output.tell(str(error))
                return ExitCode.REFUSED
        if output.is_json:
            output.document(acted(workflow_id, message))
        else:
            output.say(f"{workflow_id}: {message}")
        return ExitCode.COMPLETED

    return run_async(work, output)


def add_nodes(request: AppendRequest, output: Output) -> int:
    """Adds nodes; 2 if they, or the run, are such that they cannot be added.

    Raises:
        CommandRefused: the file holds no nodes.
    """
    try:
        return _add_nodes(nodes_in(request.file), request, output)
    except PlanInvalid as invalid:
        return tell_invalid(request.file, invalid, output)


def nodes_in(file: str) -> list[Any]:
    """Returns the nodes of a file: a plan, or a list of nodes.

    Raises:
        PlanInvalid: it cannot be read.
        CommandRefused: it holds no nodes.
    """
    plan = read_plan(file)
    if isinstance(plan, PlanInvalid):
        raise plan
    nodes = plan.get("nodes") if isinstance(plan, dict) else plan
    if not isinstance(nodes, list) or not nodes:
        raise CommandRefused(f"{one_line(file)} has no nodes: give a plan, or a list of nodes")
    return nodes


def tell_invalid(file: str, invalid: PlanInvalid, output: Output) -> ExitCode:
    """Tells what is wrong with the nodes of a file."""
    source = PlanSource(file, None, invalid)
    if output.is_json:
        output.document(refusal(source, invalid))
    for line in refusal_lines(source, invalid):
        output.tell(line)
    return ExitCode.REFUSED


def _add_nodes(nodes: Sequence[Any], request: AppendRequest, output: Output) -> int:
    settings = command_settings()

    async def act(steering: Steering, connection: Connection) -> str:
        references = await open_runs(connection, settings).tools_of(request.workflow_id)
        toolset = load_toolset(settings, references)
        await tell_cards(toolset.store, toolset.agents)
        tools = toolset.declarations()
        return await steering.add_nodes(request.workflow_id, nodes, tools=tools, by=request.by or account_name())

    return act_on(request.workflow_id, output, act)
