"""Names, options and help of `ask`, `chat` and `session`; what they do is in `goals`, `chatting` and `sessions`."""

from typing import Annotated, Literal

import typer

from dagwright.interfaces.cli.calling import call
from dagwright.interfaces.cli.options import (
    Agents,
    AllOrNothing,
    Budget,
    Context,
    Json,
    Model,
    NoColor,
    Tags,
    Tools,
    ToolsQueue,
    with_queue,
)
from dagwright.interfaces.cli.output import Output
from dagwright.interfaces.cli.requests import AskRequest, ChatRequest, SessionRequest
from dagwright.planning.plan_and_execute.goals import MOST_PLANS, MOST_PLANS_LIMIT, MOST_REPLANS, MOST_REPLANS_LIMIT
from dagwright.planning.rounds.rounds import MAX_ROUNDS, MAX_ROUNDS_LIMIT, SYNTHESIS, WORKER_TIMEOUT_S
from dagwright.planning.rounds.rounds import Synthesis as SynthesisChoice

Rounds = Annotated[
    int | None,
    typer.Option(
        "--rounds",
        metavar="N",
        min=1,
        max=MAX_ROUNDS_LIMIT,
        help=f"How often the planner is asked (profile rounds); else DAGWRIGHT_MAX_ROUNDS, or {MAX_ROUNDS}.",
    ),
]
WorkerTimeout = Annotated[
    str | None,
    typer.Option(
        "--worker-timeout",
        metavar="TIME",
        help="How long a call of a worker may take that names no timeout (profile rounds), such as 2m; else "
        f"DAGWRIGHT_WORKER_TIMEOUT_S, or {WORKER_TIMEOUT_S:g} s.",
    ),
]

Synthesis = Annotated[
    SynthesisChoice | None,
    typer.Option(
        "--synthesis",
        metavar="HOW",
        help="How the answer is made (profile rounds): assemble joins what workers found, model has a model word it; "
        f"else DAGWRIGHT_SYNTHESIS, or {SYNTHESIS}.",
    ),
]


def ask(
    words: Annotated[str, typer.Argument(metavar="REQUEST", help="What should be done, in words.")],
    *,
    model: Annotated[
        str | None, typer.Option("--model", metavar="MODEL", help="Which model is asked; else DAGWRIGHT_MODEL.")
    ] = None,
    tools: Tools = None,
    agents: Agents = None,
    tools_queue: ToolsQueue = None,
    plan_only: Annotated[bool, typer.Option("--plan-only", help="Write the plan, and run nothing.")] = False,
    approve_plan: Annotated[
        bool, typer.Option("--approve-plan", help="Ask somebody whether the plan may run; it can be changed then.")
    ] = False,
    no_ask: Annotated[
        bool,
        typer.Option(
            "--no-ask", help="Ask nothing at the terminal; at the limit of --budget finish with what there is."
        ),
    ] = False,
    workflow_id: Annotated[
        str | None,
        typer.Option(
            "--id", metavar="ID", help="Id of the run; if it is there already with the same request, that run goes on."
        ),
    ] = None,
    timeout: Annotated[
        str | None, typer.Option("--timeout", metavar="DURATION", help="Deadline of the run, such as 90s or 2h.")
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option("--policy", metavar="FILE", help="JSON or YAML with the calls that people are asked about."),
    ] = None,
    detach: Annotated[
        bool, typer.Option("--detach", help="Return at once; server and worker stay until `down`.")
    ] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the server running until `down`.")] = False,
    profile: Annotated[
        Literal["plan", "intents", "rounds"],
        typer.Option(
            "--profile",
            metavar="PROFILE",
            help="plan; intents: calls of verbs about entities that are looked up; rounds: worker tools, planned round "
            "by round.",
        ),
    ] = "plan",
    context: Context = None,
    rounds: Rounds = None,
    worker_timeout: WorkerTimeout = None,
    synthesis: Synthesis = None,
    confidence: Annotated[
        float | None,
        typer.Option(
            "--confidence",
            metavar="C",
            min=0.0,
            max=1.0,
            help="0 to 1: ask whether the plan may run where the model is less sure (profile intents).",
        ),
    ] = None,
    budget: Budget = None,
    tag: Tags = None,
    all_or_nothing: AllOrNothing = False,
    max_repairs: Annotated[
        int | None,
        typer.Option(
            "--max-repairs",
            metavar="N",
            min=0,
            max=MOST_PLANS_LIMIT - 1,
            help=f"How often a plan that cannot be run goes back to the model; else {MOST_PLANS - 1} times.",
        ),
    ] = None,
    max_replans: Annotated[
        int | None,
        typer.Option(
            "--max-replans",
            metavar="N",
            min=0,
            max=MOST_REPLANS_LIMIT,
            help=f"How often the model plans again once its plan has run; else {MOST_REPLANS} times.",
        ),
    ] = None,
    session: Annotated[
        str | None,
        typer.Option(
            "--session",
            metavar="S",
            help="A turn of the session S: it knows names, entities and what was asked before.",
        ),
    ] = None,
    json: Json = False,
    no_color: NoColor = False,
) -> int:
    """Have a model plan a request, run the plan, and answer."""
    request = AskRequest(
        words=words,
        model=model,
        tools=with_queue(tools, tools_queue),
        agents=agents or [],
        workflow_id=workflow_id,
        timeout=timeout,
        policy_file=policy,
        budget=budget,
        max_repairs=max_repairs,
        max_replans=max_replans,
        profile=profile,
        rounds=rounds,
        worker_timeout=worker_timeout,
        synthesis=synthesis,
        context=context or [],
        confidence=confidence,
        session=session,
        tags=tag or [],
        is_plan_only=plan_only,
        asks_first=approve_plan,
        is_all_or_nothing=all_or_nothing,
        is_asking=not no_ask,
        is_detached=detach,
        is_keeping=keep,
    )
    return call("goals", "ask", request, Output(is_json=json, has_color=not no_color))


