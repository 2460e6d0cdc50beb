"""What a check reports: problems with their places."""

from collections.abc import Sequence

from dagwright.core.expressions.references import NameHints
from dagwright.core.model.document import Document
from dagwright.core.model.errors import Problem, pointer


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
