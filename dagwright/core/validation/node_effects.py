"""What a tool lets a node do: the effects of its calls, which the author may declare, and whether it gets secrets.

The author may declare a call `idempotent` whose tool cannot know it, such as a POST to a service that honours the
header `Idempotency-Key`. A model cannot: `dagwright.planner.reading` drops what it declares.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dagwright.core.model.plan import Node
from dagwright.core.model.tools import Effects, ToolDeclaration, effects_of_call


def effects_of_node(
    tool: ToolDeclaration | None, node: Node, arguments: Mapping[str, Any], *, unknown: Iterable[Sequence[Any]]
) -> str | None:
    """Return the effects of the calls of a node where they are other than those of its tool.

    Args:
        arguments: of the node.
        unknown: paths into them whose values are not there yet.
    """
    if tool is None:
        return None
    found = effects_of_call(tool, arguments, unknown=unknown)
    if node.effects is not None and found not in (Effects.PURE, Effects.READ):
        found = Effects(node.effects)
    return None if found is tool.effects else found.value


def problem_of_effects(tool: ToolDeclaration | None, node: Node) -> tuple[str, str] | None:
    """Check the effects that a node declares; returns the problem and a hint, or `None`."""
    if node.effects is None or (tool is not None and tool.effects_by is not None):
        return None
    name = node.tool or node.agent_name
    if name is None:
        return "'effects' needs a tool", "leave 'effects' out"
    if tool is None:
        return None
    words = f"the effects of {name!r} do not depend on its arguments: they are {tool.effects.value!r} in every call"
    return words, "leave 'effects' out; the tool declares its effects"


def problem_of_secrets(tool: ToolDeclaration) -> tuple[str, str | None] | None:
    """Check that a tool takes secrets in its arguments; returns the problem and a hint, or `None`."""
    if tool.is_foreign:
        return f"{tool.name!r} runs in a foreign worker, which cannot be given secrets", None
    if tool.never_takes_secrets:
        return f"{tool.name!r} takes no secrets", "give the secret to the tool that needs it, and bind it on the worker"
    return None
