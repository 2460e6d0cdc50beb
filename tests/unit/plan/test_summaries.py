"""Summaries of tasks in the Temporal UI."""

import pytest

from dagwright.contracts.summaries import task_summary
from dagwright.plan.states import Chunk
from dagwright.plan.tasks import Task
from tests.unit.plan.building import compiled, node, plan_of


def _task(title: str | None, *, item: int | None = None, key: str = "17", chunk: Chunk | None = None) -> Task:
    plan = compiled(plan_of(node("order", **({"title": title} if title else {}))))
    task_id = f"order[{key}]" if item is not None else "order"
    path = [["node", "order"], *([["item", key]] if item is not None else [])]
    return Task(task_id, plan.nodes[0], 0, item, {}, path, chunk=chunk)


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
