"""The sections of the built-in tools, from their declarations."""

from collections.abc import Iterator, Mapping
from typing import Any

from dagwright.core.model.tools import ToolDeclaration
from dagwright.settings import Settings
from dagwright.tools.registry import BUILTIN_TOOL_NAMES
from dagwright.toolset.toolset import load_toolset
from scripts.reference.json_types import type_name
from scripts.reference.limits import duration
from scripts.reference.markdown import code, section, sentence, table


def tool_sections() -> str:
    """Return a section for each built-in tool: description, effects, arguments and result."""
    declarations = load_toolset(Settings(), []).declarations()
    return "".join(_section(declarations[name]) for name in sorted(BUILTIN_TOOL_NAMES))


def _section(tool: ToolDeclaration) -> str:
    schema = tool.input_schema or {}
    facts = [f"Effects: {_effects(tool)}.", *_limit_facts(tool), f"Result: {type_name(tool.output_schema or {})}."]
    arguments = table(("Argument", "Type", "Required", "Default", "Meaning"), _argument_rows(schema))
    return section(f"`{tool.name}`", tool.description, "\n".join(f"- {fact}" for fact in facts), arguments)


def _effects(tool: ToolDeclaration) -> str:
    if tool.effects_by is None:
        return code(tool.effects)
    effects_by_value = ", ".join(
        f"{code(effects)} for `{value}`" for value, effects in tool.effects_by["effects"].items()
    )
    return f"by `{tool.effects_by['argument']}`: {effects_by_value}, {code(tool.effects)} otherwise"


def _limit_facts(tool: ToolDeclaration) -> Iterator[str]:
    yield (
        f"Timeout of an attempt: {duration(tool.timeout_s)}."
        if tool.timeout_s
        else "Timeout: 1 s in a region, else 60 s."
    )
    if tool.max_attempts is not None:
        yield f"Attempts: at most {tool.max_attempts}."


def _argument_rows(schema: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    required = schema.get("required", ())
    for name, field in schema.get("properties", {}).items():
        default = field.get("default")
        yield (
            code(name),
            type_name(field),
            "yes" if name in required else "no",
            "" if default is None else code(default),
            sentence(field.get("description", "")),
        )
