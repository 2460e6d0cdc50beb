"""Read references and IDs as models write them in Dagwright's dialects: `$1`, `${1}`, `#E1`, `<node-0>`, `@result_1`, …

A number can denote a node in three ways: as the number in the node's ID, or as the node's position, counted from 1 or
from 0. All numbers of a plan are interpreted in the same way. An interpretation is possible if every number has a node
and there is no dependency cycle. Numbers in IDs take precedence over positions. If counting from 1 and from 0 are both
possible, the plan is rejected.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pydantic import JsonValue

from dagwright.core.errors import Problem, pointer
from dagwright.core.expressions.reference_parser import KEY_HINT, reference_key_message, walk_keys
from dagwright.core.expressions.references import ResultOf
from dagwright.core.model import graph
from dagwright.core.model.document import Document
from dagwright.dialects.foreign import BACKSLASH_MESSAGE, map_texts
from dagwright.dialects.written_values import Repair

_NATIVE_REFERENCE_DIALECTS: Final = frozenset({"plan", "tasks", "steps", "agents"})
"""Dialects with Dagwright's references, `{{id.result}}`. The references of the other dialects are unambiguous."""

_REFERENCE_FIELDS: Final = ("arguments", "objective", "for_each", "key", "human")
"""Fields of a node that can have references."""

_DEPENDENCIES_KEYS: Final = {"nodes": "depends_on", "dag": "dependencies", "steps": "depends_on", "plan": "depends_on"}
"""Key of the list of nodes -> key of the dependencies of a node."""

_NUMBER = r"(?P<{0}>[0-9]{{1,6}})"
_REFERENCE_FORMS = re.compile(
    "|".join(
        (
            r"\{\{\s*" + _NUMBER.format("braced") + r"\s*\}\}",
            r"\{\{\s*(?P<id>[^\s{}][^{}]*?)\s*\}\}",
            "<node-" + _NUMBER.format("node") + ">",
            "<GENERATED>-" + _NUMBER.format("generated"),
            "#E" + _NUMBER.format("evidence") + r"(?!\w)",
            r"\$\{" + _NUMBER.format("dollar") + r"\}",
            r"\$(?P<name>[A-Za-z_]\w*)(?P<path>(?:\.[^\s$.\[\]]+|\[[0-9]{1,9}\])*)\$",
            "@result_" + _NUMBER.format("result") + r"(?!\w)",
            r"\$" + _NUMBER.format("bare") + r"(?![0-9]*(?:[.,][0-9]|\w))",
        )
    )
)
_NUMBER_GROUPS: Final = ("braced", "node", "generated", "evidence", "dollar", "result", "bare")
_NATIVE_REFERENCE = re.compile(r"\{\{[^{}]+\.(?:result|status|error)[.\[\s}]")
_STEP = re.compile(r"\.([^.\[\]]+)|\[([0-9]+)\]")
_ID = re.compile(r"(.*?)([0-9]{1,6})")
_VARIABLE = re.compile(r"var_?([0-9]{1,6})")


def convert_ids_to_text(raw: JsonValue) -> tuple[JsonValue, list[Repair]]:
    """Return a document whose numeric ids and dependencies are strings, and the repairs."""
    key = next((key for key in _DEPENDENCIES_KEYS if isinstance(raw, dict) and isinstance(raw.get(key), list)), None)
    nodes = raw.get(key) if isinstance(raw, dict) and key is not None else raw
    if not isinstance(nodes, list) or not any(isinstance(node, dict) and _is_number(node.get("id")) for node in nodes):
        return raw, []
    if key is None and not any(isinstance(node, dict) and "tool" in node for node in nodes):
        return raw, []
    dependencies_key = _DEPENDENCIES_KEYS[key or "steps"]
    converted_nodes = [
        _convert_id_to_text(node, dependencies_key) if isinstance(node, dict) else node for node in nodes
    ]
    at = pointer(key) if key is not None else ""
    repair = Repair("number_as_id", "ids that are numbers were read as texts", None, at)
    return ({**raw, key: converted_nodes} if isinstance(raw, dict) and key is not None else converted_nodes), [repair]


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _convert_id_to_text(node: dict[str, JsonValue], dependencies_key: str) -> dict[str, JsonValue]:
    converted_node = {**node, "id": str(node["id"])} if _is_number(node.get("id")) else dict(node)
    dependencies = node.get(dependencies_key)
    if isinstance(dependencies, list):
        converted_node[dependencies_key] = [str(item) if _is_number(item) else item for item in dependencies]
    return converted_node


