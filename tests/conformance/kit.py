"""The conformance kit: functions that write a graph in each dialect, and functions that check a document."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dagwright.core.errors import PlanInvalid, Problem, pointer
from dagwright.core.validation.checked_plan import CheckedPlan
from dagwright.core.validation.validation import check_document
from dagwright.dialects import to_document

Graph = Mapping[int, Sequence[int]]
"""Node number, starting at 1 -> numbers of the node's dependencies."""


@dataclass(frozen=True)
class Dialect:
    """A dialect, with the facts about it that the tests use.

    Args:
        entries_path: the path from the document to its list of entries. An entry describes one node.
        write: return a document in this dialect that describes the graph.
        node_id_of: return the node ID of a node number.
        tool_key: the key for the tool in an entry.
        required_keys: keys that an entry must have.
        optional_keys: optional keys of an entry, and keys of the objects inside an entry.
        unknown_dependency_code: error code of a dependency on a missing node.
        is_text: whether the documents are texts and not JSON. JSON pointers cannot point into a text.
    """

    name: str
    entries_path: tuple[str, ...]
    write: Callable[[Graph], Any]
    node_id_of: Callable[[int], str]
    tool_key: str
    required_keys: tuple[str, ...] = ()
    optional_keys: tuple[str, ...] = ()
    unknown_dependency_code: str = "invalid_reference"
    is_text: bool = False

    @property
    def keys(self) -> tuple[str, ...]:
        """All keys that an entry may have."""
        return (*self.required_keys, *self.optional_keys)

    def entries_of(self, document: Any) -> list[Any]:
        entries: list[Any] = document[self.entries_path[0]] if self.entries_path else document
        return entries

    def entry_pointer(self, index: int, *keys: str | int) -> str:
        """Return the JSON pointer to an entry or a part of the entry; for texts, the pointer to the document."""
        return "" if self.is_text else pointer(*self.entries_path, index, *keys)


def _write_plan(graph: Graph) -> Any:
    def references(dependencies: Sequence[int]) -> list[str]:
        return [f"{{{{n {dependency}.result}}}}" for dependency in dependencies]

    def node(number: int) -> Any:
        return {"id": f"n {number}", "tool": "t", "arguments": {"x": references(graph[number])}}

    return {"plan": 1, "nodes": [node(number) for number in graph]}


def _write_tasks(graph: Graph) -> Any:
    def entry(number: int) -> Any:
        return {
            "id": f"t{number}",
            "tool": "t",
            "query": "x",
            "dependencies": [f"t{dependency}" for dependency in graph[number]],
        }

    return {"dag": [entry(number) for number in graph]}


def _write_steps(graph: Graph) -> Any:
    def arguments(dependencies: Sequence[int]) -> Any:
        return {"x": {"y": [f"{{{{s.{dependency}.result.z}}}}" for dependency in dependencies]}}

    return [
        {"id": f"s.{number}", "tool": "t", "arguments": arguments(dependencies)}
        for number, dependencies in graph.items()
    ]


def _write_agents(graph: Graph) -> Any:
    def entry(number: int) -> Any:
        return {
            "id": f"a{number}",
            "agent": "t",
            "objective": "",
            "depends_on": [f"a{dependency}" for dependency in graph[number]],
        }

    return {"nodes": [entry(number) for number in graph]}


def _write_intents(graph: Graph) -> Any:
    fields: dict[str, Any] = {"verb": "t", "params": {}, "lookups": None}
    return {
        "intents": [
            {**fields, "refs": {f"p{dependency}": f"@result_{dependency}" for dependency in dependencies}}
            for dependencies in graph.values()
        ]
    }


def _write_subgoals(graph: Graph) -> Any:
    def inputs(dependencies: Sequence[int]) -> Any:
        return {f"p{dependency}": {"from_sub_goal": dependency, "slot": "x"} for dependency in dependencies}

    fields = {"worker": "t", "outputs": ["x"]}
    return {
        "sub_goals": [
            {"id": number, **fields, "inputs": inputs(dependencies)} for number, dependencies in graph.items()
        ]
    }


def _write_hugginggpt(graph: Graph) -> Any:
    def args(dependencies: Sequence[int]) -> Any:
        return {f"p{dependency}": f"<GENERATED>-{dependency}" for dependency in dependencies}

    return [
        {"task": "t", "id": number, "dep": list(dependencies) or [-1], "args": args(dependencies)}
        for number, dependencies in graph.items()
    ]


def _taskbench_id(number: int) -> str:
    return f"node-{number - 1}"


def _write_taskbench(graph: Graph) -> Any:
    def arguments(dependencies: Sequence[int]) -> Any:
        return [f"x <{_taskbench_id(dependency)}>" for dependency in dependencies]

    return {"task_nodes": [{"task": "t", "arguments": arguments(dependencies)} for dependencies in graph.values()]}


