"""Convert feedback requests to forms of MCP (elicitation), and the content of forms to answers.

Forms of the protocol are flat objects with strings, numbers, booleans and choices. For a value of another type, the
form has a string field with JSON. The functions are pure. This module must not import the SDK.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from dagwright.core.model.requests import is_labelled

RequestDocument = Mapping[str, Any]
"""The result of `dagwright.core.model.requests.Request.to_json`."""
Form = dict[str, Any]
"""A `requestedSchema` of the protocol."""

_KEYWORDS: Mapping[str, Sequence[str]] = {
    "string": ("title", "minLength", "maxLength", "default"),
    "integer": ("title", "minimum", "maximum", "default"),
    "number": ("title", "minimum", "maximum", "default"),
    "boolean": ("title", "default"),
}
"""Type of a field -> the keywords that the protocol supports, except the description."""
_FORMATS = ("date", "date-time", "email", "uri")
"""Formats of strings that the protocol supports."""
_MAX_OPTIONS = 200
"""Maximum number of options of a choice; a longer list is not usable on a screen."""
_DATA_FIELD = "data"
"""Field for data whose schema has no properties."""
_OPTION_WITH_RESULT = "value"
"""Option for a failed node. Forms omit this option: its answer also needs a result, and forms have no such field."""


class InvalidJson(Exception):
    """A field that must contain JSON has other content; the message names the field."""


def form_of(request: RequestDocument) -> Form | None:
    """Return the form for a request; `None` if a flat form cannot represent the request."""
    match request["type"]:
        case "APPROVAL":
            reason = {"type": "string", "title": "Reason"}
            return _form({"approved": {"type": "boolean", "title": "Approve"}, "reason": reason}, ["approved"])
        case "SELECTION":
            return _form_of_selection(request)
        case "INFORMATION":
            return _form_of_data(request["schema"])
    return _form({"text": {"type": "string", "title": "Answer"}}, ["text"])


def answer_of(request: RequestDocument, content: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the content of a form to an answer.

    Raises:
        InvalidJson: a field that must contain JSON has other content.
    """
    match request["type"]:
        case "APPROVAL":
            reason = {"reason": content["reason"]} if content.get("reason") else {}
            return {"approved": content.get("approved"), **reason}
        case "SELECTION":
            if request["allow_text"] and content.get("text"):
                return {"text": content["text"]}
            selection = content.get("selected")
            return {"selected": selection if isinstance(selection, list) else [selection]}
        case "INFORMATION":
            return {"data": _parse_data(request["schema"], content)}
    return {"text": content.get("text")}


def prompt_of(request: RequestDocument) -> str:
    """Return the prompt and, for an approval, the call."""
    lines = [str(request["prompt"] or f"{request['type'].capitalize()}?")]
    if request.get("tool") and request.get("purpose") == "approval":
        lines.append(f"{request['tool']} with {json.dumps(request.get('arguments') or {}, ensure_ascii=False)}")
        lines += [f"{entity} is {name}" for entity, name in (request.get("entities") or {}).items()]
    return "\n".join(lines)


def _form(fields: Mapping[str, Any], required_names: Sequence[str]) -> Form:
    return {"type": "object", "properties": dict(fields), "required": list(required_names)}


def _form_of_selection(request: RequestDocument) -> Form | None:
    options = [option for option in request["options"] or () if not _is_omitted(request, option)]
    if not 0 < len(options) <= _MAX_OPTIONS:
        return None
    choice = _choice([(_id_text_of(option), _label_of(option)) for option in options])
    if request["multiple"]:
        item_schema = {"anyOf": choice["oneOf"]} if "oneOf" in choice else choice
        choice = {"type": "array", "items": item_schema, "minItems": 0 if request["allow_text"] else 1}
    fields = {"selected": {**choice, "title": "Choice"}}
    if not request["allow_text"]:
        return _form(fields, ["selected"])
    return _form({**fields, "text": {"type": "string", "title": "Or something else"}}, [])


def _is_omitted(request: RequestDocument, option: Any) -> bool:
    return request.get("purpose") == "error" and option == _OPTION_WITH_RESULT


def _choice(options: Sequence[tuple[str, str]]) -> dict[str, Any]:
    if all(option_id == label for option_id, label in options):
        return {"type": "string", "enum": [option_id for option_id, _ in options]}
    return {"type": "string", "oneOf": [{"const": option_id, "title": label} for option_id, label in options]}


def _id_text_of(option: Any) -> str:
    option_id = option["id"] if is_labelled(option) else option
    return option_id if isinstance(option_id, str) else json.dumps(option_id, ensure_ascii=False)


def _label_of(option: Any) -> str:
    return str(option["label"]) if is_labelled(option) else _id_text_of(option)


def _form_of_data(schema: Mapping[str, Any] | None) -> Form:
    fields = _fields_of(schema)
    if not fields:
        description = f"JSON that matches {json.dumps(schema)}" if schema else "a JSON object"
        return _form({_DATA_FIELD: {"type": "string", "title": "Data", "description": description}}, [_DATA_FIELD])
    required_names = schema.get("required") if schema else None
    names = [name for name in required_names if name in fields] if isinstance(required_names, list) else []
    return _form(
        {name: _field(field_schema) or _json_field(field_schema) for name, field_schema in fields.items()}, names
    )


def _fields_of(schema: Mapping[str, Any] | None) -> Mapping[str, Any]:
    fields = schema.get("properties") if schema else None
    return fields if isinstance(fields, Mapping) else {}


def _field(schema: Any) -> dict[str, Any] | None:
    """Convert a schema to a field of a form; `None` if forms have no such type."""
    if not isinstance(schema, Mapping):
        return None
    choices = schema.get("enum")
    description = schema.get("description") or schema.get("prompt")
    description_keyword = {"description": description} if isinstance(description, str) else {}
    if isinstance(choices, list) and choices and all(isinstance(choice, str) for choice in choices):
        text_keywords = {name: schema[name] for name in ("title", "default") if isinstance(schema.get(name), str)}
        return {"type": "string", "enum": choices, **text_keywords, **description_keyword}
    kind = schema.get("type")
    if choices is not None or not isinstance(kind, str) or kind not in _KEYWORDS:
        return None
    keywords = {name: schema[name] for name in _KEYWORDS[kind] if name in schema}
    if kind == "string" and schema.get("format") in _FORMATS:
        keywords["format"] = schema["format"]
    return {"type": kind, **keywords, **description_keyword}


def _json_field(schema: Any) -> dict[str, Any]:
    return {"type": "string", "description": f"JSON that matches {json.dumps(schema)}"}


def _parse_data(schema: Mapping[str, Any] | None, content: Mapping[str, Any]) -> Any:
    fields = _fields_of(schema)
    if not fields:
        return _parse_field(_DATA_FIELD, content.get(_DATA_FIELD))
    # A field with null or an empty text was not filled in.
    values = {name: value for name, value in content.items() if value not in (None, "")}
    return {
        name: value if _field(fields.get(name, {})) is not None else _parse_field(name, value)
        for name, value in values.items()
    }


def _parse_field(name: str, text: Any) -> Any:
    try:
        return json.loads(text)
    except (TypeError, ValueError, RecursionError):
        raise InvalidJson(f"the field {name!r} must contain JSON") from None
