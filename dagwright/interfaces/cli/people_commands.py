"""Names, options and help of `inbox` and `feedback`. Other modules implement the commands."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import typer

from dagwright.interfaces.cli.command_dispatch import command
from dagwright.interfaces.cli.shared_options import After, By, Json, RunId


@dataclass(frozen=True, slots=True)
class InboxArguments:
    """Arguments of `inbox`. `older_than` and `wait` are unparsed durations; `after` is a cursor."""

    limit: Annotated[
        int, typer.Option("--limit", metavar="COUNT", min=1, max=1000, help="Approximate maximum number of requests.")
    ] = 100
    after: After = None
    run_id: Annotated[str | None, typer.Option("--run", metavar="ID", help="Only requests of this run.")] = None
    assignee: Annotated[
        str | None,
        typer.Option(
            "--assignee", metavar="NAME", help="Only requests to this person; `anyone` for unassigned requests."
        ),
    ] = None
    type: Annotated[
        Literal["APPROVAL", "SELECTION", "GUIDANCE", "CLARIFICATION", "INFORMATION"] | None,
        typer.Option(
            "--type", metavar="TYPE", case_sensitive=False, help="Only requests of this type, such as APPROVAL."
        ),
    ] = None
    older_than: Annotated[
        str | None,
        typer.Option("--older-than", metavar="DURATION", help="Only requests open for longer than this, such as 2h."),
    ] = None
    wait: Annotated[
        str | None,
        typer.Option("--wait", metavar="DURATION", help="Maximum time, such as 5m, to wait for a matching request."),
    ] = None


@dataclass(frozen=True, slots=True)
class AnswerArguments:
    """Arguments of `feedback`. `data` and `arguments` are JSON texts, `nodes` is a file."""

    run_id: RunId
    request: Annotated[
        str | None,
        typer.Argument(
            metavar="[REQUEST]",
            help="ID of the request, such as check, sum[north] (an item) or archive/check (in a sub-plan); with --all, "
            "ID of the node; default: the only open request.",
        ),
    ] = None
    is_for_all: Annotated[
        bool, typer.Option("--all", help="Answer every request of this node, in all items and sub-plans.")
    ] = False
    is_approved: Annotated[bool, typer.Option("--approve", help="Approve (APPROVAL).")] = False
    is_rejected: Annotated[bool, typer.Option("--reject", help="Reject (APPROVAL).")] = False
    reason: Annotated[
        str | None, typer.Option("--reason", metavar="TEXT", help="Reason for the approval or rejection.")
    ] = None
    is_remembered: Annotated[
        bool, typer.Option("--remember", help="With --approve: approve later calls of this tool in this run too.")
    ] = False
    selected: Annotated[
        Sequence[str], typer.Option("--select", metavar="OPTION", help="Selected option (SELECTION); repeatable.")
    ] = ()
    text: Annotated[
        str | None,
        typer.Option(
            "--text",
            metavar="TEXT",
            help="Text (GUIDANCE, CLARIFICATION); for a SELECTION of an entity, another name to look up.",
        ),
    ] = None
    nodes: Annotated[
        str | None, typer.Option("--nodes", metavar="FILE", help="Nodes to add to the plan (GUIDANCE).")
    ] = None
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            metavar="JSON",
            help="Value (INFORMATION); with `--select value`, the result to set for the failed node.",
        ),
    ] = None
    arguments: Annotated[
        str | None, typer.Option("--arguments", metavar="JSON", help="Approve or retry the call with these arguments.")
    ] = None
    by: By = None
    note: Annotated[str | None, typer.Option("--note", metavar="TEXT", help="Note, stored with the answer.")] = None


inbox = command(InboxArguments, "inbox_command", "inbox", summary="List the open requests of all runs.")
feedback = command(
    AnswerArguments,
    "feedback_command",
    "feedback",
    summary="Answer a request. If the options give no answer, you are asked at the terminal.",
    output_options={"json": Json},
)
