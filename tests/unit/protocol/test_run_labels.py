"""Run labels in Temporal: tags and titles as search attributes, summaries of tasks, and fairness keys."""

import json
from typing import Any

import pytest

from dagwright.core.boundary import wire
from dagwright.core.model.states import MapBatch, Task, TaskRef
from dagwright.protocol.fairness import Fairness, FairnessInvalid, fairness_of
from dagwright.protocol.messages import MessageInvalid
from dagwright.protocol.run_attributes import attributes_at_start, attributes_from_memo
from dagwright.protocol.run_labels import (
    MAX_KEYWORD_CHARACTERS,
    MAX_TAGS,
    TagsInvalid,
    keyword,
    queryable_prefix,
    task_summary,
    validate_run_tags,
)
from dagwright.protocol.turns import TurnStart, turn_start_from_json
from tests.support.plan_building import compiled_plan, node, plan_of

_MEMO = {
    wire.MEMO_TITLE: "Nightly sales",
    wire.MEMO_TEMPLATE: "sales",
    wire.MEMO_TAGS: {"team": "blue", "env": "test"},
    wire.MEMO_OWNER: "ann",
}


@pytest.mark.parametrize(
    "tags",
    [
        *({name: "x"} for name in ("", "a b", "a=b", "n" * 65)),
        *({"a": value} for value in (1, "x\n", "\ud800", "x" * (MAX_KEYWORD_CHARACTERS - 1))),
        {f"t{number}": "x" for number in range(MAX_TAGS + 1)},
    ],
)
def test_tags_keep_their_order_and_invalid_tags_are_rejected(tags: dict[str, object]) -> None:
    assert list(validate_run_tags({"team": "blue", "env": ""}).items()) == [("team", "blue"), ("env", "")]
    with pytest.raises(TagsInvalid):
        validate_run_tags(tags)


def test_run_starts_with_search_attributes_only_if_all_are_registered() -> None:
    attributes = {
        pair.key.name: pair.value for pair in attributes_at_start(_MEMO, missing_attributes=()).search_attributes
    }
    assert attributes == {
        "DagwrightState": "running",
        "DagwrightTitle": "Nightly sales",
        "DagwrightTemplate": "sales",
        "DagwrightOwner": "ann",
        "DagwrightTags": ["team=blue", "env=test"],
    }
    # If an attribute is missing in the namespace, the start sets no attributes.
    assert not attributes_at_start(_MEMO, missing_attributes={wire.SEARCH_OWNER}).search_attributes


def test_attributes_from_any_memo_are_within_the_limits_of_the_server() -> None:
    memo = {
        wire.MEMO_TITLE: "t" * 300,
        wire.MEMO_TEMPLATE: ["no text"],
        wire.MEMO_TAGS: {f"t{number}": "\ud800" * 300 for number in range(30)},
    }
    title, tags = [pair.value for pair in attributes_from_memo(memo)]
    assert title == "t" * MAX_KEYWORD_CHARACTERS
    # The server accepts 2,048 bytes of JSON per attribute, and fails a workflow that writes more.
    assert 0 < len(tags) < MAX_TAGS
    assert len(json.dumps(tags)) <= 2_048
    assert all(len(tag) <= MAX_KEYWORD_CHARACTERS for tag in tags)


@pytest.mark.parametrize("text", ["\U0001f600" * 300, "я" * 300, '"' * 300, "a" * 300])
def test_keyword_fits_into_a_search_attribute_as_json(text: str) -> None:
    assert len(keyword(text)) > 100
    assert len(json.dumps(keyword(text))) <= 2_048


def test_tags_with_too_large_json_are_rejected() -> None:
    tags = {f"k{number}": "я" * 80 for number in range(6)}
    with pytest.raises(
        TagsInvalid, match=r"^the tags have 2,917 bytes as JSON, over the limit of 2,000 for all of them"
    ):
        validate_run_tags(tags)
    assert validate_run_tags({"k": "я" * 250}) == {"k": "я" * 250}
    # The limit applies to the written tags, in which "'" is replaced by a character that takes 6 bytes in JSON.
    with pytest.raises(TagsInvalid, match="have 2,"):
        validate_run_tags({f"k{number}": "'" * 100 for number in range(4)})


