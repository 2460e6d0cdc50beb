"""Text form of a plan for a person who approves it: its graph, and the nodes that change something.

The command line, which requests the approval before a run, and the run itself use the same text.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace

import pydantic_core

from dagwright.core.expressions.paths import replace_parts
from dagwright.core.expressions.references import Reference, ResultOf, Template
from dagwright.core.model.agents import strongest_effects
from dagwright.core.model.compiled import HIDDEN_KINDS, CompiledNode, CompiledPlan, agent_tools, tool_of
from dagwright.core.model.lookups import lookup_text
from dagwright.core.model.tools import Effects
from dagwright.core.text import cut_characters, format_count

_MAX_NODES_SHOWN = 40
_MAX_ARGUMENTS_CHARACTERS = 160
"""Longest text of the arguments of one call, and of the ids of a node's dependencies."""
_MAX_NAME_CHARACTERS = 80
"""Longest title, id or name of a tool."""
_MAX_CHARACTERS = 6_000
"""Maximum number of characters of all lines, so that the text fits into a request."""
_CHANGING_EFFECTS = (Effects.IDEMPOTENT, Effects.WRITE)
_INDENT = "  "


def plan_summary(plan: CompiledPlan) -> str:
    """Describe a plan in lines: a summary, then one line per node, with `!` before nodes that change something."""
    return summary_and_described_ids(plan)[0]


def summary_and_described_ids(plan: CompiledPlan, *, ended_ids: Collection[str] = ()) -> tuple[str, Sequence[str]]:
    """Describe a plan in lines, and return the ids of the nodes that are described completely.

    Args:
        ended_ids: ids of nodes to omit, because they have already ended.
    """
    count, changing_count = _counts(replace(plan, nodes=[node for node in plan.nodes if node.id not in ended_ids]))
    count_text = format_count(count, "node")
    changes_text = (
        f"{changing_count:,} of them can change something" if changing_count else "none of them changes anything"
    )
    title_text = f" {plan.title!r:.200}" if plan.title else ""
    head = f"The plan{title_text} has {count_text}; {changes_text}."
    lines, described_ids = _lines(plan, indent="", max_characters=_MAX_CHARACTERS - len(head), ended_ids=ended_ids)
    return "\n".join([head, *lines]), described_ids


def changes_something(plan: CompiledPlan, node: CompiledNode) -> bool:
    """Return whether a node calls, or may call, a tool that changes something."""
    return (node.kind == "tool" or agent_tools(node) is not None) and _effects_of(plan, node) in _CHANGING_EFFECTS


def changing_node_count(plan: CompiledPlan) -> int:
    """Return how many nodes of a plan and its sub-plans change something."""
    return _counts(plan)[1]


def _effects_of(plan: CompiledPlan, node: CompiledNode) -> Effects:
    if (tool_effects := agent_tools(node)) is not None:
        return strongest_effects(tool_effects.values())
    return tool_of(node, plan.tools).effects


def _has_written_sub_plan(node: CompiledNode) -> bool:
    """Return whether the plan contains the nodes of a node's sub-plan. The nodes of an agent are not known yet."""
    return node.sub_plan is not None and agent_tools(node) is None


def _counts(plan: CompiledPlan) -> tuple[int, int]:
    """Return the number of nodes of a plan and its sub-plans, and how many of them change something."""
    count, changing_count = 0, 0
    for node in plan.nodes:
        # The nodes of an offloaded region are pure.
        count += node.inner_count if node.kind in HIDDEN_KINDS else 1
        changing_count += changes_something(plan, node)
        if _has_written_sub_plan(node) and node.sub_plan is not None:
            inner_count, inner_changing_count = _counts(node.sub_plan)
            count, changing_count = count + inner_count, changing_count + inner_changing_count
    return count, changing_count


