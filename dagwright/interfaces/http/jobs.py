"""Prepare the run that answers a request, and start it, in its session if it has one.

The ID of a run is derived from the `Idempotency-Key`: the same request sent twice, also to two gateways, is one run.
"""

import asyncio
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast
from urllib.parse import quote

from dagwright.client.requests import AnyProfile, SessionTurn, TextRequest, prepare_request, start_turn
from dagwright.client.sessions import LOOK_PAUSE_S, TurnNotTaken
from dagwright.client.starts import NO_EXTRAS, RunOptions, StartRequest, made_id
from dagwright.core.model.errors import PlanInvalid
from dagwright.core.model.tools import ToolDeclaration
from dagwright.interfaces.http.bodies import ChatBody, Wishes, json_of, metadata_of
from dagwright.interfaces.http.callers import known_as, new_session_of
from dagwright.interfaces.http.conversation import Conversation
from dagwright.interfaces.http.desk import Desk
from dagwright.interfaces.http.errors import CLIENT_GONE, NO_RETRY, ApiError, of_plan, unavailable
from dagwright.interfaces.http.following import headers_of_run
from dagwright.interfaces.http.starts import Job, Prepare, Starting
from dagwright.interfaces.http.structured_output import OutputForm
from dagwright.interfaces.http.targets import Target
from dagwright.planning.conversation import TurnSummary
from dagwright.planning.model_calls.calls import ModelConfig, model_config_from_json
from dagwright.plans.posted import compiled_to_ask
from dagwright.plans.preparation import check_plan, prepare_plan
from dagwright.plans.templates import Template
from dagwright.protocol.sessions import Session
from dagwright.protocol.turn_summaries import cut_inside
from dagwright.protocol.turns import REQUEST_BYTES

_WITHOUT_SCHEMA = ("intents", "rounds")
"""Profiles whose answers are not written by a model."""
_AGENT_NODE = "answer"
_OBJECTIVE = "objective"
_TITLE_BYTES = 200
"""Reserved for the title of a plan in the request that a session stores."""


@dataclass(frozen=True, slots=True)
class Asking:
    """How models answer in the run of a request.

    Args:
        config: options of model calls.
        output: required form of the answer; `None` for text.
    """

    config: ModelConfig
    output: OutputForm | None = None

    @property
    def schema(self) -> Mapping[str, Any]:
        """JSON Schema of the answer; empty for a text."""
        return {} if self.output is None else self.output.schema


def job_of(desk: Desk, target: Target, said: Conversation, *, wishes: Wishes, asking: Asking) -> Job:
    """Validate a request and prepare the run that answers it.

    Raises:
        ApiError, GoalRefused, PlanInvalid, SessionNameInvalid: no run can answer the request.
    """
    refuse_rounds(target, wishes)
    session = None if wishes.session is None else new_session_of(desk.caller, wishes.session)
    run = made_id() if wishes.key is None else id_of_key(wishes.key, owner=desk.caller.owner)
    prepare, title, request = _preparing(desk, target, said, wishes=wishes, asking=asking), None, said.text
    if target.kind == "plan":
        template = desk.templates[target.name]
        given = json.dumps(wishes.inputs, ensure_ascii=False) if wishes.inputs else said.text.strip()
        shown = cut_inside(given, max_bytes=REQUEST_BYTES - _TITLE_BYTES)
        request, title = f"(the plan {template.title}){f' {shown}' if shown else ''}", template.file
    # Reports problems of the request, which do not depend on the session, before anything starts.
    prepare(None)
    owner, tools, tags = desk.caller.starts_for, desk.toolset.references, metadata_of(wishes.metadata)

    def prepared(session: Session | None) -> StartRequest:
        start = prepare(session)
        options = replace(start.options, owner=owner, deadline_s=wishes.deadline_s, tags=tags)
        return replace(start, options=options, workflow_id=run, title=title, tools=tools)

    return Job(run, session, request, prepared)


def refuse_rounds(target: Target, wishes: Wishes) -> None:
    """Refuse options of rounds for other targets.

    Raises:
        ApiError: the request has one.
    """
    of_rounds = {
        "max_rounds": wishes.max_rounds,
        "worker_timeout": wishes.worker_timeout_s,
        "synthesis": wishes.synthesis,
    }
    given = [name for name, value in of_rounds.items() if value is not None]
    if given and target.id != "profile/rounds":
        words = f"{target.id} does not run in rounds; use profile/rounds, or omit the field"
        raise ApiError(400, f"{given[0]}: {words}", param=given[0], code="invalid_value")


