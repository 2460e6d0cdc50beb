"""Search attributes and memo that a run writes for lists of runs, and the times of these writes."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes

from dagwright.core.boundary import wire
from dagwright.features.run_scheduler import RunScheduler
from dagwright.protocol.listings import requests_from_json, requests_to_json
from dagwright.workflows import search_attributes
from dagwright.workflows.search_attributes import SearchAttributes
from tests.support.plan_building import node, started_run


class FakeWorkflow:
    """Fake of the module `temporalio.workflow`. It records the updates of a run that starts with the state `state`."""

    def __init__(self, *, state: str | None = "running", memo: Any = ()) -> None:
        key = SearchAttributeKey.for_keyword(wire.SEARCH_STATE)
        start_attributes = TypedSearchAttributes([] if state is None else [SearchAttributePair(key, state)])
        self.writes: list[Any] = []
        self._info = SimpleNamespace(typed_search_attributes=start_attributes, raw_memo=memo)

    def info(self) -> Any:
        return self._info

    def upsert_search_attributes(self, updates: Any) -> None:
        self.writes.append({update.key.name.removeprefix("Dagwright"): update.value for update in updates})

    def upsert_memo(self, memo: Any) -> None:
        self.writes.append(memo)

    async def sleep(self, *_: Any, **__: Any) -> None:
        await asyncio.Event().wait()


@pytest.fixture
def fake_workflow(monkeypatch: pytest.MonkeyPatch) -> FakeWorkflow:
    fake_workflow = FakeWorkflow()
    monkeypatch.setattr(search_attributes, "workflow", fake_workflow)
    return fake_workflow


def _human_node(node_id: str, *, assignee: str | None = None, **fields: Any) -> dict[str, Any]:
    return node(node_id, human={"type": "APPROVAL", "prompt": f"What of {node_id}?", "assignee": assignee, **fields})


def _publish(attributes: SearchAttributes, scheduler: RunScheduler, at: float) -> None:
    attributes.publish(scheduler.status().value, scheduler, title="Plan", at=at, wake=lambda: None)


async def test_first_request_is_written_immediately_and_later_requests_after_a_pause(
    fake_workflow: FakeWorkflow,
) -> None:
    ask_node = {**_human_node("ask", assignee="ann"), "depends_on": ["work"]}
    scheduler = started_run(node("work"), ask_node, _human_node("later"))
    attributes = SearchAttributes()
    _publish(attributes, scheduler, 0.0)
    assert fake_workflow.writes[0] == {"Awaiting": ["anyone"], "Progress": "0/3"}
    requests = requests_from_json(fake_workflow.writes[1][wire.MEMO_REQUESTS])
    assert requests.title == "Plan"
    assert requests.count == 1
    assert [request_id for request_id, _ in requests.requests] == ["later"]
    scheduler.complete("work", None, at=1.0)
    _publish(attributes, scheduler, 1.0)
    assert len(fake_workflow.writes) == 2
    attributes.cancel_pending()
    for _ in range(3):
        await asyncio.sleep(0)
    _publish(attributes, scheduler, 6.0)
    assert fake_workflow.writes[2] == {"State": "waiting", "Progress": "1/3", "Awaiting": ["ann", "anyone"]}
    assert requests_from_json(fake_workflow.writes[3][wire.MEMO_REQUESTS]).count == 2


async def test_update_with_only_progress_is_written_rarely_and_without_a_timer(fake_workflow: FakeWorkflow) -> None:
    scheduler = started_run(node("a"), node("b"), node("c"))
    attributes = SearchAttributes()
    _publish(attributes, scheduler, 0.0)
    scheduler.complete("a", None, at=10.0)
    _publish(attributes, scheduler, 10.0)
    assert fake_workflow.writes == []
    scheduler.complete("b", None, at=40.0)
    _publish(attributes, scheduler, 40.0)
    _publish(attributes, scheduler, 80.0)
    assert fake_workflow.writes == [{"Progress": "2/3"}]


async def test_end_is_written_once_and_a_failure_adds_its_error(fake_workflow: FakeWorkflow) -> None:
    scheduler = started_run(node("a"))
    document: dict[str, Any] = {"status": "completed", "error": None, "nodes": {}}
    SearchAttributes().publish_end(document, scheduler)
    assert fake_workflow.writes == [{"State": "completed", "Progress": "0/1"}]
    fake_workflow.writes.clear()
    failed_nodes = {"a": {"status": "failed", "error": {"code": "x", "message": "no " * 1_000}}}
    SearchAttributes().publish_end({**document, "status": "failed", "nodes": failed_nodes}, None)
    assert fake_workflow.writes[0] == {"State": "failed"}
    error = fake_workflow.writes[1][wire.MEMO_ERROR]
    assert (error["code"], error["node_id"], len(error["message"].encode())) == ("node_failed", "a", 1_000)


async def test_run_without_a_state_writes_its_tags_but_not_its_title(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_workflow = FakeWorkflow(state=None)
    monkeypatch.setattr(search_attributes, "workflow", fake_workflow)
    scheduler, attributes = started_run(node("a")), SearchAttributes()
    _publish(attributes, scheduler, 0.0)
    assert fake_workflow.writes == []
    attributes.mark_as_defined({wire.MEMO_TAGS: {"team": "blue"}, wire.MEMO_TITLE: "Report"})
    _publish(attributes, scheduler, 0.0)
    _publish(attributes, scheduler, 1.0)
    assert fake_workflow.writes == [{"State": "running", "Progress": "0/1", "Tags": ["team=blue"]}]


async def test_sub_plan_writes_no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_workflow = FakeWorkflow(memo={wire.MEMO_ROOT: None})
    monkeypatch.setattr(search_attributes, "workflow", fake_workflow)
    SearchAttributes().publish_end({"status": "failed", "error": {"code": "x", "message": "m"}}, started_run(node("a")))
    assert fake_workflow.writes == [{"State": "failed"}]


def test_memo_has_small_requests_and_the_beginning_of_large_requests() -> None:
    large_request = requests_to_json(started_run(_human_node("ask", prompt="é" * 5_000)), title=None)
    [shown_request] = large_request["shown"]
    assert (shown_request["request"]["shortened"], len(shown_request["request"]["prompt"].encode()) <= 512) == (
        True,
        True,
    )
    many_requests = requests_to_json(started_run(*(_human_node(f"ask{number}") for number in range(80))), title=None)
    assert many_requests["count"] == 80
    assert 30 <= len(many_requests["shown"]) <= 50
