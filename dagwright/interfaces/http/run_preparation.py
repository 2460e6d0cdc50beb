"""Prepare and start the run that answers a request. In a session, the run is a turn of the session.

The ID of a run is derived from the `Idempotency-Key`, so a request that is sent twice, even to two gateways, starts
one run.
"""

import asyncio
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

from dagwright.client.errors import TurnRejected
from dagwright.client.requests import TextRequest, TurnRequest, prepare_request, start_turn
from dagwright.client.sessions import POLL_INTERVAL_S
from dagwright.client.starts import NO_INPUT_FIELDS, AnyProfile, RunStartOptions, StartRequest, new_run_id
from dagwright.core.errors import PlanInvalid
from dagwright.core.model.tools import ToolDeclaration
from dagwright.interfaces.http.callers import public_session_id, validated_session_name
from dagwright.interfaces.http.conversation import Conversation
from dagwright.interfaces.http.error_codes import ErrorCode
from dagwright.interfaces.http.errors import (
    CLIENT_CLOSED_REQUEST_STATUS,
    NO_RETRY,
    ApiError,
    plan_error,
    unavailable_error,
)
from dagwright.interfaces.http.request_fields import ChatBody, GatewayOptions, parse_json, run_tags
from dagwright.interfaces.http.run_starts import ActiveStart, RunStart, StartPreparation, headers_of_run
from dagwright.interfaces.http.structured_output import OutputForm
from dagwright.interfaces.http.targets import Target
from dagwright.planning.conversation import TurnSummary
from dagwright.planning.model_calls.model_requests import ModelConfig, model_config_from_json
from dagwright.plans.posted_plans import compile_for_requests
from dagwright.plans.preparation import check_plan, prepare_plan
from dagwright.plans.templates import Template
from dagwright.protocol.sessions import SessionRecord
from dagwright.protocol.turn_summaries import cut_middle
from dagwright.protocol.turns import MAX_TURN_REQUEST_BYTES

if TYPE_CHECKING:
    from dagwright.interfaces.http.context import GatewayContext

_PROFILES_WITHOUT_SCHEMA = ("intents", "rounds")
"""Profiles whose answers cannot have a schema."""
_AGENT_NODE = "answer"
_OBJECTIVE = "objective"
_TITLE_BYTES = 200
"""Bytes reserved for the title of a plan in the request that a session stores."""


@dataclass(frozen=True, slots=True)
class AnswerSettings:
    """How models answer in the run of a request.

    Args:
        config: options of model calls.
        output_form: required form of the answer; `None` for text.
    """

    config: ModelConfig
    output_form: OutputForm | None = None

    @property
    def schema(self) -> Mapping[str, Any]:
        """JSON Schema of the answer; empty for a text."""
        return {} if self.output_form is None else self.output_form.schema


def prepare_run_start(
    context: "GatewayContext",
    target: Target,
    conversation: Conversation,
    *,
    options: GatewayOptions,
    settings: AnswerSettings,
) -> RunStart:
    """Validate a request and prepare the run that answers it.

    Raises:
        ApiError, GoalRejected, PlanInvalid, SessionIdInvalid: no run can answer the request.
    """
    reject_unsupported_rounds_options(target, options)
    session_name = None if options.session_id is None else validated_session_name(context.caller, options.session_id)
    run_id = (
        new_run_id()
        if options.idempotency_key is None
        else run_id_of_key(options.idempotency_key, owner=context.caller.owner)
    )
    prepare = _create_preparation_function(context, target, conversation, options=options, settings=settings)
    run_title, request_text = None, conversation.text
    if target.kind == "plan":
        template = context.templates[target.name]
        input_text = json.dumps(options.inputs, ensure_ascii=False) if options.inputs else conversation.text.strip()
        excerpt = cut_middle(input_text, max_bytes=MAX_TURN_REQUEST_BYTES - _TITLE_BYTES)
        request_text = f"(the plan {template.title}){f' {excerpt}' if excerpt else ''}"
        run_title = template.file_name
    # Errors of the request do not depend on the session, so they are raised here, before anything starts.
    prepare(None)
    caller, tools, tags = context.caller, context.toolset.references, run_tags(options.metadata, name="metadata")

    def prepare_in_session(session: SessionRecord | None) -> StartRequest:
        start = prepare(session)
        run_options = replace(
            start.options,
            owner=caller.run_owner,
            deadline_s=options.deadline_s,
            tags=tags,
            fairness=caller.fairness,
        )
        return replace(start, options=run_options, run_id=run_id, title=run_title, tools=tools)

    return RunStart(run_id, session_name, request_text, prepare_in_session)


