"""The dialect `taskbench`: `{"task_nodes": [{"task", "arguments"}], "task_steps", "task_links"}`.

Node j of the list, from 0, is `node-j`, and `<node-j>` in an argument is its result. Arguments are a list of
positional values, or of `{"name", "value"}`. A link names two tasks. In a named argument, the name of a linked task
is a reference to the result of that task. If there are as many steps as nodes, the steps become the titles of the
nodes.

Source: Shen et al., "TaskBench: Benchmarking Large Language Models for Task Automation" (2023), and its repository.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import JsonValue

from dagwright.core.errors import Problem
from dagwright.core.expressions.references import ResultOf
from dagwright.core.model.document import Document
from dagwright.core.name_hints import suggestion
from dagwright.dialects.draft import STAND_IN_ACTION, DocumentDraft, ObjectReader, action_of_tool
from dagwright.dialects.foreign import Tools, key_problems, map_texts, named_arguments, translate_references
from dagwright.dialects.json_reader import describe

NODES = "task_nodes"
_KEYS = frozenset({"task", "arguments"})
_ROOT_KEYS = ("task_steps", "task_links")
_LINK_KEYS = frozenset({"source", "target"})
_ARGUMENT_KEYS = frozenset({"name", "value"})
_REFERENCE = re.compile(r"<node-([0-9]{1,9})>")


def read_taskbench(raw: JsonValue, *, tools: Tools) -> Document:
    """Return the document of a graph of tasks.

    Raises:
        PlanInvalid: there is no list of nodes, or it is empty.
    """
    draft = DocumentDraft("taskbench", f"/{NODES}")
    nodes = draft.entries_under_key(raw, NODES, other_keys=_ROOT_KEYS)
    assert isinstance(raw, dict)
    task_names = [node.get("task") if isinstance(node, dict) else None for node in nodes]
    graph = _Graph(task_names, tools)
    for at, source, target in _links(raw.get("task_links"), draft):
        graph.link(source, target, at=at, problems=draft.problems)
    titles = _titles(raw.get("task_steps"), len(nodes), draft)
    for index, node in enumerate(nodes):
        entry = draft.entry(node, index, name=f"node {index}", node_id=f"node-{index}")
        plan_node: dict[str, Any] = {"id": f"node-{index}", **STAND_IN_ACTION}
        if entry is not None:
            plan_node = _node(entry, graph)
        if titles:
            plan_node["title"] = titles[index]
        draft.nodes.append(plan_node)
    return draft.document(
        additional_pointers=lambda: [(f"/nodes/{index}/tool", f"/{NODES}/{index}/task") for index in range(len(nodes))]
    )


@dataclass(slots=True)
class _Graph:
    """The tasks by name, and their links.

    Args:
        task_names: name of each node's task, as written.
        numbers_by_task: name of a task -> numbers of its nodes.
        dependencies: number of a node -> numbers of the nodes that it depends on.
    """

    task_names: Sequence[Any]
    tools: Tools
    numbers_by_task: dict[str, list[int]] = field(default_factory=dict)
    dependencies: dict[int, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for number, task in enumerate(self.task_names):
            if isinstance(task, str):
                self.numbers_by_task.setdefault(task, []).append(number)

    def link(self, source: str, target: str, *, at: str, problems: list[Problem]) -> None:
        """Add a link, or report why it is invalid."""
        ends: list[int] = []
        for key, name in (("source", source), ("target", target)):
            numbers = self.numbers_by_task.get(name, [])
            if len(numbers) == 1:
                ends += numbers
                continue
            if numbers:
                reason = f"{len(numbers)} nodes have the task {name!r}, so the link is ambiguous"
                hint: str | None = "write the references into the arguments: <node-0>"
            else:
                reason, hint = f"there is no task {name!r}", suggestion(name, self.numbers_by_task)
            message = f"Invalid reference: {reason}"
            problems.append(Problem("invalid_reference", message, f"{at}/{key}", None, hint))
        if len(ends) == 2:
            self.dependencies.setdefault(ends[1], []).append(ends[0])


def _links(raw_links: JsonValue, draft: DocumentDraft) -> Sequence[tuple[str, str, str]]:
    links: list[tuple[str, str, str]] = []
    if raw_links is not None and not isinstance(raw_links, list):
        message = f"'task_links' must be a list, not {describe(raw_links)}"
        draft.problems.append(Problem("invalid_field", message, "/task_links"))
    for index, raw in enumerate(raw_links if isinstance(raw_links, list) else ()):
        at = f"/task_links/{index}"
        if not isinstance(raw, dict):
            draft.problems.append(Problem("invalid_field", f"a link must be an object, not {describe(raw)}", at))
            continue
        link = ObjectReader(raw, at, f"link {index}", None, draft.problems)
        link.expect_keys(_LINK_KEYS)
        source, target = link.text("source"), link.text("target")
        if source is not None and target is not None:
            links.append((at, source, target))
    return links


def _titles(raw_titles: JsonValue, node_count: int, draft: DocumentDraft) -> Sequence[str]:
    """Return the steps as titles if there are as many steps as nodes, otherwise nothing."""
    if raw_titles is not None and not isinstance(raw_titles, list):
        message = f"'task_steps' must be a list, not {describe(raw_titles)}"
        draft.problems.append(Problem("invalid_field", message, "/task_steps"))
    steps = [step for step in raw_titles if isinstance(step, str)] if isinstance(raw_titles, list) else []
    return steps if isinstance(raw_titles, list) and len(steps) == len(raw_titles) == node_count else ()


def _node(entry: ObjectReader, graph: _Graph) -> dict[str, Any]:
    entry.expect_keys(_KEYS)
    task = entry.nonempty_text("task")
    node: dict[str, Any] = {"id": entry.node_id, **action_of_tool(task), "arguments": {}}
    dependencies = graph.dependencies.get(entry.index)
    if dependencies:
        node["depends_on"] = [f"node-{number}" for number in dict.fromkeys(dependencies)]
    raw_arguments = entry.raw.get("arguments")
    if raw_arguments is not None and not isinstance(raw_arguments, list):
        entry.report("invalid_field", f"'arguments' must be a list, not {describe(raw_arguments)}", "arguments")
    elif raw_arguments:
        node["arguments"] = _arguments(entry, raw_arguments, graph=graph, tool=task or "")
    return node


def _arguments(entry: ObjectReader, raw_arguments: Sequence[Any], *, graph: _Graph, tool: str) -> Mapping[str, Any]:
    named_items = [item for item in raw_arguments if isinstance(item, dict) and "name" in item]
    if not named_items:
        values = [_translate_value(entry, value, at=(index,), graph=graph) for index, value in enumerate(raw_arguments)]
        try:
            return named_arguments(values, tool, tools=graph.tools)
        except ValueError as error:
            entry.report("invalid_arguments", str(error), "arguments")
            return {}
    arguments: dict[str, Any] = {}
    for index, item in enumerate(raw_arguments):
        if not isinstance(item, dict):
            message = f"an argument without a name is next to arguments with names: {describe(item)}"
            entry.report("invalid_field", message, "arguments", index)
            continue
        at = entry.at + f"/arguments/{index}"
        argument = ObjectReader(item, at, f"{entry.name}, argument {index}", entry.node_id, entry.problems)
        argument.expect_keys(_ARGUMENT_KEYS)
        name = argument.nonempty_text("name")
        if name is not None and name in arguments:
            argument.report("invalid_field", f"{name!r} occurs twice", "name")
        elif name is not None:
            arguments[name] = _named_value(entry, item.get("value"), at=(index, "value"), graph=graph)
    return arguments


def _named_value(entry: ObjectReader, value: Any, *, at: tuple[str | int, ...], graph: _Graph) -> Any:
    """Return a value, or a reference if the value is the name of a linked task."""
    if not isinstance(value, str) or value not in graph.numbers_by_task:
        return _translate_value(entry, value, at=at, graph=graph)
    linked_numbers = [number for number in graph.dependencies.get(entry.index, ()) if graph.task_names[number] == value]
    if len(set(linked_numbers)) == 1:
        return "{{" + str(ResultOf(f"node-{linked_numbers[0]}", "result")) + "}}"
    message = f"{value!r} is the name of a task, but no link leads from that task to this node"
    entry.report("invalid_reference", message, "arguments", *at, hint="write the link, or <node-0> for the first node")
    return None


def _translate_value(entry: ObjectReader, value: Any, *, at: tuple[str | int, ...], graph: _Graph) -> Any:
    def replace_references(text: str, path_in_value: tuple[str | int, ...]) -> str:
        def resolve(match: re.Match[str]) -> ResultOf | None:
            number = int(match[1])
            if number < len(graph.task_names):
                return ResultOf(f"node-{number}", "result")
            message = f"Invalid reference: there is no node {number} for {match[0]}; the first is <node-0>"
            entry.report("invalid_reference", message, "arguments", *at, *path_in_value)
            return None

        try:
            return translate_references(text, _REFERENCE, resolve)
        except ValueError as error:
            entry.report("invalid_reference", str(error), "arguments", *at, *path_in_value)
            return ""

    for message, path, hint in key_problems(value, _REFERENCE):
        entry.report("invalid_reference", message, "arguments", *at, *path, hint=hint)
    return map_texts(value, replace_references)
