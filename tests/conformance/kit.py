"""The conformance kit: how each dialect writes the same graph, and how tests ask what is wrong with it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dagwright.dialects import to_document
from dagwright.plan.errors import PlanInvalid, Problem
from dagwright.plan.validation import Checked, check_document

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
        unknown_code: what a dependency on a node that is not there is told as.
    """

    name: str
    entries: tuple[str, ...]
    write: Callable[[Graph], Any]
    id_of: Callable[[int], str]
    tool_key: str
    required: tuple[str, ...]
    unknown_code: str

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


DIALECTS = (
    Dialect("plan", ("nodes",), _write_plan, "n {}".format, "tool", ("id", "tool"), "invalid_reference"),
    Dialect(
        "tasks",
        ("dag",),
        _write_tasks,
        "t{}".format,
        "tool",
        ("id", "tool", "query", "dependencies"),
        "unknown_dependency",
    ),
    Dialect(
        "steps", (), _write_steps, "s.{}".format, "tool", ("id", "tool", "arguments"), "invalid_reference"
    ),
    Dialect(
        "agents",
        ("nodes",),
        _write_agents,
        "a{}".format,
        "agent",
        ("id", "agent", "objective"),
        "unknown_dependency",
    ),
    Dialect(
        "intents", ("intents",), _write_intents, "@result_{}".format, "verb", ("verb",), "invalid_reference"
    ),
    Dialect(
        "subgoals",
        ("sub_goals",),
        _write_subgoals,
        "sg{}".format,
        "worker",
        ("id", "worker"),
        "invalid_reference",
    ),
)


def check(raw: Any, *, dialect: str | None = None, context: Mapping[str, Any] | None = None) -> Checked:
    """Returns what `check --any-tool` finds."""
    return check_document(to_document(raw, dialect=dialect, context=context), tools={}, any_tool=True)


def problems_of(
    raw: Any, *, dialect: str | None = None, context: Mapping[str, Any] | None = None
) -> Sequence[Problem]:
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
