"""Names, options and help of every command; what they do is in a module for each group, loaded when it is called.

The composition root of the command line.
"""

import functools
import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from dagwright.interfaces.cli.calling import call
from dagwright.interfaces.cli.edge import guarded, open_standard_streams
from dagwright.interfaces.cli.exits import CommandRefused, ExitCode
from dagwright.interfaces.cli.goal_commands import ask, chat, session
from dagwright.interfaces.cli.groups import GROUPS
from dagwright.interfaces.cli.options import (
    Agents,
    AllOrNothing,
    Budget,
    By,
    Context,
    Dialect,
    Json,
    Mend,
    Model,
    NoColor,
    Node,
    PlainHelp,
    Reason,
    RunId,
    Tags,
    Tools,
    ToolsQueue,
    with_queue,
)
from dagwright.interfaces.cli.output import Output
from dagwright.interfaces.cli.plugin_groups import PluginGroup, program_options
from dagwright.interfaces.cli.requests import (
    AnswerRequest,
    AppendRequest,
    CancelRequest,
    CheckRequest,
    ForkRequest,
    InboxRequest,
    ListRequest,
    LookRequest,
    NodeRequest,
    ParkRequest,
    RunRequest,
    TermsRequest,
)
from dagwright.interfaces.cli.server_commands import mcp, serve, up, worker

if TYPE_CHECKING:
    from dagwright.settings import Settings

app = typer.Typer(
    name="dagwright",
    cls=PluginGroup,
    callback=program_options,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _name, _group in GROUPS.items():
    app.add_typer(_group, name=_name)


@app.command(cls=PlainHelp)
def run(
    plan: Annotated[
        str,
        typer.Argument(
            metavar="PLAN", help="A JSON or YAML file; .jsonl starts a run for each line; - is standard input."
        ),
    ],
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
    mend: Mend = False,
    workflow_id: Annotated[
        str | None,
        typer.Option(
            "--id", metavar="ID", help="Id of the run; if it is there already with the same plan, that run goes on."
        ),
    ] = None,
    no_ask: Annotated[
        bool, typer.Option("--no-ask", help="Refuse missing inputs and unclear lookups, ask nobody.")
    ] = False,
    timeout: Annotated[
        str | None, typer.Option("--timeout", metavar="DURATION", help="Deadline of the run, such as 90s or 2h.")
    ] = None,
    detach: Annotated[
        bool, typer.Option("--detach", help="Return at once; server and worker stay until `down`.")
    ] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the server running until `down`.")] = False,
    agents: Agents = None,
    tools_queue: ToolsQueue = None,
    policy: Annotated[
        str | None,
        typer.Option("--policy", metavar="FILE", help="JSON or YAML with the calls that people are asked about."),
    ] = None,
    budget: Budget = None,
    model: Model = None,
    approve_plan: Annotated[
        bool, typer.Option("--approve-plan", help="A model wrote the plan: ask somebody whether it may run.")
    ] = False,
    all_or_nothing: AllOrNothing = False,
    tag: Tags = None,
    session: Annotated[
        str | None,
        typer.Option("--session", metavar="S", help="A turn of session S: its names, such as @order, stand for ids."),
    ] = None,
    json: Json = False,
    no_color: NoColor = False,
) -> int:
    """Run a plan to its end."""
    request = RunRequest(
        plan=plan,
        inputs=inputs or [],
        inputs_file=inputs_file,
        context=context or [],
        tools=with_queue(tools, tools_queue),
        agents=agents or [],
        dialect=dialect,
        workflow_id=workflow_id,
        timeout=timeout,
        policy_file=policy,
        budget=budget,
        model=model,
        session=session,
        tags=tag or [],
        is_by_model=approve_plan,
        is_all_or_nothing=all_or_nothing,
        is_mending=mend,
        is_asking=not no_ask,
        is_detached=detach,
        is_keeping=keep,
    )
    output = Output(is_json=json, has_color=not no_color)
    return (
        call("run_batch", "run", request, output)
        if session is None
        else call("session_turns", "run_plan", request, output)
    )


app.command(cls=PlainHelp)(ask)
app.command(cls=PlainHelp)(chat)
app.command(cls=PlainHelp)(session)


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
    mend: Mend = False,
    agents: Agents = None,
    policy: Annotated[
        str | None,
        typer.Option("--policy", metavar="FILE", help="The policy that the run will have, for agents in the plan."),
    ] = None,
    all_or_nothing: Annotated[
        bool, typer.Option("--all-or-nothing", help="Note what such a run could not take back.")
    ] = False,
    json: Json = False,
    no_color: NoColor = False,
) -> int:
    """Validate plans, without a server."""
    request = CheckRequest(
        plans,
        tools or [],
        dialect,
        context or [],
        any_tool,
        is_mending=mend,
        agents=agents or [],
        policy_file=policy,
        is_all_or_nothing=all_or_nothing,
    )
    return call("checking", "check", request, Output(is_json=json, has_color=not no_color))


