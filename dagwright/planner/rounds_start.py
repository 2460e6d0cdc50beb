"""Prepare the initial plan of a run that answers a question in rounds of worker tools."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dagwright.core.boundary.limits import ARGUMENTS_LIMIT_BYTES, summary_of
from dagwright.core.errors import PlanInvalid, Problem, pointer
from dagwright.core.expressions.value_refs import encoded_size
from dagwright.core.model.compiled import CompiledPlan
from dagwright.core.model.times import parse_duration
from dagwright.core.model.tools import ROUNDS_KIND, ToolDeclaration
from dagwright.core.name_hints import suggestion
from dagwright.core.validation.worker_tools import WorkerToolsRejected, check_worker_tools, worker_tools_among
from dagwright.planner.goal_validation import GoalRejected, validate_goal
from dagwright.planner.plan_parser import encode_tools
from dagwright.planner.rounds_prompts import ANSWER_PROMPT, intention_messages, planner_prompt, worker_catalogue
from dagwright.planner.rounds_schema import rounds_schema
from dagwright.planning.conversation import TurnSummary, recent_turns, turns_from_json
from dagwright.planning.model_calls.model_requests import ModelConfig, model_config_from_json
from dagwright.planning.rounds.rounds_nodes import rounds_plan
from dagwright.planning.rounds.rounds_spec import RoundsLimits, RoundsSpec, checked_max_rounds, checked_synthesis

ROUNDS_PROFILE = ROUNDS_KIND
"""Name of the profile in the command `ask` and in requests of clients."""
_QUESTION_FIELDS = ("goal", "profile", "config", "max_rounds", "worker_timeout", "deadline", "synthesis", "turns")
MAX_REQUEST_TURNS = 1_000
"""Maximum number of earlier turns in a request of a client; only the newest turns go into the prompt."""
SHOWN_TURN_CHARACTERS = 500
"""Limit for the question of a turn, and for its answer, in documents."""


@dataclass(frozen=True, slots=True)
class RoundsOptions:
    """Options for answering a question.

    Args:
        config: settings of the model calls.
        limits: limits for rounds, worker tools and the whole question.
        turns: earlier turns of the conversation, oldest first.
        title: title of the run; by default, the question is the title.
    """

    config: ModelConfig = field(default_factory=ModelConfig)
    limits: RoundsLimits = field(default_factory=RoundsLimits)
    turns: Sequence[TurnSummary] = ()
    title: str | None = None


def prepare_rounds(
    text: Any, tools: Mapping[str, ToolDeclaration], options: RoundsOptions
) -> tuple[CompiledPlan, str | None]:
    """Return the initial plan of the run for a question, and an optional note for the user.

    Args:
        text: the question, not yet validated.
        tools: all tools; only the worker tools among them are used.

    Raises:
        GoalRejected: the question is invalid, or there are no usable worker tools.
    """
    worker_tools = worker_tools_among(tools)
    if not worker_tools:
        message = "there is no worker tool"
        raise GoalRejected("no_tools", message, hint="name a module or file of functions with @worker_tool in `tools`")
    try:
        check_worker_tools(worker_tools)
    except WorkerToolsRejected as rejected:
        raise GoalRejected("no_tools", str(rejected), hint="name other worker tools in `tools`") from None
    catalogue = worker_catalogue(worker_tools)
    question = validate_goal(text, catalogue)
    spec = RoundsSpec(
        question,
        encode_tools(catalogue.tools),
        catalogue.text,
        rounds_schema(),
        planner_prompt(options.limits.synthesis),
        ANSWER_PROMPT,
        options.config,
        options.limits.max_rounds,
        options.limits.worker_timeout_s,
        recent_turns(options.turns, characters=SHOWN_TURN_CHARACTERS),
        options.limits.synthesis,
    )
    plan = rounds_plan(spec, intention_messages(question, options.turns), title=summary_of(options.title or question))
    if (size := max(encoded_size(dict(node.arguments)) for node in plan.nodes)) > ARGUMENTS_LIMIT_BYTES // 2:
        message = (
            f"the workers and the question have {size:,} bytes together; at most {ARGUMENTS_LIMIT_BYTES // 2:,} fit"
        )
        raise GoalRejected("too_large", message, hint="describe the workers or the question in fewer words")
    return replace(plan, deadline_s=options.limits.deadline_s), catalogue.note()


def is_rounds(document: Mapping[str, Any]) -> bool:
    """Return whether a request in words uses the profile `rounds`."""
    return document.get("profile") == ROUNDS_PROFILE


def _parse_seconds(value: Any) -> float:
    if not isinstance(value, str):
        raise ValueError(f"expected a duration such as '2m', not {value!r:.60}")
    return parse_duration(value).total_seconds()


_LIMIT_SETTERS: Mapping[str, Callable[[RoundsLimits, Any], RoundsLimits]] = {
    "max_rounds": lambda limits, value: replace(limits, max_rounds=checked_max_rounds(value)),
    "worker_timeout": lambda limits, value: replace(limits, worker_timeout_s=_parse_seconds(value)),
    "deadline": lambda limits, value: replace(limits, deadline_s=_parse_seconds(value)),
    "synthesis": lambda limits, value: replace(limits, synthesis=checked_synthesis(value)),
}
"""Field of a question -> function that applies its value to the limits."""


def rounds_from_document(
    document: Mapping[str, Any], tools: Mapping[str, ToolDeclaration], *, limits: RoundsLimits
) -> CompiledPlan:
    """Return the initial plan of a run that receives a question instead of a plan.

    Args:
        document: `{"goal", "profile": "rounds", "config": settings of the model calls, "max_rounds", "worker_timeout"
            and "deadline": durations such as "2m", "synthesis": "assemble" or "model", "turns": earlier turns, objects
            with turn_id, human_message and ai_response}`; only the first two fields are required.
        limits: defaults for limits that the document does not set.

    Raises:
        PlanInvalid: the document or the question in it is invalid.
    """
    problems = [
        Problem(
            "invalid_field",
            f"a question that is answered in rounds has no field {name!r:.60}",
            pointer(str(name)),
            hint=suggestion(str(name), _QUESTION_FIELDS),
        )
        for name in document
        if name not in _QUESTION_FIELDS
    ]
    config, turns = ModelConfig(), tuple[TurnSummary, ...]()
    try:
        config = model_config_from_json(document.get("config", {}))
    except ValueError as error:
        problems.append(Problem("invalid_field", f"config: {error}", pointer("config")))
    try:
        turns = turns_from_json(document.get("turns", []))
        if len(turns) > MAX_REQUEST_TURNS:
            raise ValueError(f"turns: at most {MAX_REQUEST_TURNS:,} are allowed; send the newest")
    except ValueError as error:
        problems.append(Problem("invalid_field", str(error), pointer("turns")))
    for name, set_limit in _LIMIT_SETTERS.items():
        try:
            if name in document:
                limits = set_limit(limits, document[name])
        except ValueError as error:
            problems.append(Problem("invalid_field", f"{name}: {error}", pointer(name)))
    if problems:
        raise PlanInvalid(problems)
    try:
        return prepare_rounds(document["goal"], tools, RoundsOptions(config, limits, turns))[0]
    except GoalRejected as rejected:
        raise PlanInvalid([Problem(rejected.code, rejected.message, pointer("goal"), hint=rejected.hint)]) from None
