"""Tags and titles of runs, and the search attributes that they become."""

import pytest

from dagwright.contracts import wire
from dagwright.contracts.run_attributes import attributes_at_start, identifying_pairs
from dagwright.contracts.tags import KEYWORD_CHARACTERS, MOST_TAGS, TagsInvalid, checked_tags

_MEMO = {
    wire.MEMO_TITLE: "Nightly sales",
    wire.MEMO_TEMPLATE: "sales",
    wire.MEMO_TAGS: {"team": "blue", "env": "test"},
}


def test_tags_are_returned_in_their_order() -> None:
    assert list(checked_tags({"team": "blue", "env": ""}).items()) == [("team", "blue"), ("env", "")]


@pytest.mark.parametrize(
    "tags",
    [
        {"": "x"},
        {"a b": "x"},
        {"a=b": "x"},
        {"a": 1},
        {"a": "x\n"},
        {"a": "\ud800"},
        {"n" * 65: "x"},
        {"a": "x" * (KEYWORD_CHARACTERS - 1)},
        {f"t{number}": "x" for number in range(MOST_TAGS + 1)},
    ],
)
def test_invalid_tags_are_rejected(tags: dict[str, object]) -> None:
    with pytest.raises(TagsInvalid):
        checked_tags(tags)


def test_run_starts_with_title_template_and_tags() -> None:
    found = {pair.key.name: pair.value for pair in attributes_at_start(_MEMO, missing=()).search_attributes}
    assert found == {
        "DagwrightState": "running",
        "DagwrightTitle": "Nightly sales",
        "DagwrightTemplate": "sales",
        "DagwrightTags": ["team=blue", "env=test"],
    }


def test_unregistered_attributes_are_left_out() -> None:
    missing = {wire.SEARCH_TITLE, wire.SEARCH_TAGS, wire.SEARCH_AWAITING}
    found = [pair.key.name for pair in attributes_at_start(_MEMO, missing=missing).search_attributes]
    assert found == ["DagwrightTemplate"]


def test_memo_of_any_shape_gives_attributes_that_a_server_accepts() -> None:
    memo = {
        wire.MEMO_TITLE: "t" * 300,
        wire.MEMO_TEMPLATE: ["no text"],
        wire.MEMO_TAGS: {f"t{number}": "\ud800" * 300 for number in range(30)},
    }
    title, tags = [pair.value for pair in identifying_pairs(memo)]
    assert title == "t" * KEYWORD_CHARACTERS
    assert len(tags) == MOST_TAGS
    assert all(len(tag.encode()) <= KEYWORD_CHARACTERS for tag in tags)
