"""What travels beside the arguments of a tool: the idempotency key, and what only a worker may fill in.

The key and the holes come as activity headers (`dagwright.contracts.wire`). Secrets are found here and nowhere
else, and taken out again of everything that goes back to the server or to the payload store.
"""

import base64
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any
from urllib.parse import quote, quote_plus

from structlog.contextvars import bound_contextvars
from temporalio import activity
from temporalio.activity import Info
from temporalio.api.common.v1 import Payload
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from dagwright.contracts.wire import (
    HEADER_CACHE,
    HEADER_HOLES,
    HEADER_IDEMPOTENCY_KEY,
    HEADER_WANTED,
    OWN_ACTIVITIES,
)
from dagwright.plan.compiled import wanted_from_json
from dagwright.plan.filling import secret_names
from dagwright.plan.stored import Want
from dagwright.tools.errors import MissingSecret

SHORTEST_HIDDEN_IN_RESULTS = 6
"""Characters: a shorter secret is left in results, or the secret `1` would change every number in a text."""

HIDDEN = "***"

_headers: ContextVar[Mapping[str, Payload]] = ContextVar("dagwright_activity_headers")


class ToolInterceptor(Interceptor):
    """Lets the tool wrapper see the headers of its activity, and lines of the log say which call they are about."""

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return _HeaderInbound(next)


class _HeaderInbound(ActivityInboundInterceptor):
    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        info = activity.info()
        named = "activity" if info.activity_type in OWN_ACTIVITIES else "node_id"
        name = info.activity_type if named == "activity" else info.activity_id
        token = _headers.set(input.headers)
        try:
            with bound_contextvars(workflow_id=info.workflow_id, attempt=info.attempt, **{named: name}):
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


class Redaction:
    """Hides the secrets of one call in what it says."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets = [secret for secret in secrets if secret]

    def text(self, text: str) -> str:
        """Returns `text` without any secret, also where it is quoted for a URL or for JSON."""
        return _hidden(text, self._secrets)

    def value(self, value: Any) -> Any:
        """Returns a JSON value without the secrets that are long enough to be told from ordinary text."""
        long = [secret for secret in self._secrets if len(secret) >= SHORTEST_HIDDEN_IN_RESULTS]
        return _hidden_in(value, long) if long else value


def wanted_parts() -> tuple[Want, ...]:
    """Returns the parts of the result that the plan names."""
    return wanted_from_json(_header(HEADER_WANTED) or ())


def cache_seconds() -> float | None:
    """Returns how old a result may be that is used again, 0 for never; `None` is what the effects of the tool say."""
    seconds = _header(HEADER_CACHE)
    return seconds if isinstance(seconds, int | float) and not isinstance(seconds, bool) else None


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
    return None if payload is None else json.loads(payload.data)


def _hidden(text: str, secrets: Sequence[str]) -> str:
    forms = {form for secret in secrets for form in _forms(secret)}
    for form in sorted(forms, key=lambda form: (-len(form), form)):
        text = text.replace(form, HIDDEN)
    return text


def _forms(secret: str) -> tuple[str, ...]:
    escaped, readable = json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]
    return (
        secret,
        quote(secret, safe=""),
        quote(secret),
        quote_plus(secret),
        escaped,
        readable,
        repr(secret)[1:-1],
    )


def _hidden_in(value: Any, secrets: Sequence[str]) -> Any:
    if isinstance(value, str):
        return _hidden(value, secrets)
    if isinstance(value, list):
        return [_hidden_in(part, secrets) for part in value]
    if isinstance(value, dict):
        return {_hidden(key, secrets): _hidden_in(part, secrets) for key, part in value.items()}
    return value
