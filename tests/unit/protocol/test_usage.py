"""Usage of the model calls of a run, and repeated calls after a failure of the payload store."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pydantic_core
import pytest
from temporalio.api.common.v1 import Payload
from temporalio.exceptions import ActivityError, ApplicationError, RetryState

from dagwright.core.boundary.wire import DETAIL_UNSTORED_BYTES, ERROR_STORE_RETRY, METADATA_USAGE
from dagwright.core.model.states import Attempt, NodeStatus, RunUsage, Usage, run_usage_from_json
from dagwright.core.model.tools import Effects, ToolDeclaration
from dagwright.features.commands.node_commands import RetryNode, SetResult
from dagwright.features.commands.steering import apply_command
from dagwright.features.compensation.compensation import run_may_have_effects
from dagwright.features.run_scheduler import RunScheduler
from dagwright.protocol.documents import RunFacts, result_document
from dagwright.protocol.lineage import lineage_of_locations
from dagwright.protocol.messages import sub_plan_end_from_json
from dagwright.protocol.outcomes import (
    MAX_STORE_WAITS,
    StoreWait,
    apply_failure,
    apply_loading_failure,
    apply_result,
    apply_store_wait,
    apply_sub_plan_end,
)
from dagwright.protocol.scheduler_snapshot import state_to_json
from tests.support.plan_building import (
    TOOLS,
    compiled_plan,
    lineage_of,
    node,
    plan_of,
    restored_scheduler,
    scheduler_of,
    start_ready_tasks,
    started_run,
    started_scheduler,
    store_waits_of,
    tool_error,
)

FACTS = RunFacts("w1", "r1")
USAGE = Usage(calls=1, prompt_tokens=30, completion_tokens=12, money=Decimal("0.25"))


def result_payload(value: Any, usage: bytes) -> Payload:
    return Payload(metadata={"encoding": b"json/plain", METADATA_USAGE: usage}, data=pydantic_core.to_json(value))


def usage_bytes(usage: Usage) -> bytes:
    return pydantic_core.to_json(usage.to_json())


def activity_failure(details: Any) -> ActivityError:
    fields: dict[str, Any] = {"scheduled_event_id": 1, "started_event_id": 2, "identity": "", "activity_id": "a"}
    error = ActivityError("failed", **fields, activity_type="any", retry_state=RetryState.MAXIMUM_ATTEMPTS_REACHED)
    error.__cause__ = ApplicationError("no", details, type="model_truncated")
    return error


def test_document_has_the_usage_of_nodes_and_no_cost_if_a_call_is_unpriced() -> None:
    scheduler = started_run(node("a"), node("b"), node("c"))
    apply_result(scheduler, "a", result_payload(1, usage_bytes(USAGE)), at=1.0)
    apply_failure(scheduler, "b", activity_failure({"attempt": 3, "usage": USAGE.to_json()}), at=1.0)
    apply_result(scheduler, "c", Payload(metadata={"encoding": b"json/plain"}, data=b"1"), at=1.0)
    document = result_document(scheduler, FACTS)
    zero_counts = dict.fromkeys(("cached_tokens", "reasoning_tokens", "unpriced_calls", "uncounted_calls"), 0)
    node_usage = {
        "calls": 1,
        "prompt_tokens": 30,
        "completion_tokens": 12,
        "tokens": 42,
        "money": "0.25",
        "cost": "0.25",
    }
    assert document["usage"] == (USAGE + USAGE).to_document()
    usages = [node_document.get("usage") for node_document in document["nodes"].values()]
    assert usages == [{**node_usage, **zero_counts}, {**node_usage, **zero_counts}, None]
    scheduler = started_run(node("a"), node("b"))
    scheduler.complete("a", 1, at=1.0, attempt=Attempt(usage=USAGE))
    scheduler.complete("b", 1, at=1.0, attempt=Attempt(usage=Usage(calls=1, prompt_tokens=5, unpriced_calls=1)))
    document = result_document(scheduler, FACTS)
    assert (document["usage"]["money"], document["usage"]["cost"], document["usage"]["tokens"]) == ("0.25", None, 47)
    scheduler = started_run(node("a"))
    scheduler.complete("a", 1, at=1.0)
    assert result_document(scheduler, FACTS)["usage"] == {}
    assert "usage" not in state_to_json(scheduler)


@pytest.mark.parametrize("encoded_usage", [b"", b"[1]", b"no JSON", b'{"calls": -1}', b'{"calls": "many"}'])
def test_unreadable_usage_is_ignored(encoded_usage: bytes) -> None:
    scheduler = started_run(node("a"), node("b"))
    apply_result(scheduler, "a", result_payload(1, encoded_usage), at=1.0)
    apply_failure(scheduler, "b", activity_failure({"usage": encoded_usage.decode()}), at=1.0)
    assert (scheduler.records[0].result, scheduler.state.totals.usage) == (1, RunUsage())


def test_usage_includes_every_attempt_and_item_of_a_node() -> None:
    scheduler = started_run(node("a"))
    scheduler.fail("a", tool_error(), at=1.0, attempt=Attempt(usage=USAGE))
    assert apply_command(RetryNode("a"), scheduler, at=2.0) is None
    start_ready_tasks(scheduler, at=2.0)
    scheduler.fail("a", tool_error(), at=3.0, attempt=Attempt(usage=USAGE))
    assert apply_command(SetResult("a", 5), scheduler, at=4.0) is None
    assert scheduler.state.totals.usage == RunUsage(USAGE + USAGE, {"a": USAGE + USAGE})
    scheduler = started_run(node("m", for_each=["x", "y"], key="{{item}}"))
    scheduler.complete("m[x]", 1, at=1.0, attempt=Attempt(usage=USAGE))
    scheduler.complete("m[y]", 1, at=1.0, attempt=Attempt(usage=USAGE))
    assert scheduler.state.totals.usage.tasks == {"m[x]": USAGE, "m": USAGE + USAGE, "m[y]": USAGE}
    assert scheduler.state.totals.usage.total == USAGE + USAGE


def run_with_agents() -> RunScheduler:
    agent = ToolDeclaration("agent.writer", Effects.READ)
    sub_plan = plan_of(node("in"))
    document = plan_of(node("w", tool="agent.writer"), node("p", plan=sub_plan), node("q", plan=sub_plan))
    scheduler = started_scheduler(compiled_plan(document, tools={**TOOLS, agent.name: agent}))
    start_ready_tasks(scheduler)
    return scheduler


def test_usage_is_summed_by_agent_name_and_kept_by_the_next_execution() -> None:
    scheduler = run_with_agents()
    scheduler.complete("w", 1, at=1.0, attempt=Attempt(usage=USAGE))
    agents = {"writer": USAGE.to_document(), "critic": USAGE.to_document()}
    child_usage = {**(USAGE + USAGE).to_document(), "agents": agents}
    end = sub_plan_end_from_json({"task": "p", "status": "completed", "output": 1, "usage": child_usage})
    apply_sub_plan_end(scheduler, end, at=2.0)
    apply_sub_plan_end(scheduler, end, at=3.0)
    failed_end = {"task": "q", "status": "failed", "error": {"message": "no"}, "usage": USAGE.to_document()}
    apply_sub_plan_end(scheduler, sub_plan_end_from_json(failed_end), at=2.0)
    assert scheduler.state.totals.usage == RunUsage(
        USAGE + USAGE + USAGE + USAGE,
        {"w": USAGE, "p": USAGE + USAGE, "q": USAGE},
        {"writer": USAGE + USAGE, "critic": USAGE},
    )
    expected = {**agents, "writer": (USAGE + USAGE).to_document()}
    assert result_document(scheduler, FACTS)["usage"]["agents"] == expected
    scheduler = run_with_agents()
    scheduler.complete("w", 1, at=1.0, attempt=Attempt(usage=USAGE))
    assert restored_scheduler(scheduler).state.totals.usage == scheduler.state.totals.usage
    assert run_usage_from_json(None) == RunUsage()


STORE_TOOLS: Mapping[str, ToolDeclaration] = {
    tool.name: tool
    for tool in (
        ToolDeclaration("make", Effects.IDEMPOTENT, undo="unmake"),
        ToolDeclaration("unmake", Effects.IDEMPOTENT),
        ToolDeclaration("send", Effects.WRITE),
        ToolDeclaration("foreign", Effects.READ, task_queue="foreign-queue", is_foreign=True),
    )
}


def _scheduler_with_running_call(tool: str = "make") -> RunScheduler:
    scheduler = scheduler_of(node("a", tool=tool), tools=STORE_TOOLS)
    assert [task.id for task in start_ready_tasks(scheduler)] == ["a"]
    return scheduler


def _storage_failure(size_bytes: int | None, **details: Any) -> ApplicationError:
    """Return the failure of a call after a failure of the payload store.

    Args:
        size_bytes: size of the result that was not stored; 0 if the input of the call was not loaded.
    """
    fields = {"attempt": 1, **details} | ({} if size_bytes is None else {DETAIL_UNSTORED_BYTES: size_bytes})
    return ApplicationError("the store is unavailable", fields, type=ERROR_STORE_RETRY, non_retryable=True)


def test_waits_for_the_store_grow_until_the_call_fails() -> None:
    scheduler = _scheduler_with_running_call()
    waits = [apply_store_wait(scheduler, "a", _storage_failure(9000), at=1.0) for _ in range(MAX_STORE_WAITS + 1)]
    assert waits == [*(StoreWait(9000, pause_s) for pause_s in (0.0, 10.0, 20.0, 40.0, 80.0)), None]
    node_error = apply_failure(scheduler, "a", _storage_failure(9000), at=2.0)
    assert node_error is not None
    assert (node_error.code, node_error.retryable) == ("store_unavailable", True)
    assert scheduler.records[0].attempts == MAX_STORE_WAITS + 1
    scheduler = _scheduler_with_running_call()
    apply_store_wait(scheduler, "a", _storage_failure(0), at=1.0)
    apply_result(scheduler, "a", result_payload(1, usage_bytes(USAGE)), at=2.0)
    assert (store_waits_of(scheduler), scheduler.records[0].attempts) == ({}, 1)
    scheduler = _scheduler_with_running_call()
    lineage = lineage_of_locations(["file:///in.csv"]).to_document()
    apply_store_wait(scheduler, "a", _storage_failure(9000, usage=USAGE.to_json(), lineage=lineage), at=1.0)
    assert scheduler.state.totals.usage.total == USAGE
    assert lineage_of(scheduler).tasks["a"].to_document() == lineage
    apply_result(scheduler, "a", result_payload(1, usage_bytes(USAGE)), at=2.0)
    assert scheduler.state.totals.usage.total == USAGE + USAGE


@pytest.mark.parametrize(("size_bytes", "attempt", "has_effects"), [(9000, 1, True), (0, 1, False), (0, 2, True)])
def test_unstored_result_or_repeated_call_counts_as_an_effect(
    *, size_bytes: int, attempt: int, has_effects: bool
) -> None:
    scheduler = _scheduler_with_running_call()
    assert apply_store_wait(scheduler, "a", _storage_failure(size_bytes, attempt=attempt), at=1.0) is not None
    apply_loading_failure(scheduler, "a", ApplicationError("the wait failed"), at=2.0)
    assert scheduler.records[0].status is NodeStatus.FAILED
    assert run_may_have_effects(scheduler.state) is has_effects


def test_run_may_have_effects_if_a_repeated_call_did_not_start() -> None:
    scheduler = _scheduler_with_running_call()
    apply_store_wait(scheduler, "a", _storage_failure(9000), at=1.0)
    apply_failure(scheduler, "a", ApplicationError("refused", {"attempt": 1}, type="not_started"), at=2.0)
    assert run_may_have_effects(scheduler.state)


@pytest.mark.parametrize(
    ("tool", "size_bytes"),
    [
        # A tool of a worker that does not use Dagwright.
        ("foreign", 0),
        # A user tool that raises an error of the type `ERROR_STORE_RETRY` itself.
        ("make", None),
        ("send", 9000),
        ("make", -1),
    ],
)
def test_write_call_or_call_without_a_store_failure_is_not_repeated(tool: str, size_bytes: int | None) -> None:
    scheduler = _scheduler_with_running_call(tool)
    assert apply_store_wait(scheduler, "a", _storage_failure(size_bytes), at=1.0) is None
