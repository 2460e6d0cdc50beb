"""The conformance kit: functions that write the same graph in each dialect, and list the problems of a document."""

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
        write: return the document of a graph.
        id_of: return the node ID of a node number.
        tool_key: the key for the tool in an entry.
        required: keys that an entry must have, separated by spaces.
        optional: optional keys of an entry, and keys of the objects inside an entry, separated by spaces.
        unknown_dependency_code: error code of a dependency on a missing node.
        is_text: whether a document is a text, which has no parts for JSON pointers.
    """

    name: str
    entries_path: tuple[str, ...]
    write: Callable[[Graph], Any]
    id_of: Callable[[int], str]
    tool_key: str
    required: str
    optional: str = ""
    unknown_dependency_code: str = "invalid_reference"
    is_text: bool = False

    @property
    def required_keys(self) -> list[str]:
        return self.required.split()

    @property
    def keys(self) -> list[str]:
        """All keys that an entry may have."""
        return [*self.required_keys, *self.optional.split()]

    def entries_of(self, document: Any) -> list[Any]:
        entries: list[Any] = document[self.entries_path[0]] if self.entries_path else document
        return entries

    def entry_pointer(self, index: int, *keys: str | int) -> str:
        """Return the JSON pointer to an entry or a part of the entry; for texts, the pointer to the document."""
        return "" if self.is_text else pointer(*self.entries_path, index, *keys)


def _write_plan(graph: Graph) -> Any:
    def references(needs: Sequence[int]) -> list[str]:
        return [f"{{{{n {need}.result}}}}" for need in needs]

    fields = ((number, {"x": references(needs)}) for number, needs in graph.items())
    return {"plan": 1, "nodes": [{"id": f"n {number}", "tool": "t", "arguments": each} for number, each in fields]}


def _write_tasks(graph: Graph) -> Any:
    def entry(number: int) -> Any:
        return {"id": f"t{number}", "tool": "t", "query": "x", "dependencies": [f"t{need}" for need in graph[number]]}

    return {"dag": [entry(number) for number in graph]}


def _write_steps(graph: Graph) -> Any:
    def arguments(needs: Sequence[int]) -> Any:
        return {"x": {"y": [f"{{{{s.{need}.result.z}}}}" for need in needs]}}

    return [{"id": f"s.{number}", "tool": "t", "arguments": arguments(needs)} for number, needs in graph.items()]


def _write_agents(graph: Graph) -> Any:
    def entry(number: int) -> Any:
        return {"id": f"a{number}", "agent": "t", "objective": "", "depends_on": [f"a{need}" for need in graph[number]]}

    return {"nodes": [entry(number) for number in graph]}


def _write_intents(graph: Graph) -> Any:
    fields: dict[str, Any] = {"verb": "t", "params": {}, "lookups": None}
    return {
        "intents": [{**fields, "refs": {f"p{need}": f"@result_{need}" for need in needs}} for needs in graph.values()]
    }


def _write_subgoals(graph: Graph) -> Any:
    def inputs(needs: Sequence[int]) -> Any:
        return {f"p{need}": {"from_sub_goal": need, "slot": "x"} for need in needs}

    fields = {"worker": "t", "outputs": ["x"]}
    return {"sub_goals": [{"id": number, **fields, "inputs": inputs(needs)} for number, needs in graph.items()]}


def _write_hugginggpt(graph: Graph) -> Any:
    def args(needs: Sequence[int]) -> Any:
        return {f"p{need}": f"<GENERATED>-{need}" for need in needs}

    return [
        {"task": "t", "id": number, "dep": list(needs) or [-1], "args": args(needs)} for number, needs in graph.items()
    ]


def _taskbench_id(number: int) -> str:
    return f"node-{number - 1}"


def _write_taskbench(graph: Graph) -> Any:
    arguments = ([f"x <{_taskbench_id(need)}>" for need in needs] for needs in graph.values())
    return {"task_nodes": [{"task": "t", "arguments": each} for each in arguments]}


def _write_nestful(graph: Graph) -> Any:
    return [
        {"name": "t", "arguments": {"x": [f"$var{need}.z$" for need in needs]}, "label": f"var{number}"}
        for number, needs in graph.items()
    ]


def _write_llmcompiler(graph: Graph) -> Any:
    calls = [f"{number}. t({', '.join(f'${need}' for need in needs)})\n" for number, needs in graph.items()]
    return "".join([*calls, f"{len(graph) + 1}. join()<END_OF_PLAN>\n"])


def _write_rewoo(graph: Graph) -> Any:
    return "".join(
        f"Plan: think of {number}\n#E{number} = t[x {' '.join(f'#E{need}' for need in needs)}]\n"
        for number, needs in graph.items()
    )


_INTENT_KEYS = "params refs lookups search_text entity_type"
_SUB_GOAL_KEYS = "description inputs from_sub_goal slot params outputs goal_type"
_UNKNOWN = "unknown_dependency"
DIALECTS = (
    Dialect(
        "plan", ("nodes",), _write_plan, "n {}".format, "tool", "id tool", "arguments depends_on plan for_each when"
    ),
    Dialect("tasks", ("dag",), _write_tasks, "t{}".format, "tool", "id tool query dependencies", "", _UNKNOWN),
    Dialect("steps", (), _write_steps, "s.{}".format, "tool", "id tool arguments", "intent depends_on"),
    Dialect("agents", ("nodes",), _write_agents, "a{}".format, "agent", "id agent objective", "depends_on", _UNKNOWN),
    Dialect("intents", ("intents",), _write_intents, "@result_{}".format, "verb", "verb", _INTENT_KEYS),
    Dialect("subgoals", ("sub_goals",), _write_subgoals, "sg{}".format, "worker", "id worker", _SUB_GOAL_KEYS),
    Dialect("hugginggpt", (), _write_hugginggpt, str, "task", "id task", "dep args", _UNKNOWN),
    Dialect("taskbench", ("task_nodes",), _write_taskbench, _taskbench_id, "task", "task", "arguments name value"),
    Dialect("nestful", (), _write_nestful, "var{}".format, "name", "name", "arguments label"),
    Dialect("llmcompiler", (), _write_llmcompiler, str, "tool", "", is_text=True),
    Dialect("rewoo", (), _write_rewoo, "E{}".format, "tool", "", is_text=True),
)
"""All dialects, with positional arguments in the order of the fields of `Dialect`."""

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
