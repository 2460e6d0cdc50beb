"""What a plan knows of the tools of a server."""

from typing import Any

import pytest

from dagwright.core.model.tools import Effects, ToolDeclaration
from dagwright.mcp_client.config import Program, ServerConfig, ServerRules, ToolRules
from dagwright.mcp_client.listing import listed_tools, versions_of
from dagwright.tools.errors import ToolsUnreadable

_SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


def _server(**rules: Any) -> ServerConfig:
    return ServerConfig("srv", Program("x", (), {}, cwd=None), ServerRules(**rules))  # type: ignore[arg-type] # not started


def _tool(name: str = "get", **more: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": _SCHEMA, **more}


def _effects(annotations: Any, **rules: Any) -> Effects:
    [listed] = listed_tools(_server(**rules), [_tool(annotations=annotations)])
    return listed.declaration.effects


@pytest.mark.parametrize(
    ("annotations", "effects"),
    [
        (None, Effects.WRITE),
        ({}, Effects.WRITE),
        ({"readOnlyHint": True}, Effects.READ),
        ({"readOnlyHint": True, "idempotentHint": True}, Effects.READ),
        ({"idempotentHint": True, "destructiveHint": True}, Effects.IDEMPOTENT),
        ({"readOnlyHint": False, "destructiveHint": False}, Effects.WRITE),
        ({"readOnlyHint": "yes"}, Effects.WRITE),
    ],
)
def test_annotations_give_the_effects_and_never_pure(annotations: Any, effects: Effects) -> None:
    assert _effects(annotations) is effects


def test_the_file_has_the_last_word_on_effects() -> None:
    assert _effects({"readOnlyHint": True}, effects="write") is Effects.WRITE
    assert _effects(None, effects="write", tools={"get": ToolRules(effects="read")}) is Effects.READ


def test_a_tool_is_declared_with_its_schema_its_words_and_its_rules() -> None:
    [listed] = listed_tools(
        _server(timeout="5s", max_parallel=3, result="text"), [_tool(description="Gets.", title="Get")]
    )
    assert (listed.name, listed.reads_json) == ("get", False)
    assert listed.declaration == ToolDeclaration(
        name="srv.get",
        effects=Effects.WRITE,
        input_schema=_SCHEMA,
        timeout_s=5.0,
        max_parallel=3,
        max_attempts=3,
        version=listed.declaration.version,
        is_pinned=True,
        description="Gets.",
    )


def test_a_schema_that_is_none_takes_any_arguments() -> None:
    remote = {"$ref": "https://example.com/schema.json"}
    assert [
        listed.declaration.input_schema
        for listed in listed_tools(_server(), [_tool(inputSchema=remote), _tool("b", inputSchema={"type": 7})])
    ] == [None, None]


def test_the_version_changes_with_all_that_a_plan_is_checked_against_and_with_nothing_else() -> None:
    tools = {
        "first": _tool(),
        "other words": _tool(description="other", title="x", annotations={"openWorldHint": True}),
        "other arguments": _tool(inputSchema={**_SCHEMA, "required": []}),
        "other result": _tool(outputSchema={"type": "object"}),
        "other effects": _tool(annotations={"readOnlyHint": True}),
    }
    versions = {name: versions_of(_server(), [tool])["get"] for name, tool in tools.items()}
    assert versions["first"] == versions["other words"]
    assert len(set(versions.values())) == 4


def test_rules_for_a_tool_that_the_server_does_not_have_are_refused() -> None:
    with pytest.raises(ToolsUnreadable) as refused:
        listed_tools(_server(tools={"gett": ToolRules()}), [_tool()])
    assert str(refused.value) == "/mcpServers/srv/dagwright/tools: the server has no tool 'gett'; did you mean 'get'?"


def test_a_name_that_is_too_long_for_temporal_is_refused() -> None:
    with pytest.raises(ToolsUnreadable, match="a name has 1 to 200 bytes, this one 204"):
        listed_tools(_server(), [_tool("x" * 200)])
