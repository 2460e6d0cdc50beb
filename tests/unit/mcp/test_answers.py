"""What a server answers, as results and failures."""

from datetime import timedelta
from typing import Any

import pytest

from dagwright.mcp_client.answers import failure_text, places_of, result_of, tool_error_of
from dagwright.tools.errors import GiveUp, InvalidArguments, NotStarted, RemoteFailed, RetryLater, ToolError


def _texts(*texts: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text} for text in texts]}


_IMAGE = {"type": "image", "data": "AAAA", "mimeType": "image/png"}


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        ({"structuredContent": {"n": 1}, **_texts('{"n": 1}')}, {"n": 1}),
        ({"structuredContent": {}, "content": []}, {}),
        ({"content": []}, None),
        ({}, None),
        (_texts("hello"), "hello"),
        (_texts("one", "two"), "one\ntwo"),
        (_texts(' {"a": [1, 2.5, null]}\n'), {"a": [1, 2.5, None]}),
        (_texts('[{"a": 1}]'), [{"a": 1}]),
        (_texts('{"a": 1}', '{"b": 2}'), '{"a": 1}\n{"b": 2}'),
        (_texts("42"), "42"),
        (_texts("true"), "true"),
        (_texts('"quoted"'), '"quoted"'),
        (_texts("[not json]"), "[not json]"),
        (_texts('{"a": NaN}'), '{"a": NaN}'),
        (_texts("[" * 100_000), "[" * 100_000),
        ({"content": [{"type": "text", "text": "see"}, _IMAGE]}, [{"type": "text", "text": "see"}, _IMAGE]),
        ({"content": [_IMAGE]}, [_IMAGE]),
    ],
)
def test_result(answer: dict[str, Any], result: Any) -> None:
    assert result_of(answer, reads_json=True) == result


def test_a_text_stays_one_where_the_file_says_so() -> None:
    assert result_of(_texts('{"a": 1}'), reads_json=False) == '{"a": 1}'


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (_texts("fine"), None),
        ({"isError": False, **_texts("fine")}, None),
        ({"isError": True, **_texts("no", "never")}, "no\nnever"),
        ({"isError": True, "content": [_IMAGE]}, "the server says that the call failed, and not why"),
    ],
)
def test_failure_that_the_tool_tells(answer: dict[str, Any], text: str | None) -> None:
    assert failure_text(answer) == text


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
        (
            -32603,
            "no",
            401,
            GiveUp("no (HTTP 401); look at the headers of the server in the file of MCP servers"),
        ),
        (-32603, "busy", 429, RetryLater("busy (HTTP 429)", after=timedelta(seconds=7))),
        (-32600, "Session terminated", 404, NotStarted("the server has forgotten the session; it is begun anew")),
    ],
)
def test_error_of_the_protocol(code: int, message: str, status: int | None, expected: ToolError) -> None:
    found = tool_error_of(code, message, status=status, retry_after=timedelta(seconds=7))
    assert (type(found), str(found)) == (type(expected), str(expected))
    if isinstance(found, RetryLater):
        assert found.after == timedelta(seconds=7)


def test_a_call_is_about_what_its_arguments_and_the_resources_of_its_answer_name() -> None:
    arguments = {"path": "a.txt", "Paths": ["b.txt", 5], "url": "https://x.example", "query": "c.txt", "file": None}
    answer = {
        "content": [
            {"type": "text", "text": "d.txt"},
            {"type": "resource_link", "uri": "file:///e.txt", "name": "e"},
            {"type": "resource", "resource": {"uri": "https://x.example/f", "text": "f"}},
            {"type": "resource"},
        ]
    }
    assert places_of(arguments, answer) == [
        "a.txt",
        "b.txt",
        "https://x.example",
        "file:///e.txt",
        "https://x.example/f",
    ]
    assert places_of({}, {}) == []
