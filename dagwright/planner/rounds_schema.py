"""Response format of the profile `rounds`: the response of the planner in each round.

Fields beyond this format are accepted too.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dagwright.planner.schema import RESPONSE_FILE

ROUNDS_FILE: Path = RESPONSE_FILE.with_name("rounds.schema.json")
MAX_SUB_GOALS = 50
"""Maximum number of sub-goals that one response starts."""
MAX_SUB_GOALS_OF_RUN = 100
"""Maximum number of sub-goals in all rounds of one question."""
MAX_SYNTHESIS_INPUTS = 50
"""Maximum number of slots that the answer uses."""
MAX_REFS = 50
"""Maximum number of slots that one sub-goal receives."""


def rounds_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) for the response of the planner of rounds."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Response of Dagwright's planner of rounds",
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "reasoning": {
                "type": "string",
                "description": "Reason for the action, in one to three sentences.",
            },
            "action": {"type": "string", "enum": ["continue", "done", "failed"]},
            "sub_goals": {
                "type": "array",
                "items": {"$ref": "#/$defs/SubGoal"},
                "maxItems": MAX_SUB_GOALS,
                "description": "For continue: sub-goals to start in this round.",
            },
            "synthesis_inputs": {
                "type": "object",
                "additionalProperties": {"$ref": "#/$defs/Input"},
                "description": "For done: name -> slots for the answer.",
            },
        },
        "required": ["reasoning", "action"],
        "$defs": {"SubGoal": _SUB_GOAL, "Input": _INPUT, "InputRef": _INPUT_REF},
    }


_SUB_GOAL: dict[str, Any] = {
    "type": "object",
    "description": "One call of a worker.",
    "additionalProperties": False,
    "properties": {
        "id": {
            "type": "integer",
            "minimum": 0,
            "description": "An unused number, or the id of a failed sub-goal to retry it.",
        },
        "worker": {"type": "string"},
        "description": {"type": "string", "description": "Purpose of the call, understandable by itself."},
        "inputs": {
            "type": "object",
            "additionalProperties": {"$ref": "#/$defs/Input"},
            "description": "Argument of the worker -> one or more slots of other sub-goals.",
        },
        "params": {"type": "object", "description": "Argument of the worker -> its value."},
        "outputs": {"type": "array", "items": {"type": "string"}, "description": "Slots of the result."},
        "goal_type": {"type": "string", "enum": ["support", "deliverable"]},
    },
    "required": ["id", "worker", "description", "inputs", "params"],
}
_INPUT: dict[str, Any] = {
    "anyOf": [{"$ref": "#/$defs/InputRef"}, {"type": "array", "items": {"$ref": "#/$defs/InputRef"}, "minItems": 1}]
}
_INPUT_REF: dict[str, Any] = {
    "type": "object",
    "description": "A slot of another sub-goal, of this round or an earlier one.",
    "additionalProperties": False,
    "properties": {"from_sub_goal": {"type": "integer"}, "slot": {"type": "string"}},
    "required": ["from_sub_goal", "slot"],
}
SUB_GOAL_FIELDS: Sequence[str] = tuple(_SUB_GOAL["properties"])
INPUT_REF_FIELDS: Sequence[str] = tuple(_INPUT_REF["properties"])
