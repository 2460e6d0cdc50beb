"""The JSON Schema of a plan, made from the model: `python -m dagwright.plan_schema [--check]`.

It exists for editors and for programs in other languages. It says what single fields may hold; what only the whole
plan shows (edges, cycles, tools) is checked by `dagwright check`.
"""

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dagwright.plan.model import RESERVED_IDS, Plan

SCHEMA_FILE = Path(__file__).parent.parent / "docs" / "plan.schema.json"

_KINDS = ("tool", "agent", "human", "plan")
_SUB_PLAN = {
    "description": "A plan in Dagwright's own dialect, in another one, or the path of a file with one.",
    "anyOf": [
        {"$ref": "#"},
        {"type": "object", "not": {"required": ["plan"], "properties": {"plan": {"type": "integer"}}}},
        {"type": "array"},
        {"type": "string"},
        {"type": "null"},
    ],
}


def plan_schema() -> dict[str, Any]:
    """Returns the JSON Schema (2020-12) of a plan in Dagwright's own dialect."""
    made = _without_noise(Plan.model_json_schema(mode="validation"))
    assert isinstance(made, dict)
    node = made["$defs"]["Node"]
    node["properties"]["id"] |= {"minLength": 1, "not": {"enum": sorted(RESERVED_IDS)}}
    node["properties"]["plan"] = _SUB_PLAN
    node["oneOf"] = [
        {"required": [kind], "properties": {kind: {"not": {"type": "null"}}}, "title": f"a node with {kind}"}
        for kind in _KINDS
    ]
    made["properties"]["nodes"]["minItems"] = 1
    made["properties"]["inputs"]["additionalProperties"] = False
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Dagwright plan", **made}


def _without_noise(schema: Any, *, names_follow: bool = False) -> Any:
    """Drops what pydantic adds and nobody reads: titles made of field names, and defaults that are null."""
    if isinstance(schema, list):
        return [_without_noise(part) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {
        key: _without_noise(part, names_follow=key in ("properties", "$defs", "patternProperties") and not names_follow)
        for key, part in schema.items()
        if names_follow or not (key == "title" or (key == "default" and part is None))
    }


def schema_text() -> str:
    """Returns the text of the published file."""
    return json.dumps(plan_schema(), indent=2, ensure_ascii=False) + "\n"


def main() -> int:
    """Writes the file, or with `--check` tells by the exit code whether it is fresh."""
    parser = argparse.ArgumentParser(prog="python -m dagwright.plan_schema", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the file is not fresh")
    if not parser.parse_args().check:
        SCHEMA_FILE.write_text(schema_text(), encoding="utf-8")
        return 0
    if SCHEMA_FILE.is_file() and SCHEMA_FILE.read_text(encoding="utf-8") == schema_text():
        return 0
    sys.stderr.write(f"{SCHEMA_FILE.name} is not what the model says; run: make docs-schema\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
