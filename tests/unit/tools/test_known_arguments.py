"""What can be known of the arguments of built-in tools is told before a run; what holds references is not known."""

from pathlib import Path
from typing import Any

import pytest

from dagwright.core.model.errors import PlanInvalid
from dagwright.plans.preparation import check_plan
from dagwright.tools import tool
from dagwright.tools.builtin import builtin_tools
from dagwright.tools.environment import ToolEnvironment

TOOLS = builtin_tools(ToolEnvironment(Path())).declarations()


def _told(name: str, arguments: dict[str, Any]) -> list[tuple[str, str, str]]:
    # Its result may be null, so no type of it is sure.
    before = {"id": "before", "tool": "calculator", "arguments": {"expression": "1"}, "on_error": "skip"}
    try:
        check_plan({"nodes": [before, {"id": "a", "tool": name, "arguments": arguments}]}, TOOLS)
    except PlanInvalid as invalid:
        return [(problem.code, problem.pointer, problem.message) for problem in invalid.problems]
    return []


@pytest.mark.parametrize(
    ("name", "arguments", "at", "message"),
    [
        ("calculator", {}, "", "exactly one of 'expression' or 'query' must be given"),
        ("calculator", {"expression": None}, "", "exactly one of 'expression' or 'query' must be given"),
        ("calculator", {"expression": "1", "query": 2}, "", "exactly one of 'expression' or 'query' must be given"),
        (
            "wait",
            {"duration": "5 parsecs"},
            "/duration",
            "'5 parsecs' is no duration; write a number and a unit, such as 500ms, 30s, 5m, 2h or 7d",
        ),
        ("wait", {"duration": -1}, "/duration", "-1 is less than the minimum of 0"),
        ("wait", {"duration": 3e9}, "/duration", "3000000000.0 is greater than the maximum of 2592000.0"),
        (
            "json_query",
            {"value": 1, "path": "["},
            "/path",
            "'[' is no JSONPath query: expected 'TOKEN_ROOT', found 'TOKEN_LBRACKET'",
        ),
        (
            "http_request",
            {"url": "nope"},
            "/url",
            "'nope' is no address; it starts with http:// or https:// and a host",
        ),
        (
            "http_request",
            {"url": "ftp://{host}"},
            "/url",
            "'ftp://{host}' is no address; it starts with http:// or https:// and a host",
        ),
    ],
)
def test_wrong_argument_is_told_before_the_run(name: str, arguments: dict[str, Any], at: str, message: str) -> None:
    assert _told(name, arguments) == [("invalid_arguments", f"/nodes/1/arguments{at}", f"{name}: {message}")]


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("calculator", {"expression": "1", "query": None}),
        ("calculator", {"query": "{{before.result}}"}),
        ("calculator", {"expression": "{{before.result}}", "query": "{{before.error}}"}),
        ("wait", {"duration": 0}),
        ("wait", {"duration": " 5s "}),
        ("wait", {"duration": "{{before.result}} parsecs"}),
        ("json_query", {"value": 1, "path": "$..price"}),
        ("json_query", {"value": 1, "path": "{{before.result}}"}),
        ("http_request", {"url": "HTTPS://example.com"}),
        ("http_request", {"url": "{{before.result}}/x"}),
    ],
)
def test_right_argument_and_one_that_is_not_known_are_taken(name: str, arguments: dict[str, Any]) -> None:
    assert _told(name, arguments) == []


def test_schema_of_a_tool_is_checked_where_it_is_declared() -> None:
    with pytest.raises(ValueError, match="Tool 'odd': input_schema: this is no JSON Schema"):

        @tool(schema={"oneOf": 5})
        def odd(a: int = 0) -> int:
            return a
