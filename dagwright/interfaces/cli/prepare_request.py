"""Prepare the run of a request in natural language; a model writes the plan."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dagwright.client.requests import PreparedRequest, TextRequest, prepare_request
from dagwright.client.starts import NO_INPUT_FIELDS, RunStartOptions, StartRequest
from dagwright.interfaces.cli.command_arguments import seconds_of_option
from dagwright.interfaces.cli.exit_codes import CommandError, CommandErrorCode
from dagwright.interfaces.cli.goal_commands import AskRequest
from dagwright.interfaces.cli.model_choice import model_config
from dagwright.interfaces.cli.output import Output, one_line
from dagwright.interfaces.cli.plan_input import parse_budget, parse_context, parse_fairness, parse_tags, read_policy
from dagwright.interfaces.cli.prepare_run import deadline_s_of
from dagwright.planner import GoalRejected
from dagwright.planning.plan_and_execute.goal_spec import context_from_json
from dagwright.protocol.sessions import SessionRecord
from dagwright.toolset.toolset import Toolset


def prepare_turn(
    request: AskRequest, toolset: Toolset, output: Output, session: SessionRecord | None = None
) -> StartRequest:
    """Prepare the run of a request that is a turn of a session.

    Args:
        session: state of the session; `None` for a new session.

    Raises:
        CommandError: the request cannot be planned.
    """
    reject_invalid_options(request)
    return prepare_and_report_notes(request, toolset, output, session).start


def reject_invalid_options(request: AskRequest) -> None:
    """Reject options that the profile does not have, and options that exclude each other."""
    rounds_options = {
        "--max-rounds": request.max_rounds is not None,
        "--worker-timeout": request.worker_timeout is not None,
        "--synthesis": request.synthesis is not None,
    }
    intents_options = {"--context": bool(request.context), "--confidence": request.confidence is not None}
    plan_options = {
        "--plan-only": request.is_plan_only,
        "--approve-plan": request.approve_plan,
        "--max-repairs": request.max_repairs is not None,
        "--max-replans": request.max_replans is not None,
    }
    if request.profile == "rounds":
        _reject_used_options({**plan_options, **intents_options}, "not available with --profile rounds")
        return
    if request.is_plan_only and request.approve_plan:
        raise CommandError("--plan-only and --approve-plan contradict each other; give one of them")
    if request.is_plan_only and request.is_detached:
        raise CommandError("--plan-only waits for the plan and --detach does not wait; give one of them")
    _reject_used_options(rounds_options, "only available with --profile rounds")
    if request.profile == "plan":
        _reject_used_options(intents_options, "only available with --profile intents")
    elif request.max_replans:
        raise CommandError("--profile intents never plans again; omit --max-replans")


def _reject_used_options(options: Mapping[str, bool], reason: str) -> None:
    if names := [name for name, is_used in options.items() if is_used]:
        raise CommandError(f"{' and '.join(names)}: {reason}")


def prepare_and_report_notes(
    request: AskRequest, toolset: Toolset, output: Output, session: SessionRecord | None = None
) -> PreparedRequest:
    """Prepare the run of a request and report notes about it.

    Args:
        session: state of the session if the run is a turn; `None` otherwise.

    Raises:
        CommandError: the request cannot be planned.
    """
    # A run in rounds opens no requests, so it cannot request a higher limit.
    budget = parse_budget(request.budget, is_interactive=not request.non_interactive and request.profile != "rounds")
    is_compensating, is_interactive = request.is_compensating, not request.non_interactive
    options = RunStartOptions(
        deadline_s_of(request.deadline),
        read_policy(request.policy_file),
        input_fields=replace(NO_INPUT_FIELDS, budget=budget, compensate=is_compensating, is_interactive=is_interactive),
        tags=parse_tags(request.tags),
        fairness=parse_fairness(request.fairness_key, request.fairness_weight),
    )
    text_request = TextRequest(
        request.text,
        model_config(request.model),
        options,
        profile=request.profile,
        max_repairs=request.max_repairs,
        max_replans=request.max_replans,
        max_rounds=request.max_rounds,
        worker_timeout_s=seconds_of_option("--worker-timeout", request.worker_timeout),
        synthesis=request.synthesis,
        context=_parse_context(request),
        confidence=request.confidence,
        approve_plan=request.approve_plan,
        plan_only=request.is_plan_only,
    )
    try:
        prepared_request = prepare_request(text_request, toolset, session)
    except GoalRejected as rejection:
        raise CommandError(str(rejection), code=CommandErrorCode.of(rejection.code)) from None
    if prepared_request.note is not None:
        output.log(one_line(prepared_request.note, limit=1_000))
    return replace(prepared_request, start=replace(prepared_request.start, tools=toolset.references))


def _parse_context(request: AskRequest) -> Mapping[str, Mapping[str, Any]]:
    try:
        return context_from_json(parse_context(request.context))
    except ValueError as error:
        raise CommandError(f"--{error}") from None
