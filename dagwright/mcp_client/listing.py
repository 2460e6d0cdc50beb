"""Convert the tools that a server lists into tools of a plan.

If the schema of a tool is invalid, the tool accepts any arguments, and the server checks them. The effects, which
control how a tool is run, come from the annotations of the tool, unless the configuration file sets them.
"""

import hashlib
import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dagwright.core.model.argument_checks import SchemaOfTool
from dagwright.core.model.tools import Effects, ToolDeclaration
from dagwright.core.name_hints import suggestion
from dagwright.mcp_client.config import ServerConfig, ToolRules
from dagwright.tools.errors import ToolLoadError
from dagwright.tools.spec import validate_declaration

MAX_DESCRIPTION_CHARACTERS = 4_000
"""Maximum length of a tool's description, which is untrusted text that is shown to people and models."""

_MAX_WRITE_ATTEMPTS = 3
"""Maximum number of attempts of a `write` tool. A call is retried only if it is known not to have started."""

# structlog would write to stdout in a command that has not configured logging.
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ListedTool:
    """A tool of a server.

    Args:
        name: name on the server.
        declaration: declaration for plans; its version is the result of `version_of`.
        reads_json: whether text results are parsed as JSON.
    """

    name: str
    declaration: ToolDeclaration
    reads_json: bool


def listed_tools(server: ServerConfig, protocol_tools: Iterable[Mapping[str, Any]]) -> list[ListedTool]:
    """Return the tools of a server, in the order of the server.

    Args:
        protocol_tools: the tools in the form of the protocol.

    Raises:
        ToolLoadError: the file names a tool that the server does not have, or a name is too long.
    """
    tools = {str(tool["name"]): tool for tool in protocol_tools}
    for name in server.rules.tools:
        if name not in tools:
            hint = suggestion(name, list(tools)) or f"it has {', '.join(tools) or 'none'}"
            raise ToolLoadError(f"/mcpServers/{server.name}/dagwright/tools: the server has no tool {name!r}; {hint}")
    return [_listed_tool(server, tool) for tool in tools.values()]


def versions_of(server: ServerConfig, protocol_tools: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the version of each tool: name on the server -> version."""
    return {str(tool["name"]): version_of(tool, _rules_of(server, str(tool["name"]))) for tool in protocol_tools}


def version_of(tool: Mapping[str, Any], rules: ToolRules) -> str:
    """Return a hash (12 hex digits) of the input schema, output schema and effects: plans are checked against these."""
    hashed_values = [tool.get("inputSchema"), tool.get("outputSchema"), _effects_of(tool, rules)]
    return hashlib.sha256(json.dumps(hashed_values, sort_keys=True).encode()).hexdigest()[:12]


def _listed_tool(server: ServerConfig, tool: Mapping[str, Any]) -> ListedTool:
    name = str(tool["name"])
    rules = _rules_of(server, name)
    effects = _effects_of(tool, rules)
    declaration = ToolDeclaration(
        name=f"{server.name}.{name}",
        input_schema=_schema_of(server, tool),
        max_parallel=rules.max_parallel,
        max_attempts=_MAX_WRITE_ATTEMPTS if effects is Effects.WRITE else None,
        version=version_of(tool, rules),
        is_pinned=True,
        description=str(tool.get("description") or tool.get("title") or "")[:MAX_DESCRIPTION_CHARACTERS],
    )
    try:
        checked_declaration = validate_declaration(declaration, effects, timeout=rules.timeout)
    except ValueError as error:
        raise ToolLoadError(f"/mcpServers/{server.name}: {error}") from None
    return ListedTool(name, checked_declaration, reads_json=rules.result != "text")


def _rules_of(server: ServerConfig, tool: str) -> ToolRules:
    return server.rules.tools.get(tool, ToolRules()).with_defaults(server.rules)


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
