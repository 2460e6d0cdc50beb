"""Tools of MCP servers: their declarations, results and failures."""

from datetime import timedelta
from typing import Any

import pytest

from dagwright.core.model.tools import Effects, ToolDeclaration
from dagwright.mcp_client.call_results import failure_text, locations_of, result_of, tool_error_of
from dagwright.mcp_client.config import Program, ServerConfig, ServerRules, ToolRules
from dagwright.mcp_client.listing import listed_tools, versions_of
from dagwright.tools.errors import (
    GiveUp,
    InvalidArguments,
    NotStarted,
    RemoteFailed,
    RetryLater,
    ToolError,
    ToolLoadError,
)


def _text_response(*texts: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text} for text in texts]}


SESSION_CLOSED = "the server has closed the session; the call starts a new session"
_IMAGE = {"type": "image", "data": "AAAA", "mimeType": "image/png"}


@pytest.mark.parametrize(
    ("response", "result"),
    [
        ({"structuredContent": {"n": 1}, **_text_response('{"n": 1}')}, {"n": 1}),
        ({"structuredContent": {}, "content": []}, {}),
        ({"content": []}, None),
        ({}, None),
        (_text_response("hello"), "hello"),
        (_text_response("one", "two"), "one\ntwo"),
        (_text_response(' {"a": [1, 2.5, null]}\n'), {"a": [1, 2.5, None]}),
        (_text_response('[{"a": 1}]'), [{"a": 1}]),
        (_text_response('{"a": 1}', '{"b": 2}'), '{"a": 1}\n{"b": 2}'),
        (_text_response("42"), "42"),
        (_text_response("true"), "true"),
        (_text_response('"quoted"'), '"quoted"'),
        (_text_response("[not json]"), "[not json]"),
        (_text_response('{"a": NaN}'), '{"a": NaN}'),
        (_text_response("[" * 100_000), "[" * 100_000),
        ({"content": [{"type": "text", "text": "see"}, _IMAGE]}, [{"type": "text", "text": "see"}, _IMAGE]),
        ({"content": [_IMAGE]}, [_IMAGE]),
    ],
)
def test_result_of_a_call_is_converted(response: dict[str, Any], result: Any) -> None:
    assert result_of(response, reads_json=True) == result


def test_text_is_not_parsed_if_the_server_file_declares_text_results() -> None:
    assert result_of(_text_response('{"a": 1}'), reads_json=False) == '{"a": 1}'


@pytest.mark.parametrize(
    ("response", "text"),
    [
        (_text_response("fine"), None),
        ({"isError": False, **_text_response("fine")}, None),
        ({"isError": True, **_text_response("no", "never")}, "no\nnever"),
        ({"isError": True, "content": [_IMAGE]}, "the server reports a failure without a message"),
    ],
)
def test_failure_has_the_text_of_the_response(response: dict[str, Any], text: str | None) -> None:
    assert failure_text(response) == text


@pytest.mark.parametrize(
    ("code", "message", "status", "expected"),
    [
        (-32602, "Unknown tool: x", None, InvalidArguments("Invalid arguments: Unknown tool: x")),
        (-32602, "wrong", 400, InvalidArguments("Invalid arguments: wrong")),
        (-32601, "Method not found", None, GiveUp("Method not found")),
        (-32600, "Elicitation not supported", None, GiveUp("Elicitation not supported")),
        (-32603, "it broke", None, RemoteFailed("it broke")),
        (-32603, "it broke", 503, RemoteFailed("it broke (HTTP 503)")),
        (-32000, "SSE stream ended without a response", None, RemoteFailed("SSE stream ended without a response")),
        (-32603, "no", 401, GiveUp("no (HTTP 401); check the headers of the server in the file of MCP servers")),
        (-32603, "busy", 429, RetryLater("busy (HTTP 429)", after=timedelta(seconds=7))),
        (-32600, "Session terminated", 404, NotStarted(SESSION_CLOSED)),
    ],
)
def test_protocol_error_is_mapped_to_a_tool_error(
    code: int, message: str, status: int | None, expected: ToolError
) -> None:
    actual = tool_error_of(code, message, status=status, retry_after=timedelta(seconds=7))
    assert (type(actual), str(actual)) == (type(expected), str(expected))
    if isinstance(actual, RetryLater):
        assert actual.after == timedelta(seconds=7)


