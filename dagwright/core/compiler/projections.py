"""Works out which parts of a result a plan names, so that the worker that makes a large result can tell them.

It goes over the compiled plan, before the run. Paths are followed through sub-plans both ways: what a sub-plan names of
an input is a part of what the plan above hands down, and what the plan above names of a sub-plan's result is a part of
what stands in the sub-plan's output.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

from dagwright.core.expressions.conditions import read_condition
from dagwright.core.expressions.queries import steps_for_each
from dagwright.core.expressions.references import Item, Placeholder, Reference, ResultOf, Template
from dagwright.core.expressions.stored_values import Path, Projection, query_of
from dagwright.core.model.compiled import CompiledNode, CompiledPlan, Hole
from dagwright.core.model.graph import levels_of
from dagwright.core.model.items import parts_of_key

How = Literal["value", "whole"]

IDENTIFYING = ("id", "name", "kind")
"""Of a result, what a session keeps behind a name."""
_EACH = "\0each"
"""Stands in a path for every element of a list; no key of a plan is written so."""
_WORKER_FIELDS = ("status", "outputs", "error", "message")
"""What a run reads of a WorkerResult."""


class _Read(NamedTuple):
    """One place that something in a plan reads."""

    source: Literal["node", "input", "item"]
    name: str
    path: Path
    how: How


def with_wanted(plan: CompiledPlan) -> CompiledPlan:
    """Returns a plan whose nodes know what the plan names of their results, those of its sub-plans too.

    Complexity: linear in the references of the plan.
    """
    return _analyse(plan, ())[0]


def _analyse(
    plan: CompiledPlan, of_output: Sequence[Projection]
) -> tuple[CompiledPlan, Mapping[str, dict[Projection, None]]]:
    """Returns the plan, and what is named of its inputs.

    Args:
        of_output: what the plan above names of the output of this one.
    """
    wants = _Wants(plan)
    for read in [*_reads_of_holes(plan.output_holes), *_reads_of_output(plan, of_output), *_reads_of_session(plan)]:
        wants.add(read)
    found: dict[int, CompiledNode] = {}
    for number in _last_first(plan):
        node = plan.nodes[number]
        for read in _reads_of(node, wants.ids):
            wants.add(read)
        if node.sub_plan is not None:
            # Whoever reads its result comes behind it, so all that is named of it is known.
            below, of_inputs = _analyse(node.sub_plan, tuple(wants.of_node.get(node.id, ())))
            found[number] = replace(node, sub_plan=below)
            for read in _reads_of_inputs(node, of_inputs):
                wants.add(read)
    nodes = [found.get(number, node) for number, node in enumerate(plan.nodes)]
    return replace(plan, nodes=tuple(wants.told(node) for node in nodes)), wants.of_input


def _last_first(plan: CompiledPlan) -> Sequence[int]:
    if all(node.sub_plan is None for node in plan.nodes):
        return range(len(plan.nodes))
    levels = levels_of([node.dependencies for node in plan.nodes]) or [0] * len(plan.nodes)
    return sorted(range(len(plan.nodes)), key=lambda number: -levels[number])


class _Wants:
    """What one plan names so far: of each node's result and of each input."""

    def __init__(self, plan: CompiledPlan) -> None:
        self._nodes = {node.id: node for node in plan.nodes}
        self.ids = self._nodes.keys()
        self.of_node: dict[str, dict[Projection, None]] = {}
        self.of_input: dict[str, dict[Projection, None]] = {}

    def add(self, read: _Read) -> None:
        """Takes note of a place that is read."""
        if read.source == "input":
            self.of_input.setdefault(read.name, {})[read.path, read.how] = None
        elif read.source == "node" and (node := self._nodes.get(read.name)) is not None:
            path = read.path if node.for_each is None else _inside_item(read.path)
            # What the elements of a list hold is told with the list, or not at all.
            is_told = path is not None and (node.sub_plan is not None or isinstance(path, str) or _EACH not in path)
            if path is not None and is_told:
                self.of_node.setdefault(read.name, {})[path, read.how] = None

    def told(self, node: CompiledNode) -> CompiledNode:
        """Returns a node with what is named of its result."""
        if node.kind == "lookup" and node.wanted:
            # It says itself which parts are told, whatever is read of them.
            return node
        wanted = [*self.of_node.get(node.id, ())] if node.sub_plan is None else []
        if node.is_worker:
            # A worker answers a WorkerResult, of which the outputs are the node's result, or the outputs alone.
            inside: list[Projection] = [(("outputs", *path), how) for path, how in wanted if not isinstance(path, str)]
            wanted += [*inside, *[((name,), "value") for name in _WORKER_FIELDS]]
        return replace(node, wanted=tuple(wanted)) if wanted else node


def _inside_item(path: Path) -> Path | None:
    """Returns what a path into the list of a node's items names of each item; `None` if it is the list itself."""
    if isinstance(path, str):
        return steps_for_each(path)
    return path[1:] if path else None