def _write_nestful(graph: Graph) -> Any:
    return [
        {
            "name": "t",
            "arguments": {"x": [f"$var{dependency}.z$" for dependency in dependencies]},
            "label": f"var{number}",
        }
        for number, dependencies in graph.items()
    ]


def _write_llmcompiler(graph: Graph) -> Any:
    calls = [
        f"{number}. t({', '.join(f'${dependency}' for dependency in dependencies)})\n"
        for number, dependencies in graph.items()
    ]
    return "".join([*calls, f"{len(graph) + 1}. join()<END_OF_PLAN>\n"])


def _write_rewoo(graph: Graph) -> Any:
    return "".join(
        f"Plan: think of {number}\n#E{number} = t[x {' '.join(f'#E{dependency}' for dependency in dependencies)}]\n"
        for number, dependencies in graph.items()
    )


DIALECTS = (
    Dialect(
        "plan",
        ("nodes",),
        write=_write_plan,
        node_id_of="n {}".format,
        tool_key="tool",
        required_keys=("id", "tool"),
        optional_keys=("arguments", "depends_on", "plan", "for_each", "when"),
    ),
    Dialect(
        "tasks",
        ("dag",),
        write=_write_tasks,
        node_id_of="t{}".format,
        tool_key="tool",
        required_keys=("id", "tool", "query", "dependencies"),
        unknown_dependency_code="unknown_dependency",
    ),
    Dialect(
        "steps",
        (),
        write=_write_steps,
        node_id_of="s.{}".format,
        tool_key="tool",
        required_keys=("id", "tool", "arguments"),
        optional_keys=("intent", "depends_on"),
    ),
    Dialect(
        "agents",
        ("nodes",),
        write=_write_agents,
        node_id_of="a{}".format,
        tool_key="agent",
        required_keys=("id", "agent", "objective"),
        optional_keys=("depends_on",),
        unknown_dependency_code="unknown_dependency",
    ),
    Dialect(
        "intents",
        ("intents",),
        write=_write_intents,
        node_id_of="@result_{}".format,
        tool_key="verb",
        required_keys=("verb",),
        optional_keys=("params", "refs", "lookups", "search_text", "entity_type"),
    ),
    Dialect(
        "subgoals",
        ("sub_goals",),
        write=_write_subgoals,
        node_id_of="sg{}".format,
        tool_key="worker",
        required_keys=("id", "worker"),
        optional_keys=("description", "inputs", "from_sub_goal", "slot", "params", "outputs", "goal_type"),
    ),
    Dialect(
        "hugginggpt",
        (),
        write=_write_hugginggpt,
        node_id_of=str,
        tool_key="task",
        required_keys=("id", "task"),
        optional_keys=("dep", "args"),
        unknown_dependency_code="unknown_dependency",
    ),
    Dialect(
        "taskbench",
        ("task_nodes",),
        write=_write_taskbench,
        node_id_of=_taskbench_id,
        tool_key="task",
        required_keys=("task",),
        optional_keys=("arguments", "name", "value"),
    ),
    Dialect(
        "nestful",
        (),
        write=_write_nestful,
        node_id_of="var{}".format,
        tool_key="name",
        required_keys=("name",),
        optional_keys=("arguments", "label"),
    ),
    Dialect("llmcompiler", (), write=_write_llmcompiler, node_id_of=str, tool_key="tool", is_text=True),
    Dialect("rewoo", (), write=_write_rewoo, node_id_of="E{}".format, tool_key="tool", is_text=True),
)

JSON_DIALECTS = tuple(dialect for dialect in DIALECTS if not dialect.is_text)


def check(raw: Any, *, dialect: str | None = None, context: Mapping[str, Any] | None = None) -> CheckedPlan:
    return check_document(to_document(raw, dialect=dialect, context=context), tools={}, allow_unknown_tools=True)


def problems_of(raw: Any, *, dialect: str | None = None, context: Mapping[str, Any] | None = None) -> Sequence[Problem]:
    """Return all problems of a document; an empty sequence if the document is valid."""
    try:
        check(raw, dialect=dialect, context=context)
    except PlanInvalid as invalid:
        return invalid.problems
    return ()


def codes_and_pointers_of(raw: Any, *, dialect: str | None = None) -> list[tuple[str, str]]:
    return [(problem.code, problem.pointer) for problem in problems_of(raw, dialect=dialect)]


def value_at(document: Any, pointer: str) -> Any:
    """Return the value at an RFC 6901 pointer.

    Raises:
        LookupError: there is no value at the pointer.
    """
    value = document
    for part in pointer.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if not isinstance(value, dict | list):
            raise LookupError(pointer)
        value = value[int(key)] if isinstance(value, list) else value[key]
    return value
