"""Names, options and help of every command; what they do is in a module for each group, loaded when it is called.

The composition root of the command line. Imports inside of `_call` are the one exception to "imports at the top":
`check` needs no Temporal, and `run` has 1.5 s from the shell to its first node.
"""

import importlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from dagwright.cli.edge import guarded
from dagwright.cli.exits import CommandRefused, ExitCode
from dagwright.cli.output import Output
from dagwright.cli.plain_help import PlainHelp
from dagwright.cli.requests import CancelRequest, CheckRequest, LookRequest, RunRequest, refuse_half_characters

if TYPE_CHECKING:
    from dagwright.settings import Settings

app = typer.Typer(
    name="dagwright",
    help="Runs plans that must not be lost.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
entities = typer.Typer(help="The parties that onboarding plans look up.", rich_markup_mode=None)
app.add_typer(entities, name="entities")
store = typer.Typer(help="The store of large values.", rich_markup_mode=None)
app.add_typer(store, name="store")

Json = Annotated[bool, typer.Option("--json", help="Write one JSON document to stdout, and nothing else.")]
NoColor = Annotated[bool, typer.Option("--no-color", help="Write no colours (as NO_COLOR does).")]
Tools = Annotated[
    list[str] | None,
    typer.Option("--tools", metavar="MODULE_OR_FILE", help="Module or .py file with tools; may be given often."),
]
Context = Annotated[
    list[str] | None,
    typer.Option(
        "--context", metavar="KEY=VALUE", help="A name of the session, such as cbu for @cbu; may be given often."
    ),
]
Dialect = Annotated[
    str | None,
    typer.Option(
        "--dialect", metavar="DIALECT", help="plan, tasks, steps, agents, intents or subgoals; else detected."
    ),
]
Agents = Annotated[str | None, typer.Option("--agents", metavar="FILE", help="Not available yet.")]
RunId = Annotated[str, typer.Argument(metavar="ID", help="Id of the run.")]


@app.command(cls=PlainHelp)
def run(
    plan: Annotated[str, typer.Argument(metavar="PLAN", help="A JSON or YAML file; - is standard input.")],
    *,
    inputs: Annotated[
        list[str] | None,
        typer.Option("--input", metavar="KEY=VALUE", help="Value of an input; may be given often."),
    ] = None,
    inputs_file: Annotated[
        str | None, typer.Option("--inputs", metavar="FILE", help="JSON or YAML object with inputs.")
    ] = None,
    context: Context = None,
    tools: Tools = None,
    dialect: Dialect = None,
    workflow_id: Annotated[
        str | None,
        typer.Option(
            "--id", metavar="ID", help="Id of the run; if it is there already with the same plan, that run goes on."
        ),
    ] = None,
    no_ask: Annotated[bool, typer.Option("--no-ask", help="Refuse missing inputs, ask nobody.")] = False,
    timeout: Annotated[
        str | None, typer.Option("--timeout", metavar="DURATION", help="Deadline of the run, such as 90s or 2h.")
    ] = None,
    detach: Annotated[
        bool, typer.Option("--detach", help="Return at once; server and worker stay until `down`.")
    ] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the server running until `down`.")] = False,
    agents: Agents = None,
    policy: Annotated[str | None, typer.Option("--policy", metavar="FILE", help="Not available yet.")] = None,
    all_or_nothing: Annotated[bool, typer.Option("--all-or-nothing", help="Not available yet.")] = False,
    json: Json = False,
    no_color: NoColor = False,
) -> int:
    """Run a plan to its end."""
    _refuse_for_now({"--agents": agents, "--policy": policy, "--all-or-nothing": all_or_nothing})
    request = RunRequest(
        plan=plan,
        inputs=inputs or [],
        inputs_file=inputs_file,
        context=context or [],
        tools=tools or [],
        dialect=dialect,
        workflow_id=workflow_id,
        timeout=timeout,
        is_asking=not no_ask,
        is_detached=detach,
        is_keeping=keep,
    )
    return _call("running", "run", request, Output(is_json=json, has_color=not no_color))


@app.command(cls=PlainHelp)
def check(
    plans: Annotated[
        list[str], typer.Argument(metavar="PLAN", help="JSON, YAML or .jsonl files; - is standard input.")
    ],
    *,
    tools: Tools = None,
    dialect: Dialect = None,
    context: Context = None,
    any_tool: Annotated[bool, typer.Option("--any-tool", help="Take tools and agents on trust.")] = False,
    agents: Agents = None,
    json: Json = False,
    no_color: NoColor = False,
) -> int:
    """Validate plans, without a server."""
    _refuse_for_now({"--agents": agents})
    request = CheckRequest(plans, tools or [], dialect, context or [], any_tool)
    return _call("checking", "check", request, Output(is_json=json, has_color=not no_color))


@app.command("list", cls=PlainHelp)
def list_runs(
    *,
    limit: Annotated[int, typer.Option("--limit", metavar="COUNT", min=1, max=1000, help="The newest so many.")] = 100,
    json: Json = False,
    no_color: NoColor = False,
) -> int:
    """List the newest runs."""
    return _call("looking", "list_runs", limit, Output(is_json=json, has_color=not no_color))


@app.command(cls=PlainHelp)
def status(workflow_id: RunId, *, json: Json = False, no_color: NoColor = False) -> int:
    """Show how a run is doing."""
    request = LookRequest(workflow_id)
    return _call("looking", "status", request, Output(is_json=json, has_color=not no_color))


@app.command(cls=PlainHelp)
def watch(
    workflow_id: RunId,
    *,
    no_serve: Annotated[bool, typer.Option("--no-serve", help="Only look; leave the work to other workers.")] = False,
    json: Json = False,
    no_color: NoColor = False,
) -> int:
    """Follow a run to its end, and serve it beside whoever else does."""
    request = LookRequest(workflow_id, is_serving=not no_serve)
    return _call("running", "watch", request, Output(is_json=json, has_color=not no_color))


@app.command(cls=PlainHelp)
def result(
    workflow_id: RunId,
    *,
    full: Annotated[bool, typer.Option("--full", help="Put back values over 1 MiB too.")] = False,
    json: Json = False,
    no_color: NoColor = False,
) -> int:
    """Show what a run made."""
    request = LookRequest(workflow_id, is_full=full)
    return _call("looking", "result", request, Output(is_json=json, has_color=not no_color))


@app.command(cls=PlainHelp)
def graph(
    workflow_id: RunId,
    *,
    format: Annotated[
        Literal["mermaid", "svg", "json"] | None,
        typer.Option("--format", metavar="FORMAT", help="mermaid (if none is given), svg or json; --json is json."),
    ] = None,
    json: Json = False,
) -> int:
    """Draw a run's graph with its states."""
    if json and format not in (None, "json"):
        raise CommandRefused(f"--json writes the graph as JSON, and --format {format} does not: leave one of them out")
    request = LookRequest(workflow_id, format="json" if json else format or "mermaid")
    return _call("looking", "graph", request, Output(is_json=json))


@app.command(cls=PlainHelp)
def node(
    workflow_id: RunId,
    node_id: Annotated[str, typer.Argument(metavar="N", help="Id of the node, or of an item: sum[north].")],
    *,
    full: Annotated[bool, typer.Option("--full", help="Put back a value over 1 MiB too.")] = False,
    json: Json = False,
    no_color: NoColor = False,
) -> int:
    """Show all that is known of one node of a run."""
    request = LookRequest(workflow_id, is_full=full, node=node_id)
    return _call("looking", "node", request, Output(is_json=json, has_color=not no_color))


@app.command(cls=PlainHelp)
def cancel(
    workflow_id: RunId,
    *,
    reason: Annotated[
        str | None, typer.Option("--reason", metavar="TEXT", help="Why; kept in the run's notes.")
    ] = None,
    by: Annotated[str | None, typer.Option("--by", metavar="NAME", help="Who; kept in the run's notes.")] = None,
    node: Annotated[str | None, typer.Option("--node", metavar="N", help="Not available yet.")] = None,
    json: Json = False,
) -> int:
    """Ask a run to stop; it keeps what was finished."""
    _refuse_for_now({"--node": node})
    return _call("acting", "cancel", CancelRequest(workflow_id, reason, by), Output(is_json=json))


@app.command(cls=PlainHelp)
def up(*, tools: Tools = None, json: Json = False) -> int:
    """Start server and worker in the background, until `down`."""
    return _call("parts", "up", tools or [], Output(is_json=json))


@app.command(cls=PlainHelp)
def down(*, json: Json = False) -> int:
    """End the server and the workers of this folder."""
    return _call("parts", "down", None, Output(is_json=json))


@entities.command("load", cls=PlainHelp)
def load_entities(
    file: Annotated[str, typer.Argument(metavar="FILE", help="CSV file with a header line.")],
    *,
    json: Json = False,
    no_color: NoColor = False,
) -> int:
    """Bring parties in from a CSV file."""
    return _call("parties", "load", file, Output(is_json=json, has_color=not no_color))


@entities.callback()
def _entities() -> None:
    """The parties that onboarding plans look up."""


@store.command("show", cls=PlainHelp)
def show_store(*, json: Json = False) -> int:
    """Show what the store holds, and what of it no run can need any more."""
    return _call("storing", "show", None, Output(is_json=json))


@store.command("clean", cls=PlainHelp)
def clean_store(
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Remove it; without, only say what would be removed.")] = False,
    json: Json = False,
) -> int:
    """Remove what no run can need any more."""
    return _call("storing", "clean", yes, Output(is_json=json))


@store.callback()
def _store() -> None:
    """The store of large values."""


def run_command_line(arguments: Sequence[str]) -> int:
    """Runs the command that the arguments name and returns its exit code; writes to stdout and stderr.

    Args:
        arguments: without the name of the program.
    """
    wants_json = "--json" in arguments
    return guarded(
        lambda: _answer(app(args=list(arguments) or ["--help"], prog_name="dagwright", standalone_mode=False)),
        Output(is_json=wants_json),
        settings=_settings,
    )


def _answer(code: Any) -> int:
    return code if isinstance(code, int) else ExitCode.COMPLETED


def _refuse_for_now(options: Mapping[str, str | bool | None]) -> None:
    """Refuses options that have their place in the command line and nothing behind them.

    Raises:
        CommandRefused: one of them was given.
    """
    for name, value in options.items():
        if value is not None and value is not False:
            raise CommandRefused(f"{name} is not available yet", status="not_available")


def _call(module: str, function: str, request: object, output: Output) -> int:
    """Loads the module of a command and calls the function in it, which returns the exit code.

    Raises:
        CommandRefused: a text of the request is no UTF-8.
    """
    refuse_half_characters(request)
    command = getattr(importlib.import_module(f"dagwright.cli.{module}"), function)
    code: int = command(request, output)
    return code


def _settings() -> "Settings":
    settings: Settings = importlib.import_module("dagwright.settings").load_settings()
    return settings
