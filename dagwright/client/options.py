"""Options of runs in Python programs, and their conversion to the options of a start request."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, TypedDict, TypeVar, cast

from dagwright.client.errors import OptionInvalid
from dagwright.client.starts import NO_INPUT_FIELDS, AnyProfile, RunStartOptions
from dagwright.core.errors import PlanInvalid
from dagwright.core.model.policy import Policy, policy_from_json
from dagwright.core.model.times import MAX_DURATION, Duration, parse_duration
from dagwright.dialects.reading import read_plan_file
from dagwright.features.budgets.budget import budget_of_options, options_to_json
from dagwright.planning.model_calls.model_requests import ModelConfig, model_config_from_json
from dagwright.planning.rounds.rounds_spec import Synthesis
from dagwright.protocol.fairness import Fairness, FairnessInvalid, fairness_of
from dagwright.protocol.run_labels import TagsInvalid, validate_run_tags

ModelOption = str | Mapping[str, Any]
"""Name of a model, or an object with `model`, `temperature`, `max_tokens`, `top_p`, `seed`, `reasoning_effort`."""
PolicyOption = Mapping[str, Any] | str | Path
"""A policy, or a YAML or JSON file with a policy."""


class SharedRunOptions(TypedDict, total=False):
    """Options shared by runs of plans and runs of requests, in and outside of sessions.

    Args:
        deadline: how long the whole run may take.
        policy: which calls require approval.
        budget: limits of the run: any of `tokens`, `money`, `calls`, `nodes` and `time`. At a limit, the run asks a
            person for more budget (`on_limit` is `ask`, the default) or ends (`finish`).
        model: model of the run; by default the model in the worker's settings.
        tags: key -> value; lists of runs can be filtered by tags.
        approve_plan: request approval of the plan before it runs.
        compensate: undo completed calls, the last one first, if the run does not complete.
        interactive: whether the run may request feedback; true by default.
        title: title of the run in lists, if the plan has no title.
        fairness_key: name of a group of runs, 1 to 64 bytes. The groups share the slots of the workers.
        fairness_weight: share of the group relative to other groups, 0.001 to 1,000; 1 by default.
    """

    deadline: Duration
    policy: PolicyOption
    budget: Mapping[str, Any]
    model: ModelOption
    tags: Mapping[str, str]
    approve_plan: bool
    compensate: bool
    interactive: bool
    title: str
    fairness_key: str
    fairness_weight: float


class PlanOptions(SharedRunOptions, total=False):
    """Options of a run of a plan, in or outside of a session.

    Args:
        dialect: dialect of the plan; detected by default.
        context: values of the names that the plan reads as `@name`.
        repair: repair the text of a plan that a model wrote: remove code fences and prose, correct syntax errors.
        request_inputs: start the run without its missing inputs and request them as feedback.
    """

    dialect: str
    context: Mapping[str, str]
    repair: bool
    request_inputs: bool


class StartOptions(PlanOptions, total=False):
    """Options of `Client.start`.

    Args:
        session_id: a session; the run is the session's next turn, and starts as soon as the session is idle.
    """

    session_id: str


class RequestOptions(SharedRunOptions, total=False):
    """Options of a request in natural language, in or outside of a session.

    Args:
        profile: how the model plans: it writes a plan (`plan`, the default), writes intents (`intents`), or plans in
            rounds (`rounds`).
        max_repairs: how often the model may repair an invalid plan.
        max_replans: how often the model may plan again after a plan has run.
        max_rounds, worker_timeout, synthesis: options of the profile `rounds`.
        context: option of the profile `intents`: name that the text may use -> entity `{"id", "name", "kind"}`.
        confidence: option of the profile `intents`, 0 to 1; intents with a lower confidence need approval.
        plan_only: end the run when the model has written the plan, and do not run the plan.
        output_schema: JSON Schema of the answer.
    """

    profile: AnyProfile
    max_repairs: int
    max_replans: int
    max_rounds: int
    worker_timeout: Duration
    synthesis: Synthesis
    context: Mapping[str, Mapping[str, Any]]
    confidence: float
    plan_only: bool
    output_schema: Mapping[str, Any]


class AskOptions(RequestOptions, total=False):
    """Options of `Client.ask`.

    Args:
        session_id: as in `StartOptions`.
    """

    session_id: str


Options = TypeVar("Options", bound=SharedRunOptions)

_ROUNDS_OPTIONS: Sequence[str] = ("max_rounds", "worker_timeout", "synthesis")
_INTENTS_OPTIONS: Sequence[str] = ("context", "confidence")
_PLANNING_OPTIONS: Sequence[str] = ("plan_only", "approve_plan", "max_repairs", "max_replans")
"""Options of the profiles `plan` and `intents`, which write the whole plan before it runs."""


def run_options(options: SharedRunOptions) -> RunStartOptions:
    """Convert options to the options of a start request.

    Raises:
        OptionInvalid: an option is invalid.
    """
    is_interactive = options.get("interactive", True)
    input_fields = replace(
        NO_INPUT_FIELDS,
        budget=_budget(options["budget"], is_interactive=is_interactive) if "budget" in options else None,
        compensate=options.get("compensate", False),
        is_interactive=is_interactive,
    )
    return RunStartOptions(
        duration_s("deadline", options["deadline"]) if "deadline" in options else None,
        read_policy(options["policy"]) if "policy" in options else None,
        input_fields=input_fields,
        tags=validate_tags(options.get("tags", {})),
        fairness=_fairness(options),
    )


def model_config(options: SharedRunOptions) -> ModelConfig:
    """Return the model config of the options.

    Raises:
        OptionInvalid: the model, or one of its options, is invalid.
    """
    model = options.get("model")
    try:
        return model_config_from_json({"model": model} if isinstance(model, str) else model or {})
    except ValueError as error:
        raise OptionInvalid(f"model: {error}") from None


def without_none(options: Options) -> Options:
    """Remove options that are `None`, so that their defaults apply."""
    return cast("Options", {name: value for name, value in options.items() if value is not None})


def duration_s(option: str, duration: Duration) -> float:
    """Return the seconds of a duration.

    Raises:
        OptionInvalid: the value is not a duration, or the duration is too long or not positive.
    """
    try:
        if isinstance(duration, str):
            return parse_duration(duration).total_seconds()
        seconds = duration.total_seconds() if isinstance(duration, timedelta) else float(duration)
    except (TypeError, ValueError) as error:
        raise OptionInvalid(f"{option}: {error}") from None
    if not 0 < seconds <= MAX_DURATION.total_seconds():
        raise OptionInvalid(f"{option} must be over 0 s and at most {MAX_DURATION.days} days, not {duration!r:.60}")
    return seconds


def reject_inapplicable_options(options: RequestOptions) -> None:
    """Reject options that the profile of a request does not have.

    Raises:
        OptionInvalid: the profile does not have an option; the message names both.
    """
    profile = options.get("profile", "plan")
    inapplicable_options = {
        "plan": [*_ROUNDS_OPTIONS, *_INTENTS_OPTIONS],
        "intents": [*_ROUNDS_OPTIONS, "max_replans"],
        "rounds": [*_INTENTS_OPTIONS, *_PLANNING_OPTIONS],
    }
    for name in inapplicable_options.get(profile, ()):
        if options.get(name):
            raise OptionInvalid(f"the profile {profile!r} has no option {name!r}")


def _budget(limits: Mapping[str, Any], *, is_interactive: bool) -> Mapping[str, Any]:
    on_limit = {} if is_interactive else {"on_limit": "finish"}
    try:
        return options_to_json(budget_of_options({**limits, **on_limit}))
    except (TypeError, ValueError) as error:
        raise OptionInvalid(f"budget: {error}") from None


def _fairness(options: SharedRunOptions) -> Fairness | None:
    try:
        return fairness_of(options.get("fairness_key"), options.get("fairness_weight"))
    except FairnessInvalid as error:
        raise OptionInvalid(f"fairness: {error}") from None


def validate_tags(tags: Mapping[str, str]) -> Mapping[str, str]:
    """Validate tags and return them.

    Raises:
        OptionInvalid: a tag is invalid, or there are too many.
    """
    try:
        return validate_run_tags(tags)
    except TagsInvalid as error:
        raise OptionInvalid(f"tags: {error}") from None


def read_policy(policy: PolicyOption) -> Policy:
    """Read a policy from an object or a file.

    Raises:
        OptionInvalid: the policy is invalid, or its file cannot be read.
    """
    try:
        return policy_from_json(read_plan_file(Path(policy)) if isinstance(policy, str | Path) else policy)
    except PlanInvalid as invalid:
        raise OptionInvalid(f"policy: {invalid.problems[0].text}") from None
    except ValueError as error:
        raise OptionInvalid(f"policy: {error}") from None