def reject_unsupported_rounds_options(target: Target, options: GatewayOptions) -> None:
    """Raise `ApiError` if a request has options of rounds, and its target is not `profile/rounds`."""
    rounds_options = {
        "max_rounds": options.max_rounds,
        "worker_timeout": options.worker_timeout_s,
        "synthesis": options.synthesis,
    }
    names = [name for name, value in rounds_options.items() if value is not None]
    if names and target.id != "profile/rounds":
        message = f"{target.id} does not run in rounds; use profile/rounds, or omit the field"
        raise ApiError(ErrorCode.INVALID_VALUE, f"{names[0]}: {message}", param=names[0])


def _create_preparation_function(
    context: "GatewayContext",
    target: Target,
    conversation: Conversation,
    *,
    options: GatewayOptions,
    settings: AnswerSettings,
) -> StartPreparation:
    """Return a function that prepares the run of a request for a session.

    Raises:
        ApiError: the target does not support a field of the request, or the field `inputs` is invalid for the plan.
        PlanInvalid: the inputs in the message are invalid for the plan.
    """
    # A request to a model runs the profile `plan`. Agents and stored plans do not use the profile.
    profile = target.name if target.kind == "profile" else "plan"
    if settings.output_form is not None and profile in _PROFILES_WITHOUT_SCHEMA:
        message = (
            f"{settings.output_form.param}: {target.id} assembles its answer and does not support a schema; omit it"
        )
        raise ApiError(ErrorCode.UNSUPPORTED_PARAMETER, message, param=settings.output_form.param)
    if target.kind == "plan":
        template = context.templates[target.name]
        try:
            start = _template_start(
                template, plan_inputs(template, conversation.text, inputs=options.inputs), settings.config
            )
        except PlanInvalid as invalid:
            raise invalid if options.inputs is None else replace(plan_error(invalid), param="inputs") from None
        return lambda _: start
    if target.kind == "agent":
        return lambda session: _agent_start(context, target.name, _objective(conversation, session), settings)
    request = TextRequest(
        conversation.prompt,
        settings.config,
        RunStartOptions(options.deadline_s),
        profile=cast("AnyProfile", profile),
        max_rounds=options.max_rounds,
        worker_timeout_s=options.worker_timeout_s,
        synthesis=options.synthesis,
        earlier_turns=conversation.earlier_turns,
        output_schema=settings.schema,
        title=conversation.text.strip() or None,
    )
    return lambda session: prepare_request(request, context.toolset, session).start


def run_id_of_key(key: str, *, owner: str | None = None) -> str:
    """Return the run ID for an `Idempotency-Key`.

    Args:
        owner: owner of the run. Two owners may choose the same key.
    """
    unique_key = key if owner is None else json.dumps([owner, key])
    return f"run-{hashlib.sha256(unique_key.encode(errors='replace')).hexdigest()[:24]}"


def model_config_of(body: ChatBody, target: Target, options: GatewayOptions) -> ModelConfig:
    """Return the options of model calls in the run of a request.

    Raises:
        ApiError: an option is invalid.
    """
    model = options.run_model or (target.name if target.kind == "model" else None)
    max_tokens = body.max_completion_tokens if body.max_completion_tokens is not None else body.max_tokens
    values = {
        "model": model,
        "temperature": body.temperature,
        "max_tokens": max_tokens,
        "top_p": body.top_p,
        "seed": body.seed,
    }
    try:
        return model_config_from_json({name: value for name, value in values.items() if value is not None})
    except ValueError as error:
        raise ApiError(ErrorCode.INVALID_VALUE, str(error), param=str(error).partition(":")[0]) from None


