"""Call batches in the scheduler: which calls share an activity, and how their results change the run.

The followers of a batch are the calls that depend only on calls of the batch.
"""

from collections.abc import Mapping
from typing import Any

import pydantic_core
import pytest
from temporalio.api.common.v1 import Payload

from dagwright.core.boundary.wire import METADATA_ATTEMPT
from dagwright.core.model.policy import policy_from_json
from dagwright.core.model.tools import Effects, ToolDeclaration
from dagwright.features.batch_followers import (
    MAX_CALLS,
    MAX_PARALLEL,
    can_start_batch,
    followers_of,
    max_parallel_calls,
)
from dagwright.features.commands.node_commands import CancelNode, SetResult
from dagwright.features.commands.steering import Pause
from dagwright.features.run_scheduler import RunScheduler, create_scheduler
from dagwright.protocol.attempts import encode_attempt
from dagwright.protocol.call_batches import (
    ENDED_IN_BATCH,
    CallBatchResult,
    CallEnd,
    apply_call_batch,
    read_call_batch_result,
)
from dagwright.protocol.conversion import decode_failure
from tests.support.plan_building import compiled_plan, node, plan_of

_TOOLS = {
    "any": ToolDeclaration("any", Effects.READ),
    "short": ToolDeclaration("short", Effects.READ, batch=True, task_queue="q"),
    "sends": ToolDeclaration("sends", Effects.IDEMPOTENT, batch=True, task_queue="q"),
    "elsewhere": ToolDeclaration("elsewhere", Effects.READ, batch=True, task_queue="other"),
}


def start_plan(*nodes: dict[str, Any], **options: Any) -> RunScheduler:
    scheduler = create_scheduler(compiled_plan(plan_of(*nodes), tools=_TOOLS), {}, **options)
    scheduler.start(1.0)
    return scheduler


def short_node(node_id: str, *dependencies: str, **fields: Any) -> dict[str, Any]:
    return node(node_id, *dependencies, **{"tool": "short", **fields})


_CHAIN = (short_node("a"), short_node("b", "a"), short_node("c", "b"))


def start_batch(scheduler: RunScheduler, *, separate_tools: tuple[str, ...] = ()) -> tuple[list[str], list[str]]:
    """Start all ready tasks. Return the IDs of the tasks that may share an activity, and of their followers."""
    tasks = []
    while (task := scheduler.next_task(1.0)) is not None:
        if can_start_batch(scheduler, task):
            tasks.append(task)
    follower_ids, _ = followers_of(scheduler, tasks, task_queue="q", separate_tools=separate_tools)
    return [task.id for task in tasks], follower_ids


def result_of(*node_ids: str, detached_failures: Mapping[str, str | None] | None = None) -> CallBatchResult:
    """Return the result of a batch in which calls completed. The result of a call is its ID in capitals.

    Args:
        detached_failures: call that needs an activity of its own -> its failure, or `None` if the call was not made.
    """
    metadata = {"encoding": b"json/plain", METADATA_ATTEMPT: encode_attempt(2, 0.0, "")}
    payloads = [Payload(metadata=metadata, data=pydantic_core.to_json(node_id.upper())) for node_id in node_ids]
    return CallBatchResult([*map(CallEnd, node_ids, payloads)], detached_failures or {})


def statuses_of(scheduler: RunScheduler) -> dict[str, str]:
    return {each.id: record.status.value for each, record in scheduler.state.visible_nodes()}


def test_followers_are_calls_that_only_wait_for_calls_of_the_batch() -> None:
    scheduler = start_plan(
        short_node("a"),
        node("slow"),
        short_node("b", "a", tool="sends"),
        short_node("c", "b", when="b.status == 'completed'"),
        short_node("joined", "a", "c"),
        short_node("waits", "b", "slow"),
        short_node("any", "a", join="any"),
        node("ordinary", "a"),
        short_node("after ordinary", "ordinary"),
        short_node("map", "a", for_each=[1]),
        short_node("elsewhere", "a", tool="elsewhere"),
        short_node("approved", "a", approval="required"),
        short_node("timeout", "a", timeout="500ms"),
        short_node("heartbeat", "a", heartbeat="5s"),
        short_node("retried", "a", retry={"max_attempts": 2}),
    )
    assert start_batch(scheduler) == (["a"], ["b", "c", "joined"])


def test_calls_that_need_approval_or_have_slow_tools_are_not_followers() -> None:
    nodes = (short_node("a"), short_node("b", "a", tool="sends"), short_node("c", "a"))
    policy = policy_from_json({"rules": [{"effects": ["idempotent"], "then": "ask"}]})
    assert start_batch(start_plan(*nodes, policy=policy)) == (["a"], ["c"])
    assert start_batch(start_plan(*nodes), separate_tools=("sends",)) == (["a"], ["c"])


