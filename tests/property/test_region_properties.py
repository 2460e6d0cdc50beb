"""A plan with regions ends like the same plan without regions, and like the brute-force model."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pydantic_core
from hypothesis import given, settings
from hypothesis import strategies as st
from temporalio.api.common.v1 import Payload

from dagwright.activities import region_batches
from dagwright.activities.pure_calls import PureCalls
from dagwright.activities.region_batches import RegionBatch, start_scheduler
from dagwright.activities.region_state import fetch_region, restore_region
from dagwright.core.compiler import offloaded_regions
from dagwright.core.compiler.regions import with_regions
from dagwright.core.model.compiled import CompiledPlan, plan_from_json, plan_to_json
from dagwright.core.model.graph import cycles_of
from dagwright.core.model.states import Attempt, NodeError, NodeStatus, Task
from dagwright.core.model.tools import Effects, ToolDeclaration
from dagwright.core.scheduler.run_state import counts_of
from dagwright.features.regions.batches import read_batch
from dagwright.features.regions.offloaded_batches import read_offloaded_batch
from dagwright.features.run_scheduler import create_scheduler
from dagwright.history.offloaded_regions import OffloadedNodes
from dagwright.plans import pages
from dagwright.plans.pages import split_for_transfer
from dagwright.protocol.documents import RunFacts, graph_document, result_document
from dagwright.protocol.outcomes import apply_result
from dagwright.protocol.ready_calls import ReadyCall, next_call
from dagwright.protocol.scheduler_snapshot import restore_state, state_to_json
from dagwright.store import PayloadStore
from dagwright.tools import GiveUp, ToolRegistry, context, tool
from dagwright.tools.context import Cancellation
from dagwright.tools.environment import ToolEnvironment
from tests.property.plan_model import PlanModel, Step, result_of
from tests.property.plans import failing_ids_of, positions, steps, without_times
from tests.support.example_counts import example_count
from tests.support.memory_store import MemoryStore
from tests.support.plan_building import compiled_plan, plan_of

_DECLARATIONS = (
    ToolDeclaration("any", Effects.READ),
    ToolDeclaration("single", Effects.PURE, max_parallel=1),
    ToolDeclaration("pure", Effects.PURE, task_queue="one", version="v1"),
    ToolDeclaration("elsewhere", Effects.PURE, task_queue="two"),
)
_TOOLS = {declaration.name: declaration for declaration in _DECLARATIONS}
_FACTS = RunFacts("run", "1")


def pure_tools(failing_ids: frozenset[str]) -> ToolRegistry:
    """Return the pure tools, which fail for the nodes in `failing_ids`."""

    def result_or_failure(arguments: dict[str, Any]) -> Any:
        if context().node_id in failing_ids:
            raise GiveUp(context().node_id)
        return result_of(context().node_id, arguments)

    @tool(effects="pure")
    def pure(**arguments: Any) -> Any:
        return result_or_failure(arguments)

    @tool(effects="pure")
    async def elsewhere(**arguments: Any) -> Any:
        return result_or_failure(arguments)

    return ToolRegistry.of(pure, elsewhere)


@st.composite
def mixed_steps(draw: st.DrawFn) -> tuple[Step, ...]:
    """Return the steps of a plan. Most steps call a pure tool, have no items, and have the `join` `all`."""
    tool_names = st.sampled_from(["any", "pure", "pure", "pure", "elsewhere", "single"])
    simple_choices = st.sampled_from([True, True, False])
    changed_steps = []
    for step in draw(steps(limit=12)):
        changed_step = replace(step, tool=draw(tool_names))
        if draw(simple_choices):
            changed_step = replace(changed_step, items=None, join="all", max_parallel=None)
            changed_step = replace(changed_step, failing_ids=frozenset({step.id} if step.failing_ids else ()))
        changed_steps.append(changed_step)
    return tuple(changed_steps)


def first_position(count: int) -> int:
    return 0


class Run:
    """A run of a plan whose regions run as in the engine.

    Args:
        choose_position: return the position of the running call that ends next.
    """

    def __init__(
        self,
        plan: CompiledPlan,
        failing_ids: frozenset[str],
        choose_position: Callable[[int], int] = first_position,
        *,
        store: PayloadStore | None = None,
    ) -> None:
        self.store = store or MemoryStore()
        self.scheduler = create_scheduler(plan, {"word": "w"})
        self._plan = plan
        self._failing_ids = failing_ids
        self._choose_position = choose_position
        self._registry = pure_tools(failing_ids)
        self.tools = {spec.name: spec for spec in self._registry}
        self.batches: list[list[str]] = []

    def run(self, *, continues_as_new: bool = False) -> None:
        self.scheduler.start(0.0)
        running_calls: list[ReadyCall] = []
        while True:
            while (ready_call := next_call(self.scheduler, 0.0)) is not None:
                running_calls.append(ready_call)
            if not running_calls:
                break
            ready_call = running_calls.pop(self._choose_position(len(running_calls)))
            task = ready_call.task
            if task.node.kind == "region":
                self._run_batch(task.id, ready_call.arguments)
            else:
                self._end_task(task)
            if continues_as_new:
                snapshot = state_to_json(self.scheduler)
                self.scheduler = create_scheduler(self._plan, {"word": "w"})
                restore_state(self.scheduler, snapshot)
        assert self.scheduler.is_finished, "no task is running or ready, but the plan is not finished"

    def _end_task(self, task: Task) -> None:
        attempt = Attempt(tool_version=self.tools[task.node.tool].version if task.node.tool in self.tools else "")
        if task.id in self._failing_ids:
            self.scheduler.fail(task.id, NodeError("tool_failed", task.id), at=1.0, attempt=attempt)
        else:
            self.scheduler.complete(task.id, result_of(task.id, task.arguments), at=1.0, attempt=attempt)

    def run_pure_nodes(self, ordinary_ids: frozenset[str]) -> dict[str, str]:
        """Run all tasks that can run while no ordinary node ends, and return the status of every node.

        Ordinary nodes are nodes that no region contains. A ready ordinary node is returned as running, because a limit
        of parallel calls may delay the start of the node.
        """
        self.scheduler.start(0.0)
        while (ready_call := next_call(self.scheduler, 0.0)) is not None:
            task = ready_call.task
            if task.node.kind == "region":
                self._run_batch(task.id, ready_call.arguments)
            elif task.node.id not in ordinary_ids:
                self._end_task(task)
        statuses = {node.id: record.status for node, record in self.scheduler.state.visible_nodes()}
        return {
            name: (NodeStatus.RUNNING if name in ordinary_ids and status is NodeStatus.READY else status).value
            for name, status in statuses.items()
        }

    def _run_batch(self, task_id: str, encoded: bytes) -> None:
        message = pydantic_core.from_json(encoded)
        if "inner" in message:
            self._run_offloaded_batch(task_id, message)
            return
        batch = read_batch(message)
        names = {node.tool for node in batch.plan.nodes if node.kind == "tool"}
        assert len({_TOOLS[name].task_queue for name in names}) == 1, "the tools of a region have one queue"
        region = self._run_region(start_scheduler(batch))
        result = region.result()
        assert result["node_ends"], "a batch ends at least one node"
        self.batches.append([entry[0] for entry in result["node_ends"]])
        apply_result(self.scheduler, task_id, Payload(data=pydantic_core.to_json(result)), at=1.0)

    def _run_region(self, scheduler: Any, **options: Any) -> RegionBatch:
        calls = PureCalls("run", ToolEnvironment(Path()), load=lambda refs: {}, cancellation=Cancellation())
        region = RegionBatch(scheduler, self.tools, calls=calls, **options)
        region.run()
        calls.close()
        return region

    def _run_offloaded_batch(self, task_id: str, message: dict[str, Any]) -> None:
        """Run a batch of an offloaded region, as a new worker does."""
        batch = read_offloaded_batch(message)
        inner = restore_region(asyncio.run(fetch_region(batch, self.store)), batch)
        region = self._run_region(inner.scheduler, inline_nodes=inner.region.exports)
        ref = asyncio.run(self.store.put(inner.report(region)))
        self.batches.append([inner.region.plan.nodes[number].id for number in region.ended_node_numbers()])
        apply_result(self.scheduler, task_id, Payload(data=inner.result(region, ref)), at=1.0)

    def document(self) -> dict[str, Any]:
        """Return the document and the graph without times."""
        return {**without_times(result_document(self.scheduler, _FACTS)), "graph": graph_document(self.scheduler)}


def _without_blocker_details(node: dict[str, Any]) -> dict[str, Any]:
    """Return the document of a node; for a blocked node, without its error and the order of its blockers.

    A region does not report this order.
    """
    if node["status"] != "blocked":
        return node
    return {**node, "blocked_by": sorted(node["blocked_by"]), "error": None}


async def offloaded_documents(offloaded: OffloadedNodes) -> dict[str, Any]:
    return {node.id: without_times(node.document) async for node in offloaded.nodes()}


def plans_of(plan_steps: tuple[Step, ...], **fields: Any) -> tuple[CompiledPlan, CompiledPlan]:
    """Return the compiled plan without regions, and with regions."""
    plan_without_regions = compiled_plan(plan_of(*(step.to_json() for step in plan_steps), **fields), tools=_TOOLS)
    return plan_without_regions, plan_from_json(
        pydantic_core.from_json(pydantic_core.to_json(plan_to_json(with_regions(plan_without_regions))))
    )


@settings(max_examples=example_count(60), deadline=None)
@given(plan_steps=mixed_steps())
def test_contracted_graph_is_acyclic_and_keeps_every_node_and_edge(plan_steps: tuple[Step, ...]) -> None:
    plan_without_regions, plan = plans_of(plan_steps)
    count = len(plan_without_regions.nodes)
    assert plan.visible_count == count
    assert [(node.id, node.dependencies) for node in plan.nodes[:count]] == [
        (node.id, node.dependencies) for node in plan_without_regions.nodes
    ]
    regions = range(count, len(plan.nodes))
    vertex_of = {member: region for region in regions for member in plan.nodes[region].members}
    assert sorted(vertex_of) == [number for number, node in enumerate(plan.nodes) if node.kind == "external"]
    edges: list[set[int]] = [set() for _ in plan.nodes]
    for number, node in enumerate(plan.nodes):
        for dependency in node.dependencies:
            if vertex_of.get(number, number) != vertex_of.get(dependency, dependency):
                edges[vertex_of.get(number, number)].add(vertex_of.get(dependency, dependency))
    assert cycles_of([sorted(edge) for edge in edges]) == []
    for region in regions:
        members = plan.nodes[region].members
        assert len(members) > 1
        assert edges[region] == {
            vertex_of.get(dependency, dependency) for dependency in plan.nodes[region].dependencies
        }
        position_of = {member: position for position, member in enumerate(members)}
        for member in members:
            assert all(
                position_of.get(dependency, -1) < position_of[member] for dependency in plan.nodes[member].dependencies
            )


@settings(max_examples=example_count(60), deadline=None)
@given(plan_steps=mixed_steps(), data=st.data(), batch_s=st.sampled_from([0.0, 10.0]), continues_as_new=st.booleans())
def test_plan_ends_the_same_with_and_without_regions(
    plan_steps: tuple[Step, ...], data: st.DataObject, batch_s: float, continues_as_new: bool
) -> None:
    failing_ids = failing_ids_of(plan_steps)
    plan_without_regions, plan = plans_of(plan_steps)
    run_without_regions = Run(plan_without_regions, failing_ids)
    run_without_regions.run()
    run_with_regions = Run(plan, failing_ids, positions(data))
    with patch.object(region_batches, "REGION_BATCH_S", batch_s):
        run_with_regions.run(continues_as_new=continues_as_new)
    assert run_with_regions.document() == run_without_regions.document()
    final_statuses = PlanModel(plan_steps).final_statuses
    nodes = run_with_regions.document()["nodes"]
    assert {name: nodes[name]["status"] for name in final_statuses} == final_statuses
    node_ids = [name for names in run_with_regions.batches for name in names]
    assert len(node_ids) == len(set(node_ids)), "a reported node ran again"


@settings(max_examples=example_count(60), deadline=None)
@given(plan_steps=mixed_steps())
def test_regions_do_not_delay_pure_nodes(plan_steps: tuple[Step, ...]) -> None:
    """While no ordinary node ends, every node has the same status with and without regions."""
    ordinary_ids = frozenset(step.id for step in plan_steps if step.tool in ("any", "single") or step.items is not None)
    failing_ids = failing_ids_of(plan_steps)
    plan_without_regions, plan = plans_of(plan_steps)
    expected_statuses = Run(plan_without_regions, failing_ids).run_pure_nodes(ordinary_ids)
    assert Run(plan, failing_ids).run_pure_nodes(ordinary_ids) == expected_statuses


@settings(max_examples=example_count(60), deadline=None)
@given(plan_steps=mixed_steps())
def test_fail_fast_with_regions_ends_every_node(plan_steps: tuple[Step, ...]) -> None:
    failing_ids = failing_ids_of(plan_steps)
    _, plan = plans_of(plan_steps, on_failure="fail_fast")
    run = Run(plan, failing_ids)
    run.run()
    statuses = {node["status"] for node in run.document()["nodes"].values()}
    assert statuses <= {"completed", "failed", "skipped", "blocked", "cancelled"}


@settings(max_examples=example_count(60), deadline=None)
@given(
    plan_steps=mixed_steps(),
    data=st.data(),
    batch_s=st.sampled_from([0.0, 10.0]),
    continues_as_new=st.booleans(),
    fields=st.sampled_from([{}, {"output": {"n0": "{{n0.result}}", "text": "<{{n0.status}}>"}}]),
)
def test_plan_ends_the_same_with_and_without_offloaded_regions(
    plan_steps: tuple[Step, ...], data: st.DataObject, batch_s: float, continues_as_new: bool, fields: dict[str, Any]
) -> None:
    failing_ids = failing_ids_of(plan_steps)
    plan_without_regions, plan = plans_of(plan_steps, **fields)
    run_without_regions = Run(plan_without_regions, failing_ids)
    run_without_regions.run()
    store = MemoryStore()
    with (
        patch.object(offloaded_regions, "MIN_OFFLOADED_MEMBERS", 2),
        patch.object(pages, "MAX_INLINE_PLAN_NODES", 0),
        patch.object(pages, "MAX_INLINE_PLAN_BYTES", 10**9),
    ):
        sent_plan = asyncio.run(split_for_transfer(plan, store)).plan
    run_with_regions = Run(sent_plan, failing_ids, positions(data), store=store)
    with patch.object(region_batches, "REGION_BATCH_S", batch_s):
        run_with_regions.run(continues_as_new=continues_as_new)
    expected, actual = run_without_regions.document(), run_with_regions.document()
    assert actual["status"] == expected["status"]
    assert actual["output"] == expected["output"]
    assert actual["error"] == expected["error"]
    offloaded = OffloadedNodes(run_with_regions.scheduler, store)
    every_node = {**actual["nodes"], **asyncio.run(offloaded_documents(offloaded))}
    assert sorted(every_node) == sorted(expected["nodes"])
    for name, node in every_node.items():
        assert _without_blocker_details(node) == _without_blocker_details(expected["nodes"][name])
        offloaded_node = asyncio.run(offloaded.find(name))
        assert offloaded_node is None or without_times(offloaded_node.document) == node
    schedulers = (run_with_regions.scheduler, run_without_regions.scheduler)
    first_counts, second_counts = (counts_of(scheduler.plan, scheduler.records) for scheduler in schedulers)
    assert first_counts == second_counts
    reported_ids = [name for names in run_with_regions.batches for name in names]
    assert len(reported_ids) == len(set(reported_ids)), "a reported node ran again"
