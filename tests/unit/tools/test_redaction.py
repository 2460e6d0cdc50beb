"""What is hidden in what calls say: secrets anywhere, and what may be one in an address."""

import time

import pytest

from dagwright.tools.redaction import Redaction


@pytest.mark.parametrize(
    ("place", "shown"),
    [
        ("notes/tea.txt", "notes/tea.txt"),
        ("https://x.example/a/b", "https://x.example/a/b"),
        ("https://ann:pw@x.example:81/a?q=green+tea#end", "https://x.example:81/a?q=green+tea"),
        (
            "https://x.example/?apiKey=1&access_token=2&X-Amz-Signature=3&page=4",
            "https://x.example/?apiKey=***&access_token=***&X-Amz-Signature=***&page=4",
        ),
        ("http://[broken/?key=1", "http://***"),
        ("a\nb\x1b[2J.txt", "a�b�[2J.txt"),
    ],
)
def test_an_address_tells_where_it_leads_and_nothing_that_may_be_secret(place: str, shown: str) -> None:
    assert Redaction().place(place) == shown


def test_a_secret_of_the_call_is_hidden_wherever_it_stands_in_an_address() -> None:
    place = "https://x.example/a%20b%2Fc/a%20b/c?q=a+b%2Fc&r=a+b/c&s=of+a%20b/c"
    assert Redaction(["a b/c"]).place(place) == "https://x.example/***/***?q=***&r=***&s=of+***"


def test_short_secrets_are_hidden_where_they_are_words_or_numbers() -> None:
    value = {"pin": "12", "is": 12, "as": ["a 12, b", "2012", "x=12;"], "12": 1.5, "on": True, "none": None}
    assert Redaction(["12"]).value(value) == {
        "pin": "***",
        "is": "***",
        "as": ["a ***, b", "2012", "x=***;"],
        "***": 1.5,
        "on": True,
        "none": None,
    }


def test_long_secrets_are_hidden_anywhere_also_as_numbers() -> None:
    assert Redaction(["12345678"]).value(["a12345678b", 12345678, 1234567]) == ["a***b", "***", 1234567]


def test_whitespace_around_a_secret_makes_it_no_longer() -> None:
    assert Redaction(["12      \n"]).value(["2012", "is 12", "a12"]) == ["2012", "is ***", "a12"]


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
def test_long_runs_before_a_secret_take_linear_time(secret: str, text: str) -> None:
    began_s = time.process_time()
    Redaction([secret]).value(text)
    assert time.process_time() - began_s < 2.0


@pytest.mark.parametrize("backslashes", [1, 2, 4, 8, 100])
def test_secret_that_begins_with_backslashes_is_hidden_however_often_they_are_quoted(backslashes: int) -> None:
    quoted = "\\" * backslashes + '"abc123456'
    assert Redaction(['\\"abc123456']).value(quoted).lstrip("\\") == "***"
    assert Redaction(['x\\"abc123456']).value(f"x{quoted}") == "***"
