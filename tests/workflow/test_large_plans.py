"""Plans that are too large for the input of a run travel in pages, whoever starts them."""

from typing import Any

import pytest

from dagwright.core.boundary.limits import INLINE_PLAN_NODES, PLAN_PAGE_NODES
from tests.support.runs import Runs, assert_clean, document_of

pytestmark = pytest.mark.server

_COUNT = INLINE_PLAN_NODES + PLAN_PAGE_NODES + 1


def _plan(count: int) -> dict[str, Any]:
    """Returns one node that is run, and many that are skipped: the plan is large, and the run is short."""
    first: dict[str, Any] = {"id": "n0", "tool": "plus", "arguments": {"left": 1, "right": 1}}
    others = [
        {"id": f"n{number}", "tool": "plus", "arguments": {"left": number, "right": 1}, "when": "n0.result == 3"}
        for number in range(1, count - 1)
    ]
    last: dict[str, Any] = {"id": "last", "tool": "plus", "arguments": {"left": "{{n0.result}}", "right": 40}}
    return {"title": "Large", "nodes": [first, *others, last], "output": "{{last.result}}"}


async def test_large_plan_travels_in_pages_and_runs_whole(runs: Runs) -> None:
    handle = await runs.start(_plan(_COUNT))
    document = await document_of(handle)
    assert (document["status"], document["output"]) == ("completed", 42)
    assert document["nodes_ref"]["counts"] == {"completed": 2, "skipped": _COUNT - 2}
    history = await handle.fetch_history()
    started = history.events[0].workflow_execution_started_event_attributes
    assert len(started.input.payloads[0].data) < 1_000
    pages = [
        event
        for event in history.events
        if event.activity_task_scheduled_event_attributes.activity_type.name == "load_plan"
    ]
    assert len(pages) == 1 + -(-_COUNT // PLAN_PAGE_NODES)
    assert_clean(history)


async def test_large_plan_of_another_program_is_compiled_into_pages(runs: Runs) -> None:
    document = await document_of(await runs.start_raw({"plan": _plan(_COUNT)}))
    assert (document["status"], document["output"]) == ("completed", 42)


@pytest.mark.parametrize(
    ("compiled", "told"),
    [
        ({"pages": []}, "a plan has 1 to 1,000 pages, not 0"),
        ({"pages": ["sha256-" + "0" * 64]}, "a part of the plan cannot be had"),
        ({"pages": ["../../etc/passwd"]}, "a part of the plan cannot be had"),
        ({"pages": [7]}, "the pages of a plan must be a list of references"),
    ],
)
async def test_pages_that_cannot_be_had_end_the_run_with_the_reason(
    runs: Runs, compiled: dict[str, Any], told: str
) -> None:
    document = await document_of(await runs.start_raw({"compiled": compiled}))
    assert document["status"] == "failed"
    assert told in document["error"]["message"]
