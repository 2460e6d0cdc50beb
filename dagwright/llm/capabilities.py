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
_OPTIONAL = ("metadata", "stream_options")
"""Fields that a call omits if a server rejects them."""
_OF_OUTPUT = frozenset({"response_format", "tools", "tool_choice", "text", "messages"})
"""Parameters that a server may name in its error if it does not support the output mode."""
_MAX_TOKENS, _MAX_COMPLETION_TOKENS = "max_tokens", "max_completion_tokens"
_MAX_ENTRIES = 1_000
"""Limit for cached models, and for cached schemas that servers rejected; the names come from requests."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Form of a request that a server supports.

    Args:
        mode: how JSON is requested, if the call has an output schema.
        without: optional fields to omit.
        limit: name of the field for `max_tokens`; newer models of OpenAI use another name.
    """

    mode: OutputMode = OutputMode.SCHEMA
    without: frozenset[str] = frozenset()
    limit: str = _MAX_TOKENS


def next_capabilities(
    capabilities: Capabilities, service_error: ServiceError, body: Mapping[str, Any]
) -> Capabilities | None:
    """Return reduced capabilities after a rejected request; `None` if its form was not the reason.

    Args:
        body: the rejected request.
    """
    if service_error.kind != "status" or model_error_of(service_error) is not ModelError.REQUEST_INVALID:
        return None
    if service_error.body.code == UNEXPECTED_CALL:
        return None
    param, message = service_error.body.param, f"{service_error.body.message} {service_error.body.text}"
    for name in _OPTIONAL:
        if name in body and name not in capabilities.without and (param == name or re.search(rf"\b{name}\b", message)):
            return replace(capabilities, without=capabilities.without | {name})
    if _MAX_TOKENS in body and (param == _MAX_TOKENS or _MAX_COMPLETION_TOKENS in message):
        return replace(capabilities, limit=_MAX_COMPLETION_TOKENS)
    is_about_output = not param or param.partition(".")[0].partition("[")[0] in _OF_OUTPUT
    if _asks_for_json(body) and capabilities.mode is not OutputMode.TEXT and is_about_output:
        return replace(capabilities, mode=_MODES[_MODES.index(capabilities.mode) + 1])
    return None


def _asks_for_json(body: Mapping[str, Any]) -> bool:
    """Check whether a request asks for JSON in a way that a server may reject."""
    return "response_format" in body or "tool_choice" in body


@dataclass(slots=True)
class CapabilityCache:
    """Known capabilities of all servers and models in a process.

    Safe for concurrent calls: each call learns independently, and all calls learn the same.
    """

    _by_model: "OrderedDict[tuple[str, str], Capabilities]" = field(default_factory=OrderedDict)
    _by_schema: "OrderedDict[tuple[str, str, str], OutputMode]" = field(default_factory=OrderedDict)

    def of(self, base_url: str, model: str, call: ModelCall) -> Capabilities:
        """Return the known capabilities for a call."""
        capabilities = self._by_model.get((base_url, model), Capabilities())
        mode = self._by_schema.get((base_url, model, _digest(call))) if call.output is not None else None
        return capabilities if mode is None else replace(capabilities, mode=mode)

    def store(
        self, base_url: str, model: str, call: ModelCall, *, worked: Capabilities, refused: Sequence[ServiceError]
    ) -> None:
        """Store the capabilities that worked.

        Args:
            refused: errors of the attempts with other capabilities.
        """
        previous = self._by_model.get((base_url, model), Capabilities())
        learned = worked if call.output is not None else replace(worked, mode=previous.mode)
        if learned.mode is not previous.mode and any(map(_is_of_schema, refused)):
            # Another schema may be accepted.
            _put(self._by_schema, (base_url, model, _digest(call)), worked.mode)
            learned = replace(learned, mode=previous.mode)
        elif (base_url, model, _digest(call)) in self._by_schema:
            learned = replace(learned, mode=previous.mode)
        if learned != previous:
            _put(self._by_model, (base_url, model), learned)


def _put(table: "OrderedDict[Any, Any]", key: Any, value: Any) -> None:
    table[key] = value
    table.move_to_end(key)
    while len(table) > _MAX_ENTRIES:
        table.popitem(last=False)


def _is_of_schema(refused: ServiceError) -> bool:
    """Check whether a server rejected this schema, and not the mode."""
    return "invalid schema" in f"{refused.body.message} {refused.body.text}".lower()


def _digest(call: ModelCall) -> str:
    if call.output is None:
        return ""
    return hashlib.sha256(json.dumps(call.output.schema, sort_keys=True).encode()).hexdigest()
