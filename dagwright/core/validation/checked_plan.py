"""The result of a check: problems with their positions, and the checked plan."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dagwright.core.errors import Note, Problem, pointer
from dagwright.core.expressions.references import Lookup
from dagwright.core.model import graph
from dagwright.core.model.compiled import Binding
from dagwright.core.model.document import Document
from dagwright.core.model.plan import Node, PlanDocument
from dagwright.core.model.tools import ToolDeclaration
from dagwright.core.model.value_schemas import JSON_NAMES, TypeNames
from dagwright.core.name_hints import NameHints
from dagwright.core.validation.node_references import NodeReferences


class CheckReport:
    """Problems of one plan object. A child report for a sub-plan adds to the same list.

    Args:
        root: the whole document, to which reported pointers refer.
        base: path of the plan in the document.
        problems: problems found so far, including those of all sub-plans.
        hints: name hints, with the budget of the check.
        names: names of types in messages.
    """

    def __init__(
        self,
        root: Document,
        *,
        base: tuple[str | int, ...] = (),
        problems: list[Problem],
        hints: NameHints,
        names: TypeNames = JSON_NAMES,
    ) -> None:
        self.root = root
        self.base = base
        self.problems = problems
        self.hints = hints
        self.names = names

    def child(self, *path: str | int) -> "CheckReport":
        """Return the report of a sub-plan."""
        base = (*self.base, *path)
        return CheckReport(self.root, base=base, problems=self.problems, hints=self.hints, names=self.names)

    def report_problem(
        self, code: str, message: str, at: Sequence[str | int], *, node: str | None, hint: str | None = None
    ) -> None:
        """Add a problem; `at` is its path in the plan."""
        self.add(Problem(code, message, pointer(*at), node, hint))

    def add(self, problem: Problem) -> None:
        """Add a problem whose pointer starts at the plan."""
        where = self.root.written_pointer(pointer(*self.base) + problem.pointer)
        self.problems.append(Problem(problem.code, problem.message, where, problem.node, problem.hint))


@dataclass(frozen=True, slots=True)
class Checked:
    """A checked plan. If there are problems, invalid fields are missing and the plan must not run.

    Args:
        plan: all fields except the nodes.
        nodes: nodes in plan order.
        references: references of each node, in plan order.
        dependencies: node number -> numbers of the nodes it waits for, distinct, in declared order.
        level_of: node number -> its level, the length of the longest path from a root.
        output_bindings: bindings of the plan's `output`.
        inputs: name -> JSON Schema with prompt and default; declared inputs first, then in order of first use.
        sub_plans: node number -> its checked sub-plan.
        written: the plan as its dialect translated it, before its fields were validated.
        workers: numbers of the nodes that call a worker tool; needs a fast `in`.
    """

    plan: PlanDocument
    dialect: str
    nodes: Sequence[Node]
    references: Sequence[NodeReferences]
    dependencies: Sequence[Sequence[int]]
    level_of: Sequence[int]
    output_bindings: Sequence[Binding]
    inputs: Mapping[str, Mapping[str, Any]]
    sub_plans: Mapping[int, "Checked"]
    notes: Sequence[Note]
    document: Document
    base: tuple[str | int, ...]
    tools: Mapping[str, ToolDeclaration]
    workers: Collection[int]
    written: Mapping[str, Any]

    @property
    def edges(self) -> int:
        """Number of edges."""
        return sum(map(len, self.dependencies))

    @property
    def levels(self) -> list[list[str]]:
        """Ids by level (longest path from a root), each level in plan order."""
        grouped: list[list[str]] = [[] for _ in range(max(self.level_of, default=-1) + 1)]
        for node, level in zip(self.nodes, self.level_of, strict=True):
            grouped[level].append(node.id)
        return grouped

    @property
    def critical_path(self) -> list[str]:
        """Ids of the longest chain by number of nodes; ties are resolved by plan order."""
        return [self.nodes[number].id for number in graph.critical_path(self.dependencies, self.level_of)]

    @property
    def lookups(self) -> list[Lookup]:
        """Distinct lookups in order of first use, followed by the lookups of sub-plans.

        The parent run also resolves the lookups of its sub-plans, because no node starts before all are resolved.
        """
        all_lookups = [part for node in self.references for part in node.lookups]
        for sub_plan in self.sub_plans.values():
            all_lookups += sub_plan.lookups
        return list(dict.fromkeys(all_lookups))
