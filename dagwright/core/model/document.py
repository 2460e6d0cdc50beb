"""A plan document after its conversion to Dagwright's own plan format, before validation.

A dialect is a format in which plans are written. The conversion from a dialect also maps positions in the converted
plan to positions in the document as written, so that problem reports can refer to the document as written.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dagwright.core.errors import Note, Problem
from dagwright.core.expressions.references import Lookup, Reference


@dataclass(frozen=True, slots=True)
class Document:
    """Result of the conversion of one document.

    Args:
        plan: the plan in Dagwright's own plan format, as JSON, not validated.
        dialect: name of the dialect in which the document is written, such as `tasks`, or `plan` for the plan format.
        pointers: RFC 6901 pointer into `plan` -> pointer into the document as written. The longest matching prefix
            is replaced; the rest of the pointer stays. Empty if both are the same document.
        bindings: (node index, argument key) -> the reference from which the argument gets its value. Contains only
            references that the plan format cannot express. `plan` has null for such an argument, with one exception: if
            the argument is a name of the session, such as `@order`, `plan` has the value of the name. An argument that
            does not accept an entity gets this value, and its binding is ignored.
        problems: errors that were found during the conversion, with pointers into the document as written.
        notes: notes about a valid document.
        sub_documents: node index -> the document of the node's sub-plan. Its pointers are also in `pointers` of the
            parent document.
        worker_tool_nodes: indices of the nodes whose tool is a worker tool, so that their results are WorkerResults.
        is_parsed: whether the document could be parsed; if not, `plan` is a placeholder, and `problems` has the reason.
        unknown_node_hint: hint of the dialect for a reference to an unknown node, if any.
    """

    plan: dict[str, Any]
    dialect: str = "plan"
    pointers: Mapping[str, str] = field(default_factory=dict)
    bindings: Mapping[tuple[int, str], Reference | Lookup] = field(default_factory=dict)
    problems: Sequence[Problem] = ()
    notes: Sequence[Note] = ()
    unknown_node_hint: str | None = None
    sub_documents: Mapping[int, "Document"] = field(default_factory=dict)
    worker_tool_nodes: Collection[int] = frozenset()
    is_parsed: bool = True

    def written_pointer(self, pointer: str) -> str:
        """Return the pointer into the document as written for a pointer into `plan`."""
        if not self.pointers:
            return pointer
        prefix = pointer
        while prefix not in self.pointers:
            if not prefix:
                return pointer
            prefix = prefix.rpartition("/")[0]
        return self.pointers[prefix] + pointer[len(prefix) :]
