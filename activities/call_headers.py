"""Headers of a tool call (idempotency key, secrets, bindings) and metadata of its attempt."""

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import Any

import pydantic_core
from temporalio.activity import Info
from temporalio.api.common.v1 import Payload
from temporalio.converter import DefaultFailureConverter, default
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from dagwright.core.boundary.usage_reports import NO_USAGE, Usage
from dagwright.core.boundary.wire import (
    DETAIL_USAGE,
    HEADER_ANSWERS,
    HEADER_ATTEMPTS,
    HEADER_BATCH_FAILURE,
    HEADER_BINDINGS,
    HEADER_CACHE,
    HEADER_CHECKED_VERSION,
    HEADER_EFFECTS,
    HEADER_IDEMPOTENCY_KEY,
    HEADER_MODEL,
    HEADER_OWNER,
    HEADER_PROJECTIONS,
    HEADER_TEMPLATE,
    METADATA_ATTEMPT,
    METADATA_USAGE,
)
from dagwright.core.expressions.hydration import secret_names
from dagwright.core.expressions.stored_values import Projection
from dagwright.core.model.call_limits import Subject
from dagwright.core.model.compiled import projections_from_json
from dagwright.core.model.times import format_time
from dagwright.core.model.tools import Effects, ToolDeclaration, effects_of_call
from dagwright.planning.model_calls.model_requests import DEFAULT_CONFIG, ModelConfig, model_config_from_json
from dagwright.protocol.attempts import encode_attempt
from dagwright.protocol.conversion import decode_failure
from dagwright.protocol.idempotency import derived_key
from dagwright.tools.environment import ToolEnvironment
from dagwright.tools.errors import MissingSecret, SecretNotAllowed
from dagwright.tools.secret_bindings import problem_of_secret


def attempt_metadata(info: Info, usage: Usage = NO_USAGE, *, tool_version: str = "") -> dict[str, bytes]:
    """Return the payload metadata of a result: its attempt, and the token usage if a model was called."""
    started_at_s, version = info.started_time.timestamp(), tool_version
    metadata = {"encoding": b"json/plain", METADATA_ATTEMPT: encode_attempt(info.attempt, started_at_s, version)}
    # The identity check comes first because nearly all calls use no model.
    if usage is not NO_USAGE and usage != NO_USAGE:
        metadata[METADATA_USAGE] = pydantic_core.to_json(usage.to_json())
    return metadata


def attempt_details(info: Info, usage: Usage = NO_USAGE) -> dict[str, Any]:
    """Return the failure details of an attempt, with the token usage if a model was called."""
    usage_details = {} if usage == NO_USAGE else {DETAIL_USAGE: usage.to_json()}
    return {"attempt": info.attempt, "started_at": _started_at(info), **usage_details}


def _started_at(info: Info) -> str:
    return format_time(info.started_time.timestamp())


_headers: ContextVar[Mapping[str, Payload]] = ContextVar("dagwright_activity_headers")


class ToolInterceptor(Interceptor):
    """Make the headers of an activity available to the tool wrapper."""

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return _HeaderInbound(next)


class _HeaderInbound(ActivityInboundInterceptor):
    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        token = _headers.set(input.headers)
        try:
            return await super().execute_activity(input)
        finally:
            _headers.reset(token)


def use_headers(headers: Mapping[str, Payload]) -> None:
    """Use the headers of one call of a batch in the current context."""
    _headers.set(headers)


def current_headers() -> Mapping[str, Payload]:
    """Return the headers of the current activity or call."""
    return _headers.get({})


def batch_failure() -> BaseException | None:
    """Return the failure of the first attempt of a call, if that attempt was made in a batch."""
    encoded = _header(HEADER_BATCH_FAILURE)
    if not isinstance(encoded, str):
        return None
    try:
        return DefaultFailureConverter().from_failure(decode_failure(encoded), default().payload_converter)
    except ValueError:
        return None


def idempotency_key(info: Info) -> str:
    """Return the idempotency key from the header, or else a key that is the same for all attempts."""
    header = _header(HEADER_IDEMPOTENCY_KEY)
    if isinstance(header, str) and header:
        return header
    return derived_key(info.workflow_run_id or "", info.activity_id)


def requested_projections() -> tuple[Projection, ...]:
    """Return the parts of the result that the plan reads."""
    return projections_from_json(_header(HEADER_PROJECTIONS) or ())


