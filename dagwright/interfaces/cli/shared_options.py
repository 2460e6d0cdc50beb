"""Options that several commands share, and their help without Python type names."""

import re
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from dagwright.core.model.dialect import Dialect as KnownDialect

_TYPE_PATTERN = re.compile(r" <(?:str|list\[str\])>")


SITE = "https://dagwright.github.io/dagwright/"
"""Address of the documentation."""


class DocumentedCommand(TyperCommand):
    """A command whose help shows the metavar of an option without the Python type, and links to the documentation."""

    def get_help(self, ctx: Any) -> str:
        # The type is replaced with spaces, so that the columns stay aligned.
        return _TYPE_PATTERN.sub(lambda match: " " * len(match[0]), super().get_help(ctx))

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the address of the documentation of the command."""
        formatter.write(f"\nDocumentation: {SITE}reference/commands/#{ctx.command_path.replace(' ', '-')}\n")


class PassThroughCommand(DocumentedCommand):
    """A command that passes its arguments and options to another program."""

    ignore_unknown_options = True
    allow_interspersed_args = False


class DocumentedGroup(TyperGroup):
    """A group of commands whose help shows whole summaries and links to the documentation."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands of the group."""
        names = self.list_commands(ctx)
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary_of(self.get_command(ctx, name))) for name in names])

    def format_epilog(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - click passes both
        """Write the address of the documentation of all commands."""
        formatter.write(f"\nDocumentation: {SITE}reference/cli/\n")


def summary_of(command: Any) -> str:
    """Return the first line of the help of a command. Click's own summary is cut at the width of the terminal."""
    return str(command.help or "").partition("\n")[0]


Json = Annotated[bool, typer.Option("--json", help="Write one JSON document to stdout, and nothing else.")]
NoColor = Annotated[bool, typer.Option("--no-color", help="Write no colours, as with the variable NO_COLOR.")]
Tools = Annotated[
    Sequence[str],
    typer.Option(
        "--tools",
        metavar="MODULE_OR_FILE",
        help="Module or .py file with tools, or .json file of MCP servers; repeatable.",
    ),
]
Context = Annotated[
    Sequence[str],
    typer.Option("--context", metavar="KEY=VALUE", help="Value of a @name in the plan, such as order=o-7; repeatable."),
]
Dialect = Annotated[
    str | None,
    typer.Option(
        "--dialect",
        metavar="DIALECT",
        help=f"Dialect: {', '.join(KnownDialect)}; detected by default.",
    ),
]
Repair = Annotated[
    bool,
    typer.Option(
        "--repair",
        help="Accept a plan as a model writes it, with code fences, prose or small mistakes, and report each repair.",
    ),
]
Agents = Annotated[
    Sequence[str],
    typer.Option("--agents", metavar="FILE", help="YAML, JSON or .py file with agents; repeatable."),
]
ToolsQueue = Annotated[
    str | None,
    typer.Option(
        "--tools-queue",
        metavar="QUEUE",
        help="Task queue of all these tools and agents; by default, each file or module has a queue named after it.",
    ),
]
Plans = Annotated[
    str | None,
    typer.Option("--plans", metavar="FOLDER", help="Folder of published plans; default: DAGWRIGHT_PLANS."),
]
Budget = Annotated[
    str | None,
    typer.Option(
        "--budget",
        metavar="LIMITS",
        help="Limits of the run: any of tokens=50000,money=1.50,calls=40,nodes=200,time=2h.",
    ),
]
Compensate = Annotated[
    bool,
    typer.Option("--compensate", help="If the run does not complete, undo its finished calls in reverse order."),
]
Model = Annotated[
    str | None,
    typer.Option("--model", metavar="MODEL", help="Model for the model calls of the run; default: DAGWRIGHT_MODEL."),
]
Tags = Annotated[
    Sequence[str],
    typer.Option("--tag", metavar="KEY=VALUE", help="Tag of the run, for `list --tag`; repeatable."),
]
FairnessKey = Annotated[
    str | None,
    typer.Option(
        "--fairness-key", metavar="KEY", help="Group of runs that shares the slots of workers fairly with other groups."
    ),
]
FairnessWeight = Annotated[
    float | None,
    typer.Option(
        "--fairness-weight", metavar="WEIGHT", help="Weight of the group relative to other groups; default: 1."
    ),
]
Deadline = Annotated[
    str | None, typer.Option("--deadline", metavar="DURATION", help="Time limit of the run, such as 90s or 2h.")
]
Policy = Annotated[
    str | None,
    typer.Option("--policy", metavar="FILE", help="JSON or YAML file with the approval rules for calls."),
]
ApprovePlan = Annotated[bool, typer.Option("--approve-plan", help="Request approval of the plan before it runs.")]
Detach = Annotated[
    bool, typer.Option("--detach", help="Return after the start; server and worker keep running until `down`.")
]
KeepServer = Annotated[
    bool, typer.Option("--keep-server", help="Keep the server running after the command, until `down`.")
]
NoWorker = Annotated[bool, typer.Option("--no-worker", help="Start no worker; other workers run the plans.")]
Reason = Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Reason, recorded with the change.")]
After = Annotated[
    str | None,
    typer.Option(
        "--after", metavar="CURSOR", help="Show the page after this cursor, which is `cursor` of the previous page."
    ),
]
By = Annotated[
    str | None,
    typer.Option("--by", metavar="NAME", help="Name of the person who gives the command; default: your account."),
]
Node = Annotated[
    str, typer.Option("--node", metavar="N", help="ID of a node or item, such as sum, sum[north] or archive/check.")
]
RunId = Annotated[str, typer.Argument(metavar="ID", help="Run ID.")]
