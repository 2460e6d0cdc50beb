"""The conformance kit: how each dialect writes the same graph, and how tests ask what is wrong with it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dagwright.core.model.errors import PlanInvalid, Problem
from dagwright.core.validation.checked_plan import Checked
from dagwright.core.validation.validation import check_document
from dagwright.dialects import to_document

Graph = Mapping[int, Sequence[int]]
"""Node number, from 1 in order -> the numbers it waits for."""


@dataclass(frozen=True)
class Dialect:
    """One dialect, as the kit needs it.

    Args:
        entries: the path from the document to its list of entries.
        write: makes a document of a graph.
        id_of: the node id that stands for a number.
        tool_key: the key that names what an entry runs.
        required: keys that an entry must have.
        optional: the other keys it may have, and keys inside of them.
        unknown_code: what a dependency on a node that is not there is told as.
        is_text: its documents are texts, which have no entries and no places inside.
    """

    name: str
    entries: tuple[str, ...]
    write: Callable[[Graph], Any]
    id_of: Callable[[int], str]
    tool_key: str
    required: tuple[str, ...]
    optional: tuple[str, ...]
    unknown_code: str
    is_text: bool = False

    @property
    def keys(self) -> tuple[str, ...]:
        """All keys that an entry may have."""
        return (*self.required, *self.optional)

    def entries_of(self, document: Any) -> list[Any]:
        """Returns the list of entries of a document."""
        found: list[Any] = document[self.entries[0]] if self.entries else document
        return found


def _write_plan(graph: Graph) -> Any:
    return {
        "plan": 1,
        "nodes": [
            {
                "id": f"n {number}",
                "tool": "t",
                "arguments": {"x": [f"{{{{n {other}.result}}}}" for other in needs]},
            }
            for number, needs in graph.items()
        ],
    }


def _write_tasks(graph: Graph) -> Any:
    return {
        "dag": [
            {
                "id": f"t{number}",
                "tool": "t",
                "query": "x",
                "dependencies": [f"t{other}" for other in needs],
            }
            for number, needs in graph.items()
        ]
    }


def _write_steps(graph: Graph) -> Any:
    return [
        {
            "id": f"s.{number}",
            "tool": "t",
            "arguments": {"x": {"y": [f"{{{{s.{other}.result.z}}}}" for other in needs]}},
        }
        for number, needs in graph.items()
    ]


def _write_agents(graph: Graph) -> Any:
    return {
        "nodes": [
            {
                "id": f"a{number}",
                "agent": "t",
                "objective": "",
                "depends_on": [f"a{other}" for other in needs],
            }
            for number, needs in graph.items()
        ]
    }


def _write_intents(graph: Graph) -> Any:
    return {
        "intents": [
            {
                "verb": "t",
                "params": {},
                "refs": {f"p{other}": f"@result_{other}" for other in needs},
                "lookups": None,
            }
            for needs in graph.values()
        ]
    }


def _write_subgoals(graph: Graph) -> Any:
    return {
        "sub_goals": [
            {
                "id": number,
                "worker": "t",
                "outputs": ["x"],
                "inputs": {f"p{other}": {"from_sub_goal": other, "slot": "x"} for other in needs},
            }
            for number, needs in graph.items()
        ]
    }


def _write_hugginggpt(graph: Graph) -> Any:
    return [
        {
            "task": "t",
            "id": number,
            "dep": list(needs) or [-1],
            "args": {f"p{other}": f"<GENERATED>-{other}" for other in needs},
        }
        for number, needs in graph.items()
    ]


def _write_taskbench(graph: Graph) -> Any:
    return {
        "task_nodes": [
            {"task": "t", "arguments": [f"x <node-{other - 1}>" for other in needs]} for needs in graph.values()
        ]
    }


def _write_nestful(graph: Graph) -> Any:
    return [
        {"name": "t", "arguments": {"x": [f"$var{other}.z$" for other in needs]}, "label": f"var{number}"}
        for number, needs in graph.items()
    ]


def _write_llmcompiler(graph: Graph) -> Any:
    calls = [f"{number}. t({', '.join(f'${other}' for other in needs)})\n" for number, needs in graph.items()]
    return "".join([*calls, f"{len(graph) + 1}. join()<END_OF_PLAN>\n"])


def _write_rewoo(graph: Graph) -> Any:
    return "".join(
        f"Plan: think of {number}\n#E{number} = t[x {' '.join(f'#E{other}' for other in needs)}]\n"
        for number, needs in graph.items()
    )


DIALECTS = (
    Dialect(
        name="plan",
        entries=("nodes",),
        write=_write_plan,
        id_of="n {}".format,
        tool_key="tool",
        required=("id", "tool"),
        optional=("arguments", "depends_on", "plan", "for_each", "when"),
        unknown_code="invalid_reference",
    ),
    Dialect(
        name="tasks",
        entries=("dag",),
        write=_write_tasks,
        id_of="t{}".format,
        tool_key="tool",
        required=("id", "tool", "query", "dependencies"),
        optional=(),
        unknown_code="unknown_dependency",
    ),
    Dialect(
        name="steps",
        entries=(),
        write=_write_steps,
        id_of="s.{}".format,
        tool_key="tool",
        required=("id", "tool", "arguments"),
        optional=("intent", "depends_on"),
        unknown_code="invalid_reference",
    ),
    Dialect(
        name="agents",
        entries=("nodes",),
        write=_write_agents,
        id_of="a{}".format,
        tool_key="agent",
        required=("id", "agent", "objective"),
        optional=("depends_on",),
        unknown_code="unknown_dependency",
    ),
    Dialect(
        name="intents",
        entries=("intents",),
        write=_write_intents,
        id_of="@result_{}".format,
        tool_key="verb",
        required=("verb",),
        optional=("params", "refs", "lookups", "search_text", "entity_type"),
        unknown_code="invalid_reference",
    ),
    Dialect(
        name="subgoals",
        entries=("sub_goals",),
        write=_write_subgoals,
        id_of="sg{}".format,
        tool_key="worker",
        required=("id", "worker"),
        optional=("description", "inputs", "from_sub_goal", "slot", "params", "outputs", "goal_type"),
        unknown_code="invalid_reference",
    ),
    Dialect(
        name="hugginggpt",
        entries=(),
        write=_write_hugginggpt,
        id_of=str,
        tool_key="task",
        required=("id", "task"),
        optional=("dep", "args"),
        unknown_code="unknown_dependency",
    ),
    Dialect(
        name="taskbench",
        entries=("task_nodes",),
        write=_write_taskbench,
        id_of=lambda number: f"node-{number - 1}",
        tool_key="task",
        required=("task",),
        optional=("arguments", "name", "value"),
        unknown_code="invalid_reference",
    ),
    Dialect(
        name="nestful",
        entries=(),
        write=_write_nestful,
        id_of="var{}".format,
        tool_key="name",
        required=("name",),
        optional=("arguments", "label"),
        unknown_code="invalid_reference",
    ),
    Dialect(
        name="llmcompiler",
        entries=(),
        write=_write_llmcompiler,
        id_of=str,
        tool_key="tool",
        required=(),
        optional=(),
        unknown_code="invalid_reference",
        is_text=True,
    ),
    Dialect(
        name="rewoo",
        entries=(),
        write=_write_rewoo,
        id_of="E{}".format,
        tool_key="tool",
        required=(),
        optional=(),
        unknown_code="invalid_reference",
        is_text=True,
    ),
)

JSON_DIALECTS = tuple(dialect for dialect in DIALECTS if not dialect.is_text)


def check(raw: Any, *, dialect: str | None = None, context: Mapping[str, Any] | None = None) -> Checked:
    """Returns what `check --any-tool` finds."""
    return check_document(to_document(raw, dialect=dialect, context=context), tools={}, any_tool=True)


def problems_of(raw: Any, *, dialect: str | None = None, context: Mapping[str, Any] | None = None) -> Sequence[Problem]:
    """Returns everything that is wrong with a document; nothing if it is valid."""
    try:
        check(raw, dialect=dialect, context=context)
    except PlanInvalid as invalid:
        return invalid.problems
    return ()


def codes_of(raw: Any, *, dialect: str | None = None) -> list[tuple[str, str]]:
    """Returns code and pointer of everything that is wrong with a document."""
    return [(problem.code, problem.pointer) for problem in problems_of(raw, dialect=dialect)]


def value_at(document: Any, pointer: str) -> Any:
    """Returns what stands at an RFC 6901 pointer.

    Raises:
        LookupError: nothing stands there.
    """
    value = document
    for part in pointer.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if not isinstance(value, dict | list):
            raise LookupError(pointer)
        value = value[int(key)] if isinstance(value, list) else value[key]
    return value