def repair_references(document: Document) -> tuple[Document, list[Repair]]:
    """Rewrite all references of a document in Dagwright's syntax; return the document and the repairs.

    Ambiguities are added to the problems of the document.

    Complexity: linear in the document.
    """
    nodes = document.plan.get("nodes")
    if document.dialect not in _NATIVE_REFERENCE_DIALECTS or not isinstance(nodes, list):
        return document, []
    return _Repairer(document, nodes).repair()


@dataclass(slots=True)
class _NumberReference:
    """A number that denotes a node.

    Args:
        node_index: index of the node that contains the number; `None` for the output.
        at: path of the number in the plan.
    """

    number: int
    written_text: str
    node_index: int | None
    at: tuple[str | int, ...]


@dataclass(slots=True)
class _Repairer:
    document: Document
    nodes: Sequence[Any]
    ids: dict[str, int] = field(default_factory=dict)
    references: list[_NumberReference] = field(default_factory=list)
    repairs: list[Repair] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    node_of_number: Mapping[int, int] = field(default_factory=dict)
    uses_native_syntax: bool = False

    def repair(self) -> tuple[Document, list[Repair]]:
        for index, node in enumerate(self.nodes):
            if isinstance(node, dict) and isinstance(node.get("id"), str):
                self.ids.setdefault(node["id"], index)
        self.uses_native_syntax = any(_has_native_reference(node) for node in self.nodes) or _has_native_reference(
            self.document.plan.get("output")
        )
        self._collect()
        if self.references and not self._choose_numbering():
            return replace(self.document, problems=[*self.document.problems, *self.problems]), []
        plan = {**self.document.plan, "nodes": [self._repair_node(index) for index in range(len(self.nodes))]}
        if "output" in plan:
            plan["output"] = self._repair_value(plan["output"], node_index=None, at=("output",))
        if not self.repairs and not self.problems:
            return self.document, []
        problems = [*self.document.problems, *self.problems]
        return replace(self.document, plan=plan, problems=problems), self.repairs

    def _collect(self) -> None:
        """Find all numbers that denote nodes."""
        for node_index, node in enumerate(self.nodes):
            if not isinstance(node, dict):
                continue
            for name in _REFERENCE_FIELDS:
                self._collect_references(node.get(name), node_index=node_index, at=("nodes", node_index, name))
            dependencies = node.get("depends_on")
            for index, item in enumerate(dependencies if isinstance(dependencies, list) else ()):
                number = item if _is_number(item) else self._number_of_text(item)
                if number is not None:
                    self.references.append(
                        _NumberReference(number, str(item), node_index, ("nodes", node_index, "depends_on", index))
                    )
        self._collect_references(self.document.plan.get("output"), node_index=None, at=("output",))

    def _collect_references(self, value: Any, *, node_index: int | None, at: tuple[str | int, ...]) -> None:
        def collect(text: str, path: tuple[str | int, ...]) -> str:
            for match in _REFERENCE_FORMS.finditer(text):
                number = self._number_in(match, text)
                if number is not None and not _is_escaped(match, text):
                    self.references.append(_NumberReference(number, match[0], node_index, path))
            return text

        map_texts(value, collect, at=at)

    def _number_of_text(self, text: Any) -> int | None:
        match = _REFERENCE_FORMS.fullmatch(text) if isinstance(text, str) and text not in self.ids else None
        return self._number_in(match, match.string) if match is not None else None

    def _number_in(self, match: re.Match[str], text: str) -> int | None:
        kind = match.lastgroup
        if kind == "path" or match["name"] is not None:
            variable = _VARIABLE.fullmatch(match["name"]) if match["name"] not in self.ids else None
            return int(variable[1]) if variable else None
        if match["id"] is not None or kind not in _NUMBER_GROUPS:
            return None
        if match[0] in self.ids or (match["braced"] or "") in self.ids:
            return None
        number = int(match[kind])
        return None if kind == "bare" and self._is_amount(number, is_whole_text=match[0] == text) else number

    def _is_amount(self, number: int, *, is_whole_text: bool) -> bool:
        """Return whether `$5` is an amount of money and not a reference.

        It is an amount if at least two of these are true: the plan uses Dagwright's syntax, there is no node 5, and
        `$5` is only a part of the text.
        """
        is_too_large = number > len(self.nodes)
        return (self.uses_native_syntax and (is_too_large or not is_whole_text)) or (is_too_large and not is_whole_text)

    def _choose_numbering(self) -> bool:
        """Choose the interpretation of the numbers; report a problem if it is ambiguous."""
        count = len(self.nodes)
        id_numbering = self._numbers_of_ids()
        if id_numbering is not None and self._is_possible(id_numbering):
            self.node_of_number = id_numbering
            return True
        one_based_numbering = {index + 1: index for index in range(count)}
        zero_based_numbering = {index: index for index in range(count)}
        possible_numberings = [
            numbering for numbering in (one_based_numbering, zero_based_numbering) if self._is_possible(numbering)
        ]
        if len(possible_numberings) == 1:
            self.node_of_number = possible_numberings[0]
            return True
        first_reference = self.references[0]
        if possible_numberings:
            one_based_id, zero_based_id = (
                self._node_id(numbering[first_reference.number]) for numbering in possible_numberings
            )
            meanings = f"counted from 1 it is node {one_based_id!r}, counted from 0 it is node {zero_based_id!r}"
            message = f"{first_reference.written_text!r} is ambiguous: {meanings}; both are possible"
            self._report("ambiguous", message, first_reference)
        else:
            self._report_impossible(id_numbering or one_based_numbering)
        return False

    def _report_impossible(self, node_of_number: Mapping[int, int]) -> None:
        unmatched_references = [ref for ref in self.references if ref.number not in node_of_number]
        for reference in unmatched_references[:20] or self.references[:1]:
            message = f"Invalid reference: {reference.written_text!r} matches none of the {len(self.nodes)} nodes"
            self._report("invalid_reference", f"{message}, or creates a dependency cycle", reference)

    def _report(self, code: str, message: str, reference: _NumberReference) -> None:
        at = self.document.written_pointer(pointer(*reference.at))
        node_id = self._node_id(reference.node_index) if reference.node_index is not None else None
        self.problems.append(Problem(code, message, at, node_id, "write {{id.result}} with the id of the node"))

    def _node_id(self, index: int) -> str:
        node = self.nodes[index]
        return str(node.get("id")) if isinstance(node, dict) else f"number {index + 1}"

    def _numbers_of_ids(self) -> Mapping[int, int] | None:
        """Map the numbers in IDs to nodes; return `None` unless all IDs are the same word with different numbers."""
        numbers: dict[int, int] = {}
        words = set()
        for index in range(len(self.nodes)):
            match = _ID.fullmatch(self._node_id(index))
            if match is None or int(match[2]) in numbers:
                return None
            words.add(match[1])
            numbers[int(match[2])] = index
        return numbers if len(words) == 1 else None

    def _is_possible(self, node_of_number: Mapping[int, int]) -> bool:
        if any(reference.number not in node_of_number for reference in self.references):
            return False
        dependencies: list[dict[int, None]] = [{} for _ in self.nodes]
        for reference in self.references:
            if reference.node_index is not None:
                dependencies[reference.node_index][node_of_number[reference.number]] = None
        for index, node in enumerate(self.nodes):
            depends_on = node.get("depends_on") if isinstance(node, dict) else None
            for item in depends_on if isinstance(depends_on, list) else ():
                if isinstance(item, str) and item in self.ids:
                    dependencies[index][self.ids[item]] = None
        if any(index in needed_nodes for index, needed_nodes in enumerate(dependencies)):
            return False
        return graph.levels_of([list(needed_nodes) for needed_nodes in dependencies]) is not None

    def _repair_node(self, index: int) -> Any:
        node = self.nodes[index]
        if not isinstance(node, dict):
            return node
        repaired_node = dict(node)
        for name in _REFERENCE_FIELDS:
            if name in repaired_node:
                repaired_node[name] = self._repair_value(
                    repaired_node[name], node_index=index, at=("nodes", index, name)
                )
        dependencies = repaired_node.get("depends_on")
        if isinstance(dependencies, list):
            repaired_node["depends_on"] = [
                self._repair_dependency(item, index, position) for position, item in enumerate(dependencies)
            ]
        return repaired_node

    def _repair_dependency(self, item: Any, index: int, position: int) -> Any:
        number = item if _is_number(item) else self._number_of_text(item)
        if number is None or number not in self.node_of_number:
            return item
        dependency_id = self._node_id(self.node_of_number[number])
        self._add_repair(str(item), dependency_id, node_index=index, at=("nodes", index, "depends_on", position))
        return dependency_id

    def _repair_value(self, value: Any, *, node_index: int | None, at: tuple[str | int, ...]) -> Any:
        for path, key in walk_keys(value):
            self._report_reference_in_key(key, node_index=node_index, at=(*at, *path))
        return map_texts(value, lambda text, path: self._repair_text(text, node_index=node_index, at=path), at=at)

    def _report_reference_in_key(self, key: str, *, node_index: int | None, at: tuple[str | int, ...]) -> None:
        """Report a reference in a key. Validation reports references in Dagwright's own syntax, so they are ignored
        here.
        """
        for match in _REFERENCE_FORMS.finditer(key):
            is_variable = match["name"] is not None and match["name"] in self.ids
            if match[0].startswith("{{") or not (is_variable or self._number_in(match, key) is not None):
                continue
            location = self.document.written_pointer(pointer(*at))
            node_id = self._node_id(node_index) if node_index is not None else None
            self.problems.append(Problem("invalid_reference", reference_key_message(key), location, node_id, KEY_HINT))
            return

    def _repair_text(self, text: str, *, node_index: int | None, at: tuple[str | int, ...]) -> str:
        pieces: list[str] = []
        end = 0
        for match in _REFERENCE_FORMS.finditer(text):
            reference = self._parse_reference(match, text)
            if reference is None:
                continue
            if _is_escaped(match, text):
                continue
            if text[match.start() - 1 : match.start()] == "\\":
                self._report("invalid_reference", BACKSLASH_MESSAGE, _NumberReference(0, match[0], node_index, at))
                continue
            native_reference = "{{" + str(reference) + "}}"
            self._add_repair(match[0], native_reference, node_index=node_index, at=at)
            pieces += [text[end : match.start()], native_reference]
            end = match.end()
        return "".join([*pieces, text[end:]]) if pieces else text

    def _parse_reference(self, match: re.Match[str], text: str) -> ResultOf | None:
        if match["id"] is not None:
            return ResultOf(match["id"], "result") if match["id"] in self.ids else None
        number = self._number_in(match, text)
        if match["name"] is not None:
            steps = tuple(name or int(index) for name, index in _STEP.findall(match["path"] or ""))
            if match["name"] in self.ids:
                return ResultOf(match["name"], "result", steps)
            return ResultOf(self._node_id(self.node_of_number[number]), "result", steps) if number is not None else None
        if match["braced"] is not None and match["braced"] in self.ids:
            return ResultOf(match["braced"], "result")
        return ResultOf(self._node_id(self.node_of_number[number]), "result") if number is not None else None

    def _add_repair(
        self, original: str, replacement: str, *, node_index: int | None, at: tuple[str | int, ...]
    ) -> None:
        written_pointer = self.document.written_pointer(pointer(*at))
        node_id = self._node_id(node_index) if node_index is not None else None
        self.repairs.append(
            Repair("reference", f"{original!r} was read as {replacement!r}", None, written_pointer, node_id)
        )


def _is_escaped(match: re.Match[str], text: str) -> bool:
    return match[0].startswith("{{") and text[match.start() - 1 : match.start()] == "\\"


def _has_native_reference(value: Any) -> bool:
    """Return whether any text in a value has a reference in Dagwright's syntax."""
    stack = [value]
    while stack:
        part = stack.pop()
        if isinstance(part, str):
            if "{{" in part and _NATIVE_REFERENCE.search(part):
                return True
        elif isinstance(part, dict):
            stack += part.values()
        elif isinstance(part, list):
            stack += part
    return False
