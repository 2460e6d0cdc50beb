"""Prepare the initial plan of a run for a request in natural language."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dagwright.core.boundary.limits import ARGUMENTS_LIMIT_BYTES, summary_of
from dagwright.core.boundary.wire import ACTIVITY_CALL_MODEL, ACTIVITY_READ_MODEL_PLAN
from dagwright.core.errors import PlanInvalid, Problem, pointer
from dagwright.core.expressions.value_refs import encoded_size
from dagwright.core.model.agents import agent_cards
from dagwright.core.model.compiled import CompiledPlan
from dagwright.core.model.policy import Policy, default_policy
from dagwright.core.model.resolvers import callable_tools, resolver_of
from dagwright.core.model.tools import ToolDeclaration, with_compensating_tools
from dagwright.core.name_hints import suggestion
from dagwright.planner.goal_validation import GoalRejected, validate_goal
from dagwright.planner.intents_prompts import intents_messages
from dagwright.planner.intents_schema import intents_schema
from dagwright.planner.plan_parser import encode_tools
from dagwright.planner.prompts import ANSWER_PROMPT, REPLAN_PROMPT, planning_messages
from dagwright.planner.schema import answer_schema, response_schema
from dagwright.planner.tool_catalogue import build_catalogue
from dagwright.planner.verbs import intent_verbs, verb_catalogue
from dagwright.planning.model_calls.model_requests import ModelConfig, model_config_from_json
from dagwright.planning.plan_and_execute.goal_nodes import goal_plan
from dagwright.planning.plan_and_execute.goal_spec import (
    DEFAULT_MAX_PLANS,
    DEFAULT_MAX_REPLANS,
    PLANS_LIMIT,
    PROFILES,
    REPLANS_LIMIT,
    Goal,
    Profile,
    confidence_from_json,
    context_from_json,
)
from dagwright.protocol.plan_limits import PlanTooLarge, reject_too_large

_MAX_NAMED_AGENTS = 3
_INTERNAL_TOOLS = (ACTIVITY_CALL_MODEL, ACTIVITY_READ_MODEL_PLAN)
"""Tools that only the run itself calls; a plan cannot use them."""


@dataclass(frozen=True, slots=True)
class PlanningOptions:
    """Options for planning a request.

    Args:
        config: settings of the model calls.
        max_plans: maximum number of attempts to write the first plan, and to write each replan.
        max_replans: maximum number of replans after a plan has run.
        approve_plan: whether a person has to approve the plan before it runs.
        plan_only: whether the run ends with the plan and does not run it.
        streams: whether nodes without side effects start while the model is still writing the plan. Has no effect with
            `approve_plan` or `plan_only`.
        policy: policy of the run; `None` for the default policy of plans that a model writes.
        profile: with `plan`, the model writes a plan and later an answer from the results; with `intents`, it writes
            intents.
        context: name of an entity in the session, without `@` -> `{"id", "name", "kind"}`; for intents only.
        turns: summaries of the earlier turns of the session.
        confidence: minimum confidence, 0 to 1, for intents only. A person has to approve intents with a lower
            confidence.
        title: title of the run; by default, the request is the title.
        output_schema: JSON Schema of the answer; empty for text.
    """

    config: ModelConfig = field(default_factory=ModelConfig)
    max_plans: int = DEFAULT_MAX_PLANS
    max_replans: int = DEFAULT_MAX_REPLANS
    approve_plan: bool = False
    plan_only: bool = False
    streams: bool = True
    policy: Policy | None = None
    profile: Profile = "plan"
    context: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    turns: Sequence[str] = ()
    confidence: float | None = None
    title: str | None = None
    output_schema: Mapping[str, Any] = field(default_factory=dict)

    @property
    def may_need_approval(self) -> bool:
        """Whether a person may have to approve the plan before it runs."""
        policy_needs_approval = self.policy is not None and self.policy.changes_need_plan_approval
        return self.approve_plan or self.confidence is not None or policy_needs_approval


def prepare_goal(
    text: Any, tools: Mapping[str, ToolDeclaration], options: PlanningOptions
) -> tuple[CompiledPlan, str | None]:
    """Return the initial plan of the run for a request, and an optional note for the user.

    Args:
        text: the request, not yet validated.
        tools: tools that a plan may use, including agents.

    Raises:
        GoalRejected: the request is invalid, or the tools and agents are missing or too large.
    """
    if options.profile == "intents":
        return _prepare_intents(text, tools, options)
    # Compensating tools are not offered to the planner, but the parser of the plan still needs their declarations.
    excluded_names = {*_INTERNAL_TOOLS, *(tool.undo for tool in tools.values())}
    catalogue = build_catalogue(
        {name: tool for name, tool in callable_tools(tools).items() if name not in excluded_names}
    )
    request = validate_goal(text, catalogue)
    policy = options.policy or default_policy("model")
    allows_inline_agents = policy.verdict_on_inline_agent(()) != "deny"
    max_replans = 0 if options.plan_only else options.max_replans
    goal = Goal(
        request,
        encode_tools(_with_compensation(catalogue.tools, tools), allows_inline_agents=allows_inline_agents),
        response_schema(allows_inline_agents=allows_inline_agents),
        ANSWER_PROMPT,
        REPLAN_PROMPT,
        answer_schema(),
        config=options.config,
        max_plans=options.max_plans,
        max_replans=max_replans,
        approve_plan=options.approve_plan,
        plan_only=options.plan_only,
        streams=options.streams and not (options.may_need_approval or options.plan_only),
        inline_agents=allows_inline_agents,
        output_schema=options.output_schema,
    )
    messages = planning_messages(
        request, catalogue, allows_inline_agents=allows_inline_agents, can_replan=max_replans > 0, turns=options.turns
    )
    plan = goal_plan(goal, messages, title=summary_of(options.title or request))
    _reject_large_request(plan, catalogue.tools)
    return plan, catalogue.note()


def _with_compensation(
    offered_tools: Mapping[str, ToolDeclaration], tools: Mapping[str, ToolDeclaration]
) -> Mapping[str, ToolDeclaration]:
    """Return the offered tools together with the tools that compensate their calls."""
    return {name: tools[name] for name in with_compensating_tools(offered_tools, tools) if name in tools}


def _prepare_intents(
    text: Any, tools: Mapping[str, ToolDeclaration], options: PlanningOptions
) -> tuple[CompiledPlan, str | None]:
    verbs = verb_catalogue(intent_verbs(tools))
    resolver = resolver_of(tools)
    resolver_tools = {name: tools[name] for name in (resolver.find, resolver.bind) if name in tools}
    advice = tools[resolver.find].description if resolver_tools else ""
    request = validate_goal(text, verbs)
    goal = Goal(
        request,
        encode_tools({**_with_compensation(verbs.tools, tools), **resolver_tools}),
        intents_schema(resolver),
        "",
        config=options.config,
        max_plans=options.max_plans,
        # Intents are not replanned, and no intent starts before the answer is complete: the meaning of the first
        # intents may depend on the rest.
        max_replans=0,
        streams=False,
        approve_plan=options.approve_plan,
        plan_only=options.plan_only,
        profile="intents",
        context=options.context,
        confidence=options.confidence,
    )
    plan = goal_plan(
        goal,
        intents_messages(request, verbs, context=options.context, advice=advice, turns=options.turns),
        title=summary_of(options.title or request),
    )
    _reject_large_request(plan, verbs.tools)
    return plan, verbs.note()


def _reject_large_request(plan: CompiledPlan, tools: Mapping[str, ToolDeclaration]) -> None:
    """Reject a request whose tools and agents are too large together. The run stores the prompts of all agents.

    Raises:
        GoalRejected: the tools and agents are too large; the message names the largest agents.
    """
    size_bytes = max(encoded_size(dict(node.arguments)) for node in plan.nodes)
    if size_bytes <= ARGUMENTS_LIMIT_BYTES and not _exceeds_limits_of_run(plan):
        return
    cards = sorted(agent_cards(tools), key=lambda card: encoded_size(card.to_json()), reverse=True)
    named_cards = cards[:_MAX_NAMED_AGENTS]
    largest_agents = ", ".join(f"{card.name!r} ({encoded_size(card.to_json()):,} bytes)" for card in named_cards)
    text = f"the agents and tools that a plan may use have {size_bytes:,} bytes together"
    message = f"{text}; at most {ARGUMENTS_LIMIT_BYTES:,} are allowed"
    agents_hint = f"the largest agents are {largest_agents}: shorten their prompts"
    hint = f"{agents_hint if cards else 'describe tools in fewer words'}, or name fewer in `agents` and `tools`"
    raise GoalRejected("too_large", message, hint=hint)


def _exceeds_limits_of_run(plan: CompiledPlan) -> bool:
    try:
        reject_too_large(plan)
    except PlanTooLarge:
        return True
    return False


_GOAL_FIELDS = (
    "goal", "config", "approve_plan", "plan_only", "max_repairs", "max_replans",
    "profile", "context", "turns", "confidence",
)  # fmt: skip
_FLAGS = ("approve_plan", "plan_only")
_INTENTS_FIELDS = ("context", "confidence")
"""Fields that only the profile `intents` has."""


def is_goal(document: Any) -> bool:
    """Return whether the plan document of a run is a request in words: `{"goal": "…"}`."""
    return isinstance(document, Mapping) and "goal" in document and "nodes" not in document


def goal_from_document(
    document: Mapping[str, Any],
    tools: Mapping[str, ToolDeclaration],
    *,
    policy: Policy | None = None,
    context: Mapping[str, Any] | None = None,
) -> CompiledPlan:
    """Return the initial plan of a run that receives a request instead of a plan.

    Args:
        document: `{"goal", "config": settings of the model calls, "approve_plan", "plan_only", "max_repairs",
            "max_replans", "profile", "context", "turns", "confidence"}`; only `goal` is required.
        policy: as in `PlanningOptions`.
        context: entities of the session by name. An entity of the document with the same name takes precedence.

    Raises:
        PlanInvalid: the document or the request in it is invalid.
    """
    profile = document.get("profile", "plan")
    maximums, problems = _max_repairs_and_replans(document, profile)
    problems = [*_field_problems(document, profile), *problems]
    config = ModelConfig()
    try:
        config = model_config_from_json(document.get("config", {}))
    except ValueError as error:
        problems.append(Problem("invalid_field", f"config: {error}", pointer("config")))
    entities, turns, confidence = _session_fields(document, context or {}, problems)
    if problems:
        raise PlanInvalid(problems)
    options = PlanningOptions(
        config,
        1 + maximums["max_repairs"],
        maximums["max_replans"],
        approve_plan=document.get("approve_plan", False),
        plan_only=document.get("plan_only", False),
        policy=policy,
        profile=profile,
        context=entities,
        turns=turns,
        confidence=confidence,
    )
    try:
        return prepare_goal(document["goal"], tools, options)[0]
    except GoalRejected as rejected:
        raise PlanInvalid([Problem(rejected.code, rejected.message, pointer("goal"), hint=rejected.hint)]) from None


def _field_problems(document: Mapping[str, Any], profile: Any) -> Iterator[Problem]:
    """Yield problems for unknown fields, invalid flags, an unknown profile, and fields of other profiles."""
    for name in document:
        if name not in _GOAL_FIELDS:
            message = f"a request has no field {name!r:.60}"
            yield Problem("invalid_field", message, pointer(str(name)), hint=suggestion(name, _GOAL_FIELDS))
    for name in _FLAGS:
        if not isinstance(document.get(name, False), bool):
            yield Problem("invalid_field", f"{name} must be true or false", pointer(name))
    if profile not in PROFILES:
        # The profile `rounds` is valid, too, but `rounds_start` handles its requests, so they never get here.
        yield Problem("invalid_field", f"profile must be {', '.join(PROFILES)} or rounds", pointer("profile"))
    if profile != "intents":
        for name in _INTENTS_FIELDS:
            if name in document:
                yield Problem("invalid_field", f"only the profile intents has {name}", pointer(name))


def _max_repairs_and_replans(document: Mapping[str, Any], profile: Any) -> tuple[Mapping[str, int], list[Problem]]:
    """Return the values of `max_repairs` and `max_replans` in a request, or their defaults, and the problems of these
    values."""
    defaults_and_limits = {
        "max_repairs": (DEFAULT_MAX_PLANS - 1, PLANS_LIMIT - 1),
        "max_replans": (0, 0) if profile == "intents" else (DEFAULT_MAX_REPLANS, REPLANS_LIMIT),
    }
    maximums = {name: document.get(name, default) for name, (default, _) in defaults_and_limits.items()}
    problems = [
        Problem("invalid_field", f"{name} must be a number from 0 to {limit}", pointer(name))
        for name, (_, limit) in defaults_and_limits.items()
        if type(maximums[name]) is not int or not 0 <= maximums[name] <= limit
    ]
    return maximums, problems


def _session_fields(
    document: Mapping[str, Any], context: Mapping[str, Any], problems: list[Problem]
) -> tuple[Mapping[str, Mapping[str, Any]], Sequence[str], float | None]:
    """Return the entities by name, the earlier turns and the confidence of a request; append problems to `problems`."""
    entities: Mapping[str, Mapping[str, Any]] = {}
    turns: Sequence[str] = ()
    confidence = None
    try:
        goal_context = document.get("context", {})
        entities = context_from_json({**context, **goal_context} if isinstance(goal_context, Mapping) else goal_context)
    except ValueError as error:
        problems.append(Problem("invalid_field", str(error), pointer("context")))
    try:
        confidence = confidence_from_json(document.get("confidence"))
    except ValueError as error:
        problems.append(Problem("invalid_field", str(error), pointer("confidence")))
    requested_turns = document.get("turns", [])
    if isinstance(requested_turns, list) and all(isinstance(turn, str) for turn in requested_turns):
        turns = requested_turns
    else:
        problems.append(Problem("invalid_field", "turns must be a list of strings", pointer("turns")))
    return entities, turns, confidence