@app.command("list", cls=PlainHelp)
def list_runs(
    *,
    limit: Annotated[int, typer.Option("--limit", metavar="COUNT", min=1, max=1000, help="The newest so many.")] = 100,
    state: Annotated[
        Literal["running", "waiting", "completed", "completed_with_failures", "failed", "cancelled"] | None,
        typer.Option("--state", metavar="STATE", help="Only of this state, such as failed."),
    ] = None,
    title: Annotated[
        str | None, typer.Option("--title", metavar="TEXT", help="Only with this text in their title or id.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="WHEN", help="Only started since: 2h ago, or a time such as 2026-11-23."),
    ] = None,
    tag: Annotated[
        list[str] | None,
        typer.Option("--tag", metavar="KEY=VALUE", help="Only with this tag; may be given often."),
    ] = None,
    json: Json = False,
    no_color: NoColor = False,
) -> int:
    """List the newest runs."""
    request = ListRequest(limit, state, title, since, tag or [])
    return call("looking", "list_runs", request, Output(is_json=json, has_color=not no_color))


@app.command(cls=PlainHelp)
def status(
    workflow_id: RunId,
    *,
    all_items: Annotated[
        bool, typer.Option("--all", help="List every item of large maps, not only what failed, runs or waits.")
    ] = False,
    json: Json = False,
    no_color: NoColor = False,
) -> int:
    """Show how a run is doing."""
    request = LookRequest(workflow_id, is_all=all_items)
    return call("looking", "status", request, Output(is_json=json, has_color=not no_color))


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
    return call("running", "watch", request, Output(is_json=json, has_color=not no_color))


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
    return call("looking", "result", request, Output(is_json=json, has_color=not no_color))


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
    return call("looking", "graph", request, Output(is_json=json))


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
    return call("looking", "node", request, Output(is_json=json, has_color=not no_color))


@app.command(cls=PlainHelp)
def why(
    workflow_id: RunId,
    *,
    node: Annotated[
        str | None,
        typer.Option("--node", metavar="N", help="This node or item: check, sum[north], archive/check in a sub-plan."),
    ] = None,
    json: Json = False,
) -> int:
    """Say what holds a run or a node back, or what is behind its end."""
    return call("explaining", "why", LookRequest(workflow_id, node=node or ""), Output(is_json=json))


@app.command(cls=PlainHelp)
def inbox(
    *,
    assignee: Annotated[
        str | None, typer.Option("--assignee", metavar="NAME", help="Of this person; `anyone` for those of nobody.")
    ] = None,
    type: Annotated[
        Literal["APPROVAL", "SELECTION", "GUIDANCE", "CLARIFICATION", "INFORMATION"] | None,
        typer.Option("--type", metavar="TYPE", case_sensitive=False, help="Of this type, such as APPROVAL."),
    ] = None,
    older_than: Annotated[
        str | None, typer.Option("--older-than", metavar="DURATION", help="Open for longer than, such as 2h.")
    ] = None,
    json: Json = False,
    no_color: NoColor = False,
) -> int:
    """List what runs ask of people, over all runs."""
    request = InboxRequest(assignee, type, older_than)
    return call("inbox", "inbox", request, Output(is_json=json, has_color=not no_color))


@app.command(cls=PlainHelp)
def feedback(
    workflow_id: RunId,
    request: Annotated[
        str | None,
        typer.Argument(
            metavar="[REQUEST]",
            help="check, sum[north], sum for all its items, archive/check in a sub-plan; not needed if one is open.",
        ),
    ] = None,
    *,
    for_all: Annotated[
        bool, typer.Option("--all", help="Answer all that the node of the request asks, in every item and sub-plan.")
    ] = False,
    approve: Annotated[bool, typer.Option("--approve", help="Answer an APPROVAL.")] = False,
    reject: Annotated[bool, typer.Option("--reject", help="Answer an APPROVAL.")] = False,
    reason: Annotated[
        str | None, typer.Option("--reason", metavar="TEXT", help="Why it is approved or rejected.")
    ] = None,
    remember: Annotated[
        bool, typer.Option("--remember", help="With --approve: do not ask again for this tool in this run.")
    ] = False,
    select: Annotated[
        list[str] | None, typer.Option("--select", metavar="OPTION", help="Answer a SELECTION; may be given often.")
    ] = None,
    text: Annotated[
        str | None,
        typer.Option("--text", metavar="TEXT", help="Answer a GUIDANCE, a CLARIFICATION, or a lookup by another name."),
    ] = None,
    nodes: Annotated[
        str | None, typer.Option("--nodes", metavar="FILE", help="Answer a GUIDANCE with nodes for the plan.")
    ] = None,
    data: Annotated[
        str | None, typer.Option("--data", metavar="JSON", help="Answer an INFORMATION; the value of --select value.")
    ] = None,
    arguments: Annotated[
        str | None, typer.Option("--arguments", metavar="JSON", help="Approve or retry with these arguments instead.")
    ] = None,
    by: Annotated[str | None, typer.Option("--by", metavar="NAME", help="Who answers; your account's name.")] = None,
    note: Annotated[str | None, typer.Option("--note", metavar="TEXT", help="Kept with the answer.")] = None,
    json: Json = False,
) -> int:
    """Answer what a run asks; on a terminal without an answer a form asks for it."""
    answer = AnswerRequest(
        workflow_id,
        request,
        is_for_all=for_all,
        is_approved=approve,
        is_rejected=reject,
        is_remembered=remember,
        nodes=nodes,
        reason=reason,
        selected=select or [],
        text=text,
        data=data,
        arguments=arguments,
        by=by,
        note=note,
    )
    return call("answering", "feedback", answer, Output(is_json=json))


@app.command(cls=PlainHelp)
def cancel(
    workflow_id: RunId,
    *,
    reason: Reason = None,
    by: By = None,
    node: Annotated[
        str | None, typer.Option("--node", metavar="N", help="Stop only this: sum, sum[north], archive/check.")
    ] = None,
    branch: Annotated[bool, typer.Option("--branch", help="With --node: and what cannot run without it.")] = False,
    json: Json = False,
) -> int:
    """Ask a run to stop, or one node of it; what was finished is kept."""
    if node is not None:
        steered = NodeRequest(workflow_id, node, is_branch=branch, reason=reason, by=by)
        return call("steering", "cancel_node", steered, Output(is_json=json))
    if branch:
        raise CommandRefused("--branch needs --node")
    return call("steering", "cancel", CancelRequest(workflow_id, reason, by), Output(is_json=json))


@app.command(cls=PlainHelp)
def pause(workflow_id: RunId, *, reason: Reason = None, by: By = None, json: Json = False) -> int:
    """Let nothing new start in a run; what runs runs to its end."""
    return call("steering", "pause", CancelRequest(workflow_id, reason, by), Output(is_json=json))


@app.command(cls=PlainHelp)
def resume(workflow_id: RunId, *, reason: Reason = None, by: By = None, json: Json = False) -> int:
    """Let a paused run go on."""
    return call("steering", "resume", CancelRequest(workflow_id, reason, by), Output(is_json=json))


@app.command(cls=PlainHelp)
def limits(
    workflow_id: RunId,
    *,
    max_parallel: Annotated[
        int | None, typer.Option("--max-parallel", metavar="N", min=1, max=500, help="So many steps at once.")
    ] = None,
    deadline: Annotated[
        str | None, typer.Option("--deadline", metavar="D", help="Such as 4h, from the start of the run; or none.")
    ] = None,
    budget: Budget = None,
    reason: Reason = None,
    by: By = None,
    json: Json = False,
) -> int:
    """Change how much of a run runs at once, how long it may take, or its budget; without options, show that."""
    request = TermsRequest(workflow_id, max_parallel, deadline, budget, reason=reason, by=by)
    return call("terms", "limits", request, Output(is_json=json))


@app.command(cls=PlainHelp)
def policy(
    workflow_id: RunId,
    file: Annotated[str | None, typer.Argument(metavar="[FILE]", help="JSON or YAML; without it, show it.")] = None,
    *,
    by: By = None,
    json: Json = False,
) -> int:
    """Change which calls a run asks people about."""
    return call("terms", "policy", TermsRequest(workflow_id, policy_file=file, by=by), Output(is_json=json))


@app.command(cls=PlainHelp)
def retry(
    workflow_id: RunId,
    *,
    node: Node,
    arguments: Annotated[
        str | None, typer.Option("--arguments", metavar="JSON", help="Other ones, which make it a new node.")
    ] = None,
    by: By = None,
    json: Json = False,
) -> int:
    """Try a node again that failed or was cancelled, as long as the run goes on."""
    return call("steering", "retry", NodeRequest(workflow_id, node, arguments, by=by), Output(is_json=json))


@app.command("set-result", cls=PlainHelp)
def set_result(
    workflow_id: RunId,
    result: Annotated[str, typer.Argument(metavar="JSON", help="The result, such as 5 or '{\"n\": 5}'.")],
    *,
    node: Node,
    reason: Reason = None,
    by: By = None,
    json: Json = False,
) -> int:
    """Give a node its result by hand; what was blocked behind it goes on."""
    steered = NodeRequest(workflow_id, node, result=result, reason=reason, by=by)
    return call("steering", "set_result", steered, Output(is_json=json))


@app.command(cls=PlainHelp)
def append(
    workflow_id: RunId,
    file: Annotated[str, typer.Argument(metavar="FILE", help="A plan or a list of nodes; - is standard input.")],
    *,
    by: By = None,
    json: Json = False,
) -> int:
    """Add nodes to the plan of a run that goes on."""
    return call("steering", "append", AppendRequest(workflow_id, file, by), Output(is_json=json))


@app.command(cls=PlainHelp)
def park(
    tool: Annotated[str | None, typer.Argument(metavar="TOOL", help="Its name; without it, which are parked.")] = None,
    *,
    tools: Tools = None,
    reason: Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Why; told with what waits.")] = None,
    by: Annotated[str | None, typer.Option("--by", metavar="NAME", help="Who; your account's name.")] = None,
    json: Json = False,
) -> int:
    """Hold the calls of a tool back in all runs, until `unpark`."""
    return call("parking", "park", ParkRequest(tool, by, reason, tools or []), Output(is_json=json))


@app.command(cls=PlainHelp)
def unpark(
    tool: Annotated[str, typer.Argument(metavar="TOOL", help="Its name.")],
    *,
    over: Annotated[
        str | None,
        typer.Option("--over", metavar="D", help="Start what waits over this long; 10s or more if left out."),
    ] = None,
    by: Annotated[str | None, typer.Option("--by", metavar="NAME", help="Who; your account's name.")] = None,
    json: Json = False,
) -> int:
    """Let the calls of a parked tool go, a few at a time."""
    return call("parking", "unpark", ParkRequest(tool, by, over=over), Output(is_json=json))


@app.command(cls=PlainHelp)
def fork(
    workflow_id: RunId,
    *,
    plan: Annotated[
        str | None, typer.Option("--plan", metavar="FILE", help="Another plan; without, that of the run.")
    ] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option("--input", metavar="KEY=VALUE", help="Another value of an input; may be given often."),
    ] = None,
    rerun: Annotated[
        list[str] | None,
        typer.Option("--rerun", metavar="N", help="Do this node or item again, with a new key; may be given often."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Ask nobody.")] = False,
    json: Json = False,
) -> int:
    """Start a new run from this one: what a change does not reach is reused."""
    request = ForkRequest(workflow_id, plan, inputs or [], rerun or [], yes)
    return call("forking", "fork", request, Output(is_json=json))


app.command(cls=PlainHelp)(worker)
app.command(cls=PlainHelp)(serve)


app.command(cls=PlainHelp)(up)


@app.command(cls=PlainHelp)
def down(*, json: Json = False) -> int:
    """End all that runs in this folder: server, workers, API and servers of plugins."""
    return call("parts", "down", None, Output(is_json=json))


app.command(cls=PlainHelp)(mcp)


def run_command_line(arguments: Sequence[str]) -> int:
    """Runs the command that the arguments name and returns its exit code; writes to stdout and stderr.

    Args:
        arguments: without the name of the program.
    """
    wants_json = "--json" in arguments
    open_standard_streams()
    return guarded(
        lambda: _answer(
            click_command()(args=list(arguments) or ["--help"], prog_name="dagwright", standalone_mode=False)
        ),
        Output(is_json=wants_json),
        settings=_settings,
    )


@functools.cache
def click_command() -> Any:
    """Build the tree of commands and options, which takes 20 ms, once for all calls of a process."""
    return typer.main.get_command(app)


def _answer(code: Any) -> int:
    return code if isinstance(code, int) else ExitCode.COMPLETED


def _settings() -> "Settings":
    settings: Settings = importlib.import_module("dagwright.settings").load_settings()
    return settings