def plan_inputs(template: Template, text: str, *, inputs: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return the inputs of a plan: `inputs`, or a JSON object in the message.

    The run asks for missing inputs. If the plan has a single input, the message may also be its value: any text for a
    string, otherwise JSON.

    Raises:
        ApiError: the message does not have the inputs in one of these forms.
    """
    if inputs is not None:
        return inputs
    declared_inputs = template.checked.inputs
    try:
        parsed_json = parse_json(text)
    except ValueError:
        parsed_json = None
    if isinstance(parsed_json, dict):
        return parsed_json
    if not declared_inputs or not text.strip():
        return {}
    (name, schema), *other_inputs = declared_inputs.items()
    if not other_inputs and schema.get("type") == "string":
        return {name: text}
    if not other_inputs and parsed_json is not None:
        return {name: parsed_json}
    names = ", ".join(declared_inputs)
    message = f"the plan {template.name!r} takes its inputs ({names}) as a JSON object in the message, or in `inputs`"
    raise ApiError(ErrorCode.INPUTS_EXPECTED, message, param="messages")


def _objective(conversation: Conversation, session: SessionRecord | None) -> str:
    turns = session.turn_summaries() if session is not None else []
    return agent_objective(conversation, turns or conversation.earlier_turns)


def agent_objective(conversation: Conversation, turns: Sequence[TurnSummary]) -> str:
    """Return the objective of an agent: the request, preceded by the conversation so far."""
    if not turns:
        return conversation.prompt
    transcript = "\n\n".join(f"User: {turn.human_message}\nAssistant: {turn.ai_response}" for turn in turns)
    return f"The conversation so far:\n{transcript}\n\nThe request now:\n{conversation.prompt}"


def _template_start(template: Template, inputs: Mapping[str, Any], config: ModelConfig) -> StartRequest:
    plan = compile_for_requests(template.checked, inputs)
    input_fields = replace(NO_INPUT_FIELDS, model=config.to_json() or None)
    return StartRequest(plan, template.source, dict(inputs), RunStartOptions(input_fields=input_fields))


def _agent_start(context: "GatewayContext", name: str, objective: str, settings: AnswerSettings) -> StartRequest:
    # The objective is an input, since braces in it must not be read as references.
    document = {
        "plan": 1,
        "title": f"Agent {name}",
        "inputs": {_OBJECTIVE: {"type": "string"}},
        "nodes": [{"id": _AGENT_NODE, "agent": name, "objective": f"{{{{PLACEHOLDER_{_OBJECTIVE}}}}}"}],
        "output": f"{{{{{_AGENT_NODE}.result}}}}",
    }
    inputs = {_OBJECTIVE: objective}
    tools = context.toolset.declarations()
    source: dict[str, Any] = {"plan": document}
    if settings.schema:
        source["output_schema"] = dict(settings.schema)
        tools = {key: _add_output_schema(tool, name, settings.schema) for key, tool in tools.items()}
    plan = prepare_plan(check_plan(document, tools), inputs)
    input_fields = replace(NO_INPUT_FIELDS, model=settings.config.to_json() or None)
    return StartRequest(plan, source, inputs, RunStartOptions(input_fields=input_fields))


def _add_output_schema(tool: ToolDeclaration, agent: str, schema: Mapping[str, Any]) -> ToolDeclaration:
    """Return the declaration of a tool. Add the schema if the tool is the agent and a model writes its answers."""
    card = tool.agent
    if card is None or card.name != agent or card.type != "llm":
        return tool
    return replace(tool, agent=card.model_copy(update={"output_schema": dict(schema)}))


async def start_run(context: "GatewayContext", run_start: RunStart) -> None:
    """Start a run if the caller's quota allows.

    If the same start is in progress at this gateway, wait for that start instead. Raises the same errors as
    `_start_run` and `reserve_run`.
    """
    active_start = next((active for active in context.active_starts if active.run_start is run_start), None)
    if active_start is None:
        active_start = ActiveStart(
            run_start, context.caller.owner, context.run_in_background(_start_within_quota(context, run_start))
        )
        context.active_starts.append(active_start)
        active_start.task.add_done_callback(lambda _: context.active_starts.remove(active_start))
    await asyncio.shield(active_start.task)


def active_starts_of(context: "GatewayContext", run_id: str) -> Sequence[ActiveStart]:
    """Return the starts of a run at this gateway that the caller sees, including turns that wait for the session.

    There are several starts if a request was sent again with its `Idempotency-Key`.
    """
    starts = [
        active_start
        for active_start in context.active_starts
        if active_start.run_start.run_id == run_id and not active_start.run_start.abandon_event.is_set()
    ]
    return [start for start in starts if context.caller.can_see(start.owner)]


def is_abandoned(error: BaseException | None) -> bool:
    """Return whether the error of a start means that the turn was abandoned before its start was requested."""
    return isinstance(error, ApiError) and error.status == CLIENT_CLOSED_REQUEST_STATUS


async def _start_within_quota(context: "GatewayContext", run_start: RunStart) -> None:
    async with context.reserve_run(run_start.run_id):
        await _start_run(context, run_start)


async def _start_run(context: "GatewayContext", run_start: RunStart) -> None:
    """Start a run; in a session, after the end of the previous turn. A run that was started before is not changed.

    Raises:
        ApiError: the previous turn waits for feedback, or the gateway stops or the client disconnects before the start.
        RunIdInUse: the `Idempotency-Key` belongs to another request.
        TurnRejected: the session accepts no more turns, or has no worker.
    """
    if run_start.session_name is None:
        await context.runs.start(run_start.prepare(None))
        return
    turn = TurnRequest(run_start.session_name, run_start.request, run_start.prepare)
    while True:
        try:
            await start_turn(turn, context.runs, context.sessions, run_id=run_start.run_id)
            return
        except TurnRejected as rejection:
            if rejection.code != "session_busy" or rejection.run_id is None:
                raise
            await _reject_if_session_waits(context, run_start.session_name, rejection.run_id)
            run_start.waiting_event.set()
        await asyncio.sleep(POLL_INTERVAL_S)
        _reject_abandoned_turn(context, run_start)


def _reject_abandoned_turn(context: "GatewayContext", run_start: RunStart) -> None:
    """Raise `ApiError` if the client of a waiting turn has disconnected, or if the gateway stops.

    Call this function only between two attempts to start the turn. During an attempt, the error could be false,
    because the attempt may still start the turn.
    """
    if run_start.abandon_event.is_set():
        raise ApiError(None, "the client has disconnected", status=CLIENT_CLOSED_REQUEST_STATUS)
    if context.stop_event.is_set():
        session_id = public_session_id(context.caller, run_start.session_name)
        message = f"the gateway stops while the request waits for the session {session_id!r}; nothing was started"
        raise unavailable_error(f"{message}, send the request again", code=ErrorCode.DRAINING)


async def _reject_if_session_waits(context: "GatewayContext", session_name: str, run_id: str) -> None:
    """Raise `ApiError` for a turn if the current run of its session waits for feedback, which may take days."""
    open_requests = await context.runs.feedback.requests_of(run_id)
    if open_requests:
        session_id = public_session_id(context.caller, session_name)
        message = (
            f"the session {session_id!r} waits for an answer to {open_requests[0].id!r} of the run {run_id!r}: "
            f"send the result of the call of answer_feedback, answer with POST /v1/runs/{quote(run_id)}/feedback, "
            "or cancel that run"
        )
        headers = {**headers_of_run(run_id, session_id), **NO_RETRY}
        run_fields = {"run_id": run_id, "session_id": session_id}
        raise ApiError(ErrorCode.SESSION_WAITS_FOR_ANSWER, message, headers=headers, run_fields=run_fields)
