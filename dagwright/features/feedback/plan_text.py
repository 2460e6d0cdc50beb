"""A plan in words, for a person who is to say whether it may run: its graph, and what in it changes something.

Pure, and the same for whoever asks: the command line before it starts a run, or the run itself.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace

import pydantic_core

from dagwright.core.expressions.paths import with_parts
from dagwright.core.expressions.references import Reference, ResultOf, Template
from dagwright.core.model.agents import strongest
from dagwright.core.model.compiled import HIDDEN_KINDS, CompiledNode, CompiledPlan, agent_tools, tool_of
from dagwright.core.model.lookups import lookup_text
from dagwright.core.model.tools import Effects

_NODES_SHOWN = 40
_ARGUMENTS_SHOWN = 160
"""Characters of the arguments of one call, and of the ids that a node waits for."""
_NAME_SHOWN = 80
"""Characters of a title, an id or the name of a tool."""
_CHARACTERS = 6_000
"""Of all lines together, so that they fit into a question with what else stands there."""
_CHANGING = (Effects.IDEMPOTENT, Effects.WRITE)
_INDENT = "  "


def plan_words(plan: CompiledPlan) -> str:
    """Returns what a plan does, in lines: how much it changes, then node by node, `!` before what changes something."""
    return words_and_shown(plan)[0]


def words_and_shown(plan: CompiledPlan, *, there: Collection[str] = ()) -> tuple[str, Sequence[str]]:
    """Returns what a plan does, in lines, and the ids of its nodes of which all stands there.

    Args:
        there: ids of nodes that have ended already, and are not told of.
    """
    count, changing = _counts(replace(plan, nodes=[node for node in plan.nodes if node.id not in there]))
    nodes = f"{count:,} node{'' if count == 1 else 's'}"
    changes = f"{changing:,} of them can change something" if changing else "none of them changes anything"
    called = f" {plan.title!r:.200}" if plan.title else ""
    head = f"The plan{called} has {nodes}; {changes}."
    lines, shown = _lines(plan, indent="", room=_CHARACTERS - len(head), there=there)
    return "\n".join([head, *lines]), shown


def changes_something(plan: CompiledPlan, node: CompiledNode) -> bool:
    """Tells whether a node calls a tool that changes the world, or may do so for all that is known."""
    return (node.kind == "tool" or agent_tools(node) is not None) and _effects_of(plan, node) in _CHANGING


def changes_of(plan: CompiledPlan) -> int:
    """Returns how many nodes of a plan change something, with those of its sub-plans."""
    return _counts(plan)[1]


def _effects_of(plan: CompiledPlan, node: CompiledNode) -> Effects:
    if (called := agent_tools(node)) is not None:
        return strongest(called.values())
    return tool_of(node, plan.tools).effects


def _has_plan(node: CompiledNode) -> bool:
    """Tells whether a node is a plan that somebody wrote; what an agent does is not known before."""
    return node.sub_plan is not None and agent_tools(node) is None


def _counts(plan: CompiledPlan) -> tuple[int, int]:
    """Returns how many nodes a plan has, and how many of them change something, with those of its sub-plans."""
    count, changing = 0, 0
    for node in plan.nodes:
        # The inside of a region that is not in the plan is pure.
        count += node.inner_count if node.kind in HIDDEN_KINDS else 1
        changing += changes_something(plan, node)
        if _has_plan(node) and node.sub_plan is not None:
            below = _counts(node.sub_plan)
            count, changing = count + below[0], changing + below[1]
    return count, changing


def _lines(plan: CompiledPlan, *, indent: str, room: int, there: Collection[str] = ()) -> tuple[list[str], list[str]]:
    """Returns the lines of the nodes of a plan, as many as there is room for, and the ids of those shown as a whole.

    Args:
        room: characters.
    """
    written = [node for node in plan.nodes[: plan.written_count] if node.id not in there]
    told = list(written)
    if len(written) > _NODES_SHOWN:
        told = [node for node in written if changes_something(plan, node) or _has_plan(node)][:_NODES_SHOWN]
    lines: list[str] = []
    whole: list[str] = []
    left = {node.id: node for node in written}
    for node in told:
        line = f"{indent}{'!' if changes_something(plan, node) else '-'} {_node_words(plan, node)}"
        room -= len(line) + 1
        if room < 0:
            break
        del left[node.id]
        lines.append(line)
        is_whole = True
        if _has_plan(node) and node.sub_plan is not None:
            below, whole_below = _lines(node.sub_plan, indent=indent + _INDENT, room=room)
            is_whole = len(whole_below) == node.sub_plan.written_count
            lines += below
            room -= sum(len(each) + 1 for each in below)
        if is_whole:
            whole.append(node.id)
    if left:
        lines.append(f"{indent}{_left_out(plan, [*left.values()])}")
    return lines, whole


def _left_out(plan: CompiledPlan, left: Sequence[CompiledNode]) -> str:
    changing = sum(_counts(replace(plan, nodes=(node,)))[1] for node in left)
    return f"… and {len(left):,} more" + (f", {changing:,} of them can change something" if changing else "")


def _node_words(plan: CompiledPlan, node: CompiledNode) -> str:
    each = " for each item of a list" if node.for_each is not None else ""
    needs = [plan.nodes[number].id for number in node.dependencies if plan.nodes[number].kind not in HIDDEN_KINDS]
    after = f", after {one_line(', '.join(needs), most=_ARGUMENTS_SHOWN)}" if needs else ""
    is_agent = agent_tools(node) is not None
    what = "" if is_agent else {"plan": "a sub-plan", "human": "asks a person"}.get(node.kind, "")
    if not what:
        what = f"{one_line(node.tool, most=_NAME_SHOWN)} ({_effects_of(plan, node).value})"
    given = f" with {_arguments(plan, node)}" if changes_something(plan, node) and node.arguments else ""
    title = f" “{one_line(node.title, most=_NAME_SHOWN)}”" if node.title else ""
    return f"{one_line(node.id, most=_NAME_SHOWN)}{title}: {what}{each}{given}{after}"


def _arguments(plan: CompiledPlan, node: CompiledNode) -> str:
    """Returns the arguments as JSON: what is looked up in its words, whole results by reference, `…` for others."""
    parts = [(path, _part_words(plan, template)) for path, template in node.holes]
    shown = with_parts(node.arguments, parts)
    return one_line(pydantic_core.to_json(shown).decode(), most=_ARGUMENTS_SHOWN)


def _part_words(plan: CompiledPlan, template: Template) -> str:
    part = template[0] if len(template) == 1 else ""
    if isinstance(part, str):
        return "…"
    return lookup_text(plan, part) or _written_reference(plan, part) or "…"


def _written_reference(plan: CompiledPlan, part: Reference) -> str | None:
    """Returns a reference to a node that somebody wrote, as it was written; `None` for any other."""
    if not isinstance(part, ResultOf) or all(node.id != part.node for node in plan.nodes[: plan.written_count]):
        return None
    return str(part) if part.field == "identity" else f"{{{{{part}}}}}"


def one_line(text: str, *, most: int) -> str:
    """Returns a text on one line, cut with a mark; what would not be seen, or move what is, stands there as its code.

    A title must not be able to look like a line of its own.
    """
    cut = text if len(text) <= most else text[: most - 1] + "…"
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in cut)