def _preparing(desk: Desk, target: Target, said: Conversation, *, wishes: Wishes, asking: Asking) -> Prepare:
    """Return a function that prepares the run of a request for a session.

    Raises:
        ApiError: the target does not support a field of the request, or the inputs of a plan are invalid.
        PlanInvalid: the inputs in the message are invalid for the plan.
    """
    profile, config = target.name if target.kind == "profile" else "plan", asking.config
    if asking.output is not None and profile in _WITHOUT_SCHEMA:
        words = f"{asking.output.param}: {target.id} assembles its answer and does not support a schema; omit it"
        raise ApiError(400, words, param=asking.output.param, code="unsupported_parameter")
    if target.kind == "plan":
        template = desk.templates[target.name]
        try:
            prepared = _of_template(template, inputs_of(template, said.text, given=wishes.inputs), config)
        except PlanInvalid as invalid:
            raise invalid if wishes.inputs is None else replace(of_plan(invalid), param="inputs") from None
        return lambda _: prepared
    if target.kind == "agent":
        return lambda session: _of_agent(desk, target.name, _objective(said, session), asking)
    request = TextRequest(
        said.words,
        config,
        RunOptions(wishes.deadline_s),
        profile=cast("AnyProfile", profile),
        max_rounds=wishes.max_rounds,
        worker_timeout_s=wishes.worker_timeout_s,
        synthesis=wishes.synthesis,
        earlier_turns=said.said_before,
        output_schema=asking.schema,
        title=said.text.strip() or None,
    )
    return lambda session: prepare_request(request, desk.toolset, session).start


def id_of_key(key: str, *, owner: str | None = None) -> str:
    """Return the run ID for an `Idempotency-Key`.

    Args:
        owner: owner of the run: two owners may choose the same key.
    """
    told = key if owner is None else json.dumps([owner, key])
    return f"run-{hashlib.sha256(told.encode(errors='replace')).hexdigest()[:24]}"


def config_of(body: ChatBody, target: Target, wishes: Wishes) -> ModelConfig:
    """Return the options of model calls in the run of a request.

    Raises:
        ApiError: an option is invalid.
    """
    model = wishes.run_model or (target.name if target.kind == "model" else None)
    most = body.max_completion_tokens if body.max_completion_tokens is not None else body.max_tokens
    said = {"model": model, "temperature": body.temperature, "max_tokens": most, "top_p": body.top_p, "seed": body.seed}
    try:
        return model_config_from_json({name: value for name, value in said.items() if value is not None})
    except ValueError as error:
        raise ApiError(400, str(error), param=str(error).partition(":")[0], code="invalid_value") from None


