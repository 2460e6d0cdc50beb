"""From what a server says of its tools to what a plan knows of them.

A server's words are judged as little as possible: a tool whose schema cannot be read takes any arguments, and the
server checks them. What decides how a tool is run, its effects, comes from its annotations, unless the file says
otherwise.
"""

import hashlib
import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dagwright.core.expressions.references import suggestion
from dagwright.core.model.argument_checks import SchemaOfTool
from dagwright.core.model.tools import Effects, ToolDeclaration
from dagwright.mcp_client.config import ServerConfig, ToolRules
from dagwright.tools.errors import ToolLoadError
from dagwright.tools.spec import validate_declaration

DESCRIPTION_CHARACTERS = 4_000
"""Of a server's words; they are shown to people and models, and are nobody's we know."""

_NOT_BEGUN_ATTEMPTS = 3
"""Tries of a `write`: only a call that is known not to have begun is made again."""

# Not structlog, which writes to stdout in a command that has configured no log.
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ListedTool:
    """A tool of a server.

    Args:
        name: as the server calls it.
        declaration: what a plan knows; its version is what `version_of` says.
        reads_json: whether a text that it answers is read as JSON.
    """

    name: str
    declaration: ToolDeclaration
    reads_json: bool


def listed_tools(server: ServerConfig, told: Iterable[Mapping[str, Any]]) -> list[ListedTool]:
    """Returns the tools of a server, in its order.

    Args:
        told: the tools as the protocol has them.

    Raises:
        ToolLoadError: the file names a tool that the server does not have, or a name is too long.
    """
    tools = {str(tool["name"]): tool for tool in told}
    for name in server.rules.tools:
        if name not in tools:
            hint = suggestion(name, list(tools)) or f"it has {', '.join(tools) or 'none'}"
            raise ToolLoadError(f"/mcpServers/{server.name}/dagwright/tools: the server has no tool {name!r}; {hint}")
    return [_listed(server, tool) for tool in tools.values()]


def versions_of(server: ServerConfig, told: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Returns the version of each tool: name as the server has it -> `version_of`."""
    return {str(tool["name"]): version_of(tool, _rules_of(server, str(tool["name"]))) for tool in told}


def version_of(tool: Mapping[str, Any], rules: ToolRules) -> str:
    """Returns 12 hex digits of all that a plan was checked against: what goes in, what comes out, and the effects."""
    told = [tool.get("inputSchema"), tool.get("outputSchema"), _effects_of(tool, rules)]
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:12]


def _listed(server: ServerConfig, tool: Mapping[str, Any]) -> ListedTool:
    name = str(tool["name"])
    rules = _rules_of(server, name)
    effects = _effects_of(tool, rules)
    declaration = ToolDeclaration(
        name=f"{server.name}.{name}",
        input_schema=_schema_of(server, tool),
        max_parallel=rules.max_parallel,
        max_attempts=_NOT_BEGUN_ATTEMPTS if effects is Effects.WRITE else None,
        version=version_of(tool, rules),
        is_pinned=True,
        description=str(tool.get("description") or tool.get("title") or "")[:DESCRIPTION_CHARACTERS],
    )
    try:
        checked = validate_declaration(declaration, effects, timeout=rules.timeout)
    except ValueError as error:
        raise ToolLoadError(f"/mcpServers/{server.name}: {error}") from None
    return ListedTool(name, checked, reads_json=rules.result != "text")


def _rules_of(server: ServerConfig, tool: str) -> ToolRules:
    return server.rules.tools.get(tool, ToolRules()).over(server.rules)


def _effects_of(tool: Mapping[str, Any], rules: ToolRules) -> Effects:
    if rules.effects is not None:
        return Effects(rules.effects)
    annotations = tool.get("annotations") or {}
    if annotations.get("readOnlyHint") is True:
        return Effects.READ
    return Effects.IDEMPOTENT if annotations.get("idempotentHint") is True else Effects.WRITE


def _schema_of(server: ServerConfig, tool: Mapping[str, Any]) -> Mapping[str, Any] | None:
    schema = tool.get("inputSchema")
    if not isinstance(schema, dict):
        return None
    try:
        SchemaOfTool(schema)
    except ValueError as error:
        _LOG.warning("arguments of %s.%s are not checked before the run: %s", server.name, tool["name"], error)
        return None
    return schema