def chat(
    *,
    session: Annotated[
        str | None, typer.Option("--session", metavar="S", help="Go on with the session S; else a new one begins.")
    ] = None,
    profile: Annotated[
        Literal["plan", "intents", "rounds"],
        typer.Option("--profile", metavar="PROFILE", help="How messages are answered; /profile changes it."),
    ] = "plan",
    model: Model = None,
    tools: Tools = None,
    agents: Agents = None,
    tools_queue: ToolsQueue = None,
    rounds: Rounds = None,
    worker_timeout: WorkerTimeout = None,
    synthesis: Synthesis = None,
    timeout: Annotated[
        str | None, typer.Option("--timeout", metavar="DURATION", help="How long each turn may take, such as 10m.")
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option("--policy", metavar="FILE", help="JSON or YAML with the calls that people are asked about."),
    ] = None,
    budget: Budget = None,
    json: Annotated[
        bool, typer.Option("--json", help="Write a JSON document for each turn, on one line, and nothing else.")
    ] = False,
    no_color: NoColor = False,
) -> int:
    """Talk: each message is a turn of a session, answered before the next; lines of a pipe are messages too."""
    request = ChatRequest(
        session=session,
        profile=profile,
        rounds=rounds,
        worker_timeout=worker_timeout,
        synthesis=synthesis,
        model=model,
        tools=with_queue(tools, tools_queue),
        agents=agents or [],
        timeout=timeout,
        policy_file=policy,
        budget=budget,
    )
    return call("chatting", "chat", request, Output(is_json=json, has_color=not no_color))


def session(
    name: Annotated[
        str | None, typer.Argument(metavar="S", help="Name of the session; without one all of them are listed.")
    ] = None,
    *,
    end: Annotated[
        bool, typer.Option("--end", help="It takes no more requests, and ends as soon as no run of it goes on.")
    ] = False,
    json: Json = False,
    no_color: NoColor = False,
) -> int:
    """Show a session, or end it; without a name list the newest."""
    request = SessionRequest(name, is_ending=end)
    return call("sessions", "session", request, Output(is_json=json, has_color=not no_color))