def inputs_of(template: Template, text: str, *, given: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return the inputs of a plan: `given`, or a JSON object in the message.

    The run asks for missing inputs. If a plan has a single input, other JSON is its value; if that input is a string,
    so is other text.

    Raises:
        ApiError: the message has no inputs.
    """
    if given is not None:
        return given
    declared = template.checked.inputs
    try:
        found = json_of(text)
    except ValueError:
        found = None
    if isinstance(found, dict):
        return found
    if not declared or not text.strip():
        return {}
    (name, schema), *others = declared.items()
    if not others and schema.get("type") == "string":
        return {name: text}
    if not others and found is not None:
        return {name: found}
    names = ", ".join(declared)
    words = f"the plan {template.name!r} takes its inputs ({names}) as a JSON object in the message, or in `inputs`"
    raise ApiError(400, words, param="messages", code="inputs_expected")


def _objective(said: Conversation, session: Session | None) -> str:
    turns = session.turn_summaries() if session is not None else []
    return objective_of(said, turns or said.said_before)


def objective_of(said: Conversation, turns: Sequence[TurnSummary]) -> str:
    """Return the objective of an agent: the request, preceded by the conversation so far."""
    if not turns:
        return said.words
    before = "\n\n".join(f"User: {turn.human_message}\nAssistant: {turn.ai_response}" for turn in turns)
    return f"The conversation so far:\n{before}\n\nThe request now:\n{said.words}"


def _of_template(template: Template, inputs: Mapping[str, Any], config: ModelConfig) -> StartRequest:
    plan = compiled_to_ask(template.checked, inputs)
    beside = replace(NO_EXTRAS, model=config.to_json() or None)
    return StartRequest(plan, template.source, dict(inputs), RunOptions(beside=beside))


def _of_agent(desk: Desk, name: str, objective: str, asking: Asking) -> StartRequest:
    # The objective is an input, since braces in it must not be read as references.
    written = {
        "plan": 1,
        "title": f"Agent {name}",
        "inputs": {_OBJECTIVE: {"type": "string"}},
        "nodes": [{"id": _AGENT_NODE, "agent": name, "objective": f"{{{{PLACEHOLDER_{_OBJECTIVE}}}}}"}],
        "output": f"{{{{{_AGENT_NODE}.result}}}}",
    }
    inputs = {_OBJECTIVE: objective}
    tools = desk.toolset.declarations()
    source: dict[str, Any] = {"plan": written}
    if asking.schema:
        source["output_schema"] = dict(asking.schema)
        tools = {key: _answering_in(tool, name, asking.schema) for key, tool in tools.items()}
    plan = prepare_plan(check_plan(written, tools), inputs)
    beside = replace(NO_EXTRAS, model=asking.config.to_json() or None)
    return StartRequest(plan, source, inputs, RunOptions(beside=beside))


def _answering_in(tool: ToolDeclaration, agent: str, schema: Mapping[str, Any]) -> ToolDeclaration:
    """Return the tool, with the answer schema if it is the agent. Agents that are programs have their own output."""
    card = tool.agent
    if card is None or card.name != agent or card.type != "llm":
        return tool
    return replace(tool, agent=card.model_copy(update={"output_schema": dict(schema)}))


async def start_job(desk: Desk, job: Job) -> None:
    """Start a run if the caller's quota allows; raises as `_start_job` and `room_for_run`.

    If the same start is in progress here, wait for it instead.
    """
    known = next((each for each in desk.starting if each.job is job), None)
    if known is None:
        known = Starting(job, desk.caller.owner, desk.keep_doing(_start_with_room(desk, job)))
        desk.starting.append(known)
        known.work.add_done_callback(lambda _: desk.starting.remove(known))
    await asyncio.shield(known.work)


def starting_here(desk: Desk, run: str) -> Sequence[Starting]:
    """Return the starts of a run in progress at this gateway, including turns that wait for the session.

    Only starts that the caller sees; several if a request was sent again with its `Idempotency-Key`.
    """
    found = [each for each in desk.starting if each.job.run == run and not each.job.unwanted.is_set()]
    return [each for each in found if desk.caller.sees(each.owner)]


def is_given_up(refused: BaseException | None) -> bool:
    """Return whether a turn was abandoned before its start was requested."""
    return isinstance(refused, ApiError) and refused.status == CLIENT_GONE


async def _start_with_room(desk: Desk, job: Job) -> None:
    async with desk.room_for_run(job.run):
        await _start_job(desk, job)


async def _start_job(desk: Desk, job: Job) -> None:
    """Start a run, in a session after the previous turn has ended. A run that was started before is left as it is.

    Raises:
        ApiError: the previous turn waits for feedback, or the gateway stops or the client disconnects before the start.
        RunIdInUse: the `Idempotency-Key` belongs to another request.
        TurnNotTaken: the session accepts no more turns, or has no worker.
    """
    if job.session is None:
        await desk.runs.start(job.prepare(None))
        return
    turn = SessionTurn(job.session, job.request, job.prepare)
    while True:
        try:
            await start_turn(turn, desk.runs, desk.sessions, run=job.run)
            return
        except TurnNotTaken as refused:
            if refused.code != "session_busy" or refused.run is None:
                raise
            await _refuse_waiting(desk, job.session, refused.run)
            job.waits.set()
        await asyncio.sleep(LOOK_PAUSE_S)
        _refuse_given_up(desk, job)


def _refuse_given_up(desk: Desk, job: Job) -> None:
    """Refuse a turn that waits for its session if its client has disconnected or the gateway stops.

    Called between two attempts to start it: an attempt that was sent may succeed, so it is never abandoned.
    """
    if job.unwanted.is_set():
        raise ApiError(CLIENT_GONE, "the client has disconnected")
    if desk.leaving.is_set():
        called = known_as(desk.caller, job.session)
        words = f"the gateway stops while the request waits for the session {called!r}; nothing was started"
        raise unavailable(f"{words}, send it again")


async def _refuse_waiting(desk: Desk, session: str, run: str) -> None:
    """Refuse a turn whose session waits for feedback: it could wait for days."""
    asked = await desk.runs.people.requests_of(run)
    if asked:
        called = known_as(desk.caller, session)
        words = (
            f"the session {called!r} waits for an answer to {asked[0].id!r} of the run {run!r}: send the result of "
            f"the call of answer_feedback, answer with POST /v1/runs/{quote(run)}/feedback, or cancel that run"
        )
        headers, about = {**headers_of_run(run, called), **NO_RETRY}, {"run_id": run, "session_id": called}
        raise ApiError(409, words, code="session_waits_for_answer", headers=headers, about=about)
