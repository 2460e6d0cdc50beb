"""`append`: adds the nodes of a file to the plan of a run that goes on."""

from collections.abc import Sequence
from typing import Any

from dagwright.client.runs import open_runs
from dagwright.client.steering import Steering
from dagwright.core.model.errors import PlanInvalid
from dagwright.interfaces.cli.account import account_name
from dagwright.interfaces.cli.connecting import command_settings
from dagwright.interfaces.cli.exits import CommandRefused, ExitCode
from dagwright.interfaces.cli.output import Output, one_line
from dagwright.interfaces.cli.plans import PlanSource, read_plan, refusal, refusal_lines
from dagwright.interfaces.cli.requests import AppendRequest
from dagwright.interfaces.cli.steering import act_on
from dagwright.server import Connection
from dagwright.toolset.tool_directory import tell_cards
from dagwright.toolset.toolset import load_toolset


def append(request: AppendRequest, output: Output) -> int:
    """Adds nodes; 2 if they, or the run, are such that they cannot be added.

    Raises:
        CommandRefused: the file holds no nodes.
    """
    try:
        return _append(nodes_in(request.file), request, output)
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


def _append(nodes: Sequence[Any], request: AppendRequest, output: Output) -> int:
    settings = command_settings()

    async def act(steering: Steering, connection: Connection) -> str:
        references = await open_runs(connection, settings).tools_of(request.workflow_id)
        toolset = load_toolset(settings, references)
        await tell_cards(toolset.store, toolset.agents)
        tools = toolset.declarations()
        return await steering.append(request.workflow_id, nodes, tools=tools, by=request.by or account_name())

    return act_on(request.workflow_id, output, act)
