"""Checks of node ids and dependencies: duplicates, unknown ids and cycles; builds the numbered graph."""

from collections.abc import Mapping, Sequence
from typing import Any

from dagwright.core.errors import CYCLE
from dagwright.core.expressions.references import Lookup, Reference, ResultOf
from dagwright.core.model import graph
from dagwright.core.model.document import Document
from dagwright.core.model.plan import Node
from dagwright.core.validation.checked_plan import CheckReport, NodeReferences

DialectReferences = Mapping[int, Mapping[str, Reference | Lookup]]
"""Node number -> argument key -> reference that the dialect parsed."""


def number_nodes(nodes: Mapping[int, Node], raw_nodes: Sequence[Any], report: CheckReport) -> dict[str, int]:
    """Return node id -> number, including nodes that could not be parsed, and report duplicates."""
    numbers: dict[str, int] = {}
    for index, node in nodes.items():
        first_index = numbers.setdefault(node.id, index)
        if first_index != index:
            message = f"duplicate node id {node.id!r} (nodes {first_index} and {index})"
            report.report_problem("duplicate_id", message, ("nodes", index, "id"), node=node.id)
    for index, raw in enumerate(raw_nodes):
        # A reference to an invalid node is not an invalid reference.
        if isinstance(raw, Mapping) and isinstance(raw.get("id"), str):
            numbers.setdefault(raw["id"], index)
    return numbers


class DependencyChecks:
    """Resolution of dependency names to node numbers, for one plan."""

    def __init__(self, document: Document, report: CheckReport, *, dialect_references: DialectReferences) -> None:
        self._document = document
        self._report = report
        self._dialect_references = dialect_references

    def edges(
        self,
        nodes: Mapping[int, Node],
        references: Mapping[int, NodeReferences],
        numbers: Mapping[str, int],
        *,
        count: int,
    ) -> list[list[int]]:
        """Return for each node the numbers of the nodes that it waits for, distinct, in declared order."""
        dependencies: list[list[int]] = [[] for _ in range(count)]
        for index, node in nodes.items():
            named_numbers = dict.fromkeys(map(numbers.get, (*node.depends_on, *references[index].nodes)))
            if index not in named_numbers and None not in named_numbers:
                dependencies[index] = [number for number in named_numbers if number is not None]
                continue
            known_numbers: dict[int, None] = {}
            for position, name in enumerate(node.depends_on):
                if name not in numbers:
                    hint = self._report.hints.suggest(name, numbers, excluded=node.id)
                    message = f"{node.id!r} depends on unknown node {name!r}"
                    at = ("nodes", index, "depends_on", position)
                    self._report.report_problem("unknown_dependency", message, at, node=node.id, hint=hint)
                else:
                    known_numbers[numbers[name]] = None
            for name in references[index].nodes:
                if name in numbers:
                    known_numbers[numbers[name]] = None
                else:
                    self._report_missing_node(index, node, name)
            if index in known_numbers:
                del known_numbers[index]
                message = f"{node.id!r} depends on itself"
                self._report.report_problem(
                    "self_dependency",
                    message,
                    ("nodes", index),
                    node=node.id,
                    hint=self._document.unknown_node_hint,
                )
            dependencies[index] = list(known_numbers)
        return dependencies

    def _report_missing_node(self, index: int, node: Node, name: str) -> None:
        hint = self._document.unknown_node_hint
        message = f"Invalid reference: {name}: no node makes this value"
        for key, part in self._dialect_references.get(index, {}).items():
            if isinstance(part, ResultOf) and part.node == name:
                at = ("nodes", index, "arguments", key)
                self._report.report_problem("invalid_reference", message, at, node=node.id, hint=hint)


def check_levels(
    dependencies: Sequence[Sequence[int]], nodes: Mapping[int, Node], report: CheckReport
) -> Sequence[int]:
    """Return the level of each node, or report cycles and return an empty list."""
    node_levels = graph.levels_of(dependencies)
    for cycle in graph.cycles_of(dependencies) if node_levels is None else ():
        ids = [nodes[number].id for number in (*cycle, cycle[0])]
        message = f"CircularDependencyError: {' → '.join(ids)}"
        report.report_problem(CYCLE, message, ("nodes", cycle[0]), node=ids[0], hint="remove one of these dependencies")
    return node_levels or []
