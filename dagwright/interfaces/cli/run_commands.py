"""Names, options and help of the commands that start and show runs. Other modules implement the commands."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import typer

from dagwright.interfaces.cli.command_arguments import ShowArguments
from dagwright.interfaces.cli.command_dispatch import call_command, command
from dagwright.interfaces.cli.exit_codes import CommandError
from dagwright.interfaces.cli.output import Output
from dagwright.interfaces.cli.shared_options import (
    After,
    Agents,
    ApprovePlan,
    Budget,
    Compensate,
    Context,
    Deadline,
    Detach,
    Dialect,
    FairnessKey,
    FairnessWeight,
    Json,
    KeepServer,
    Model,
    NoColor,
    NoWorker,
    Policy,
    Repair,
    RunId,
    Tags,
    Tools,
    ToolsQueue,
)

Full = Annotated[bool, typer.Option("--full", help="Include values over 1 MiB.")]


@dataclass(frozen=True, slots=True)
class RunArguments:
    """Arguments of `run`. `deadline` is an unparsed duration."""

    plan: Annotated[
        str,
        typer.Argument(
            metavar="PLAN", help="JSON or YAML file; a .jsonl file starts one run per line; - reads standard input."
        ),
    ]
    inputs: Annotated[
        Sequence[str], typer.Option("--input", metavar="KEY=VALUE", help="Value of an input; repeatable.")
    ] = ()
    inputs_file: Annotated[
        str | None, typer.Option("--input-file", metavar="FILE", help="JSON or YAML file with an object of inputs.")
    ] = None
    context: Context = ()
    tools: Tools = ()
    dialect: Dialect = None
    is_repairing: Repair = False
    run_id: Annotated[
        str | None,
        typer.Option("--id", metavar="ID", help="Run ID; an existing run with this ID and the same plan is continued."),
    ] = None
    non_interactive: Annotated[
        bool, typer.Option("--non-interactive", help="Fail on missing inputs and unclear lookups instead of asking.")
    ] = False
    deadline: Deadline = None
    is_detached: Detach = False
    keeps_server: KeepServer = False
    agents: Agents = ()
    tools_queue: ToolsQueue = None
    policy_file: Policy = None
    budget: Budget = None
    model: Model = None
    approve_plan: ApprovePlan = False
    is_compensating: Compensate = False
    tags: Tags = ()
    fairness_key: FairnessKey = None
    fairness_weight: FairnessWeight = None
    session_id: Annotated[
        str | None,
        typer.Option(
            "--session", metavar="S", help="Run the plan as a turn of session S; @names refer to names of the session."
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class CheckArguments:
    """Arguments of `check`."""

    plans: Annotated[
        Sequence[str], typer.Argument(metavar="PLAN", help="JSON, YAML or .jsonl files; - reads standard input.")
    ]
    tools: Tools = ()
    dialect: Dialect = None
    context: Context = ()
    allows_unknown_tools: Annotated[
        bool, typer.Option("--allow-unknown-tools", help="Accept tools and agents that are not found.")
    ] = False
    is_repairing: Repair = False
    agents: Agents = ()
    policy_file: Policy = None
    is_compensating: Annotated[
        bool, typer.Option("--compensate", help="Report the calls that `run --compensate` could not undo.")
    ] = False


@dataclass(frozen=True, slots=True)
class ListArguments:
    """Arguments of `list`. `since` is an unparsed duration or time; `after` is a cursor."""

    limit: Annotated[int, typer.Option("--limit", metavar="COUNT", min=1, max=1000, help="Maximum number of runs.")] = (
        100
    )
    status: Annotated[
        Literal["running", "waiting", "completed", "completed_with_failures", "failed", "cancelled"] | None,
        typer.Option("--status", metavar="STATUS", help="Only runs with this status, such as failed."),
    ] = None
    title: Annotated[
        str | None, typer.Option("--title", metavar="TEXT", help="Only runs whose title or ID starts with TEXT.")
    ] = None
    since: Annotated[
        str | None,
        typer.Option(
            "--since", metavar="WHEN", help="Only runs started since this time, such as 2h (2 hours ago) or 2026-11-23."
        ),
    ] = None
    tags: Annotated[
        Sequence[str], typer.Option("--tag", metavar="KEY=VALUE", help="Only runs with this tag; repeatable.")
    ] = ()
    template: Annotated[
        str | None, typer.Option("--template", metavar="NAME", help="Only runs of this published plan.")
    ] = None
    after: After = None


@dataclass(frozen=True, slots=True)
class ForkArguments:
    """Arguments of `fork`."""

    run_id: RunId
    plan: Annotated[
        str | None, typer.Option("--plan", metavar="FILE", help="Changed plan; default: the plan of the run.")
    ] = None
    inputs: Annotated[
        Sequence[str], typer.Option("--input", metavar="KEY=VALUE", help="Changed value of an input; repeatable.")
    ] = ()
    rerun: Annotated[
        Sequence[str],
        typer.Option(
            "--rerun", metavar="N", help="Run this node or item again, with a new idempotency key; repeatable."
        ),
    ] = ()
    is_confirmed: Annotated[bool, typer.Option("--yes", help="Start without confirmation.")] = False


run = command(RunArguments, "run_batch", "run", summary="Run a plan and wait until it ends.")
check = command(CheckArguments, "check_command", "check", summary="Validate plans without a server.")
list_runs = command(
    ListArguments,
    "show_commands",
    "list_runs",
    summary="List the open runs, then the ended runs, both newest first.",
)
fork = command(
    ForkArguments,
    "fork_command",
    "fork",
    summary="Start a run from another run, reusing unaffected results.",
    output_options={"json": Json},
)


def status(
    run_id: RunId,
    *,
    all_items: Annotated[
        bool, typer.Option("--all-items", help="List every item of large maps, not only failed and open ones.")
    ] = False,
    json: Json = False,
    no_color: NoColor = False,
) -> int:
    """Show the state of a run and its nodes."""
    arguments = ShowArguments(run_id, lists_all_items=all_items)
    return call_command("show_commands", "status", arguments, Output(is_json=json, has_color=not no_color))


def watch(
    run_id: RunId,
    *,
    no_worker: NoWorker = False,
    json: Json = False,
    no_color: NoColor = False,
) -> int:
    """Follow a run until it ends, with a worker for its tools."""
    arguments = ShowArguments(run_id, has_worker=not no_worker)
    return call_command("run_and_watch", "watch", arguments, Output(is_json=json, has_color=not no_color))


def result(
    run_id: RunId,
    *,
    full: Full = False,
    json: Json = False,
    no_color: NoColor = False,
) -> int:
    """Show the output of a run."""
    arguments = ShowArguments(run_id, is_full=full)
    return call_command("show_commands", "result", arguments, Output(is_json=json, has_color=not no_color))


def graph(
    run_id: RunId,
    *,
    format: Annotated[
        Literal["mermaid", "svg", "json"] | None,
        typer.Option("--format", metavar="FORMAT", help="Format: mermaid (default), svg or json; --json means json."),
    ] = None,
    json: Json = False,
) -> int:
    """Draw the graph of a run with the states of its nodes."""
    if json and format not in (None, "json"):
        raise CommandError(f"--json and --format {format} contradict each other; give one of them")
    arguments = ShowArguments(run_id, format="json" if json else format or "mermaid")
    return call_command("show_commands", "graph", arguments, Output(is_json=json))


def node(
    run_id: RunId,
    node_id: Annotated[str, typer.Argument(metavar="N", help="ID of a node, or of an item, such as sum[north].")],
    *,
    full: Full = False,
    json: Json = False,
    no_color: NoColor = False,
) -> int:
    """Show the details of a node."""
    arguments = ShowArguments(run_id, is_full=full, node=node_id)
    return call_command("show_commands", "node", arguments, Output(is_json=json, has_color=not no_color))


def explain(
    run_id: RunId,
    *,
    node: Annotated[
        str | None,
        typer.Option(
            "--node", metavar="N", help="Explain this node or item, such as check, sum[north] or archive/check."
        ),
    ] = None,
    json: Json = False,
) -> int:
    """Explain why a run or node waits, or why it ended."""
    return call_command("explain_command", "explain", ShowArguments(run_id, node=node or ""), Output(is_json=json))
