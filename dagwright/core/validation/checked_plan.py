"""The result of a check: problems with their positions, and the checked plan."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dagwright.core.expressions.references import Lookup, NameHints
from dagwright.core.model import graph
from dagwright.core.model.compiled import Hole
from dagwright.core.model.document import Document
from dagwright.core.model.errors import Note, Problem, pointer
from dagwright.core.model.plan import Node, Plan
from dagwright.core.model.tools import ToolDeclaration
from dagwright.core.validation.node_references import NodeReferences


class CheckReport:
    """The problems of one plan object; those of its sub-plans are reported to children with the same lists.

    Args:
        root: the whole document, whose pointers are reported.
        base: path of the plan in it.
        problems: those found so far, with those of all sub-plans.
        hints: budget of the check.
    """

    def __init__(
        self,
        root: Document,
        *,
        base: tuple[str | int, ...] = (),
        problems: list[Problem],
        hints: NameHints,
    ) -> None:
        self.root = root
        self.base = base
        self.problems = problems
        self.hints = hints

    def child(self, *path: str | int) -> "CheckReport":
        """Report of a sub-plan."""
        return CheckReport(self.root, base=(*self.base, *path), problems=self.problems, hints=self.hints)

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
    """A plan as the check read it. With problems, invalid fields are left out, and it must not run.

    Args:
        plan: all fields but the nodes.
        nodes: in plan order.
        references: of each node, in plan order.
        dependencies: node number -> numbers of the nodes it waits for, distinct, in declared order.
        level_of: node number -> its level, the length of the longest path from a root.
        output_holes: texts with references in the plan's `output`.
        inputs: name -> JSON Schema with prompt and default; declared ones first, then as they are found.
        sub_plans: node number -> its checked sub-plan.
        written: the plan as its dialect translated it, before its fields were validated.
        workers: numbers of the nodes whose tool is a worker; needs a fast `in`.
    """

    plan: Plan
    dialect: str
    nodes: Sequence[Node]
    references: Sequence[NodeReferences]
    dependencies: Sequence[Sequence[int]]
    level_of: Sequence[int]
    output_holes: Sequence[Hole]
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
        """Count of distinct pairs of a node and a node it waits for."""
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
        """Ids of the longest chain by count of nodes; ties go by plan order."""
        return [self.nodes[number].id for number in graph.critical_path(self.dependencies, self.level_of)]

    @property
    def lookups(self) -> list[Lookup]:
        """Distinct lookups in order of their first mention, those of sub-plans behind its own.

        The run above binds those of a sub-plan with its own: nothing runs before all are bound.
        """
        found = [part for node in self.references for part in node.lookups]
        for sub_plan in self.sub_plans.values():
            found += sub_plan.lookups
        return list(dict.fromkeys(found))