# What is read.


def _reads_of(node: CompiledNode, ids: Collection[str]) -> Iterator[_Read]:
    """Yields what a node reads of others, of inputs, and of the lists that its items come from."""
    items = node.for_each[0] if isinstance(node.for_each, tuple) else None
    found = [*_reads_of_holes(node.holes), *_reads_of_holes(node.item_holes), *_reads_of_template(node.key or ())]
    if items is not None and not isinstance(items, str):
        found += _reads_of_reference(items, "whole")
    found += _reads_of_holes(node.approval_holes)
    if node.kind == "human":
        # What can be selected is told by the run itself.
        found += _reads_of_options(node)
    if node.when is not None:
        found += _reads_of_condition(node.when, ids)
    for read in found:
        if read.source != "item":
            yield read
        elif items is not None and not isinstance(items, str) and not isinstance(read.path, str):
            for start in _reads_of_reference(items, read.how):
                if not isinstance(start.path, str):
                    yield start._replace(path=(*start.path, _EACH, *read.path))
    if items is not None and not isinstance(items, str):
        for path, _ in parts_of_key(node):
            for start in _reads_of_reference(items, "whole"):
                if not isinstance(start.path, str) and not isinstance(path, str):
                    # A list that is not told may be of thousands of items, and the run needs this part of all of them.
                    yield start._replace(path=f"{query_of(start.path)}[*]{query_of(path)[1:]}")


def _reads_of_options(node: CompiledNode) -> Iterator[_Read]:
    for path, template in node.holes:
        if path[0] == "options":
            yield from (
                read for part in template if not isinstance(part, str) for read in _reads_of_reference(part, "whole")
            )


def _reads_of_session(plan: CompiledPlan) -> Iterator[_Read]:
    """Yields what a session is told of the results of tools that set a name in it."""
    for node in plan.nodes:
        declared = plan.tools.get(node.tool)
        if declared is not None and declared.sets is not None:
            yield from (_Read("node", node.id, (key,), "value") for key in IDENTIFYING)


def _reads_of_holes(holes: Sequence[Hole]) -> Iterator[_Read]:
    for _, template in holes:
        yield from _reads_of_template(template)


def _reads_of_template(template: Template) -> Iterator[_Read]:
    for part in template:
        if not isinstance(part, str):
            # Of a value that is read as a whole nothing has to be told: a large one is handed on by reference.
            yield from (read for read in _reads_of_reference(part, "value") if read.path != ())


def _reads_of_reference(reference: Reference, how: How) -> Iterator[_Read]:
    match reference:
        case ResultOf(node, "identity"):
            yield _Read("node", node, ("id",), how)
        case ResultOf(node, "result", path):
            yield _Read("node", node, path, how)
        case Placeholder(name):
            yield _Read("input", name, (), how)
        case Item(path):
            yield _Read("item", "", path, how)


def _reads_of_condition(text: str, ids: Collection[str]) -> Iterator[_Read]:
    for read in read_condition(text, ids.__contains__).reading.reads:
        how: How = "whole" if read.aspect == "value" else "value"
        match read.source, read.steps:
            case "nodes", ("result", *steps):
                found = _Read("node", read.node, tuple(steps), how)
            case "inputs", (name, *steps):
                found = _Read("input", str(name), tuple(steps), how)
            case "item", steps:
                found = _Read("item", "", tuple(steps), how)
            case _:
                continue
        yield found
        if read.aspect == "presence" and found.path:
            # Whether something is there can be asked of an object only.
            yield found._replace(path=found.path[:-1])


# Through sub-plans.


def _reads_of_inputs(node: CompiledNode, of_inputs: Mapping[str, dict[Projection, None]]) -> Iterator[_Read]:
    """Yields what a sub-plan reads of what its node hands down."""
    for name, wants in of_inputs.items():
        for path, how in wants:
            if not isinstance(path, str):
                yield from _behind(node.holes, (name, *path), how)


def _reads_of_output(plan: CompiledPlan, of_output: Sequence[Projection]) -> Iterator[_Read]:
    """Yields what the plan above reads of the output of this one."""
    has_template = plan.output is not None or plan.output_holes
    for path, how in of_output:
        if isinstance(path, str):
            continue
        if has_template:
            yield from _behind(plan.output_holes, path, how)
        elif path:
            yield _Read("node", str(path[0]), path[1:], how)


def _behind(holes: Sequence[Hole], path: tuple[str | int, ...], how: How) -> Iterator[_Read]:
    """Yields what is read of the references in a value, if something at a path of the filled value is read."""
    for place, template in holes:
        if len(template) != 1 or isinstance(template[0], str):
            continue
        if any(wanted not in (step, _EACH) for step, wanted in zip(place, path, strict=False)):
            continue
        for read in _reads_of_reference(template[0], how):
            rest = path[len(place) :]
            if not rest:
                yield read
            elif not isinstance(read.path, str):
                yield read._replace(path=(*read.path, *rest))
