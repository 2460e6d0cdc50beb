"""Plan extension, compensation, fork reuse, cancellation and the deadline, each with a scheduler and nothing else."""

from typing import Any

from dagwright.core.model.compiled import CompiledNode
from dagwright.core.model.errors import NodeError
from dagwright.core.model.states import STILL_OUTSIDE, RunStatus
from dagwright.core.model.tasks import TaskRef
from dagwright.core.model.tools import Effects, ToolDeclaration
from dagwright.core.scheduler.extension import Extension
from dagwright.core.scheduler.run_options import RunOptions
from dagwright.core.scheduler.run_state import RunState
from dagwright.core.scheduler.scheduler import Scheduler
from dagwright.features.compensation.component import Compensation
from dagwright.features.deadline import Deadline, RunDeadline
from dagwright.features.fork_reuse.component import ForkReuse
from dagwright.features.fork_reuse.fingerprint import fingerprint_of
from dagwright.features.fork_reuse.reuse import ReusableResult, ReuseBook
from dagwright.features.node_cancellation import NodeCancellation
from dagwright.features.plan_extension.component import PlanExtension
from tests.support.components import alone, started_ids, state_of, statuses
from tests.support.plan_building import node

_TOOLS = {
    "write": ToolDeclaration("write", Effects.IDEMPOTENT, undo="unwrite"),
    "unwrite": ToolDeclaration("unwrite", Effects.IDEMPOTENT),
}


class OneMore:
    """Adds one node after the first has ended."""

    def next_extension(self, state: RunState) -> Extension | None:
        if not state.is_finished or state.number_of("more") is not None:
            return None
        return Extension(1, (CompiledNode("more", tool="any", dependencies=(0,)),))

    def goal_error(self, state: RunState) -> NodeError | None:
        return NodeError("short", "not all of it")

    def is_own(self, node_id: str) -> bool:
        return node_id == "more"

    def refusal_of_result(self, node_id: str, result: Any) -> str | None:
        return None


def test_extender_adds_nodes_when_nothing_moves() -> None:
    scheduler, extension = alone(state_of(node("a")), PlanExtension)
    extension.use(OneMore())
    scheduler.start(0.0)
    assert started_ids(scheduler) == ["a"]
    scheduler.complete("a", 1, at=1.0)
    assert (started_ids(scheduler, at=1.0), scheduler.state.is_generated_id("more")) == (["more"], True)
    scheduler.complete("more", 1, at=2.0)
    assert scheduler.status() is RunStatus.COMPLETED_WITH_FAILURES


def test_run_that_fails_undoes_its_calls_last_first() -> None:
    options = RunOptions(compensate=True)
    state = state_of(
        node("a", tool="write"),
        node("b", "a", tool="write"),
        node("c", "b", tool="write"),
        tools=_TOOLS,
        options=options,
    )
    scheduler, _ = alone(state, Compensation)
    scheduler.start(0.0)
    for number, name in enumerate(("a", "b")):
        assert started_ids(scheduler, at=number) == [name]
        scheduler.complete(name, f"made {name}", at=number)
    started_ids(scheduler, at=2.0)
    scheduler.fail("c", NodeError("refused", "no"), at=3.0)
    task = scheduler.next_task(3.0)
    assert task is not None
    assert (task.id, task.arguments["result"]) == ("undo b", "made b")
    scheduler.complete("undo b", None, at=4.0)
    assert started_ids(scheduler, at=4.0) == ["undo a"]


def test_fork_reuses_a_result_with_the_same_fingerprint_only() -> None:
    state = state_of(node("a"), node("b"))
    scheduler, reuse = alone(state, ForkReuse)
    made = {"run_id": "other", "node_id": "a"}
    same = ReusableResult(fingerprint_of(state, TaskRef(0)), has_result=True, result=7, made=made)
    reuse.use(ReuseBook({"a": same, "b": ReusableResult("changed", scope="other", has_result=True, result=8)}))
    scheduler.start(0.0)
    task = scheduler.next_task(0.0)
    assert (scheduler.records[0].result, scheduler.records[0].reused) == (7, made)
    assert task is not None
    assert (task.id, task.scope, scheduler.next_task(0.0)) == ("b", None, None)


def test_task_that_does_not_stop_in_time_is_cancelled() -> None:
    scheduler, cancellation = alone(state_of(node("a"), node("b")), NodeCancellation)
    scheduler.start(0.0)
    started_ids(scheduler)
    cancellation.cancel("a", until=5.0)
    cancellation.cancel("b", until=6.0)
    scheduler.complete("b", 1, at=1.0)
    assert scheduler.next_timer == 5.0
    scheduler.advance(5.0)
    assert (statuses(scheduler), scheduler.records[0].reason) == ({"a": "cancelled", "b": "completed"}, STILL_OUTSIDE)
    assert scheduler.next_timer is None


def test_run_past_its_deadline_fails_and_names_what_ran() -> None:
    scheduler: Scheduler[Any] = Scheduler(state_of(node("a"), node("b", "a")))
    deadline = RunDeadline(scheduler)
    deadline.deadline = Deadline(0.0, 10.0)
    scheduler.start(0.0)
    started_ids(scheduler)
    deadline.expire(9.0)
    assert statuses(scheduler) == {"a": "running", "b": "pending"}
    deadline.expire(10.0)
    assert scheduler.state.error is not None
    assert scheduler.state.error.message.endswith("still running: a")
    assert statuses(scheduler) == {"a": "running", "b": "cancelled"}