def _lines(
    plan: CompiledPlan, *, indent: str, max_characters: int, ended_ids: Collection[str] = ()
) -> tuple[list[str], list[str]]:
    """Return as many lines of nodes as fit into `max_characters`, and the ids of the completely described nodes."""
    visible_nodes = [node for node in plan.nodes[: plan.visible_count] if node.id not in ended_ids]
    shown_nodes = list(visible_nodes)
    if len(visible_nodes) > _MAX_NODES_SHOWN:
        shown_nodes = [node for node in visible_nodes if changes_something(plan, node) or _has_written_sub_plan(node)]
    lines: list[str] = []
    complete_ids: list[str] = []
    omitted_nodes = {node.id: node for node in visible_nodes}
    for node in shown_nodes[:_MAX_NODES_SHOWN]:
        line = f"{indent}{'!' if changes_something(plan, node) else '-'} {_node_text(plan, node)}"
        max_characters -= len(line) + 1
        if max_characters < 0:
            break
        del omitted_nodes[node.id]
        lines.append(line)
        is_complete = True
        if _has_written_sub_plan(node) and node.sub_plan is not None:
            inner_lines, inner_ids = _lines(node.sub_plan, indent=indent + _INDENT, max_characters=max_characters)
            is_complete = len(inner_ids) == node.sub_plan.visible_count
            lines += inner_lines
            max_characters -= sum(len(inner_line) + 1 for inner_line in inner_lines)
        if is_complete:
            complete_ids.append(node.id)
    if omitted_nodes:
        lines.append(f"{indent}{_omission_line(plan, [*omitted_nodes.values()])}")
    return lines, complete_ids


def _omission_line(plan: CompiledPlan, nodes: Sequence[CompiledNode]) -> str:
    count = sum(_counts(replace(plan, nodes=(node,)))[1] for node in nodes)
    return f"… and {len(nodes):,} more" + (f", {count:,} of them can change something" if count else "")


def _node_text(plan: CompiledPlan, node: CompiledNode) -> str:
    for_each_text = " for each item of a list" if node.for_each is not None else ""
    dependency_ids = [
        plan.nodes[number].id for number in node.dependencies if plan.nodes[number].kind not in HIDDEN_KINDS
    ]
    after_text = (
        f", after {escaped_line(', '.join(dependency_ids), limit=_MAX_ARGUMENTS_CHARACTERS)}" if dependency_ids else ""
    )
    is_agent = agent_tools(node) is not None
    action = "" if is_agent else {"plan": "a sub-plan", "human": "asks a person"}.get(node.kind, "")
    if not action:
        action = f"{escaped_line(node.tool, limit=_MAX_NAME_CHARACTERS)} ({_effects_of(plan, node).value})"
    arguments = f" with {_arguments_text(plan, node)}" if changes_something(plan, node) and node.arguments else ""
    title = f" “{escaped_line(node.title, limit=_MAX_NAME_CHARACTERS)}”" if node.title else ""
    return f"{escaped_line(node.id, limit=_MAX_NAME_CHARACTERS)}{title}: {action}{for_each_text}{arguments}{after_text}"


def _arguments_text(plan: CompiledPlan, node: CompiledNode) -> str:
    """Format the arguments as JSON, with lookups as text, whole results as references and `…` for other templates."""
    parts = [(path, _part_text(plan, template)) for path, template in node.bindings]
    display_arguments = replace_parts(node.arguments, parts)
    return escaped_line(pydantic_core.to_json(display_arguments).decode(), limit=_MAX_ARGUMENTS_CHARACTERS)


def _part_text(plan: CompiledPlan, template: Template) -> str:
    part = template[0] if len(template) == 1 else ""
    if isinstance(part, str):
        return "…"
    return lookup_text(plan, part) or _written_reference(plan, part) or "…"


def _written_reference(plan: CompiledPlan, part: Reference) -> str | None:
    """Return the text of a reference to a node of the plan, such as `{{fetch.result}}`; `None` for other references."""
    if not isinstance(part, ResultOf) or all(node.id != part.node_id for node in plan.nodes[: plan.visible_count]):
        return None
    return str(part) if part.field == "identity" else f"{{{{{part}}}}}"


def escaped_line(text: str, *, limit: int) -> str:
    """Return a text on one line, truncated with `…` and with escape codes for unprintable characters.

    A title must not be able to imitate another line.
    """
    characters = cut_characters(text, limit)
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in characters
    )
