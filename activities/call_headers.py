"""What travels beside the arguments of a tool: the idempotency key, and what only a worker may fill in.

The key and the holes come as activity headers (`dagwright.contracts.wire`). Secrets are found here and nowhere
else; `dagwright.tools.redaction` takes them out again of all that goes back to the server or to the payload store.
"""

import base64
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

import pydantic_core
from temporalio.activity import Info
from temporalio.api.common.v1 import Payload
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from dagwright.contracts.model_calls import NOTHING_SET, ModelConfig, model_config_from_json
from dagwright.contracts.wire import (
    HEADER_ANSWERS,
    HEADER_CACHE,
    HEADER_CHECKED_VERSION,
    HEADER_HOLES,
    HEADER_IDEMPOTENCY_KEY,
    HEADER_MODEL,
    HEADER_WANTED,
)
from dagwright.plan.compiled import wanted_from_json
from dagwright.plan.filling import secret_names
from dagwright.plan.stored import Want
from dagwright.tools.errors import MissingSecret

_headers: ContextVar[Mapping[str, Payload]] = ContextVar("dagwright_activity_headers")


class ToolInterceptor(Interceptor):
    """Lets the tool wrapper see the headers of its activity."""

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return _HeaderInbound(next)


class _HeaderInbound(ActivityInboundInterceptor):
    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        token = _headers.set(input.headers)
        try:
            return await super().execute_activity(input)
        finally:
            _headers.reset(token)


def idempotency_key(info: Info) -> str:
    """Returns the key of the effect; without a header one that is the same for each attempt."""
    given = _header(HEADER_IDEMPOTENCY_KEY)
    if isinstance(given, str) and given:
        return given
    identity = json.dumps([info.namespace, info.workflow_id, info.workflow_run_id, info.activity_id])
    return "dwa_" + base64.b32encode(hashlib.sha256(identity.encode()).digest()).decode().lower()[:36]


def wanted_parts() -> tuple[Want, ...]:
    """Returns the parts of the result that the plan names."""
    return wanted_from_json(_header(HEADER_WANTED) or ())


def cache_seconds() -> float | None:
    """Returns how old a result may be that is used again, 0 for never; `None` is what the effects of the tool say."""
    seconds = _header(HEADER_CACHE)
    return seconds if isinstance(seconds, int | float) and not isinstance(seconds, bool) else None


def given_model() -> ModelConfig:
    """Returns which model is asked in the run, and how, as far as the run says so."""
    given = _header(HEADER_MODEL)
    if given is None:
        return NOTHING_SET
    try:
        return model_config_from_json(given)
    except ValueError:
        # Of another version of Dagwright, say: then the worker's settings hold.
        return NOTHING_SET


def checked_version() -> str | None:
    """Returns the version of the tool that the plan was checked against; `None` if that does not matter."""
    version = _header(HEADER_CHECKED_VERSION)
    return version if isinstance(version, str) else None


def given_answers() -> tuple[Any, ...]:
    """Returns what people answered to what this call has asked before, in order."""
    return tuple(answer.get("answer") for answer in _answers())


def given_checkpoint() -> Any:
    """Returns what this call kept for itself when it asked, the last that it gave; `None` if nothing."""
    return next((answer["checkpoint"] for answer in reversed(_answers()) if "checkpoint" in answer), None)


def _answers() -> list[dict[str, Any]]:
    given = _header(HEADER_ANSWERS)
    return [answer for answer in given if isinstance(answer, dict)] if isinstance(given, list) else []


def given_holes() -> list[Any]:
    """Returns what only this worker may fill into the arguments."""
    return list(_header(HEADER_HOLES) or ())


def known_secrets(holes: Sequence[Any], secret: Callable[[str], str | None]) -> dict[str, str]:
    """Returns name -> value of each secret that the holes name.

    Args:
        holes: `[path, parts]` as in the header.

    Raises:
        MissingSecret: names every variable that is not set.
    """
    if not holes:
        return {}
    found = {name: secret(name) for name in sorted(secret_names(holes))}
    missing = [f"DAGWRIGHT_SECRET_{name}" for name, value in found.items() if value is None]
    if missing:
        raise MissingSecret(f"The worker's environment does not have {', '.join(missing)}")
    return {name: value for name, value in found.items() if value is not None}


def _header(name: str) -> Any:
    payload = _headers.get({}).get(name)
    return None if payload is None else pydantic_core.from_json(payload.data)