def cache_seconds() -> float | None:
    """Return the maximum age of a reused result, 0 for no reuse; `None` means that the effects of the tool decide."""
    seconds = _header(HEADER_CACHE)
    return seconds if isinstance(seconds, int | float) and not isinstance(seconds, bool) else None


def allowed_attempts() -> int | None:
    """Return how many attempts of a `write` call may call the tool; `None` if Temporal's retry policy decides."""
    attempts = _header(HEADER_ATTEMPTS)
    return attempts if isinstance(attempts, int) and not isinstance(attempts, bool) else None


def model_config_of_run() -> ModelConfig:
    """Return the model configuration of the run; an option that the run does not set is `None`."""
    header = _header(HEADER_MODEL)
    if header is None:
        return DEFAULT_CONFIG
    try:
        return model_config_from_json(header)
    except ValueError:
        # The header comes from another Dagwright version, so the worker's settings apply.
        return DEFAULT_CONFIG


def checked_version() -> str | None:
    """Return the tool version that the plan was checked against; `None` if any version is allowed."""
    version = _header(HEADER_CHECKED_VERSION)
    return version if isinstance(version, str) else None


def call_effects(tool: ToolDeclaration, arguments: Any) -> Effects:
    """Return the effects that the node of a call declares, or else the effects of its tool with these arguments.

    A call that was planned as a `write` stays a `write` if the tool changes, because the run relies on the start
    records of the call.
    """
    if tool.effects_by is None:
        return tool.effects if allowed_attempts() is None else Effects.WRITE
    if not isinstance(arguments, Mapping):
        return tool.effects
    effects = effects_of_call(tool, arguments)
    is_declared_idempotent = _header(HEADER_EFFECTS) == Effects.IDEMPOTENT and effects is Effects.WRITE
    return Effects.IDEMPOTENT if is_declared_idempotent else effects


def owner_of_run() -> str | None:
    """Return the owner of the API key that started the run; `None` if the run was started without an API key."""
    owner = _header(HEADER_OWNER)
    return owner if owner is None or isinstance(owner, str) else ""


def template_of_run() -> str | None:
    """Return the template that the run was started from, if there is one."""
    template = _header(HEADER_TEMPLATE)
    return template if isinstance(template, str) else None


def limited_subjects(tool: str | None = None) -> list[Subject]:
    """Return the subjects whose limits apply to the current call: the owner and template of its run, and the tool."""
    owner, template = owner_of_run(), template_of_run()
    return [
        *([Subject("owner", owner)] if owner else []),
        *([Subject("template", template)] if template else []),
        *([Subject("tool", tool)] if tool else []),
    ]


def answers_of_call() -> tuple[Any, ...]:
    """Return people's answers to earlier requests of this call, in order."""
    return tuple(answer.get("answer") for answer in _answers())


def checkpoint_of_call() -> Any:
    """Return the latest checkpoint that this call saved with a request; `None` if the call saved no checkpoint."""
    return next((answer["checkpoint"] for answer in reversed(_answers()) if "checkpoint" in answer), None)


def _answers() -> list[dict[str, Any]]:
    header = _header(HEADER_ANSWERS)
    return [answer for answer in header if isinstance(answer, dict)] if isinstance(header, list) else []


def bindings_of_call() -> list[Any]:
    """Return the bindings that only a worker can fill in: secrets and stored values."""
    return list(_header(HEADER_BINDINGS) or ())


def values_of_secrets(bindings: Sequence[Any], tool: ToolDeclaration, environment: ToolEnvironment) -> dict[str, str]:
    """Return the values of the secrets that the bindings name, by name.

    Args:
        bindings: result of `bindings_of_call`.
        tool: the tool that receives the arguments.

    Raises:
        SecretNotAllowed: a secret is not bound to the tool.
        MissingSecret: environment variables are not set; the message names all of them.
    """
    if not bindings:
        return {}
    names = sorted(secret_names(bindings))
    for name in names:
        if (problem := problem_of_secret(tool, name, environment.binding_of(name))) is not None:
            raise SecretNotAllowed(problem[:1].upper() + problem[1:])
    secrets = {name: environment.find_secret(name) for name in names}
    missing_variables = [f"DAGWRIGHT_SECRET_{name}" for name, value in secrets.items() if value is None]
    if missing_variables:
        raise MissingSecret(f"The worker's environment does not have {', '.join(missing_variables)}")
    return {name: value for name, value in secrets.items() if value is not None}


def _header(name: str) -> Any:
    payload = _headers.get({}).get(name)
    return None if payload is None else pydantic_core.from_json(payload.data)
