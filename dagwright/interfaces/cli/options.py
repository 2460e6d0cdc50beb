"""Options that several commands share, and their help without Python type names."""

import re
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from dagwright.tools.references import queue_reference

_TYPE = re.compile(r" <(?:str|list\[str\])>")


class PlainHelp(TyperCommand):
    """A command whose help names values by what they are."""

    def get_help(self, ctx: Any) -> str:
        # Blanks instead, so that the columns stay where they are.
        return _TYPE.sub(lambda found: " " * len(found[0]), super().get_help(ctx))


Json = Annotated[bool, typer.Option("--json", help="Write one JSON document to stdout, and nothing else.")]
NoColor = Annotated[bool, typer.Option("--no-color", help="Write no colours (as NO_COLOR does).")]
Tools = Annotated[
    list[str] | None,
    typer.Option(
        "--tools",
        metavar="MODULE_OR_FILE",
        help="Module or .py file with tools, or .json file of MCP servers; may be given often.",
    ),
]
Context = Annotated[
    list[str] | None,
    typer.Option(
        "--context", metavar="KEY=VALUE", help="A name of the session, such as order for @order; may be given often."
    ),
]
Dialect = Annotated[
    str | None,
    typer.Option(
        "--dialect",
        metavar="DIALECT",
        help="plan, tasks, steps, agents, intents, subgoals, hugginggpt, taskbench, nestful, llmcompiler or rewoo; "
        "else detected.",
    ),
]
Mend = Annotated[
    bool,
    typer.Option("--mend", help="Read what a model wrote: fences, prose and slips; tell what was mended."),
]
Agents = Annotated[
    list[str] | None,
    typer.Option("--agents", metavar="FILE", help="YAML, JSON or .py file with agents; may be given often."),
]
ToolsQueue = Annotated[
    str | None,
    typer.Option(
        "--tools-queue",
        metavar="QUEUE",
        help="Task queue of all these tools and agents; else one for each file or module, named after it.",
    ),
]
Plans = Annotated[
    str | None,
    typer.Option(
        "--plans", metavar="FOLDER", help="Folder of plans that are published by name; else that of DAGWRIGHT_PLANS."
    ),
]
Budget = Annotated[
    str | None,
    typer.Option(
        "--budget",
        metavar="LIMITS",
        help="What it may use: some of tokens=50000,money=1.50,calls=40,nodes=200,time=2h.",
    ),
]
AllOrNothing = Annotated[
    bool,
    typer.Option("--all-or-nothing", help="Take back what was done, last first, if the run is not completed."),
]
Model = Annotated[
    str | None,
    typer.Option("--model", metavar="MODEL", help="Which model is asked in the run; else that of DAGWRIGHT_MODEL."),
]
Tags = Annotated[
    list[str] | None,
    typer.Option("--tag", metavar="KEY=VALUE", help="Tag of the run, for `list --tag`; may be given often."),
]
Reason = Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Why; kept in the run's notes.")]
By = Annotated[str | None, typer.Option("--by", metavar="NAME", help="Who; kept in the run's notes.")]
Node = Annotated[str, typer.Option("--node", metavar="N", help="sum, sum[north], or archive/check in a sub-plan.")]
RunId = Annotated[str, typer.Argument(metavar="ID", help="Id of the run.")]


def with_queue(tools: list[str] | None, tools_queue: str | None) -> list[str]:
    """Return the values of `--tools`, with that of `--tools-queue` as one of them."""
    return [*(tools or []), *([] if tools_queue is None else [queue_reference(tools_queue)])]
