"""The base of every error of the Python API, and the problems of plans.

A caller can catch all errors with one `except DagwrightError`. Each error is defined in the module that raises it:

DagwrightError
├── PlanInvalid           fix the plan, or the inputs that it is started with
├── RunNotFound           use the id of an existing run
├── RunIdInUse            choose another id, or use the plan and inputs of the existing run
├── CommandRejected       fix the command, or read the state of the run again
├── FeedbackRejected      fix the answer, or read the open requests again
├── ToolError             raised by tools: `RetryLater` is tried again, `GiveUp` is final
├── ToolLoadError         fix the tools or the file of agents
├── ServerUnreachable     start a server, or fix its address
├── StoreError            fix the payload store, or try again
├── ClientClosed          connect again
├── SettingsError         fix the environment variable that the message names
└── ...                   the docstring of each error class names the remedy

`PlanInvalid` has every `Problem` that was found, not only the first. Errors of nodes are values, not exceptions: see
`NodeError` in `dagwright.core.model.states`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

from dagwright.core.text import cut_characters


class DagwrightError(Exception):
    """Base of all errors that Dagwright raises on purpose; the message is written for the user."""


class ClientClosed(DagwrightError, RuntimeError):
    """The client is closed; connect again."""


MAX_PROBLEMS = 100
"""Maximum number of problems that are reported for one document; the check stops at this number to limit its time."""
TOO_MANY_PROBLEMS = "too_many_problems"
"""Code of the last entry of a report that was cut at `MAX_PROBLEMS`."""
CYCLE = "cycle"
"""Code of a dependency cycle. The message of this problem is never cut, so it always has the IDs of all nodes."""
_TEXT_CHARACTERS = 2_000
"""Maximum length of a message, hint or node ID, because each of them may quote a part of the document."""


@dataclass(frozen=True, slots=True)
class Problem:
    """An error in a document.

    Args:
        code: error code, such as `cycle`.
        message: one sentence for the author of the document, in the terms of its dialect, without the hint.
        pointer: RFC 6901 pointer into the document as written; `""` is the whole document.
        node_id: id of the node with the error, if there is one.
        hint: how to fix it, if known.
    """

    code: str
    message: str
    pointer: str = ""
    node_id: str | None = None
    hint: str | None = None

    @property
    def text(self) -> str:
        """The message, and the hint in parentheses if there is one."""
        return f"{self.message} ({self.hint})" if self.hint else self.message

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form for the `errors` of a rejection."""
        return {
            "code": self.code,
            "pointer": self.pointer,
            "node_id": self.node_id,
            "message": self.message,
            "hint": self.hint,
        }


def problem_from_error(error: Mapping[str, Any] | None) -> Problem | None:
    """Convert the field `error` of a result document to a problem; return `None` if the field is null."""
    return None if error is None else Problem(error["code"], error["message"], node_id=error.get("node_id"))


@dataclass(frozen=True, slots=True)
class Note:
    """A remark about a valid document, for example that a reference added an edge."""

    code: str
    message: str
    node_id: str | None = None
    pointer: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the note for the `check` document, without an empty pointer."""
        encoded = {"code": self.code, "node_id": self.node_id, "message": self.message}
        return {**encoded, "pointer": self.pointer} if self.pointer else encoded


class PlanInvalid(DagwrightError):
    """A document is not a runnable plan. `problems` has the errors of the document, in order.

    `problems` is limited by `limit_problems`.

    Args:
        document: the document with placeholders in place of the invalid parts, so that the rest can be checked; `None`
            if nothing can be checked.
    """

    def __init__(self, problems: Iterable[Problem], *, document: Any = None) -> None:
        self.problems: Sequence[Problem] = limit_problems(problems)
        self.document = document
        super().__init__("; ".join(problem.text for problem in self.problems[:5]))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the problems, not the text made of the problems."""
        return partial(PlanInvalid, document=self.document), (self.problems,)


class ProblemList(list[Problem]):
    """Problems found so far in a document; raises `PlanInvalid` if there are more than `MAX_PROBLEMS`."""

    def append(self, problem: Problem) -> None:
        """Add a problem.

        Raises:
            PlanInvalid: the list now has more than `MAX_PROBLEMS`.
        """
        super().append(problem)
        if len(self) > MAX_PROBLEMS:
            raise PlanInvalid(self)

    def extend(self, problems: Iterable[Problem]) -> None:
        """Add problems one by one; raises like `append`."""
        for problem in problems:
            self.append(problem)

    def __iadd__(self, problems: Iterable[Problem]) -> Self:  # type: ignore[misc,override]
        """Add problems one by one; raises like `append`."""
        self.extend(problems)
        return self


def limit_problems(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Return the first `MAX_PROBLEMS` problems with shortened texts; a last entry reports any further problems."""
    shortened_problems: list[Problem] = []
    for problem in problems:
        if len(shortened_problems) == MAX_PROBLEMS or problem.code == TOO_MANY_PROBLEMS:
            message = f"there are more problems: checking stopped after the first {MAX_PROBLEMS}"
            return (*shortened_problems, Problem(TOO_MANY_PROBLEMS, message, hint="correct these, and check again"))
        shortened_problems.append(_shorten_problem(problem))
    return tuple(shortened_problems)


def _shorten_problem(problem: Problem) -> Problem:
    if problem.code == CYCLE:
        return problem
    texts = (problem.message, problem.hint or "", problem.node_id or "")
    if max(map(len, texts)) <= _TEXT_CHARACTERS:
        return problem
    message, hint, node_id = (cut_characters(text, _TEXT_CHARACTERS) for text in texts)
    return replace(problem, message=message, hint=hint or None, node_id=node_id or None)


def pointer(*parts: str | int) -> str:
    """Return the RFC 6901 pointer of a path (`pointer("nodes", 0, "a/b")` is `/nodes/0/a~1b`)."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)


def note_from_json(document: Mapping[str, Any]) -> Note:
    """Parse the result of `Note.to_json`, without the pointer."""
    return Note(document["code"], document["message"], document["node_id"])
