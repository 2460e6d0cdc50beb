"""What Temporal shows of runs: tags and titles as search attributes, and summaries of tasks."""

import pytest

from dagwright.core.boundary import wire
from dagwright.core.model.states import Chunk
from dagwright.core.model.task_ref import TaskRef
from dagwright.core.model.tasks import Task
from dagwright.protocol.run_attributes import (
    KEYWORD_CHARACTERS,
    MOST_TAGS,
    TagsInvalid,
    attributes_at_start,
    checked_tags,
    identifying_pairs,
    task_summary,
)
from tests.unit.plan.building import compiled, node, plan_of

_MEMO = {wire.MEMO_TITLE: "Nightly sales", wire.MEMO_TEMPLATE: "sales", wire.MEMO_TAGS: {"team": "blue", "env": "test"}}


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


def _task(title: str | None, *, item: int | None = None, key: str = "17", chunk: Chunk | None = None) -> Task:
    plan = compiled(plan_of(node("order", **({"title": title} if title else {}))))
    task_id = f"order[{key}]" if item is not None else "order"
    path = [["node", "order"], *([["item", key]] if item is not None else [])]
    return Task(task_id, plan.nodes[0], TaskRef(0, item), {}, path, chunk=chunk)


@pytest.mark.parametrize(
    ("task", "summary"),
    [
        (_task("Fetch each order"), "Fetch each order"),
        (_task("Fetch each order", item=0), "Fetch each order [17]"),
        (_task(None, item=0), "order[17]"),
        (_task("Fetch each order", chunk=Chunk(500, 500)), "Fetch each order [items 501 to 1000]"),
        (_task("T" * 300, item=0), f"{'T' * 194}… [17]"),
    ],
)
def test_summary_has_the_key_of_the_item(task: Task, summary: str) -> None:
    assert task_summary(task) == summary


@pytest.mark.parametrize("sign", ["x", "日", "𝄞"])
def test_summary_fits_what_the_server_accepts(sign: str) -> None:
    summary = task_summary(_task(sign * 300, item=0, key=sign * 300))
    assert len(summary.encode()) <= 400
    assert summary.endswith("…]")
