"""A document in the making: the list of its entries, read key by key, and everything that is wrong with them.

An entry that is wrong still becomes a node, so that the check of the whole finds what else is wrong; nothing
that is told here may give the check a reason to tell it again.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pydantic import JsonValue

from dagwright.core.expressions.references import Lookup, Reference, suggestion
from dagwright.core.model.document import Document
from dagwright.core.model.errors import Note, PlanInvalid, Problem, ProblemList, pointer
from dagwright.dialects.json_reader import describe, printable

STAND_IN: Mapping[str, Any] = {"human": {}}
"""What a node does whose own kind could not be read: something with which nothing can be wrong."""


class WrittenPointers(Mapping[str, str]):
    """The pointers of a document, made when somebody looks: nobody does unless something is wrong."""

    def __init__(self, make: Callable[[], Mapping[str, str]]) -> None:
        self._make = make

    @cached_property
    def _made(self) -> Mapping[str, str]:
        return self._make()

    def __getitem__(self, native: str) -> str:
        return self._made[native]

    def __contains__(self, native: object) -> bool:
        return native in self._made

    def __iter__(self) -> Iterator[str]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)

    def __bool__(self) -> bool:
        return True


@dataclass(slots=True)
class Draft:
    """What a dialect has found so far.

    Args:
        dialect: its name.
        at: pointer of the list of entries; node number and index in that list are the same.
        nodes: in Dagwright's own dialect.
        workers: indices of the nodes whose tool is a worker.
        moved: pointer into the plan -> pointer as written, of entries of lists that stand behind one that was left out.
    """

    dialect: str
    at: str
    nodes: list[dict[str, Any]] = field(default_factory=list)
    metadata: dict[str, Any] = field(default_factory=dict)
    bindings: dict[tuple[int, str], Reference | Lookup] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=ProblemList)
    notes: list[Note] = field(default_factory=list)
    workers: set[int] = field(default_factory=set)
    moved: dict[str, str] = field(default_factory=dict)

    def document(
        self,
        *,
        pointers: Callable[[], Iterable[tuple[str, str]]] = tuple,
        unknown_node_hint: str | None = None,
    ) -> Document:
        """Returns the document; its plan is not checked.

        Args:
            pointers: makes pairs of a pointer into the plan and one into the document as written, beside that
                of the list of entries.
        """
        plan: dict[str, Any] = {"plan": 1}
        if self.metadata:
            plan["metadata"] = self.metadata
        plan["nodes"] = self.nodes
        return Document(
            plan=plan,
            dialect=self.dialect,
            pointers=WrittenPointers(lambda: {"/nodes": self.at, **dict(pointers()), **self.moved}),
            bindings=self.bindings,
            problems=self.problems,
            notes=self.notes,
            unknown_node_hint=unknown_node_hint,
            workers=frozenset(self.workers),
        )

    def entries(self, raw: JsonValue, key: str, *, known: Collection[str] = ()) -> list[Any]:
        """Returns the list that a document of this dialect holds under a key.

        Args:
            known: the other keys that the document may have.

        Raises:
            PlanInvalid: there is no such list, or it is empty.
        """
        if not isinstance(raw, dict):
            expected = f"a document in the dialect {self.dialect} is an object with the key {key!r}"
            message = f"{expected}, not {describe(raw)}"
            raise PlanInvalid([Problem("invalid_field", message)])
        self.problems += unknown_keys(raw, {key, *known}, at="", name="the document")
        if key not in raw:
            self.problems.append(Problem("invalid_field", f"the key {key!r} is missing"))
            raise PlanInvalid(self.problems)
        return self.checked_entries(raw[key], name=f"{key!r}")

    def checked_entries(self, entries: JsonValue, *, name: str) -> list[Any]:
        """Returns the list itself.

        Raises:
            PlanInvalid: it is no list, or it is empty.
        """
        if not isinstance(entries, list):
            message = f"{name} must be a list, not {describe(entries)}"
            self.problems.append(Problem("invalid_field", message, self.at))
        elif not entries:
            self.problems.append(Problem("empty_plan", f"{name} is empty: there is nothing to run", self.at))
        else:
            return entries
        raise PlanInvalid(self.problems)

    def entry(self, raw: Any, index: int, *, name: str, node: str | None) -> "Entry | None":
        """Returns a reader of one entry; tells it if the entry is no object.

        Args:
            name: how to call the entry, such as `intent 3`.
            node: id of its node.
        """
        at = f"{self.at}/{index}"
        if isinstance(raw, dict):
            return Entry(raw, at=at, name=name, node=node, problems=self.problems, index=index, moved=self.moved)
        message = f"{name} must be an object, not {describe(raw)}"
        self.problems.append(Problem("invalid_field", message, at))
        return None


@dataclass(slots=True)
class Entry:
    """One object of a document; each reader tells what is wrong with a key and returns something usable.

    Args:
        raw: as written.
        at: its pointer.
        name: how to call it, such as `task 'a'`.
        node: id of the node that is made of it.
        problems: list that problems are appended to.
        index: of its node.
        moved: as in `Draft`.
    """

    raw: Mapping[str, Any]
    at: str
    name: str
    node: str | None
    problems: list[Problem]
    index: int = 0
    moved: dict[str, str] = field(default_factory=dict)

    def tell(self, code: str, message: str, *keys: str | int, hint: str | None = None) -> None:
        """Adds a problem of this entry; `keys` lead from the entry to the place."""
        at = self.at + pointer(*keys)
        self.problems.append(Problem(code, f"{self.name}: {message}", at, self.node, hint))

    def expect_keys(self, known: AbstractSet[str]) -> None:
        """Tells every key that is not known."""
        if not self.raw.keys() <= known:
            self.problems += unknown_keys(self.raw, known, at=self.at, name=self.name, node=self.node)

    def text(self, key: str) -> str | None:
        """Returns a text that must be there, or `None` after telling why not."""
        value = self.raw.get(key)
        if isinstance(value, str):
            return value
        self._tell_missing(key, "a text")
        return None

    def name_text(self, key: str) -> str | None:
        """Returns a text that must be there and not empty, or `None` after telling why not."""
        value = self.text(key)
        if value is not None and not value.strip():
            self.tell("invalid_field", f"{key!r} must not be empty", key)
            return None
        return value

    def optional_text(self, key: str) -> str | None:
        """Returns a text if there is one; null is none."""
        return self.text(key) if self.raw.get(key) is not None else None

    def texts(self, key: str) -> list[str]:
        """Returns a list of texts that must be there."""
        value = self.raw.get(key)
        if not isinstance(value, list):
            self._tell_missing(key, "a list of texts")
            return []
        for index, item in enumerate(value):
            if not isinstance(item, str):
                self.tell("invalid_field", f"{key!r} must hold texts only, not {describe(item)}", key, index)
        return [item for item in value if isinstance(item, str)]

    def dependencies(self, key: str) -> list[str]:
        """Returns the ids of a list that is the `depends_on` of the node."""
        kept = self.texts(key)
        if kept and len(kept) < len(self.raw[key]):
            places = [index for index, item in enumerate(self.raw[key]) if isinstance(item, str)]
            for place, index in enumerate(places):
                self.moved[pointer("nodes", self.index, "depends_on", place)] = self.at + pointer(key, index)
        return kept

    def optional_object(self, key: str) -> Mapping[str, Any]:
        """Returns an object; an empty one if there is none or null."""
        return self.object(key) if self.raw.get(key) is not None else {}

    def object(self, key: str) -> Mapping[str, Any]:
        """Returns an object that must be there, an empty one after telling why not."""
        value = self.raw.get(key)
        if isinstance(value, dict):
            return value
        self._tell_missing(key, "an object")
        return {}

    def _tell_missing(self, key: str, expected: str) -> None:
        if key in self.raw:
            self.tell("invalid_field", f"{key!r} must be {expected}, not {describe(self.raw[key])}", key)
        else:
            self.tell("invalid_field", f"the key {key!r} is missing")


def unknown_keys(
    raw: Mapping[str, Any], known: AbstractSet[str], *, at: str, name: str, node: str | None = None
) -> Iterator[Problem]:
    """Yields a problem for each key that is not known, with the nearest known one as its hint."""
    for key in raw:
        if key not in known:
            hint = suggestion(str(key), known) or f"known keys are {', '.join(sorted(known))}"
            yield Problem(
                "invalid_field", f"{name}: unknown key {printable(str(key))!r}", at + pointer(key), node, hint
            )


def node_ids(entries: Sequence[Any], *, kind: str) -> list[str]:
    """Returns the id of each entry as written, or one made up (`task 3`) where there is none to use."""
    written = [raw.get("id") if isinstance(raw, dict) else None for raw in entries]
    taken = {value for value in written if isinstance(value, str)}
    ids: list[str] = []
    for number, value in enumerate(written, start=1):
        if isinstance(value, str) and value.strip():
            ids.append(value)
            continue
        made_up = f"{kind} {number}"
        while made_up in taken:
            made_up += "'"
        ids.append(made_up)
    return ids


def tool_or_stand_in(tool: str | None) -> Mapping[str, Any]:
    """Returns what a node does: the tool it calls, or nothing if no tool could be read."""
    return {"tool": tool} if tool is not None else STAND_IN


def entry_name(kind: str, raw: Any, number: int) -> str:
    """Returns how to call an entry: by its id if it has one, by its number from 1 if not."""
    written = raw.get("id") if isinstance(raw, dict) else None
    return f"{kind} {printable(written)!r}" if isinstance(written, str) and written.strip() else f"{kind} {number}"
