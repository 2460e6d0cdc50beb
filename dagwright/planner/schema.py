"""Response format of the planner, generated from the JSON Schema of plans: `python -m dagwright.planner [--check]`.

The format is the part of the plan format that a language model needs. Fields beyond this part are accepted too, and
checked as in any plan.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dagwright.plans.schema import plan_schema

RESPONSE_FILE = Path(__file__).parent.parent.parent / "docs" / "reference" / "schemas" / "planner" / "plan.schema.json"
MAX_PLANNED_NODES = 200
"""Maximum number of nodes of a plan that a model writes: the number of nodes that a run accepts at once."""

_NODE_FIELDS = (
    "id", "title", "tool", "agent", "human", "arguments", "objective", "depends_on", "for_each", "key", "when", "join",
    "on_error",
)  # fmt: skip
_HUMAN_FIELDS = ("type", "prompt", "options", "multiple")
_DESCRIPTIONS = {
    "arguments": "Arguments of the tool; strings may contain references such as {{other.result}}.",
    "objective": "Task of the agent, in words; may contain references.",
    "depends_on": "Ids of nodes that must run first although no reference names them.",
    "for_each": "A list, or a reference to one. The node runs once for each element, {{item}}.",
    "when": "A CEL expression over results, such as size(search.result) > 0.",
}


_INLINE_AGENT_FIELDS = ("prompt", "tools")


def response_schema(*, allows_inline_agents: bool = False) -> dict[str, Any]:
    """Return the JSON Schema (2020-12) for the response of the planner: a plan.

    Args:
        allows_inline_agents: whether a plan may define inline agents.
    """
    plan = plan_schema()
    definitions = plan["$defs"]
    human = _select_properties(definitions["Human"], _HUMAN_FIELDS, required=("prompt",))
    human["properties"]["options"] = {"type": "array", "items": {"type": "string"}}
    node = _select_properties(definitions["Node"], _NODE_FIELDS, required=("id",))
    node["description"] = "One step of a plan: exactly one of tool, agent and human."
    node["properties"]["on_error"] = {
        "anyOf": [{"type": "string", "enum": ["block", "skip", "ask", "replan"]}, {"$ref": "#/$defs/OnErrorValue"}]
    }
    inline_definitions = {
        "InlineAgent": _select_properties(definitions["InlineAgent"], _INLINE_AGENT_FIELDS, required=("prompt",))
    }
    agent = {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/InlineAgent"}]}
    node["properties"]["agent"] = agent if allows_inline_agents else {"type": "string"}
    for name, description in _DESCRIPTIONS.items():
        node["properties"][name]["description"] = description
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Response of Dagwright's planner",
        "type": "object",
        "additionalProperties": False,
        # Models write fields in this order. Nodes start while the model writes, so the title of the plan comes last.
        "properties": {
            "nodes": {
                "type": "array",
                "items": {"$ref": "#/$defs/Node"},
                "minItems": 1,
                "maxItems": MAX_PLANNED_NODES,
            },
            "title": {"type": "string"},
        },
        "required": ["nodes"],
        "$defs": {
            "AtLeast": definitions["AtLeast"],
            "Human": human,
            **(inline_definitions if allows_inline_agents else {}),
            "Node": node,
            "JsonValue": definitions["JsonValue"],
            "OnErrorValue": definitions["OnErrorValue"],
        },
    }


def answer_schema() -> dict[str, Any]:
    """Return the JSON Schema for the answer that a model writes for the person after the plan has run."""
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "answer": {"type": "string", "description": "The answer, as text for the person."},
            "missing": {
                "type": "array",
                "items": {"type": "string"},
                "description": (
                    "Requested information that is missing and that other steps with the same tools could find, "
                    "one sentence each. Empty if nothing is missing or no other step could find it."
                ),
            },
        },
        "required": ["answer", "missing"],
    }


def _select_properties(definition: Any, names: tuple[str, ...], *, required: tuple[str, ...]) -> dict[str, Any]:
    properties = {name: _without_null(definition["properties"][name]) for name in names}
    return {
        "type": "object",
        "description": definition["description"],
        "additionalProperties": False,
        "properties": properties,
        "required": list(required),
    }


def _without_null(schema: Any) -> dict[str, Any]:
    """Return the schema of a property without its default and without null: a language model omits unused fields."""
    simplified_schema = {keyword: part for keyword, part in schema.items() if keyword != "default"}
    choices = [choice for choice in simplified_schema.pop("anyOf", ()) if choice != {"type": "null"}]
    if len(choices) == 1:
        return {**choices[0], **simplified_schema}
    return {**simplified_schema, "anyOf": choices} if choices else simplified_schema


def schema_text(schema: Mapping[str, Any]) -> str:
    """Serialize a schema as the text of a published file."""
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