def test_locations_are_found_in_arguments_and_resources_of_the_response() -> None:
    arguments = {"path": "a.txt", "Paths": ["b.txt", 5], "url": "https://x.example", "query": "c.txt", "file": None}
    content = [
        {"type": "text", "text": "d.txt"},
        {"type": "resource_link", "uri": "file:///e.txt", "name": "e"},
        {"type": "resource", "resource": {"uri": "https://x.example/f", "text": "f"}},
        {"type": "resource"},
    ]
    expected = ["a.txt", "b.txt", "https://x.example", "file:///e.txt", "https://x.example/f"]
    assert (locations_of(arguments, {"content": content}), locations_of({}, {})) == (expected, [])


_SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


def _server(**rules: Any) -> ServerConfig:
    return ServerConfig("srv", Program("x", (), {}, cwd=None), ServerRules(**rules))  # type: ignore[arg-type] # not started


def _tool(name: str = "get", **fields: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": _SCHEMA, **fields}


@pytest.mark.parametrize(
    ("annotations", "rules", "effects"),
    [
        (None, {}, Effects.WRITE),
        ({"readOnlyHint": True}, {}, Effects.READ),
        ({"readOnlyHint": True, "idempotentHint": True}, {}, Effects.READ),
        ({"idempotentHint": True, "destructiveHint": True}, {}, Effects.IDEMPOTENT),
        ({"readOnlyHint": False, "destructiveHint": False}, {}, Effects.WRITE),
        ({"readOnlyHint": "yes"}, {}, Effects.WRITE),
        # Rules of the server file override the annotations.
        ({"readOnlyHint": True}, {"effects": "write"}, Effects.WRITE),
        (None, {"effects": "write", "tools": {"get": ToolRules(effects="read")}}, Effects.READ),
    ],
)
def test_effects_come_from_the_server_file_or_the_annotations(annotations: Any, rules: Any, effects: Effects) -> None:
    [listed_tool] = listed_tools(_server(**rules), [_tool(annotations=annotations)])
    assert listed_tool.declaration.effects is effects


def test_tool_is_declared_with_its_schema_description_and_rules() -> None:
    server = _server(timeout="5s", max_parallel=3, result="text")
    [listed_tool] = listed_tools(server, [_tool(description="Gets.", title="Get")])
    assert (listed_tool.name, listed_tool.reads_json) == ("get", False)
    limits = {"timeout_s": 5.0, "max_parallel": 3, "max_attempts": 3}
    fields: Any = {"version": listed_tool.declaration.version, "is_pinned": True, "description": "Gets.", **limits}
    assert listed_tool.declaration == ToolDeclaration("srv.get", Effects.WRITE, _SCHEMA, **fields)
    # An invalid schema accepts any arguments.
    remote_schema = {"$ref": "https://example.com/schema.json"}
    tools = [_tool(inputSchema=remote_schema), _tool("b", inputSchema={"type": 7})]
    assert [listed_tool.declaration.input_schema for listed_tool in listed_tools(_server(), tools)] == [None, None]


def test_version_depends_only_on_arguments_result_and_effects() -> None:
    tools = {
        "first": _tool(),
        "other description": _tool(description="other", title="x", annotations={"openWorldHint": True}),
        "other arguments": _tool(inputSchema={**_SCHEMA, "required": []}),
        "other result": _tool(outputSchema={"type": "object"}),
        "other effects": _tool(annotations={"readOnlyHint": True}),
    }
    versions = {name: versions_of(_server(), [tool])["get"] for name, tool in tools.items()}
    assert versions["first"] == versions["other description"]
    assert len(set(versions.values())) == 4


def test_rules_of_unknown_tools_and_too_long_names_are_rejected() -> None:
    with pytest.raises(ToolLoadError) as error:
        listed_tools(_server(tools={"gett": ToolRules()}), [_tool()])
    assert str(error.value) == "/mcpServers/srv/dagwright/tools: the server has no tool 'gett'; did you mean 'get'?"
    with pytest.raises(ToolLoadError, match="a name has 1 to 200 bytes, not 204"):
        listed_tools(_server(), [_tool("x" * 200)])
