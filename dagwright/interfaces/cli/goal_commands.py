"""Names, options and help of `ask`, `chat` and `session`. Other modules implement the commands."""

from dataclasses import dataclass
from typing import Annotated, Literal

import typer

from dagwright.interfaces.cli.command_dispatch import command
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
    KeepServer,
    Model,
    NoColor,
    Policy,
    Tags,
    Tools,
    ToolsQueue,
)
from dagwright.planning.plan_and_execute.goal_spec import (
    DEFAULT_MAX_PLANS,
    DEFAULT_MAX_REPLANS,
    PLANS_LIMIT,
    REPLANS_LIMIT,
)
from dagwright.planning.rounds.rounds_spec import (
    DEFAULT_MAX_ROUNDS,
    DEFAULT_SYNTHESIS,
    ROUNDS_LIMIT,
    WORKER_TIMEOUT_S,
)
from dagwright.planning.rounds.rounds_spec import Synthesis as SynthesisChoice

MaxRounds = Annotated[
    int | None,
    typer.Option(
        "--max-rounds",
        metavar="N",
        min=1,
        max=ROUNDS_LIMIT,
        help=f"Maximum number of rounds (profile rounds); default: DAGWRIGHT_MAX_ROUNDS or {DEFAULT_MAX_ROUNDS}.",
    ),
]
WorkerTimeout = Annotated[
    str | None,
    typer.Option(
        "--worker-timeout",
        metavar="DURATION",
        help="Timeout of worker tools that declare no timeout, such as 2m (profile rounds); default: "
        f"DAGWRIGHT_WORKER_TIMEOUT_S or {WORKER_TIMEOUT_S:g} s.",
    ),
]

Synthesis = Annotated[
    SynthesisChoice | None,
    typer.Option(
        "--synthesis",
        metavar="MODE",
        help="How the answer is written (profile rounds): assemble (the results of the worker tools are joined) or "
        f"model (a model writes the answer); default: DAGWRIGHT_SYNTHESIS or {DEFAULT_SYNTHESIS}.",
    ),
]


@dataclass(frozen=True, slots=True)
class AskRequest:
    """A request in natural language and its options: the arguments of `ask`.

    `deadline` and `worker_timeout` are unparsed durations.
    """

    text: Annotated[str, typer.Argument(metavar="REQUEST", help="The request in natural language.")]
    model: Annotated[
        str | None,
        typer.Option("--model", metavar="MODEL", help="Model that plans and answers; default: DAGWRIGHT_MODEL."),
    ] = None
    tools: Tools = ()
    agents: Agents = ()
    tools_queue: ToolsQueue = None
    is_plan_only: Annotated[bool, typer.Option("--plan-only", help="Print the plan without running it.")] = False
    approve_plan: ApprovePlan = False
    non_interactive: Annotated[
        bool,
        typer.Option(
            "--non-interactive",
            help="Do not ask at the terminal; at the limit of --budget, finish with the results so far.",
        ),
    ] = False
    run_id: Annotated[
        str | None,
        typer.Option(
            "--id", metavar="ID", help="Run ID; an existing run with this ID and the same request is continued."
        ),
    ] = None
    deadline: Deadline = None
    policy_file: Policy = None
    is_detached: Detach = False
    keeps_server: KeepServer = False
    profile: Annotated[
        Literal["plan", "intents", "rounds"],
        typer.Option(
            "--profile",
            metavar="PROFILE",
            help="Profile: plan (the model writes a plan), intents (the model chooses verbs and names entities, "
            "which are looked up) or rounds (the model plans calls of worker tools round by round).",
        ),
    ] = "plan"
    context: Context = ()
    max_rounds: MaxRounds = None
    worker_timeout: WorkerTimeout = None
    synthesis: Synthesis = None
    confidence: Annotated[
        float | None,
        typer.Option(
            "--confidence",
            metavar="C",
            min=0.0,
            max=1.0,
            help="Request approval if the confidence of the model is below C (0 to 1; profile intents).",
        ),
    ] = None
    budget: Budget = None
    tags: Tags = ()
    fairness_key: FairnessKey = None
    fairness_weight: FairnessWeight = None
    is_compensating: Compensate = False
    max_repairs: Annotated[
        int | None,
        typer.Option(
            "--max-repairs",
            metavar="N",
            min=0,
            max=PLANS_LIMIT - 1,
            help=f"How often the model may correct an invalid plan; default: {DEFAULT_MAX_PLANS - 1}.",
        ),
    ] = None
    max_replans: Annotated[
        int | None,
        typer.Option(
            "--max-replans",
            metavar="N",
            min=0,
            max=REPLANS_LIMIT,
            help=f"How often the model may plan again after its plan has run; default: {DEFAULT_MAX_REPLANS}.",
        ),
    ] = None
    session_id: Annotated[
        str | None,
        typer.Option(
            "--session",
            metavar="S",
            help="Ask as a turn of session S. The request can refer to names, entities and requests of earlier turns.",
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class ChatArguments:
    """Arguments of `chat`. `deadline` (of each turn) and `worker_timeout` are unparsed durations."""

    session_id: Annotated[
        str | None, typer.Option("--session", metavar="S", help="Continue session S; default: a new session.")
    ] = None
    profile: Annotated[
        Literal["plan", "intents", "rounds"],
        typer.Option("--profile", metavar="PROFILE", help="Profile of each message; /profile changes it."),
    ] = "plan"
    model: Model = None
    tools: Tools = ()
    agents: Agents = ()
    tools_queue: ToolsQueue = None
    max_rounds: MaxRounds = None
    worker_timeout: WorkerTimeout = None
    synthesis: Synthesis = None
    deadline: Annotated[
        str | None, typer.Option("--deadline", metavar="DURATION", help="Time limit of each turn, such as 10m.")
    ] = None
    policy_file: Policy = None
    budget: Budget = None

    def ask_request(self) -> AskRequest:
        """Return the options of each message, as a request without text."""
        return AskRequest(
            text="",
            model=self.model,
            deadline=self.deadline,
            policy_file=self.policy_file,
            budget=self.budget,
            profile=self.profile,
            max_rounds=self.max_rounds,
            worker_timeout=self.worker_timeout,
            synthesis=self.synthesis,
        )


@dataclass(frozen=True, slots=True)
class SessionArguments:
    """Arguments of `session`. Without an ID, the sessions are listed, starting after the cursor `after`."""

    session_id: Annotated[
        str | None, typer.Argument(metavar="S", help="ID of the session; without an ID, list the sessions.")
    ] = None
    is_ending: Annotated[
        bool,
        typer.Option("--end", help="End the session: accept no more requests, and end when the last run has ended."),
    ] = False
    after: After = None


_JSON_OPTION = typer.Option("--json", help="Write one JSON document per turn, each on one line, and nothing else.")

ask = command(AskRequest, "ask_command", "ask", summary="Plan a request with a model, run the plan and answer.")
chat = command(
    ChatArguments,
    "chat_command",
    "chat",
    summary="Chat in a session; each line of input is a turn.",
    output_options={"json": Annotated[bool, _JSON_OPTION], "no_color": NoColor},
)
session = command(
    SessionArguments, "session_command", "session", summary="List the sessions, or show or end a session."
)
