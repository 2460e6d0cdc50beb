"""A document on its way from a dialect to a plan: what every dialect hands over.

The plan stands in Dagwright's own dialect but is not checked yet. Beside it stands what is needed to speak
of problems in the words of the document as it was written.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dagwright.core.expressions.references import Lookup, Reference
from dagwright.core.model.errors import Note, Problem


@dataclass(frozen=True, slots=True)
class Document:
    """What a dialect made of a document.

    Args:
        plan: the plan in Dagwright's own dialect, as JSON, not validated.
        dialect: its name, such as `plan` or `tasks`.
        pointers: RFC 6901 pointer into `plan` -> pointer into the document as written. The longest prefix
            that is here decides; what follows it is kept. Empty if both are the same document.
        holes: (node index, argument key) -> the reference whose value the argument gets. For references that the
            plan's own syntax cannot say; `plan` holds null there. Of a name of the session it holds the value, which
            stands where no party is taken.
        problems: what the dialect itself found wrong, with pointers into the document as written.
        notes: what the dialect has to say about a valid document.
        sub_documents: node index -> the document of its sub-plan, for its holes and its words. Its pointers are in
            `pointers` already.
        workers: indices of the nodes whose tool is a worker, so that its result is a WorkerResult.
        is_read: whether the plan is what was written; if not, it only stands in, and `problems` say why.
        unknown_node_hint: hint for a reference to a node that is not there, if the dialect has one of its own.
    """

    plan: dict[str, Any]
    dialect: str = "plan"
    pointers: Mapping[str, str] = field(default_factory=dict)
    holes: Mapping[tuple[int, str], Reference | Lookup] = field(default_factory=dict)
    problems: Sequence[Problem] = ()
    notes: Sequence[Note] = ()
    unknown_node_hint: str | None = None
    sub_documents: Mapping[int, "Document"] = field(default_factory=dict)
    workers: Collection[int] = frozenset()
    is_read: bool = True

    def written_pointer(self, pointer: str) -> str:
        """Returns the pointer into the document as written that a pointer into `plan` stands for."""
        if not self.pointers:
            return pointer
        prefix = pointer
        while prefix not in self.pointers:
            if not prefix:
                return pointer
            prefix = prefix.rpartition("/")[0]
        return self.pointers[prefix] + pointer[len(prefix) :]
