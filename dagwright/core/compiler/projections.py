"""Compute projections: the parts of a result that a plan reads, which a worker returns in place of a large result.

The analysis works on the compiled plan, before the run. Paths are followed through sub-plans in both directions: reads
of a sub-plan's input are reads of its node's arguments, and reads of a sub-plan's result are reads of its output's
values.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

from dagwright.core.expressions.condition_parser import parse_checked_condition
from dagwright.core.expressions.paths import element_steps
from dagwright.core.expressions.references import Item, Placeholder, Reference, ResultOf, Template
from dagwright.core.expressions.stored_values import Path, Projection, query_of
from dagwright.core.model.compiled import Binding, CompiledNode, CompiledPlan
from dagwright.core.model.graph import levels_of

Use = Literal["value", "whole"]
"""`value`: a large value may stay in the payload store. `whole`: the run itself needs the value, such as for a
condition."""

IDENTITY_FIELDS = ("id", "name", "kind")
"""Fields of a result that a session stores for a name."""
_ANY_INDEX = "\0any"
"""Path step that matches every element of a list; no key of a plan equals this step."""
_WORKER_FIELDS = ("status", "outputs", "error", "message")
"""Fields of a WorkerResult that a run reads."""


class _Read(NamedTuple):
    """A read of a part of a result, an input or an item.

    Args:
        name: id of the node, or name of the input; empty for an item.
    """

    source: Literal["node", "input", "item"]
    name: str
    path: Path
    use: Use


def with_projections(plan: CompiledPlan) -> CompiledPlan:
    """Return a plan whose nodes have projections of their results, including the nodes of sub-plans.

    Complexity: linear in the references of the plan.
    """
    return _analyse(plan, ())[0]


def _analyse(
    plan: CompiledPlan, output_reads: Sequence[Projection]
) -> tuple[CompiledPlan, Mapping[str, dict[Projection, None]]]:
    """Return the plan with projections, and the reads of its inputs.

    Args:
        output_reads: reads of the plan's output by the parent plan.
    """
    plan_reads = _PlanReads(plan)
    for read in [
        *_reads_of_bindings(plan.output_bindings),
        *_reads_of_output(plan, output_reads),
        *_reads_of_session(plan),
    ]:
        plan_reads.add(read)
    analysed_nodes: dict[int, CompiledNode] = {}
    for number in _dependents_first(plan):
        node = plan.nodes[number]
        for read in _reads_of(node, plan_reads.ids):
            plan_reads.add(read)
        if node.sub_plan is not None:
            # All nodes that read the result of this node have been visited, so all reads of its result are known.
            sub_plan, input_reads = _analyse(node.sub_plan, tuple(plan_reads.projections_by_node.get(node.id, ())))
            analysed_nodes[number] = replace(node, sub_plan=sub_plan)
            for read in _reads_of_inputs(node, input_reads):
                plan_reads.add(read)
    nodes = [analysed_nodes.get(number, node) for number, node in enumerate(plan.nodes)]
    return replace(
        plan, nodes=tuple(plan_reads.with_projections(node) for node in nodes)
    ), plan_reads.projections_by_input


def _dependents_first(plan: CompiledPlan) -> Sequence[int]:
    """Return the numbers of the nodes; in a plan with sub-plans, each node comes after its dependents."""
    if all(node.sub_plan is None for node in plan.nodes):
        return range(len(plan.nodes))
    levels = levels_of([node.dependencies for node in plan.nodes]) or [0] * len(plan.nodes)
    return sorted(range(len(plan.nodes)), key=lambda number: -levels[number])


class _PlanReads:
    """The reads found so far in one plan, by node and by input."""

    def __init__(self, plan: CompiledPlan) -> None:
        self._nodes = {node.id: node for node in plan.nodes}
        self.ids = self._nodes.keys()
        self.projections_by_node: dict[str, dict[Projection, None]] = {}
        self.projections_by_input: dict[str, dict[Projection, None]] = {}

    def add(self, read: _Read) -> None:
        """Record a read."""
        if read.source == "input":
            self.projections_by_input.setdefault(read.name, {})[read.path, read.use] = None
        elif read.source == "node" and (node := self._nodes.get(read.name)) is not None:
            path = read.path if node.for_each is None else _inside_item(read.path)
            # Parts of list elements are never separate projections: they are only returned with the list.
            if path is not None and (node.sub_plan is not None or isinstance(path, str) or _ANY_INDEX not in path):
                self.projections_by_node.setdefault(read.name, {})[path, read.use] = None

    def with_projections(self, node: CompiledNode) -> CompiledNode:
        """Return a node with the projections of its result."""
        if node.kind == "lookup" and node.projections:
            # A lookup has fixed projections, which do not depend on reads.
            return node
        projections = [*self.projections_by_node.get(node.id, ())] if node.sub_plan is None else []
        if node.is_worker:
            # A worker tool returns a WorkerResult or only its outputs. The outputs are the result of the node.
            nested_projections: list[Projection] = [
                (("outputs", *path), use) for path, use in projections if not isinstance(path, str)
            ]
            projections += [*nested_projections, *[((name,), "value") for name in _WORKER_FIELDS]]
        return replace(node, projections=tuple(projections)) if projections else node


def _inside_item(path: Path) -> Path | None:
    """Convert a path in the list of item results to a path in each item; `None` for the list itself."""
    if isinstance(path, str):
        return element_steps(path)
    return path[1:] if path else None


# Reads.


def _reads_of(node: CompiledNode, ids: Collection[str]) -> Iterator[_Read]:
    """Yield the reads of a node: of other nodes, of inputs, and of the list of its items."""
    items = node.for_each[0] if isinstance(node.for_each, tuple) else None
    reads = [
        *_reads_of_bindings(node.bindings),
        *_reads_of_bindings(node.item_bindings),
        *_reads_of_template(node.key or ()),
    ]
    if items is not None and not isinstance(items, str):
        reads += _reads_of_reference(items, "whole")
    reads += _reads_of_bindings(node.approval_bindings)
    if node.kind == "human":
        # The run itself shows the options to people, so it needs their values.
        reads += _reads_of_options(node)
    if node.when is not None:
        reads += _reads_of_condition(node.when, ids)
    for read in reads:
        if read.source != "item":
            yield read
        elif items is not None and not isinstance(items, str) and not isinstance(read.path, str):
            for items_read in _reads_of_reference(items, read.use):
                if not isinstance(items_read.path, str):
                    yield items_read._replace(path=(*items_read.path, _ANY_INDEX, *read.path))
    if items is not None and not isinstance(items, str):
        for path, _ in parts_of_key(node):
            for items_read in _reads_of_reference(items, "whole"):
                if not isinstance(items_read.path, str) and not isinstance(path, str):
                    # A large list stays in the payload store, and the run needs only the key of each item.
                    yield items_read._replace(path=f"{query_of(items_read.path)}[*]{query_of(path)[1:]}")


def _reads_of_options(node: CompiledNode) -> Iterator[_Read]:
    for path, template in node.bindings:
        if path[0] == "options":
            yield from (
                read for part in template if not isinstance(part, str) for read in _reads_of_reference(part, "whole")
            )


def _reads_of_session(plan: CompiledPlan) -> Iterator[_Read]:
    """Yield the reads of a session: results of tools that set a name in the session."""
    for node in plan.nodes:
        tool = plan.tools.get(node.tool)
        if tool is not None and tool.sets is not None:
            yield from (_Read("node", node.id, (key,), "value") for key in IDENTITY_FIELDS)


def _reads_of_bindings(bindings: Sequence[Binding]) -> Iterator[_Read]:
    for _, template in bindings:
        yield from _reads_of_template(template)


def _reads_of_template(template: Template) -> Iterator[_Read]:
    for part in template:
        if not isinstance(part, str):
            # A value that is read as a whole needs no projection: a large value is passed by reference.
            yield from (read for read in _reads_of_reference(part, "value") if read.path != ())


def _reads_of_reference(reference: Reference, use: Use) -> Iterator[_Read]:
    match reference:
        case ResultOf(node_id, "identity"):
            yield _Read("node", node_id, ("id",), use)
        case ResultOf(node_id, "result", path):
            yield _Read("node", node_id, path, use)
        case Placeholder(name):
            yield _Read("input", name, (), use)
        case Item(path):
            yield _Read("item", "", path, use)


def _reads_of_condition(text: str, ids: Collection[str]) -> Iterator[_Read]:
    for read in parse_checked_condition(text, ids.__contains__).analysis.reads:
        use: Use = "whole" if read.aspect == "value" else "value"
        match read.source, read.steps:
            case "nodes", ("result", *steps):
                result_read = _Read("node", read.node_id, tuple(steps), use)
            case "inputs", (name, *steps):
                result_read = _Read("input", str(name), tuple(steps), use)
            case "item", steps:
                result_read = _Read("item", "", tuple(steps), use)
            case _:
                continue
        yield result_read
        if read.aspect == "presence" and result_read.path:
            # A presence check needs the object that contains the field.
            yield result_read._replace(path=result_read.path[:-1])


# Through sub-plans.


def _reads_of_inputs(node: CompiledNode, input_reads: Mapping[str, dict[Projection, None]]) -> Iterator[_Read]:
    """Yield the reads of a sub-plan node's arguments that follow from reads of the sub-plan's inputs."""
    for name, projections in input_reads.items():
        for path, use in projections:
            if not isinstance(path, str):
                yield from _reads_through_references(node.bindings, (name, *path), use)


def _reads_of_output(plan: CompiledPlan, output_reads: Sequence[Projection]) -> Iterator[_Read]:
    """Yield the reads in this plan that follow from reads of its output by the parent plan."""
    has_template = plan.output is not None or plan.output_bindings
    for path, use in output_reads:
        if isinstance(path, str):
            continue
        if has_template:
            yield from _reads_through_references(plan.output_bindings, path, use)
        elif path:
            yield _Read("node", str(path[0]), path[1:], use)


def _reads_through_references(bindings: Sequence[Binding], path: tuple[str | int, ...], use: Use) -> Iterator[_Read]:
    """Yield the reads of the references that supply the part at `path` of a value."""
    for binding_path, template in bindings:
        if len(template) != 1 or isinstance(template[0], str):
            continue
        if any(read_step not in (step, _ANY_INDEX) for step, read_step in zip(binding_path, path, strict=False)):
            continue
        for read in _reads_of_reference(template[0], use):
            rest = path[len(binding_path) :]
            if not rest:
                yield read
            elif not isinstance(read.path, str):
                yield read._replace(path=(*read.path, *rest))


def parts_of_key(node: CompiledNode) -> list[Projection]:
    """Return the parts of each item that the `key` of a node reads."""
    paths = [part.path for part in node.key or () if isinstance(part, Item)]
    return [(path, "value") for path in dict.fromkeys(paths) if path and not isinstance(path, str)]
