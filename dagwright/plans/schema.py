"""JSON Schemas of a plan and an agents file, generated from the pydantic models.

`python -m dagwright.plans.schema [--check]` writes or compares them. The schemas are for editors and for programs in
other languages. They describe single fields; `dagwright check` also checks the plan as a whole (edges, cycles, tools).
"""

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dagwright.core.model.agents import AgentCard
from dagwright.core.model.plan import RESERVED_IDS, PlanDocument

_SCHEMAS = Path(__file__).parents[2] / "docs" / "reference" / "schemas"
SCHEMA_FILE = _SCHEMAS / "plan.schema.json"
AGENTS_SCHEMA_FILE = _SCHEMAS / "agents.schema.json"

_KINDS = ("tool", "agent", "human", "plan")
_SUB_PLAN = {
    "description": "A plan in Dagwright's own dialect or in another dialect, or the path of a plan file.",
    "anyOf": [
        {"$ref": "#"},
        {"type": "object", "not": {"required": ["plan"], "properties": {"plan": {"type": "integer"}}}},
        {"type": "array"},
        {"type": "string"},
        {"type": "null"},
    ],
}


def plan_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a plan in Dagwright's own dialect."""
    schema = _without_generated_titles(PlanDocument.model_json_schema(mode="validation"))
    assert isinstance(schema, dict)
    node = schema["$defs"]["Node"]
    node["properties"]["id"] |= {"minLength": 1, "not": {"enum": sorted(RESERVED_IDS)}}
    node["properties"]["plan"] = _SUB_PLAN
    node["oneOf"] = [
        {"required": [kind], "properties": {kind: {"not": {"type": "null"}}}, "title": f"a node with {kind}"}
        for kind in _KINDS
    ]
    schema["properties"]["nodes"]["minItems"] = 1
    schema["properties"]["inputs"]["additionalProperties"] = False
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Dagwright plan", **schema}


def _without_generated_titles(schema: Any, *, keys_are_names: bool = False) -> Any:
    """Remove redundant keywords of pydantic: titles derived from field names, and null defaults.

    Args:
        keys_are_names: whether the keys of `schema` are names of fields or types, not keywords of JSON Schema.
    """
    if isinstance(schema, list):
        return [_without_generated_titles(part) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {
        key: _without_generated_titles(
            part, keys_are_names=key in ("properties", "$defs", "patternProperties") and not keys_are_names
        )
        for key, part in schema.items()
        if keys_are_names or not (key == "title" or (key == "default" and part is None))
    }


def agents_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of an agents file."""
    card = _without_generated_titles(AgentCard.model_json_schema(mode="validation"))
    card["required"] = [name for name in card["required"] if name != "name"]
    agents = {"type": "object", "minProperties": 1, "additionalProperties": card}
    schema = {"type": "object", "properties": {"agents": agents}, "required": ["agents"], "additionalProperties": False}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Dagwright agents", **schema}


def schema_texts() -> Mapping[Path, str]:
    """Return the published files: path -> text."""
    schemas = {SCHEMA_FILE: plan_schema(), AGENTS_SCHEMA_FILE: agents_schema()}
    return {file: json.dumps(schema, indent=2, ensure_ascii=False) + "\n" for file, schema in schemas.items()}


def main() -> int:
    """Write the files; with `--check`, only compare them and return 1 if a file is outdated."""
    parser = argparse.ArgumentParser(prog="python -m dagwright.plans.schema", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a file is outdated")
    is_checking = parser.parse_args().check
    stale_files = [file for file, text in schema_texts().items() if not _matches(file, text)]
    for file in stale_files:
        if is_checking:
            sys.stderr.write(f"{file.name} is out of date; run: make docs-schema\n")
        else:
            file.write_text(schema_texts()[file], encoding="utf-8")
    return 1 if stale_files and is_checking else 0


def _matches(file: Path, text: str) -> bool:
    return file.is_file() and file.read_text(encoding="utf-8") == text


if __name__ == "__main__":
    sys.exit(main())
