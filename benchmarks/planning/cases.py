"""The requests of the benchmark: their texts, the offered tools, and the expected plan of each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.planning.score import PlanFacts, facts_of_plan
from dagwright.core.model.tools import Effects, ToolDeclaration
from dagwright.dialects.yaml_reader import read_yaml

REQUESTS_FILE = Path(__file__).parent / "requests.yaml"


@dataclass(frozen=True, slots=True)
class Case:
    """A request and its expected plan.

    Args:
        text: text of the request.
        plan: expected plan, in the plan format.
        facts: facts of the expected plan.
    """

    text: str
    plan: Mapping[str, Any]
    facts: PlanFacts


@dataclass(frozen=True, slots=True)
class Cases:
    """All requests, and the tools that are offered with each of them."""

    tools: Mapping[str, ToolDeclaration]
    requests: Sequence[Case]


def read_cases(path: Path = REQUESTS_FILE) -> Cases:
    """Read the requests of a file.

    Raises:
        PlanInvalid: the file is not YAML, or a plan in it is invalid.
    """
    content: Any = read_yaml(path.read_text(encoding="utf-8"), name=path.name)
    tools = {name: _tool(name, encoded) for name, encoded in content["tools"].items()}
    cases = []
    for encoded in content["requests"]:
        plan = {"plan": 1, "nodes": encoded["nodes"]}
        cases.append(Case(encoded["words"], plan, facts_of_plan(plan, tools=tools)))
    return Cases(tools, cases)


def _tool(name: str, encoded: Mapping[str, Any]) -> ToolDeclaration:
    """Build a tool from `{effects, description, arguments: {name: type or [choices]}}`; all arguments are required."""
    arguments = encoded["arguments"]
    schema = {
        "type": "object",
        "properties": {
            argument: {"type": "string", "enum": encoded_type}
            if isinstance(encoded_type, list)
            else {"type": encoded_type}
            for argument, encoded_type in arguments.items()
        },
        "required": [*arguments],
        "additionalProperties": False,
    }
    return ToolDeclaration(
        name, effects=Effects(encoded["effects"]), input_schema=schema, description=encoded["description"]
    )
