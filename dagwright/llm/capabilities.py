"""How a server wants to be asked: what it refused is asked in another way, and what worked is remembered.

Servers that speak OpenAI's protocol take different parts of it. A request that one of them refuses costs no tokens, so
the client tries again at once with less, and the next call of the same model begins where the last one ended.
"""

import hashlib
import json
import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from dagwright.llm.errors import ServiceError, model_error_of
from dagwright.planning.model_calls.calls import ModelCall, ModelError


class OutputMode(StrEnum):
    """How a model is brought to answer with JSON, the best first."""

    SCHEMA = "json_schema"
    JSON = "json_object"
    TOOL = "tool"
    TEXT = "text"


_MODES = tuple(OutputMode)
_OPTIONAL = ("metadata", "stream_options")
"""Fields that a call does without where a server refuses them."""
_OF_OUTPUT = frozenset({"response_format", "tools", "tool_choice", "text", "messages"})
"""What a server may name as wrong if it does not take the way in which JSON is asked for."""
_MAX_TOKENS, _MAX_COMPLETION_TOKENS = "max_tokens", "max_completion_tokens"
_REMEMBERED = 1_000
"""Models, and schemas that servers refuse; the names come from requests."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """One way to ask.

    Args:
        mode: how JSON is asked for, if it is.
        without: optional fields that are left out.
        limit: name of the field for `max_tokens`; newer models of OpenAI take another.
    """

    mode: OutputMode = OutputMode.SCHEMA
    without: frozenset[str] = frozenset()
    limit: str = _MAX_TOKENS


def next_capabilities(
    capabilities: Capabilities, trouble: ServiceError, body: Mapping[str, Any]
) -> Capabilities | None:
    """Returns how to ask after a server has refused a request; `None` if that was not for how it was asked.

    Args:
        body: the request that it refused.
    """
    if trouble.kind != "status" or model_error_of(trouble) is not ModelError.REQUEST_INVALID:
        return None
    param, words = trouble.body.param, f"{trouble.body.message} {trouble.body.text}"
    for name in _OPTIONAL:
        if name in body and name not in capabilities.without and (param == name or re.search(rf"\b{name}\b", words)):
            return replace(capabilities, without=capabilities.without | {name})
    if _MAX_TOKENS in body and (param == _MAX_TOKENS or _MAX_COMPLETION_TOKENS in words):
        return replace(capabilities, limit=_MAX_COMPLETION_TOKENS)
    is_about_output = not param or param.partition(".")[0].partition("[")[0] in _OF_OUTPUT
    if _asks_for_json(body) and capabilities.mode is not OutputMode.TEXT and is_about_output:
        return replace(capabilities, mode=_MODES[_MODES.index(capabilities.mode) + 1])
    return None


def _asks_for_json(body: Mapping[str, Any]) -> bool:
    """Tells whether a request asks for JSON in a way that a server may refuse."""
    return "response_format" in body or "tool_choice" in body


@dataclass(slots=True)
class CapabilityCache:
    """What is known of all servers and models of a process.

    Safe for many calls at once: each learns for itself, and what they learn is the same.
    """

    _by_model: "OrderedDict[tuple[str, str], Capabilities]" = field(default_factory=OrderedDict)
    _by_schema: "OrderedDict[tuple[str, str, str], OutputMode]" = field(default_factory=OrderedDict)

    def of(self, base_url: str, model: str, call: ModelCall) -> Capabilities:
        """Returns how to ask."""
        capabilities = self._by_model.get((base_url, model), Capabilities())
        mode = self._by_schema.get((base_url, model, _digest(call))) if call.output is not None else None
        return capabilities if mode is None else replace(capabilities, mode=mode)

    def remember(
        self, base_url: str, model: str, call: ModelCall, *, worked: Capabilities, refused: Sequence[ServiceError]
    ) -> None:
        """Takes note of what worked.

        Args:
            refused: why the server did not take how it was asked before.
        """
        known = self._by_model.get((base_url, model), Capabilities())
        learned = worked if call.output is not None else replace(worked, mode=known.mode)
        if learned.mode is not known.mode and any(map(_is_of_schema, refused)):
            # Another schema may do very well.
            _keep(self._by_schema, (base_url, model, _digest(call)), worked.mode)
            learned = replace(learned, mode=known.mode)
        elif (base_url, model, _digest(call)) in self._by_schema:
            learned = replace(learned, mode=known.mode)
        if learned != known:
            _keep(self._by_model, (base_url, model), learned)


def _keep(table: "OrderedDict[Any, Any]", key: Any, value: Any) -> None:
    table[key] = value
    table.move_to_end(key)
    while len(table) > _REMEMBERED:
        table.popitem(last=False)


def _is_of_schema(refused: ServiceError) -> bool:
    """Tells whether a server refused this very schema, and not the mode."""
    return "invalid schema" in f"{refused.body.message} {refused.body.text}".lower()


def _digest(call: ModelCall) -> str:
    if call.output is None:
        return ""
    return hashlib.sha256(json.dumps(call.output.schema, sort_keys=True).encode()).hexdigest()
