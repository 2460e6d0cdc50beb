"""Describe which calls use a looked-up entity: a person who selects one of several matches has to know these calls."""

from collections.abc import Iterator
from itertools import islice

from dagwright.core.expressions.references import Reference, ResultOf
from dagwright.core.model.compiled import CompiledNode, CompiledPlan
from dagwright.core.model.lookups import id_of_find_node, lookup_text
from dagwright.core.text import cut_characters, one_line

_MAX_USES_SHOWN = 3
_MAX_NODES_SEARCHED = 2_000
"""Maximum number of nodes that each request searches for uses; uses by later nodes are not described."""
_MAX_FACTS_SHOWN = 6
_MAX_CHARACTERS = 60


def use_of_lookup(plan: CompiledPlan, find_id: str) -> str:
    """Return a sentence about the use of a looked-up entity; empty if no use is found.

    Args:
        find_id: id of the find node of the lookup.
    """
    lookup_nodes = {node.id: node for node in plan.nodes[plan.visible_count : plan.count_without_regions]}
    uses = [*islice(_uses(plan, find_id, lookup_nodes), _MAX_USES_SHOWN + 1)]
    if not uses:
        return ""
    suffix = " Other nodes need it too." if len(uses) > _MAX_USES_SHOWN else ""
    return f"It is for {'; '.join(uses[:_MAX_USES_SHOWN])}.{suffix}"


def _uses(plan: CompiledPlan, find_id: str, lookup_nodes: dict[str, CompiledNode]) -> Iterator[str]:
    for node in plan.nodes[: min(plan.visible_count, _MAX_NODES_SEARCHED)]:
        parts = [(path, template[0]) for path, template in node.bindings if path]
        argument_names = [
            str(path[0])
            for path, part in parts
            if isinstance(part, ResultOf) and id_of_find_node(lookup_nodes.get(part.node_id), part.path) == find_id
        ]
        if argument_names:
            yield _description_of(plan, node, argument_names)


def _description_of(plan: CompiledPlan, node: CompiledNode, looked_up_arguments: list[str]) -> str:
    """Format a call with its other arguments: `item-id of @result_2 (orders.add, amount 3)`."""
    if node.kind == "plan":
        # The argument names of lookups in a sub-plan are generated.
        return " ".join(filter(None, [node.id, node.title and f"({_short(node.title)})"]))
    references = {str(path[0]): template for path, template in node.bindings if len(path) == 1 and len(template) == 1}
    facts = [node.tool or node.kind]
    for name, value in node.arguments.items():
        if name in looked_up_arguments:
            continue
        if isinstance(value, str | int | float):
            facts.append(f"{name} {_short(str(value))}")
        elif name in references and (target_text := _target_text(plan, references[name][0])) is not None:
            facts.append(f"{name} {target_text}")
    return f"{' and '.join(looked_up_arguments)} of {node.id} ({', '.join(facts[:_MAX_FACTS_SHOWN])})"


def _target_text(plan: CompiledPlan, part: Reference | str) -> str | None:
    """Describe the target of a reference: a looked-up entity, or a node with the argument `name` of its call."""
    if not isinstance(part, ResultOf):
        return None
    if (text := lookup_text(plan, part)) is not None:
        return _short(text)
    producer = next((node for node in plan.nodes[:_MAX_NODES_SEARCHED] if node.id == part.node_id), None)
    name = producer.arguments.get("name") if producer is not None else None
    return f"{part.node_id} {_short(name)!r}" if isinstance(name, str) else part.node_id


def _short(text: str) -> str:
    return cut_characters(one_line(text), _MAX_CHARACTERS)
