"""Negotiated capabilities of model servers: rejected requests are sent in another form, and the working form is cached.

Servers that speak OpenAI's protocol support different parts of it. A rejected request costs no tokens, so the client
repeats it at once with fewer features. The next call of the same model starts with the form that worked.
"""

import hashlib
import json
import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from dagwright.llm.errors import UNEXPECTED_CALL, ServiceError, model_error_of
from dagwright.planning.model_calls.model_failure import ModelError
from dagwright.planning.model_calls.model_requests import ModelCall


class OutputMode(StrEnum):
    """Ways to request JSON from a model, the best first."""

    SCHEMA = "json_schema"
    JSON = "json_object"
    TOOL = "tool"
    TEXT = "text"


_MODES = tuple(OutputMode)
_OPTIONAL_FIELDS = ("metadata", "stream_options")
"""Fields that a call omits if a server rejects them."""
_OUTPUT_PARAMS = frozenset({"response_format", "tools", "tool_choice", "text", "messages"})
"""Parameters that a server may name in its error if it does not support the output mode."""
_MAX_TOKENS, _MAX_COMPLETION_TOKENS = "max_tokens", "max_completion_tokens"
_MAX_ENTRIES = 1_000
"""Maximum number of cached models, and of cached schemas. Requests choose models and schemas, so their number is
otherwise unlimited."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Form of a request that a server supports.

    Args:
        mode: how JSON is requested, if the call has an output schema.
        omitted_fields: optional fields to omit.
        max_tokens_field: name of the field for `max_tokens`; newer models of OpenAI need `max_completion_tokens`.
    """

    mode: OutputMode = OutputMode.SCHEMA
    omitted_fields: frozenset[str] = frozenset()
    max_tokens_field: str = _MAX_TOKENS


def reduce_capabilities(
    capabilities: Capabilities, service_error: ServiceError, body: Mapping[str, Any]
) -> Capabilities | None:
    """Return reduced capabilities after a rejected request; `None` if the form of the request was not the reason.

    Args:
        body: the rejected request.
    """
    if service_error.kind != "status" or model_error_of(service_error) is not ModelError.REQUEST_INVALID:
        return None
    if service_error.body.code == UNEXPECTED_CALL:
        return None
    param, message = service_error.body.param, f"{service_error.body.message} {service_error.body.text}"
    for name in _OPTIONAL_FIELDS:
        if (
            name in body
            and name not in capabilities.omitted_fields
            and (param == name or re.search(rf"\b{name}\b", message))
        ):
            return replace(capabilities, omitted_fields=capabilities.omitted_fields | {name})
    if _MAX_TOKENS in body and (param == _MAX_TOKENS or _MAX_COMPLETION_TOKENS in message):
        return replace(capabilities, max_tokens_field=_MAX_COMPLETION_TOKENS)
    is_about_output = not param or param.partition(".")[0].partition("[")[0] in _OUTPUT_PARAMS
    if _has_json_fields(body) and capabilities.mode is not OutputMode.TEXT and is_about_output:
        return replace(capabilities, mode=_MODES[_MODES.index(capabilities.mode) + 1])
    return None


def _has_json_fields(body: Mapping[str, Any]) -> bool:
    """Check whether a request has fields for JSON output that a server may reject."""
    return "response_format" in body or "tool_choice" in body


@dataclass(slots=True)
class CapabilityCache:
    """Known capabilities of all servers and models in a process.

    Safe for concurrent calls: each call negotiates independently, with the same outcome.
    """

    _capabilities_by_model: "OrderedDict[tuple[str, str], Capabilities]" = field(default_factory=OrderedDict)
    _modes_by_schema: "OrderedDict[tuple[str, str, str], OutputMode]" = field(default_factory=OrderedDict)

    def find(self, base_url: str, model: str, call: ModelCall) -> Capabilities:
        """Return the known capabilities for a call."""
        capabilities = self._capabilities_by_model.get((base_url, model), Capabilities())
        mode = self._modes_by_schema.get((base_url, model, _schema_digest(call))) if call.output is not None else None
        return capabilities if mode is None else replace(capabilities, mode=mode)

    def store(
        self,
        base_url: str,
        model: str,
        call: ModelCall,
        *,
        supported_capabilities: Capabilities,
        rejections: Sequence[ServiceError],
    ) -> None:
        """Store the capabilities of a successful attempt.

        Args:
            rejections: errors of the rejected attempts of the same call.
        """
        previous_capabilities = self._capabilities_by_model.get((base_url, model), Capabilities())
        new_capabilities = (
            supported_capabilities
            if call.output is not None
            else replace(supported_capabilities, mode=previous_capabilities.mode)
        )
        if new_capabilities.mode is not previous_capabilities.mode and any(map(_is_about_schema, rejections)):
            # The server may accept other schemas, so the mode is stored only for this schema.
            _put(self._modes_by_schema, (base_url, model, _schema_digest(call)), supported_capabilities.mode)
            new_capabilities = replace(new_capabilities, mode=previous_capabilities.mode)
        elif (base_url, model, _schema_digest(call)) in self._modes_by_schema:
            new_capabilities = replace(new_capabilities, mode=previous_capabilities.mode)
        if new_capabilities != previous_capabilities:
            _put(self._capabilities_by_model, (base_url, model), new_capabilities)


def _put(table: "OrderedDict[Any, Any]", key: Any, value: Any) -> None:
    table[key] = value
    table.move_to_end(key)
    while len(table) > _MAX_ENTRIES:
        table.popitem(last=False)


def _is_about_schema(rejection: ServiceError) -> bool:
    """Check whether a server rejected the output schema of the call, not the output mode."""
    return "invalid schema" in f"{rejection.body.message} {rejection.body.text}".lower()


def _schema_digest(call: ModelCall) -> str:
    if call.output is None:
        return ""
    return hashlib.sha256(json.dumps(call.output.schema, sort_keys=True).encode()).hexdigest()
