"""A document under construction: the list of its entries, read key by key, and the problems found.

An invalid entry still becomes a node, so that validation can check the rest of the plan. A problem that is reported
here must not be reported again by validation.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pydantic import JsonValue

from dagwright.core.errors import Note, PlanInvalid, Problem, ProblemList, pointer
from dagwright.core.expressions.references import Lookup, Reference
from dagwright.core.model.document import Document
from dagwright.core.name_hints import suggestion
from dagwright.dialects.json_reader import describe, printable

STAND_IN_ACTION: Mapping[str, Any] = {"human": {}}
"""Replacement for the action of a node (its tool, agent or sub-plan) that could not be read. The replacement is always
valid, so validation can continue."""


class WrittenPointers(Mapping[str, str]):
    """Pointer into the plan -> pointer into the document as written.

    The pointers are computed on first access, because they are only needed if there is a problem.
    """

    def __init__(self, compute: Callable[[], Mapping[str, str]]) -> None:
        self._compute = compute

    @cached_property
    def _pointers(self) -> Mapping[str, str]:
        return self._compute()

    def __getitem__(self, plan_pointer: str) -> str:
        return self._pointers[plan_pointer]

    def __contains__(self, plan_pointer: object) -> bool:
        return plan_pointer in self._pointers

    def __iter__(self) -> Iterator[str]:
        return iter(self._pointers)

    def __len__(self) -> int:
        return len(self._pointers)

    def __bool__(self) -> bool:
        """Return true without computing the pointers."""
        return True


@dataclass(slots=True)
class DocumentDraft:
    """A document that is being read.

    Args:
        dialect: name of the dialect.
        entries_pointer: pointer of the list of entries. A node has the same index as its entry.
        nodes: nodes in Dagwright's own dialect.
        worker_tool_nodes: indices of the nodes with a worker tool.
        moved_pointers: pointer into the plan -> pointer into the document as written, for items that follow an omitted
            item of a list.
    """

    dialect: str
    entries_pointer: str
    nodes: list[dict[str, Any]] = field(default_factory=list)
    metadata: dict[str, Any] = field(default_factory=dict)
    bindings: dict[tuple[int, str], Reference | Lookup] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=ProblemList)
    notes: list[Note] = field(default_factory=list)
    worker_tool_nodes: set[int] = field(default_factory=set)
    moved_pointers: dict[str, str] = field(default_factory=dict)

    def document(
        self,
        *,
        additional_pointers: Callable[[], Iterable[tuple[str, str]]] = tuple,
        unknown_node_hint: str | None = None,
    ) -> Document:
        """Return the document. Its plan is not validated.

        Args:
            additional_pointers: returns pairs of a pointer into the plan and a pointer into the document as written;
                the pair for the list of entries is included in any case.
        """
        plan: dict[str, Any] = {"plan": 1}
        if self.metadata:
            plan["metadata"] = self.metadata
        plan["nodes"] = self.nodes
        return Document(
            plan=plan,
            dialect=self.dialect,
            pointers=WrittenPointers(
                lambda: {"/nodes": self.entries_pointer, **dict(additional_pointers()), **self.moved_pointers}
            ),
            bindings=self.bindings,
            problems=self.problems,
            notes=self.notes,
            unknown_node_hint=unknown_node_hint,
            worker_tool_nodes=frozenset(self.worker_tool_nodes),
        )

    def entries_under_key(self, raw: JsonValue, key: str, *, other_keys: Collection[str] = ()) -> list[Any]:
        """Return the list under a key of the document.

        Args:
            other_keys: keys that the document may also have.

        Raises:
            PlanInvalid: there is no such list, or it is empty.
        """
        if not isinstance(raw, dict):
            expected = f"a document in the dialect {self.dialect} is an object with the key {key!r}"
            message = f"{expected}, not {describe(raw)}"
            raise PlanInvalid([Problem("invalid_field", message)])
        self.problems += unknown_keys(raw, {key, *other_keys}, at="", name="the document")
        if key not in raw:
            self.problems.append(Problem("invalid_field", f"the key {key!r} is missing"))
            raise PlanInvalid(self.problems)
        return self.entries_of_list(raw[key], name=f"{key!r}")

    def entries_of_list(self, entries: JsonValue, *, name: str) -> list[Any]:
        """Return the entries if they are a non-empty list.

        Raises:
            PlanInvalid: the value is not a list, or it is empty.
        """
        if not isinstance(entries, list):
            message = f"{name} must be a list, not {describe(entries)}"
            self.problems.append(Problem("invalid_field", message, self.entries_pointer))
        elif not entries:
            self.problems.append(
                Problem("empty_plan", f"{name} is empty: there is nothing to run", self.entries_pointer)
            )
        else:
            return entries
        raise PlanInvalid(self.problems)

    def entry(self, raw: Any, index: int, *, name: str, node_id: str | None) -> "ObjectReader | None":
        """Return a reader of one entry; report a problem if the entry is not an object.

        Args:
            name: name of the entry in messages, such as `intent 3`.
            node_id: ID of the entry's node.
        """
        at = f"{self.entries_pointer}/{index}"
        if isinstance(raw, dict):
            return ObjectReader(
                raw,
                at=at,
                name=name,
                node_id=node_id,
                problems=self.problems,
                index=index,
                moved_pointers=self.moved_pointers,
            )
        message = f"{name} must be an object, not {describe(raw)}"
        self.problems.append(Problem("invalid_field", message, at))
        return None


@dataclass(slots=True)
class ObjectReader:
    """One object of a document. Each method reports invalid keys and returns a usable value.

    Args:
        raw: the object as written.
        at: its pointer.
        name: its name in messages, such as `task 'a'`.
        node_id: ID of its node.
        problems: list that problems are appended to.
        index: index of its node.
        moved_pointers: as in `DocumentDraft`.
    """

    raw: Mapping[str, Any]
    at: str
    name: str
    node_id: str | None
    problems: list[Problem]
    index: int = 0
    moved_pointers: dict[str, str] = field(default_factory=dict)

    def report(self, code: str, message: str, *keys: str | int, hint: str | None = None) -> None:
        """Report a problem of this object. `keys` are the path from the object to the value."""
        at = self.at + pointer(*keys)
        self.problems.append(Problem(code, f"{self.name}: {message}", at, self.node_id, hint))

    def expect_keys(self, known_keys: AbstractSet[str]) -> None:
        """Report all unknown keys."""
        if not self.raw.keys() <= known_keys:
            self.problems += unknown_keys(self.raw, known_keys, at=self.at, name=self.name, node_id=self.node_id)

    def text(self, key: str) -> str | None:
        """Return a required string; report a problem and return `None` if it is missing or invalid."""
        value = self.raw.get(key)
        if isinstance(value, str):
            return value
        self._report_missing(key, "a text")
        return None

    def nonempty_text(self, key: str) -> str | None:
        """Return a required non-empty string; report a problem and return `None` if it is missing or invalid."""
        value = self.text(key)
        if value is not None and not value.strip():
            self.report("invalid_field", f"{key!r} must not be empty", key)
            return None
        return value

    def optional_text(self, key: str) -> str | None:
        """Return an optional string; null counts as missing."""
        return self.text(key) if self.raw.get(key) is not None else None

    def texts(self, key: str) -> list[str]:
        """Return a required list of strings."""
        value = self.raw.get(key)
        if not isinstance(value, list):
            self._report_missing(key, "a list of texts")
            return []
        for index, item in enumerate(value):
            if not isinstance(item, str):
                self.report("invalid_field", f"{key!r} must contain only texts, not {describe(item)}", key, index)
        return [item for item in value if isinstance(item, str)]

    def dependencies(self, key: str) -> list[str]:
        """Return the IDs in a list that becomes the `depends_on` of the node."""
        ids = self.texts(key)
        if ids and len(ids) < len(self.raw[key]):
            indices = [index for index, item in enumerate(self.raw[key]) if isinstance(item, str)]
            for position, index in enumerate(indices):
                plan_pointer = pointer("nodes", self.index, "depends_on", position)
                self.moved_pointers[plan_pointer] = self.at + pointer(key, index)
        return ids

    def optional_object(self, key: str) -> Mapping[str, Any]:
        """Return an optional object; empty if it is missing or null."""
        return self.object(key) if self.raw.get(key) is not None else {}

    def object(self, key: str) -> Mapping[str, Any]:
        """Return a required object; report a problem and return an empty object if it is missing or invalid."""
        value = self.raw.get(key)
        if isinstance(value, dict):
            return value
        self._report_missing(key, "an object")
        return {}

    def _report_missing(self, key: str, expected: str) -> None:
        if key in self.raw:
            self.report("invalid_field", f"{key!r} must be {expected}, not {describe(self.raw[key])}", key)
        else:
            self.report("invalid_field", f"the key {key!r} is missing")


def unknown_keys(
    raw: Mapping[str, Any], known_keys: AbstractSet[str], *, at: str, name: str, node_id: str | None = None
) -> Iterator[Problem]:
    """Yield a problem for each unknown key, with the most similar known key as its hint."""
    for key in raw:
        if key not in known_keys:
            hint = suggestion(str(key), known_keys) or f"known keys are {', '.join(sorted(known_keys))}"
            yield Problem(
                "invalid_field", f"{name}: unknown key {printable(str(key))!r}", at + pointer(key), node_id, hint
            )


def node_ids(entries: Sequence[Any], *, kind: str) -> list[str]:
    """Return the ID of each entry as written, or a generated ID (`task 3`) if the entry has no usable ID."""
    written_ids = [raw.get("id") if isinstance(raw, dict) else None for raw in entries]
    taken_ids = {value for value in written_ids if isinstance(value, str)}
    ids: list[str] = []
    for number, value in enumerate(written_ids, start=1):
        if isinstance(value, str) and value.strip():
            ids.append(value)
            continue
        generated_id = f"{kind} {number}"
        while generated_id in taken_ids:
            generated_id += "'"
        ids.append(generated_id)
    return ids


def action_of_tool(tool: str | None) -> Mapping[str, Any]:
    """Return the action of a node: the call of its tool, or the stand-in if the tool could not be read."""
    return {"tool": tool} if tool is not None else STAND_IN_ACTION


def entry_name(kind: str, raw: Any, number: int) -> str:
    """Return the name of an entry in messages: its ID if it has one, otherwise its number, from 1."""
    written_id = raw.get("id") if isinstance(raw, dict) else None
    return (
        f"{kind} {printable(written_id)!r}"
        if isinstance(written_id, str) and written_id.strip()
        else f"{kind} {number}"
    )
