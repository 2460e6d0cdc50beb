"""Names, options and help of the commands that change open runs, tools and limits.

Other modules implement the commands.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from dagwright.interfaces.cli.command_arguments import (
    AddNodesArguments,
    LimitsArguments,
    NodeActionArguments,
    RunActionArguments,
)
from dagwright.interfaces.cli.command_dispatch import call_command, command
from dagwright.interfaces.cli.exit_codes import CommandError
from dagwright.interfaces.cli.output import Output
from dagwright.interfaces.cli.shared_options import (
    Budget,
    By,
    DocumentedCommand,
    DocumentedGroup,
    Json,
    Node,
    Reason,
    RunId,
    Tools,
)

tool = typer.Typer(cls=DocumentedGroup, help="Pause and resume tools in all runs.", rich_markup_mode=None)
call_limits = typer.Typer(cls=DocumentedGroup, help="Limit calls across all runs.", rich_markup_mode=None)
Subject = Annotated[
    str, typer.Argument(metavar="SUBJECT", help="Subject: tool:NAME, model:NAME, owner:NAME or template:NAME.")
]
ToolName = Annotated[str, typer.Argument(metavar="TOOL", help="Name of the tool.")]


@dataclass(frozen=True, slots=True)
class PauseToolArguments:
    """Arguments of `tool pause`. `tools` are the files and modules with the tools of the user."""

    tool: ToolName
    tools: Tools = ()
    reason: Reason = None
    by: By = None


@dataclass(frozen=True, slots=True)
class ResumeToolArguments:
    """Arguments of `tool resume`. `ramp` is an unparsed duration."""

    tool: ToolName
    ramp: Annotated[
        str | None,
        typer.Option(
            "--ramp",
            metavar="DURATION",
            help="Time over which waiting calls start; default: 0.1s per call, at least 10s.",
        ),
    ] = None
    by: By = None


@dataclass(frozen=True, slots=True)
class CallLimitArguments:
    """Arguments of `call-limits set`. `tools` are the files and modules with the tools of the user."""

    subject: Subject
    limits: Annotated[
        Sequence[str],
        typer.Argument(
            metavar="LIMIT...",
            help="Any of 20/s, 500/min, concurrency=5, tokens=100000 (per minute), tokens=2000000/day, money=5/day.",
        ),
    ]
    tools: Tools = ()
    by: By = None


def cancel(
    run_id: RunId,
    *,
    reason: Reason = None,
    by: By = None,
    node: Annotated[
        str | None,
        typer.Option("--node", metavar="N", help="Cancel only this node or item, such as sum or sum[north]."),
    ] = None,
    branch: Annotated[
        bool, typer.Option("--branch", help="With --node: also cancel the nodes that cannot run without this node.")
    ] = False,
    json: Json = False,
) -> int:
    """Cancel a run or one of its nodes; finished results are kept."""
    if node is not None:
        arguments = NodeActionArguments(run_id, node, includes_branch=branch, reason=reason, by=by)
        return call_command("run_changes", "cancel_node", arguments, Output(is_json=json))
    if branch:
        raise CommandError("--branch needs --node")
    return call_command("run_changes", "cancel", RunActionArguments(run_id, reason, by), Output(is_json=json))


def pause(run_id: RunId, *, reason: Reason = None, by: By = None, json: Json = False) -> int:
    """Pause a run: running nodes finish, no new nodes start."""
    return call_command("run_changes", "pause", RunActionArguments(run_id, reason, by), Output(is_json=json))


def resume(run_id: RunId, *, reason: Reason = None, by: By = None, json: Json = False) -> int:
    """Resume a paused run."""
    return call_command("run_changes", "resume", RunActionArguments(run_id, reason, by), Output(is_json=json))


def limits(
    run_id: RunId,
    *,
    max_parallel: Annotated[
        int | None,
        typer.Option("--max-parallel", metavar="N", min=1, max=500, help="Maximum number of nodes at the same time."),
    ] = None,
    deadline: Annotated[
        str | None,
        typer.Option(
            "--deadline",
            metavar="DURATION",
            help="Time limit from the start of the run, such as 4h; 'none' removes it.",
        ),
    ] = None,
    budget: Budget = None,
    reason: Reason = None,
    by: By = None,
    json: Json = False,
) -> int:
    """Show or change the parallelism, deadline and budget of a run."""
    arguments = LimitsArguments(run_id, max_parallel, deadline, budget, reason=reason, by=by)
    return call_command("limits_command", "limits", arguments, Output(is_json=json))


def policy(
    run_id: RunId,
    file: Annotated[
        str | None, typer.Argument(metavar="[FILE]", help="JSON or YAML file; without a file, show the policy.")
    ] = None,
    *,
    by: By = None,
    json: Json = False,
) -> int:
    """Show or change which calls of a run need approval."""
    return call_command(
        "limits_command", "policy", LimitsArguments(run_id, policy_file=file, by=by), Output(is_json=json)
    )


def retry(
    run_id: RunId,
    *,
    node: Node,
    arguments: Annotated[
        str | None,
        typer.Option(
            "--arguments", metavar="JSON", help="New arguments; a new node with these arguments replaces the node."
        ),
    ] = None,
    by: By = None,
    json: Json = False,
) -> int:
    """Retry a failed or cancelled node of an open run."""
    return call_command(
        "run_changes", "retry", NodeActionArguments(run_id, node, arguments, by=by), Output(is_json=json)
    )


def set_result(
    run_id: RunId,
    result: Annotated[str, typer.Argument(metavar="JSON", help="The result, such as 5 or '{\"n\": 5}'.")],
    *,
    node: Node,
    reason: Reason = None,
    by: By = None,
    json: Json = False,
) -> int:
    """Set the result of a node manually and unblock its dependents."""
    arguments = NodeActionArguments(run_id, node, result=result, reason=reason, by=by)
    return call_command("run_changes", "set_result", arguments, Output(is_json=json))


def add_nodes(
    run_id: RunId,
    file: Annotated[str, typer.Argument(metavar="FILE", help="A plan or a list of nodes; - reads standard input.")],
    *,
    by: By = None,
    json: Json = False,
) -> int:
    """Add nodes to the plan of an open run."""
    return call_command("run_changes", "add_nodes", AddNodesArguments(run_id, file, by), Output(is_json=json))


tool.command("pause", cls=DocumentedCommand)(
    command(
        PauseToolArguments,
        "tool_command",
        "pause",
        summary="Pause a tool in all runs; running calls finish.",
        output_options={"json": Json},
    )
)
tool.command("resume", cls=DocumentedCommand)(
    command(
        ResumeToolArguments,
        "tool_command",
        "resume",
        summary="Resume a paused tool and start its waiting calls gradually.",
        output_options={"json": Json},
    )
)


@tool.command("list", cls=DocumentedCommand)
def list_paused_tools(*, json: Json = False) -> int:
    """List the paused tools."""
    return call_command("tool_command", "list_pauses", None, Output(is_json=json))


@tool.callback()
def _tool() -> None:
    """Pause and resume tools in all runs."""


call_limits.command("set", cls=DocumentedCommand)(
    command(
        CallLimitArguments,
        "call_limit_command",
        "set_call_limit",
        summary="Limit the calls of a tool, model, owner or template in all runs.",
        output_options={"json": Json},
    )
)


@call_limits.command("remove", cls=DocumentedCommand)
def remove_limit(subject: Subject, *, json: Json = False) -> int:
    """Remove a limit that was set at run time; a declared limit applies again."""
    return call_command("call_limit_command", "remove_call_limit", subject, Output(is_json=json))


@call_limits.command("list", cls=DocumentedCommand)
def list_limits(*, json: Json = False) -> int:
    """List the limits, and how many calls run and wait."""
    return call_command("call_limit_command", "list_call_limits", None, Output(is_json=json))


@call_limits.callback()
def _call_limits() -> None:
    """Limit calls across all runs."""
