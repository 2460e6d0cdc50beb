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
            report.report_problem("duplicate_id", message, ("nodes", index, "id"), node_id=node.id)
    for index, raw_node in enumerate(raw_nodes):
        # Nodes with invalid fields are numbered too, because a reference to such a node is valid.
        if isinstance(raw_node, Mapping) and isinstance(raw_node.get("id"), str):
            numbers.setdefault(raw_node["id"], index)
    return numbers


class DependencyChecks:
    """Resolve the dependencies of one plan from node ids to node numbers."""

    def __init__(self, document: Document, report: CheckReport, *, dialect_references: DialectReferences) -> None:
        self._document = document
        self._report = report
        self._dialect_references = dialect_references

    def resolve_dependencies(
        self,
        nodes: Mapping[int, Node],
        references: Mapping[int, NodeReferences],
        numbers: Mapping[str, int],
        *,
        node_count: int,
    ) -> list[list[int]]:
        """Return for each node the numbers of the nodes that it waits for, distinct, in declared order."""
        dependencies: list[list[int]] = [[] for _ in range(node_count)]
        for index, node in nodes.items():
            dependency_numbers = dict.fromkeys(map(numbers.get, (*node.depends_on, *references[index].nodes)))
            if index not in dependency_numbers and None not in dependency_numbers:
                dependencies[index] = [number for number in dependency_numbers if number is not None]
                continue
            known_numbers: dict[int, None] = {}
            for position, dependency_id in enumerate(node.depends_on):
                if dependency_id not in numbers:
                    hint = self._report.hint_budget.suggestion(dependency_id, numbers, excluded_name=node.id)
                    message = f"{node.id!r} depends on unknown node {dependency_id!r}"
                    at = ("nodes", index, "depends_on", position)
                    self._report.report_problem("unknown_dependency", message, at, node_id=node.id, hint=hint)
                else:
                    known_numbers[numbers[dependency_id]] = None
            for dependency_id in references[index].nodes:
                if dependency_id in numbers:
                    known_numbers[numbers[dependency_id]] = None
                else:
                    self._report_missing_node(index, node, dependency_id)
            if index in known_numbers:
                del known_numbers[index]
                message = f"{node.id!r} depends on itself"
                self._report.report_problem(
                    "self_dependency",
                    message,
                    ("nodes", index),
                    node_id=node.id,
                    hint=self._document.unknown_node_hint,
                )
            dependencies[index] = list(known_numbers)
        return dependencies

    def _report_missing_node(self, index: int, node: Node, dependency_id: str) -> None:
        hint = self._document.unknown_node_hint
        message = f"Invalid reference: {dependency_id}: no node makes this value"
        for key, part in self._dialect_references.get(index, {}).items():
            if isinstance(part, ResultOf) and part.node_id == dependency_id:
                at = ("nodes", index, "arguments", key)
                self._report.report_problem("invalid_reference", message, at, node_id=node.id, hint=hint)


def check_levels(
    dependencies: Sequence[Sequence[int]], nodes: Mapping[int, Node], report: CheckReport
) -> Sequence[int]:
    """Return the level of each node, or report cycles and return an empty list."""
    node_levels = graph.levels_of(dependencies)
    for cycle in graph.cycles_of(dependencies) if node_levels is None else ():
        ids = [nodes[number].id for number in (*cycle, cycle[0])]
        message = f"CircularDependencyError: {' → '.join(ids)}"
        report.report_problem(
            CYCLE, message, ("nodes", cycle[0]), node_id=ids[0], hint="remove one of these dependencies"
        )
    return node_levels or []
