"""Names, options and help of `ask`, `chat` and `session`; other modules do the work."""

from typing import Annotated, Literal

import typer

from dagwright.interfaces.cli.command_arguments import AskRequest, ChatRequest, SessionRequest
from dagwright.interfaces.cli.command_dispatch import call
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
    FairnessKey,
    FairnessWeight,
    Json,
    KeepServer,
    Model,
    NoColor,
    Policy,
    Tags,
    Tools,
    ToolsQueue,
    with_queue,
)
from dagwright.planning.plan_and_execute.goal_spec import MAX_PLANS, MAX_REPLANS, PLANS_LIMIT, REPLANS_LIMIT
from dagwright.planning.rounds.rounds_spec import MAX_ROUNDS, MAX_ROUNDS_LIMIT, SYNTHESIS, WORKER_TIMEOUT_S
from dagwright.planning.rounds.rounds_spec import Synthesis as SynthesisChoice

MaxRounds = Annotated[
    int | None,
    typer.Option(
        "--max-rounds",
        metavar="N",
        min=1,
        max=MAX_ROUNDS_LIMIT,
        help=f"Maximum number of rounds (profile rounds); default: DAGWRIGHT_MAX_ROUNDS or {MAX_ROUNDS}.",
    ),
]
WorkerTimeout = Annotated[
    str | None,
    typer.Option(
        "--worker-timeout",
        metavar="DURATION",
        help="Timeout of calls of worker tools without their own (profile rounds), such as 2m; default: "
        f"DAGWRIGHT_WORKER_TIMEOUT_S or {WORKER_TIMEOUT_S:g} s.",
    ),
]

Synthesis = Annotated[
    SynthesisChoice | None,
    typer.Option(
        "--synthesis",
        metavar="MODE",
        help="How the answer is written (profile rounds): assemble joins the results of the worker tools, model "
        f"has a model write it; default: DAGWRIGHT_SYNTHESIS or {SYNTHESIS}.",
    ),
]


def ask(
    text: Annotated[str, typer.Argument(metavar="REQUEST", help="The request in natural language.")],
    *,
    model: Annotated[
        str | None,
        typer.Option("--model", metavar="MODEL", help="Model that plans and answers; default: DAGWRIGHT_MODEL."),
    ] = None,
    tools: Tools = None,
    agents: Agents = None,
    tools_queue: ToolsQueue = None,
    plan_only: Annotated[bool, typer.Option("--plan-only", help="Print the plan without running it.")] = False,
    approve_plan: ApprovePlan = False,
    non_interactive: Annotated[
        bool,
        typer.Option(
            "--non-interactive",
            help="Do not ask at the terminal; at the limit of --budget, finish with the results so far.",
        ),
    ] = False,
    workflow_id: Annotated[
        str | None,
        typer.Option("--id", metavar="ID", help="Run ID; a run that exists with the same request is continued."),
    ] = None,
    deadline: Deadline = None,
    policy: Policy = None,
    detach: Detach = False,
    keep_server: KeepServer = False,
    profile: Annotated[
        Literal["plan", "intents", "rounds"],
        typer.Option(
            "--profile",
            metavar="PROFILE",
            help="Profile: plan (the model writes a plan), intents (it calls verbs with entities to look up) or "
            "rounds (it plans calls of worker tools round by round).",
        ),
    ] = "plan",
    context: Context = None,
    max_rounds: MaxRounds = None,
    worker_timeout: WorkerTimeout = None,
    synthesis: Synthesis = None,
    confidence: Annotated[
        float | None,
        typer.Option(
            "--confidence",
            metavar="C",
            min=0.0,
            max=1.0,
            help="Request approval if the confidence of the model is below this, 0 to 1 (profile intents).",
        ),
    ] = None,
    budget: Budget = None,
    tag: Tags = None,
    fairness_key: FairnessKey = None,
    fairness_weight: FairnessWeight = None,
    compensate: Compensate = False,
    max_repairs: Annotated[
        int | None,
        typer.Option(
            "--max-repairs",
            metavar="N",
            min=0,
            max=PLANS_LIMIT - 1,
            help=f"How often the model may correct an invalid plan; default: {MAX_PLANS - 1}.",
        ),
    ] = None,
    max_replans: Annotated[
        int | None,
        typer.Option(
            "--max-replans",
            metavar="N",
            min=0,
            max=REPLANS_LIMIT,
            help=f"How often the model may plan again after its plan has run; default: {MAX_REPLANS}.",
        ),
    ] = None,
    session: Annotated[
        str | None,
        typer.Option(
            "--session",
            metavar="S",
            help="Ask as a turn of session S, which knows its earlier names, entities and requests.",
        ),
    ] = None,
    json: Json = False,
    no_color: NoColor = False,
) -> int:
    """Plan a request with a model, run the plan and answer."""
    request = AskRequest(
        text=text,
        model=model,
        tools=with_queue(tools, tools_queue),
        agents=agents or [],
        workflow_id=workflow_id,
        deadline=deadline,
        policy_file=policy,
        budget=budget,
        max_repairs=max_repairs,
        max_replans=max_replans,
        profile=profile,
        max_rounds=max_rounds,
        worker_timeout=worker_timeout,
        synthesis=synthesis,
        context=context or [],
        confidence=confidence,
        session=session,
        tags=tag or [],
        fairness_key=fairness_key,
        fairness_weight=fairness_weight,
        is_plan_only=plan_only,
        approve_plan=approve_plan,
        is_compensating=compensate,
        is_interactive=not non_interactive,
        is_detached=detach,
        keeps_server=keep_server,
    )
    return call("ask_command", "ask", request, Output(is_json=json, has_color=not no_color))


def chat(
    *,
    session: Annotated[
        str | None, typer.Option("--session", metavar="S", help="Continue session S; default: a new session.")
    ] = None,
    profile: Annotated[
        Literal["plan", "intents", "rounds"],
        typer.Option("--profile", metavar="PROFILE", help="Profile of each message; /profile changes it."),
    ] = "plan",
    model: Model = None,
    tools: Tools = None,
    agents: Agents = None,
    tools_queue: ToolsQueue = None,
    max_rounds: MaxRounds = None,
    worker_timeout: WorkerTimeout = None,
    synthesis: Synthesis = None,
    deadline: Annotated[
        str | None, typer.Option("--deadline", metavar="DURATION", help="Time limit of each turn, such as 10m.")
    ] = None,
    policy: Policy = None,
    budget: Budget = None,
    json: Annotated[
        bool, typer.Option("--json", help="Write one JSON document per turn and line, and nothing else.")
    ] = False,
    no_color: NoColor = False,
) -> int:
    """Chat in a session; each line of input is a turn."""
    request = ChatRequest(
        session=session,
        profile=profile,
        max_rounds=max_rounds,
        worker_timeout=worker_timeout,
        synthesis=synthesis,
        model=model,
        tools=with_queue(tools, tools_queue),
        agents=agents or [],
        deadline=deadline,
        policy_file=policy,
        budget=budget,
    )
    return call("chat_command", "chat", request, Output(is_json=json, has_color=not no_color))


def session(
    name: Annotated[
        str | None, typer.Argument(metavar="S", help="Name of the session; without it, list the sessions.")
    ] = None,
    *,
    end: Annotated[
        bool, typer.Option("--end", help="Accept no more requests, and end when its last run has ended.")
    ] = False,
    after: After = None,
    json: Json = False,
    no_color: NoColor = False,
) -> int:
    """List the sessions, or show or end a session."""
    request = SessionRequest(name, is_ending=end, after=after)
    return call("session_command", "session", request, Output(is_json=json, has_color=not no_color))
