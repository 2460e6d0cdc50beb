"""Response format of the profile `intents`: the part of the dialect `intents` that a model may write.

Fields beyond this format are accepted too, and checked as in any list of intents.
"""

from pathlib import Path
from typing import Any

from dagwright.core.model.resolvers import UNKNOWN_RESOLVER, Resolver
from dagwright.planner.schema import MAX_PLANNED_NODES, RESPONSE_FILE

INTENTS_FILE: Path = RESPONSE_FILE.with_name("intents.schema.json")
MAX_INTENTS = MAX_PLANNED_NODES
"""Maximum number of intents per request: the number of nodes that a run accepts at once."""


def intents_schema(resolver: Resolver = UNKNOWN_RESOLVER) -> dict[str, Any]:
    """Return the JSON Schema (2020-12) for the response of the planner of intents.

    Args:
        resolver: resolver of lookups; the published schema has none.
    """
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Response of Dagwright's planner of intents",
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "intents": {"type": "array", "items": {"$ref": "#/$defs/Intent"}, "maxItems": MAX_INTENTS},
            "explanation": {
                "type": "string",
                "description": "Changes and assumptions, in one to three sentences for the person who approves them.",
            },
            "confidence": {
                "type": "number",
                "minimum": 0,
                "maximum": 1,
                "description": "Probability from 0 to 1 that the intents match the request.",
            },
        },
        "required": ["intents", "explanation", "confidence"],
        "$defs": {"Intent": _INTENT, "Lookup": _lookup_schema(resolver)},
    }


_INTENT: dict[str, Any] = {
    "type": "object",
    "description": "One call of a verb. Each argument is in exactly one of params, refs and lookups.",
    "additionalProperties": False,
    "properties": {
        "verb": {"type": "string"},
        "params": {"type": "object", "description": "Argument -> its value."},
        "refs": {
            "type": "object",
            "additionalProperties": {"type": "string"},
            "description": "Argument -> @result_N (entity of intent N of this answer) or @name (name of the session).",
        },
        "lookups": {
            "description": "Argument -> an existing entity.",
            "anyOf": [
                {"type": "object", "additionalProperties": {"$ref": "#/$defs/Lookup"}},
                {"type": "null"},
            ],
        },
    },
    "required": ["verb", "params", "refs", "lookups"],
}


def _lookup_schema(resolver: Resolver) -> dict[str, Any]:
    type_description = f"One of {', '.join(resolver.types)}." if resolver.types else "Kind of the entity."
    filters = {name: {"type": "string"} for name in resolver.filters}
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "search_text": {"type": "string"},
            "entity_type": {"type": "string", "description": type_description},
            **filters,
        },
        "required": ["search_text", "entity_type"],
    }
