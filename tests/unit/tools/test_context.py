"""`context()`, results as strict JSON, and the redaction of secrets."""

import dataclasses
import math
import time
from datetime import UTC, datetime
from typing import Any

import pydantic
import pytest

from dagwright.tools import context
from dagwright.tools.errors import InvalidResult, NoToolContext
from dagwright.tools.redaction import Redaction
from dagwright.tools.result_json import json_bytes, plain_json
from dagwright.tools.testing import tool_context


def test_context_outside_a_tool_is_an_error() -> None:
    with pytest.raises(NoToolContext, match="only inside a running tool"):
        context()


def test_context_describes_the_call_and_records_heartbeats() -> None:
    with tool_context(idempotency_key="k", node_id="n", last_heartbeat=3) as call:
        assert (context().idempotency_key, context().node_id, context().attempt) == ("k", "n", 1)
        assert (context().last_heartbeat, context().cancelled) == (3, False)
        context().progress(1, 2)
        assert context().current_heartbeat == 3
        context().heartbeat({"page": 4})
        assert (context().last_heartbeat, context().current_heartbeat) == (3, {"page": 4})
        call.cancellation.request()
        assert context().cancelled
    assert call.heartbeats == [3, {"page": 4}]
    assert call.cancellation.was_noticed


@dataclasses.dataclass
class Row:
    at: datetime
    value: float = 1.5


class Report(pydantic.BaseModel):
    rows: list[Row]
    total: Any = pydantic.Field(default=None, serialization_alias="sum")


def test_models_and_dataclasses_become_json() -> None:
    at = datetime(2024, 1, 2, tzinfo=UTC)
    expected = {"report": {"rows": [{"at": "2024-01-02T00:00:00Z", "value": 1.5}], "sum": None}, "pair": [1, None]}
    assert plain_json({"report": Report(rows=[Row(at)]), "pair": (1, None)}) == expected
    assert json_bytes(['é\n"', True, 2**70]) == '["é\\n\\"",true,1180591620717411303424]'.encode()


def cyclic_list() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


def nested_list(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"a": [1.0, math.nan]}, "at /a/1: nan is not a JSON number"),
        (-math.inf, "as a whole: -inf is not a JSON number"),
        ({"a/b": "x\ud800"}, "at /a~1b: text with a lone surrogate (half a character) at 1"),
        ({"a": {1: 2}}, "at /a: the key 1 is int, and JSON keys must be text"),
        ({None: 2}, "as a whole: the key None is NoneType, and JSON keys must be text"),
        ({"\udfff": 2}, "half a character"),
        ([{1, 2}], "at /0: set is not JSON, a pydantic model or a dataclass"),
        (b"x", "as a whole: bytes is not JSON"),
        ({"x": Report(rows=[], total=math.nan)}, "at /x/sum: nan is not a JSON number"),
        ({"x": Report(rows=[], total=object())}, "at /x: Report cannot be encoded as JSON"),
        (cyclic_list(), "at /0: contains itself"),
        (nested_list(101), "nested more than 100 deep"),
        pytest.param(10**5000, "an integer of more than", id="long-integer"),
    ],
)
def test_invalid_json_is_rejected_with_its_path(value: Any, message: str) -> None:
    with pytest.raises(InvalidResult) as caught:
        json_bytes(value)
    assert message in str(caught.value)


def test_json_nested_100_deep_is_accepted() -> None:
    assert json_bytes(nested_list(100)) == b"[" * 100 + b"1" + b"]" * 100


def test_too_deep_model_or_model_that_contains_itself_is_rejected() -> None:
    report = Report(rows=[], total=nested_list(5000))
    with pytest.raises(InvalidResult, match="JSON"):
        json_bytes(report)
    report.total = report
    with pytest.raises(InvalidResult, match="as a whole: Report cannot be encoded as JSON"):
        json_bytes(report)


# Redaction.


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ("notes/tea.txt", "notes/tea.txt"),
        ("https://x.example/a/b", "https://x.example/a/b"),
        ("https://ann:pw@x.example:81/a?q=green+tea#end", "https://x.example:81/a?q=green+tea"),
        ("https://x.example/?apiKey=1&access_token=2&page=4", "https://x.example/?apiKey=***&access_token=***&page=4"),
        ("https://x.example/?X-Amz-Signature=3", "https://x.example/?X-Amz-Signature=***"),
        ("http://[broken/?key=1", "http://***"),
        ("a\nb\x1b[2J.txt", "a�b�[2J.txt"),
    ],
)
def test_url_is_reported_without_its_secrets(location: str, expected: str) -> None:
    assert Redaction().redact_location(location) == expected


def test_secret_of_the_call_is_redacted_everywhere_in_a_url() -> None:
    location = "https://x.example/a%20b%2Fc/a%20b/c?q=a+b%2Fc&r=a+b/c&s=of+a%20b/c"
    assert Redaction(["a b/c"]).redact_location(location) == "https://x.example/***/***?q=***&r=***&s=of+***"


def test_short_secrets_are_redacted_only_as_whole_words_and_numbers() -> None:
    value = {"pin": "12", "is": 12, "as": ["a 12, b", "2012", "x=12;"], "12": 1.5, "on": True, "none": None}
    expected = {"pin": "***", "is": "***", "as": ["a ***, b", "2012", "x=***;"], "***": 1.5, "on": True, "none": None}
    assert Redaction(["12"]).redact_value(value) == expected


def test_long_secrets_are_redacted_inside_words_and_as_numbers() -> None:
    assert Redaction(["12345678"]).redact_value(["a12345678b", 12345678, 1234567]) == ["a***b", "***", 1234567]


def test_whitespace_around_a_secret_does_not_count_toward_its_length() -> None:
    assert Redaction(["12      \n"]).redact_value(["2012", "is 12", "a12"]) == ["2012", "is ***", "a12"]


@pytest.mark.alone
@pytest.mark.parametrize(
    ("secret", "text"),
    [
        ('\\"abc123456', "\\" * 8000 + "abc123456"),
        ('\\"abc123456', "\\u005c" * 4000 + "abc123456"),
        ('abc\\"123456', "abc" + "\\\\\\u005c" * 4000 + "123456"),
        ("+4912345678x", " " * 20_000 + "4912345678x"),
        ('+"4912345678', " " * 20_000 + "4912345678"),
    ],
)
def test_redaction_after_many_escapes_or_spaces_takes_less_than_two_seconds(secret: str, text: str) -> None:
    started_at_s = time.process_time()
    Redaction([secret]).redact_value(text)
    assert time.process_time() - started_at_s < 2.0


@pytest.mark.parametrize("backslash_count", [1, 2, 4, 8, 100])
def test_quoted_secret_is_redacted_with_any_number_of_backslashes(backslash_count: int) -> None:
    quoted_secret = "\\" * backslash_count + '"abc123456'
    assert Redaction(['\\"abc123456']).redact_value(quoted_secret).lstrip("\\") == "***"
    assert Redaction(['x\\"abc123456']).redact_value(f"x{quoted_secret}") == "***"
