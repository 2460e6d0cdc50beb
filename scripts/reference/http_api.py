"""The sections of the HTTP API, from its OpenAPI document."""

import asyncio
import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from dagwright.interfaces.http.api_keys import KeyFile
from dagwright.interfaces.http.app import create_app
from dagwright.interfaces.http.context import GatewayContext
from dagwright.interfaces.http.errors import ERROR_RESPONSES
from dagwright.interfaces.http.key_limits import KeyLimits, KeyUsage
from dagwright.settings import Settings
from scripts.reference.json_types import type_name
from scripts.reference.markdown import code, section, sentence, table

_LINK_TEMPLATE = "#{name}"
_EVENT_TYPES = (
    "NodeEventDocument",
    "RunEventDocument",
    "RunEndEvent",
    "ErrorEvent",
    "ProgressEvent",
    "ResponseEvent",
    "OrchestrationEvent",
)


@functools.cache
def openapi_document() -> Mapping[str, Any]:
    """Return the OpenAPI document of a gateway with default settings."""
    usage = KeyUsage(KeyLimits(1, 1, 1, 1_024, 1_024), lambda: 0.0)
    context = SimpleNamespace(settings=Settings(), keys=KeyFile(Path("none")), usage=usage, stop_event=asyncio.Event())
    return create_app(cast(GatewayContext, context)).openapi()


def operation_sections() -> str:
    """Return a section for each group of operations, with a part for each operation."""
    groups: dict[str, list[str]] = {}
    for path, methods in openapi_document()["paths"].items():
        for method, operation in methods.items():
            groups.setdefault(operation["tags"][0], []).append(
                _operation_section(f"{method.upper()} {path}", operation)
            )
    return "".join(section(name.capitalize(), *parts) for name, parts in groups.items())


def _operation_section(name: str, operation: Mapping[str, Any]) -> str:
    headings = ("Parameter", "In", "Type", "Required", "Meaning")
    parameters = operation.get("parameters", ())
    body = operation.get("requestBody")
    return section(
        operation["summary"],
        f"`{name}`",
        operation.get("description", ""),
        table(headings, map(_parameter_row, parameters)) if parameters else "",
        f"Body: {_content(body['content'])}." if body else "",
        table(("Status", "Body", "Meaning"), _response_rows(operation["responses"])),
        f"Errors: {errors}." if (errors := _common_statuses(operation["responses"])) else "",
        level=3,
    )


def error_statuses_table() -> str:
    """Return a row for each error status of the API."""
    return table(
        ("Status", "Meaning"), [(code(status), each["description"]) for status, each in ERROR_RESPONSES.items()]
    )


def _parameter_row(parameter: Mapping[str, Any]) -> tuple[str, ...]:
    schema = parameter["schema"]
    return (
        code(parameter["name"]),
        parameter["in"],
        type_name(schema, link_template=_LINK_TEMPLATE),
        "yes" if parameter.get("required") else "no",
        _description({**schema, "description": parameter.get("description", "")}),
    )


def _response_rows(responses: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    for status, response in sorted(responses.items()):
        if not _is_common(status, response):
            yield code(status), _content(response.get("content", {})), sentence(response["description"])


def _common_statuses(responses: Mapping[str, Any]) -> str:
    return ", ".join(code(status) for status, response in sorted(responses.items()) if _is_common(status, response))


def _is_common(status: str, response: Mapping[str, Any]) -> bool:
    common_response = ERROR_RESPONSES.get(int(status))
    return common_response is not None and common_response["description"] == response["description"]


def _content(content: Mapping[str, Any]) -> str:
    type_names = [
        _event_stream(description)
        if media_type == "text/event-stream"
        else type_name(description.get("schema", {}), link_template=_LINK_TEMPLATE)
        for media_type, description in content.items()
    ]
    return " or ".join(dict.fromkeys(type_names))


def _event_stream(content: Mapping[str, Any]) -> str:
    schema = content.get("schema") or content.get("itemSchema") or {}
    event_type = type_name(schema, link_template=_LINK_TEMPLATE)
    return "event stream" if event_type in ("any JSON", "string") else f"event stream of {event_type}"


def type_sections() -> str:
    """Return a section for each type of the API, except those of events."""
    return "".join(_type_section(name) for name in sorted(_types()) if name not in _EVENT_TYPES and name != "JsonValue")


def event_sections() -> str:
    """Return a section for each type of event of the API."""
    return "".join(_type_section(name) for name in _EVENT_TYPES)


def _types() -> Mapping[str, Any]:
    types: Mapping[str, Any] = openapi_document()["components"]["schemas"]
    return types


def _type_section(name: str) -> str:
    schema = _types()[name]
    description = sentence(schema.get("description", ""))
    if "properties" not in schema:
        return section(name, description, f"One of {type_name(schema, link_template=_LINK_TEMPLATE)}.", level=3)
    required = schema.get("required", ())
    rows = [
        (
            code(field),
            type_name(field_schema, link_template=_LINK_TEMPLATE),
            "yes" if field in required else "no",
            _description(field_schema),
        )
        for field, field_schema in schema["properties"].items()
    ]
    return section(name, description, table(("Field", "Type", "Required", "Meaning"), rows), level=3)


def _description(schema: Mapping[str, Any]) -> str:
    default = schema.get("default")
    text = sentence(schema.get("description", ""))
    return text if default is None or "const" in schema else f"{text} Default: {code(_json_literal(default))}."


def _json_literal(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
