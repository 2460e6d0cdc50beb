"""What can be wrong: with a plan, and with a node that ran.

Errors differ by what the caller does next:

    PlanInvalid             fix the plan: carries every Problem that was found, not the first
    NodeError               a value, not an exception: why a node did not complete

This module imports the standard library only.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a document.

    Args:
        code: one of the codes of design.md section 4 and contract.md section 5, such as `cycle`.
        message: one sentence for the person who wrote the document, in the words of its dialect.
        pointer: RFC 6901 pointer into the document as written; `""` is the whole document.
        node: id of the node it is about, if it is about one.
        hint: what to do about it, if something can be said.
    """

    code: str
    message: str
    pointer: str = ""
    node: str | None = None
    hint: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Returns the problem as it stands in a Refusal (contract.md section 5)."""
        return {
            "code": self.code,
            "pointer": self.pointer,
            "node": self.node,
            "message": self.message,
            "hint": self.hint,
        }


@dataclass(frozen=True, slots=True)
class Note:
    """Something worth saying about a valid document, such as a reference that added an edge."""

    code: str
    message: str
    node: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Returns the note as it stands in the `check` document (contract.md section 5)."""
        return {"code": self.code, "node": self.node, "message": self.message}


class PlanInvalid(Exception):
    """A document is no runnable plan; `problems` holds everything that is wrong with it, in document order.

    Args:
        document: what could be read of it, with something harmless in the places that are told, so that the rest can
            be checked; `None` if there is nothing to check.
    """

    def __init__(self, problems: Iterable[Problem], *, document: Any = None) -> None:
        self.problems: Sequence[Problem] = tuple(problems)
        self.document = document
        super().__init__("; ".join(problem.message for problem in self.problems[:5]))


@dataclass(frozen=True, slots=True)
class NodeError:
    """Why a node did not complete: `{"code", "message", "retryable"}` of contract.md section 5.

    Args:
        ref: of the whole text in the payload store, if the message is only its beginning.
    """

    code: str
    message: str
    retryable: bool = False
    ref: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Returns the error as it stands in a node of the result document; `ref` only if there is one."""
        told = {"code": self.code, "message": self.message, "retryable": self.retryable}
        return told if self.ref is None else {**told, "ref": self.ref}


def pointer(*parts: str | int) -> str:
    """Returns the RFC 6901 pointer of a path (`pointer("nodes", 0, "a/b")` is `/nodes/0/a~1b`)."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)
