"""What is hidden in what calls say: secrets anywhere, and what may be one in an address."""

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
