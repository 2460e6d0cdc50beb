"""Requests in natural language: prepare the run of a request, alone or as a turn of a session."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from dagwright.client.sessions import PreparedTurn
from dagwright.client.starts import DEFAULT_OPTIONS, AnyProfile, RunStartOptions, StartedRun, StartRequest
from dagwright.core.model.policy import Policy
from dagwright.core.validation.worker_tools import worker_tools_among
from dagwright.planner import PlanningOptions, RoundsOptions, prepare_goal, prepare_rounds
from dagwright.planning.conversation import TurnSummary
from dagwright.planning.model_calls.model_requests import ModelConfig
from dagwright.planning.plan_and_execute.goal_spec import context_from_json
from dagwright.planning.rounds.rounds_spec import RoundsLimits, Synthesis
from dagwright.protocol.sessions import SessionRecord
from dagwright.toolset.toolset import Toolset

if TYPE_CHECKING:
    from dagwright.client.runs import Runs
    from dagwright.client.sessions import OnBusy, Sessions


@dataclass(frozen=True, slots=True)
class TextRequest:
    """A request in natural language that a model plans.

    Args:
        options: options of the run; without a policy, the policy of the session applies.
        profile: how the model plans: it writes a plan (`plan`), writes intents (`intents`), or plans in rounds
            (`rounds`).
        max_repairs: how often the model may repair an invalid plan; `None` for the default.
        max_replans: how often the model may plan again after a plan has run; `None` for the default.
        max_rounds, worker_timeout_s, synthesis: options of the profile `rounds`; `None` for the values of the settings.
        context, confidence, approve_plan, plan_only, output_schema: as in `planner.PlanningOptions`.
        earlier_turns: the conversation before the request, oldest first; ignored if the session of the request has
            turns.
        title: title of the run; `None` for the text of the request.
    """

    text: str
    config: ModelConfig = field(default_factory=ModelConfig)
    options: RunStartOptions = DEFAULT_OPTIONS
    profile: AnyProfile = "plan"
    max_repairs: int | None = None
    max_replans: int | None = None
    max_rounds: int | None = None
    worker_timeout_s: float | None = None
    synthesis: Synthesis | None = None
    context: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    confidence: float | None = None
    approve_plan: bool = False
    plan_only: bool = False
    earlier_turns: Sequence[TurnSummary] = ()
    title: str | None = None
    output_schema: Mapping[str, Any] = field(default_factory=dict)

    @property
    def names_of_rounds_options(self) -> list[str]:
        """Names of the given options that only the profile `rounds` has."""
        options = {
            "max_rounds": self.max_rounds,
            "worker_timeout": self.worker_timeout_s,
            "synthesis": self.synthesis,
        }
        return [name for name, value in options.items() if value is not None]


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    """A request whose run can be started.

    Args:
        note: a hint for the user, for example about tools that plans cannot use.
        may_need_approval: whether a person may have to approve the plan before it runs.
    """

    start: StartRequest
    note: str | None = None
    may_need_approval: bool = False


def prepare_request(request: TextRequest, toolset: Toolset, session: SessionRecord | None = None) -> PreparedRequest:
    """Prepare the run of a request.

    Args:
        session: state of the session if the request is a turn; otherwise `None`.

    Raises:
        GoalRejected: the request cannot be planned.
    """
    policy = request.options.policy or (session.policy if session is not None else None)
    options = replace(request.options, policy=policy)
    if request.profile == "rounds":
        return _prepare_rounds(request, toolset, session, options=options)
    planning = _planning_options(request, session, policy=policy)
    plan, note = prepare_goal(request.text, toolset.declarations(), planning)
    start = StartRequest(plan, _identity_of(request, planning), options=options)
    return PreparedRequest(start, note, planning.may_need_approval)


def _planning_options(request: TextRequest, session: SessionRecord | None, *, policy: Policy | None) -> PlanningOptions:
    """Return the options for planning a request, with the turns and the `@` names of its session."""
    turns = session.turn_texts() if session is not None else []
    names = context_from_json(session.names) if session is not None and request.profile == "intents" else {}
    planning = PlanningOptions(
        request.config,
        approve_plan=request.approve_plan,
        plan_only=request.plan_only,
        policy=policy,
        profile="intents" if request.profile == "intents" else "plan",
        context={**names, **request.context},
        turns=turns or [_turn_text(turn) for turn in request.earlier_turns],
        confidence=request.confidence,
        title=request.title,
        output_schema=request.output_schema,
    )
    if request.max_repairs is not None:
        planning = replace(planning, max_plans=1 + request.max_repairs)
    if request.max_replans is not None:
        planning = replace(planning, max_replans=request.max_replans)
    return planning


def _identity_of(request: TextRequest, planning: PlanningOptions) -> dict[str, Any]:
    """Return the values that identify the run of a request, without the state of the session."""
    identity = {
        "goal": request.text.strip(),
        "config": planning.config.to_json(),
        "approve_plan": planning.approve_plan,
        "plan_only": planning.plan_only,
        "max_repairs": planning.max_plans - 1,
        "max_replans": planning.max_replans,
    }
    if planning.output_schema:
        identity["output_schema"] = dict(planning.output_schema)
    if planning.profile == "intents":
        identity |= {
            "profile": planning.profile,
            "context": dict(request.context),
            "confidence": planning.confidence,
        }
    return identity


def _prepare_rounds(
    request: TextRequest, toolset: Toolset, session: SessionRecord | None, *, options: RunStartOptions
) -> PreparedRequest:
    # A run of the profile `rounds` never opens requests to people.
    options = replace(options, input_fields=replace(options.input_fields, is_interactive=False))
    turns = (session.turn_summaries() if session is not None else []) or request.earlier_turns
    defaults, tools = toolset.rounds, toolset.declarations()
    limits = RoundsLimits(
        request.max_rounds or defaults.max_rounds,
        request.worker_timeout_s or defaults.worker_timeout_s,
        options.deadline_s or defaults.deadline_s,
        request.synthesis or defaults.synthesis,
    )
    plan, note = prepare_rounds(request.text, tools, RoundsOptions(request.config, limits, turns, request.title))
    # The session and the deadline do not identify the run.
    identity = {
        "goal": request.text.strip(),
        "profile": "rounds",
        "config": request.config.to_json(),
        "max_rounds": limits.max_rounds,
        "worker_timeout_s": limits.worker_timeout_s,
        "synthesis": limits.synthesis,
        "workers": sorted(worker_tools_among(tools)),
    }
    return PreparedRequest(StartRequest(plan, identity, options=options), note)


def _turn_text(turn: TurnSummary) -> str:
    return f"Request: {turn.human_message}\nResult: completed: {turn.ai_response}"


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """A request in a session.

    Args:
        text: request in natural language.
        prepare: returns the start request for the state of the session, directly or as an awaitable.
    """

    session_name: str
    text: str
    prepare: Callable[[SessionRecord], StartRequest | Awaitable[StartRequest]]

    async def start_of(self, session: SessionRecord) -> StartRequest:
        """Prepare the run for the state of the session."""
        start = self.prepare(session)
        return start if isinstance(start, StartRequest) else await start


async def start_turn(
    turn: TurnRequest, runs: "Runs", sessions: "Sessions", *, run_id: str | None = None, on_busy: "OnBusy | None" = None
) -> tuple[StartedRun, StartRequest]:
    """Start the run of a turn as soon as the session is free; return the run and its start request.

    Args:
        run_id, on_busy: as in `Sessions.start_turn`.

    Raises:
        TurnRejected: the session rejects the turn.
    """
    latest_start: StartRequest | None = None

    async def prepare(session: SessionRecord) -> PreparedTurn:
        nonlocal latest_start
        latest_start = await turn.start_of(session)
        return PreparedTurn(turn.text, await runs.encode(latest_start), latest_start.options.policy)

    started_run = await sessions.start_turn(turn.session_name, prepare, run_id=run_id, on_busy=on_busy)
    return started_run, latest_start or await turn.start_of(SessionRecord(turn.session_name))
