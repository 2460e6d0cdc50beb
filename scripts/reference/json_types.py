"""Names of the types in a JSON Schema."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from scripts.reference.markdown import code

_DURATION_PATTERN_END = "(ms|s|m|h|d)$"
_RANGES = (("minimum", "≥"), ("exclusiveMinimum", ">"), ("maximum", "≤"), ("exclusiveMaximum", "<"))


def type_name(schema: Mapping[str, Any], *, link_template: str | None = None) -> str:
    """Return the type of a JSON Schema as Markdown, such as ``"a" or list of string``.

    Args:
        link_template: link to a type, with `{name}` in place of the name of the type; if it is `None`, the name is
            formatted as code.
    """
    kinds = dict.fromkeys(filter(None, _type_names(schema, link_template)))
    # `null` means that the field may be omitted, which the column of defaults shows.
    names = [kind for kind in kinds if kind != "null"] or list(kinds)
    return " or ".join(names) or "any JSON"


def _type_names(schema: Mapping[str, Any], link_template: str | None) -> Iterator[str]:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        yield "any JSON" if name == "JsonValue" else "plan" if name == "#" else _link_type(name, link_template)
    elif "const" in schema:
        yield code(json.dumps(schema["const"]).strip('"'))
    elif schema.get("minimum") is not None and schema["minimum"] == schema.get("maximum"):
        yield code(schema["minimum"])
    elif "enum" in schema:
        yield ", ".join(code(json.dumps(value).strip('"')) for value in schema["enum"])
    elif alternatives := schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf"):
        for alternative in alternatives:
            yield from _type_names(alternative, link_template)
    elif isinstance(schema.get("type"), list):
        for kind in schema["type"]:
            yield from _type_names({**schema, "type": kind}, link_template)
    elif schema.get("type") == "array":
        items = type_name(schema.get("items", {}), link_template=link_template)
        yield f"list of {items}" if items != "any JSON" else "list"
    elif schema.get("type") == "string" and str(schema.get("pattern", "")).endswith(_DURATION_PATTERN_END):
        yield "duration"
    elif "type" in schema:
        is_number = schema["type"] in ("integer", "number")
        ranges = [f"{sign} {schema[keyword]:,}" for keyword, sign in _RANGES if is_number and keyword in schema]
        yield " ".join([schema["type"], ", ".join(ranges)]).strip()


def _link_type(name: str, link_template: str | None) -> str:
    return f"[{name}]({link_template.format(name=name.lower())})" if link_template else code(name)