def test_keyword_has_no_character_that_a_query_rejects() -> None:
    assert keyword('a "b" \\ c\nd') == "a \uff02b\uff02 \uff3c c d"
    assert keyword("a\ud800") == "a\uff1f"
    assert keyword("it's 'x' \u2661?") == "it\u2019s \u2019x\u2019 \u2665\uff1f"


@pytest.mark.parametrize(
    ("text", "prefix"),
    [
        ("it's", "it's"),
        ("'x'", ""),
        ("x'?", "x"),
        ("a'\"b", "a"),
        ("a\\b", "a"),
        ("Köln 100%_\u2661", "Köln 100%_\u2661"),
    ],
)
def test_queryable_prefix_ends_before_characters_that_a_query_rejects(text: str, prefix: str) -> None:
    assert queryable_prefix(text) == prefix


def _task(title: str | None, *, item: int | None = None, key: str = "17", map_batch: MapBatch | None = None) -> Task:
    plan = compiled_plan(plan_of(node("order", title=title)))
    task_id = f"order[{key}]" if item is not None else "order"
    path = [["node", "order"], *([["item", key]] if item is not None else [])]
    return Task(task_id, plan.nodes[0], TaskRef(0, item), {}, path, map_batch=map_batch)


@pytest.mark.parametrize(
    ("task", "summary"),
    [
        (_task("Fetch each order"), "Fetch each order"),
        (_task("Fetch each order", item=0), "Fetch each order [17]"),
        (_task(None, item=0), "order[17]"),
        (_task("Fetch each order", map_batch=MapBatch(500, 500)), "Fetch each order [items 501 to 1000]"),
        (_task("T" * 300, item=0), f"{'T' * 194}… [17]"),
    ],
)
def test_task_summary_has_the_title_and_the_item_key(task: Task, summary: str) -> None:
    assert task_summary(task) == summary


@pytest.mark.parametrize("character", ["x", "日", "𝄞"])
def test_task_summary_is_within_the_limit_of_the_server(character: str) -> None:
    summary = task_summary(_task(character * 300, item=0, key=character * 300))
    assert len(summary.encode()) <= 400
    assert summary.endswith("…]")


def test_fairness_key_and_weight_within_the_limits_are_accepted() -> None:
    assert fairness_of(None, None) is None
    assert fairness_of("ä" * 32, None) == Fairness("ä" * 32, 1.0)
    assert [fairness_of("a", weight) for weight in (0.001, 1000)] == [Fairness("a", 0.001), Fairness("a", 1000.0)]


@pytest.mark.parametrize(
    ("key", "weight"),
    [(None, 2), ("", None), (" ", None), ("ä" * 33, None), ("a\n", None), ("a\ud800", None), (3, None)]
    + [("a", weight) for weight in (0, -1, 1001, float("nan"), float("inf"), True, "2")],
)
def test_invalid_fairness_key_or_weight_is_rejected_with_the_limits(key: Any, weight: Any) -> None:
    with pytest.raises(FairnessInvalid, match=r"1 to 64 bytes|from 0\.001 to 1000|needs a fairness key"):
        fairness_of(key, weight)


def test_fairness_of_a_turn_survives_serialization_and_is_checked() -> None:
    turn = TurnStart("r", {"goal": "x"}, "x", workflow=wire.WORKFLOW_PLAN_AND_EXECUTE, fairness=Fairness("a", 3.0))
    assert turn_start_from_json(turn.to_json()) == turn
    with pytest.raises(MessageInvalid, match="'fairness' is invalid: a fairness weight"):
        turn_start_from_json({**turn.to_json(), "fairness": {"key": "a", "weight": "no"}})