def test_batch_has_a_limited_number_of_calls_and_keeps_the_parallel_limit_of_its_run() -> None:
    ids = [f"n{number}" for number in range(MAX_CALLS + 20)]
    nodes = [short_node(node_id, *ids[number - 1 : number]) for number, node_id in enumerate(ids)]
    scheduler = start_plan(*nodes)
    assert len(start_batch(scheduler)[1]) == MAX_CALLS - 1
    assert max_parallel_calls(scheduler, call_count=3) == MAX_PARALLEL
    # The three calls that started the batch hold three slots. If `max_in_flight` is lower than the default, each
    # running call needs one of these slots.
    assert max_parallel_calls(start_plan(short_node("a"), max_in_flight=20), call_count=3) == 3


def test_results_complete_the_calls_and_their_followers_in_order() -> None:
    scheduler = start_plan(*_CHAIN, node("d", "b"), short_node("e", "c"))
    start_batch(scheduler)
    assert apply_call_batch(scheduler, result_of("a", "b"), calls=["a"], at=2.0) == []
    assert statuses_of(scheduler) == {"a": "completed", "b": "completed", "c": "ready", "d": "ready", "e": "pending"}
    assert [scheduler.records[number].attempts for number in (0, 1)] == [2, 2]
    assert start_batch(scheduler) == (["c"], ["e"])
    assert scheduler.in_flight == 2
    # A call without a result still counts as running, and the run makes it again.
    assert apply_call_batch(scheduler, result_of(detached_failures={"c": None}), calls=["c"], at=2.0) == ["c"]


def test_a_paused_run_accepts_results_and_starts_nothing() -> None:
    scheduler = start_plan(*_CHAIN)
    start_batch(scheduler)
    Pause().apply(scheduler, at=1.5)
    apply_call_batch(scheduler, result_of("a", "b"), calls=["a"], at=2.0)
    assert statuses_of(scheduler) == {"a": "completed", "b": "completed", "c": "ready"}
    assert scheduler.next_task(2.0) is None


def test_commands_on_nodes_of_a_batch_take_precedence() -> None:
    scheduler = start_plan(short_node("a"), short_node("b", "a"), short_node("manual", "a"), short_node("c", "b"))
    start_batch(scheduler)
    CancelNode("b").apply(scheduler, at=2.0)
    SetResult("manual", "mine").apply(scheduler, at=2.0)
    apply_call_batch(scheduler, result_of("a", "b", "manual", "c"), calls=["a"], at=2.0)
    assert statuses_of(scheduler) == {"a": "completed", "b": "cancelled", "manual": "completed", "c": "blocked"}
    records_by_id = {each.id: record for each, record in scheduler.state.visible_nodes()}
    assert (records_by_id["b"].reason, records_by_id["manual"].result) == (ENDED_IN_BATCH, "mine")
    assert scheduler.is_finished


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_followers_of_a_node_with_a_manual_result_drop_their_batch_results(is_cancelled: bool) -> None:
    followers = (short_node("manual", "a"), short_node("b", "manual"), short_node("c", "b"), short_node("d", "a"))
    scheduler = start_plan(short_node("a"), *followers)
    start_batch(scheduler)
    Pause().apply(scheduler, at=1.5)
    SetResult("manual", "mine").apply(scheduler, at=2.0)
    if is_cancelled:
        scheduler.cancel(2.0, reason="enough")
    apply_call_batch(scheduler, result_of("a", "manual", "b", "c", "d"), calls=["a"], at=2.0)
    expected_statuses = {"b": "cancelled", "c": "cancelled"} if is_cancelled else {"b": "ready", "c": "pending"}
    assert statuses_of(scheduler) == {"a": "completed", "manual": "completed", "d": "completed", **expected_statuses}


def test_a_stopped_run_keeps_the_results_of_calls_that_were_made() -> None:
    scheduler = start_plan(*_CHAIN)
    start_batch(scheduler)
    scheduler.cancel(2.0, reason="enough")
    assert statuses_of(scheduler) == {"a": "running", "b": "cancelled", "c": "cancelled"}
    assert apply_call_batch(scheduler, result_of("b", detached_failures={"b": "x"}), calls=["a"], at=3.0) == []
    assert statuses_of(scheduler) == {"a": "cancelled", "b": "completed", "c": "cancelled"}
    record = scheduler.records[1]
    assert (record.result, record.attempts, record.reason) == ("B", 2, None)
    assert scheduler.is_finished


def test_a_result_in_an_unknown_form_is_ignored() -> None:
    for payload in (b"[]", b"no JSON", b'{"call_ends": [["a"]], "detached_failures": {}, "separate_tools": []}'):
        assert read_call_batch_result(Payload(data=payload)) == CallBatchResult()


def test_text_that_is_not_a_failure_is_rejected() -> None:
    with pytest.raises(ValueError, match="not a failure"):
        decode_failure("AAAA")
