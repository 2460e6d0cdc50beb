"""From a request in words to a run that can be started, alone or as a turn of a session: what every door shares.

Commands and the gateway read what somebody asks for in their own way; from there on all of them do what stands here. It
must not import them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from dagwright.client.runs import NO_TERMS, Origin, Runs, Started, Terms
from dagwright.client.sessions import Busy, PreparedTurn, Sessions
from dagwright.core.model.compiled import CompiledPlan
from dagwright.core.validation.workers import workers_among
from dagwright.planner import Asked, RoundsAsked, prepare_goal, prepare_rounds
from dagwright.planning.conversation import TurnSummary
from dagwright.planning.model_calls.calls import ModelConfig
from dagwright.planning.plan_and_execute.goals import Profile, context_from_json
from dagwright.planning.rounds.rounds import RoundsLimits, Synthesis
from dagwright.protocol.sessions import Session
from dagwright.toolset.toolset import Toolset

AnyProfile = Profile | Literal["rounds"]


@dataclass(frozen=True, slots=True)
class PreparedRun:
    """A run that can be started: its plan, the values of its inputs and the terms on which it runs.

    Args:
        source: the plan as it was written, with all that its meaning hangs on: dialect and context.
        terms: its deadline, and what people have to say, or have said.
    """

    plan: CompiledPlan
    source: dict[str, Any]
    inputs: dict[str, Any]
    terms: Terms


@dataclass(frozen=True, slots=True)
class WordsRequest:
    """A request in words, for which a model plans.

    Args:
        terms: of its run; without a policy it has that of its session.
        profile: what the model writes.
        repairs: how often it may mend a plan that cannot be run; `None` for as often as is usual.
        replans: how often it may plan again once a plan has run; `None` as before.
        rounds, worker_timeout_s: of the profile `rounds`, how many there may be, and how long a call of a worker may
            take that names no timeout; `None` for those of the settings.
        synthesis: of the profile `rounds`, whether a model writes the answer; `None` for that of the settings.
        context, confidence, asks_first, ends_with_plan, output_schema: as `Asked` has them.
        said_before: what was said before the request, oldest first; a session that knows turns of its own counts first.
        title: of the run; the request if it is `None`.
    """

    words: str
    config: ModelConfig = field(default_factory=ModelConfig)
    terms: Terms = NO_TERMS
    profile: AnyProfile = "plan"
    repairs: int | None = None
    replans: int | None = None
    rounds: int | None = None
    worker_timeout_s: float | None = None
    synthesis: Synthesis | None = None
    context: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    confidence: float | None = None
    asks_first: bool = False
    ends_with_plan: bool = False
    said_before: Sequence[TurnSummary] = ()
    title: str | None = None
    output_schema: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PreparedWords:
    """The run of a request in words.

    Args:
        note: what is worth saying of it, such as tools that no plan can use.
        may_ask_first: whether somebody may have to approve the plan before it runs.
    """

    run: PreparedRun
    note: str | None = None
    may_ask_first: bool = False


def prepared_words(request: WordsRequest, toolset: Toolset, session: Session | None = None) -> PreparedWords:
    """Returns the run of a request.

    Args:
        session: what is known of the one whose turn it is; `None` if there is none.

    Raises:
        GoalRefused: nothing can come of it.
    """
    policy = request.terms.policy or (session.policy if session is not None else None)
    terms = replace(request.terms, policy=policy)
    if request.profile == "rounds":
        return _prepared_rounds(request, toolset, session, terms=terms)
    asked = Asked(
        request.config,
        asks_first=request.asks_first,
        ends_with_plan=request.ends_with_plan,
        policy=policy,
        profile=request.profile,
        context=request.context,
        confidence=request.confidence,
        title=request.title,
        output_schema=request.output_schema,
    )
    # What tells the run from others of its id is what was asked, and not what the session knew then.
    told = asked
    turns = session.turn_words() if session is not None else []
    asked = replace(asked, turns=turns or [_turn_words(turn) for turn in request.said_before])
    if session is not None and asked.profile == "intents":
        asked = replace(asked, context={**context_from_json(session.names), **asked.context})
    if request.repairs is not None:
        asked = replace(asked, plans=1 + request.repairs)
    if request.replans is not None:
        asked = replace(asked, replans=request.replans)
    plan, note = prepare_goal(request.words, toolset.declarations(), asked)
    source = {
        "goal": request.words.strip(),
        "config": asked.config.to_json(),
        "asks_first": asked.asks_first,
        "ends_with_plan": asked.ends_with_plan,
        "max_repairs": asked.plans - 1,
        "max_replans": asked.replans,
    }
    if asked.output_schema:
        source["output_schema"] = dict(asked.output_schema)
    if asked.profile == "intents":
        source |= {"profile": asked.profile, "context": dict(told.context), "confidence": asked.confidence}
    return PreparedWords(PreparedRun(plan, source, {}, terms), note, asked.may_ask_first)


def _prepared_rounds(
    request: WordsRequest, toolset: Toolset, session: Session | None, *, terms: Terms
) -> PreparedWords:
    # Nobody is asked anything in such a run.
    terms = replace(terms, beside=replace(terms.beside, asks=False))
    turns = (session.turn_summaries() if session is not None else []) or request.said_before
    usual, tools = toolset.rounds, toolset.declarations()
    limits = RoundsLimits(
        request.rounds or usual.max_rounds,
        request.worker_timeout_s or usual.worker_timeout_s,
        terms.deadline_s or usual.deadline_s,
        request.synthesis or usual.synthesis,
    )
    plan, note = prepare_rounds(request.words, tools, RoundsAsked(request.config, limits, turns, request.title))
    # What tells the run from others of its id is what was asked of whom, and not what the session knew then, nor the
    # terms on which it runs, such as its deadline.
    source = {
        "goal": request.words.strip(),
        "profile": "rounds",
        "config": request.config.to_json(),
        "max_rounds": limits.max_rounds,
        "worker_timeout_s": limits.worker_timeout_s,
        "synthesis": limits.synthesis,
        "workers": sorted(workers_among(tools)),
    }
    return PreparedWords(PreparedRun(plan, source, {}, terms), note)


def _turn_words(turn: TurnSummary) -> str:
    return f"Request: {turn.human_message}\nResult: completed: {turn.ai_response}"


@dataclass(frozen=True, slots=True)
class SessionStart:
    """A request in a session.

    Args:
        name: of the session.
        request: in words.
        prepare: returns the run for what the session knows.
        title: what lists call the run if its plan has no title.
    """

    name: str
    request: str
    prepare: Callable[[Session], PreparedRun]
    title: str | None = None


async def start_turn(
    turn: SessionStart,
    runs: Runs,
    sessions: Sessions,
    *,
    tools: Sequence[str],
    run: str | None = None,
    busy: Busy | None = None,
) -> tuple[Started, PreparedRun]:
    """Starts the run of a turn as soon as the session is free; returns what it was prepared as, too.

    Args:
        tools: values of `--tools` and `--agents`, which the run remembers.
        run, busy: as `Sessions.take_turn` has them.

    Raises:
        TurnNotTaken: the session does not take it.
    """
    newest: PreparedRun | None = None

    async def prepare(session: Session) -> PreparedTurn:
        nonlocal newest
        newest = turn.prepare(session)
        origin = Origin(newest.source, turn.title)
        sending = await runs.prepared(newest.plan, newest.inputs, origin=origin, tools=tools, terms=newest.terms)
        return PreparedTurn(turn.request, sending, newest.terms.policy)

    started = await sessions.take_turn(turn.name, prepare, run=run, busy=busy)
    return started, newest or turn.prepare(Session(turn.name))
