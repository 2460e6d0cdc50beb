"""A plan with regions against the same plan without them, and against the brute-force model."""

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
from tests.property.naive import Model, Step, result_of
from tests.property.plans import steps
from tests.support.example_counts import examples
from tests.support.memory_store import MemoryStore
from tests.support.plan_building import compiled_plan, plan_of

_DECLARED = (
    ToolDeclaration("any", Effects.READ),
    ToolDeclaration("single", Effects.PURE, max_parallel=1),
    ToolDeclaration("pure", Effects.PURE, task_queue="one", version="v1"),
    ToolDeclaration("elsewhere", Effects.PURE, task_queue="two"),
)
_TOOLS = {declared.name: declared for declared in _DECLARED}
_FACTS = RunFacts("run", "1")


def pure_tools(fails: frozenset[str]) -> ToolRegistry:
    """Return the tools of the regions; they fail for the nodes in `fails`."""

    def answer(arguments: dict[str, Any]) -> Any:
        if context().node in fails:
            raise GiveUp(context().node)
        return result_of(context().node, arguments)

    @tool(effects="pure")
    def pure(**arguments: Any) -> Any:
        return answer(arguments)

    @tool(effects="pure")
    async def elsewhere(**arguments: Any) -> Any:
        return answer(arguments)

    return ToolRegistry.of(pure, elsewhere)


@st.composite
def mixed_steps(draw: st.DrawFn) -> tuple[Step, ...]:
    names = st.sampled_from(["any", "pure", "pure", "pure", "elsewhere", "single"])
    plain = st.sampled_from([True, True, False])
    made = []
    for step in draw(steps(limit=12)):
        changed = replace(step, tool=draw(names))
        if draw(plain):
            changed = replace(changed, items=None, join="all", max_parallel=None)
            changed = replace(changed, fails=frozenset({step.id} if step.fails else ()))
        made.append(changed)
    return tuple(made)


class Run:
    """Run a plan as the engine does, regions included, in a drawn order."""

    def __init__(
        self,
        plan: CompiledPlan,
        fails: frozenset[str],
        choose: Callable[[int], int],
        *,
        store: PayloadStore | None = None,
    ) -> None:
        self.store = store or MemoryStore()
        self.scheduler = create_scheduler(plan, {"word": "w"})
        self._plan = plan
        self._fails = fails
        self._choose = choose
        self._registry = pure_tools(fails)
        self.tools = {spec.name: spec for spec in self._registry}
        self.slices: list[list[str]] = []

    def run(self, *, is_carried: bool = False) -> None:
        self.scheduler.start(0.0)
        running: list[ReadyCall] = []
        while True:
            while (ready := next_call(self.scheduler, 0.0)) is not None:
                running.append(ready)
            if not running:
                break
            ready = running.pop(self._choose(len(running)))
            task = ready.task
            if task.node.kind == "region":
                self._run_slice(task.id, ready.arguments)
            else:
                self._end(task)
            if is_carried:
                snapshot = state_to_json(self.scheduler)
                self.scheduler = create_scheduler(self._plan, {"word": "w"})
                restore_state(self.scheduler, snapshot)
        assert self.scheduler.is_finished, "nothing runs and nothing may start, but the plan is not finished"

    def _end(self, task: Task) -> None:
        attempt = Attempt(tool_version=self.tools[task.node.tool].version if task.node.tool in self.tools else "")
        if task.id in self._fails:
            self.scheduler.fail(task.id, NodeError("tool_failed", task.id), at=1.0, attempt=attempt)
        else:
            self.scheduler.complete(task.id, result_of(task.id, task.arguments), at=1.0, attempt=attempt)

    def run_what_hangs_on_none(self, ordinary: frozenset[str]) -> dict[str, str]:
        """Run all tasks that can run while no ordinary node ends; return the states.

        Ordinary nodes that are ready count as running: a limit of parallel calls holds back other nodes then.
        """
        self.scheduler.start(0.0)
        while (ready := next_call(self.scheduler, 0.0)) is not None:
            task = ready.task
            if task.node.kind == "region":
                self._run_slice(task.id, ready.arguments)
            elif task.node.id not in ordinary:
                self._end(task)
        states = {node.id: record.status for node, record in self.scheduler.state.visible_nodes()}
        return {
            name: (NodeStatus.RUNNING if name in ordinary and status is NodeStatus.READY else status).value
            for name, status in states.items()
        }

    def _run_slice(self, task_id: str, encoded: bytes) -> None:
        message = pydantic_core.from_json(encoded)
        if "inner" in message:
            self._run_inner_slice(task_id, message)
            return
        given = read_batch(message)
        names = {node.tool for node in given.plan.nodes if node.kind == "tool"}
        assert len({_TOOLS[name].task_queue for name in names}) == 1, "a region holds tools of one queue"
        calls = PureCalls("run", ToolEnvironment(Path()), load=lambda refs: {}, cancellation=Cancellation())
        region = RegionBatch(start_scheduler(given), self.tools, calls=calls)
        region.run()
        calls.close()
        answer = region.result()
        assert answer["ended"], "a slice ends at least one node"
        self.slices.append([entry[0] for entry in answer["ended"]])
        apply_result(self.scheduler, task_id, Payload(data=pydantic_core.to_json(answer)), at=1.0)

    def _run_inner_slice(self, task_id: str, message: dict[str, Any]) -> None:
        """Run a batch of an offloaded region, as a new worker does."""
        given = read_offloaded_batch(message)
        inner = restore_region(asyncio.run(fetch_region(given, self.store)), given)
        calls = PureCalls("run", ToolEnvironment(Path()), load=lambda refs: {}, cancellation=Cancellation())
        region = RegionBatch(inner.scheduler, self.tools, calls=calls, inline_results=inner.region.exports)
        region.run()
        calls.close()
        ref = asyncio.run(self.store.put(inner.report(region)))
        self.slices.append([inner.region.plan.nodes[number].id for number in region.ended_nodes()])
        apply_result(self.scheduler, task_id, Payload(data=inner.result(region, ref)), at=1.0)

    def document(self) -> dict[str, Any]:
        """Return the document and the graph without times."""
        return {**_timeless(result_document(self.scheduler, _FACTS)), "graph": graph_document(self.scheduler)}


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _timeless(part) for name, part in value.items() if name not in ("started_at", "ended_at")}
    return [_timeless(part) for part in value] if isinstance(value, list) else value


def _without_order(node: dict[str, Any]) -> dict[str, Any]:
    """Return the document of a node without the parts that depend on the order of blockers, which a region lacks."""
    if node["status"] != "blocked":
        return node
    return {**node, "blocked_by": sorted(node["blocked_by"]), "error": None}


async def inner_documents(insides: OffloadedNodes) -> dict[str, Any]:
    return {node.id: _timeless(node.document) async for node in insides.nodes()}


def plans_of(made: tuple[Step, ...], **fields: Any) -> tuple[CompiledPlan, CompiledPlan]:
    plain = compiled_plan(plan_of(*(step.to_json() for step in made), **fields), tools=_TOOLS)
    return plain, plan_from_json(pydantic_core.from_json(pydantic_core.to_json(plan_to_json(with_regions(plain)))))


@settings(max_examples=examples(60), deadline=None)
@given(made=mixed_steps())
def test_contracted_graph_is_acyclic_and_keeps_every_node_and_edge(made: tuple[Step, ...]) -> None:
    plain, plan = plans_of(made)
    count = len(plain.nodes)
    assert plan.written_count == count
    assert [(node.id, node.dependencies) for node in plan.nodes[:count]] == [
        (node.id, node.dependencies) for node in plain.nodes
    ]
    regions = range(count, len(plan.nodes))
    unit = {member: region for region in regions for member in plan.nodes[region].members}
    assert sorted(unit) == [number for number, node in enumerate(plan.nodes) if node.kind == "reported"]
    edges: list[set[int]] = [set() for _ in plan.nodes]
    for number, node in enumerate(plan.nodes):
        for needed in node.dependencies:
            if unit.get(number, number) != unit.get(needed, needed):
                edges[unit.get(number, number)].add(unit.get(needed, needed))
    assert cycles_of([sorted(edge) for edge in edges]) == []
    for region in regions:
        members = plan.nodes[region].members
        assert len(members) > 1
        assert edges[region] == {unit.get(needed, needed) for needed in plan.nodes[region].dependencies}
        place = {member: position for position, member in enumerate(members)}
        for member in members:
            assert all(place.get(needed, -1) < place[member] for needed in plan.nodes[member].dependencies)


@settings(max_examples=examples(60), deadline=None)
@given(made=mixed_steps(), data=st.data(), slice_s=st.sampled_from([0.0, 10.0]), is_carried=st.booleans())
def test_regions_change_no_end(made: tuple[Step, ...], data: st.DataObject, slice_s: float, is_carried: bool) -> None:
    fails = frozenset().union(*(step.fails for step in made))
    plain, plan = plans_of(made)
    alone = Run(plain, fails, lambda count: 0)
    alone.run()
    together = Run(plan, fails, lambda count: data.draw(st.integers(0, count - 1)))
    with patch.object(region_batches, "REGION_BATCH_S", slice_s):
        together.run(is_carried=is_carried)
    assert together.document() == alone.document()
    model = Model(made)
    assert {name: node["status"] for name, node in together.document()["nodes"].items() if name in model.ends} == (
        model.ends
    )
    entries = [name for names in together.slices for name in names]
    assert len(entries) == len(set(entries)), "a reported entry runs again"


@settings(max_examples=examples(60), deadline=None)
@given(made=mixed_steps())
def test_pure_nodes_wait_for_no_more_than_without_regions(made: tuple[Step, ...]) -> None:
    """When no ordinary node can end any more, every node that depends on no ordinary one has ended."""
    ordinary = frozenset(step.id for step in made if step.tool in ("any", "single") or step.items is not None)
    fails = frozenset().union(*(step.fails for step in made))
    plain, plan = plans_of(made)
    alone = Run(plain, fails, lambda count: 0).run_what_hangs_on_none(ordinary)
    assert Run(plan, fails, lambda count: 0).run_what_hangs_on_none(ordinary) == alone


@settings(max_examples=examples(60), deadline=None)
@given(made=mixed_steps())
def test_fail_fast_with_regions_ends_every_node(made: tuple[Step, ...]) -> None:
    fails = frozenset().union(*(step.fails for step in made))
    _, plan = plans_of(made, on_failure="fail_fast")
    run = Run(plan, fails, lambda count: 0)
    run.run()
    statuses = {node["status"] for node in run.document()["nodes"].values()}
    assert statuses <= {"completed", "failed", "skipped", "blocked", "cancelled"}


@settings(max_examples=examples(60), deadline=None)
@given(
    made=mixed_steps(),
    data=st.data(),
    slice_s=st.sampled_from([0.0, 10.0]),
    is_carried=st.booleans(),
    fields=st.sampled_from([{}, {"output": {"n0": "{{n0.result}}", "text": "<{{n0.status}}>"}}]),
)
def test_plan_whose_regions_lie_in_the_store_ends_as_without(
    made: tuple[Step, ...], data: st.DataObject, slice_s: float, is_carried: bool, fields: dict[str, Any]
) -> None:
    fails = frozenset().union(*(step.fails for step in made))
    plain, plan = plans_of(made, **fields)
    alone = Run(plain, fails, lambda count: 0)
    alone.run()
    store = MemoryStore()
    with (
        patch.object(offloaded_regions, "OFFLOADED_MEMBERS", 2),
        patch.object(pages, "INLINE_PLAN_NODES", 0),
        patch.object(pages, "INLINE_PLAN_BYTES", 10**9),
    ):
        sent = asyncio.run(split_for_transfer(plan, store)).plan
    together = Run(sent, fails, lambda count: data.draw(st.integers(0, count - 1)), store=store)
    with patch.object(region_batches, "REGION_BATCH_S", slice_s):
        together.run(is_carried=is_carried)
    expected, actual = alone.document(), together.document()
    assert (actual["status"], actual["output"], actual["error"]) == (
        expected["status"],
        expected["output"],
        expected["error"],
    )
    insides = OffloadedNodes(together.scheduler, store)
    every_node = {**actual["nodes"], **asyncio.run(inner_documents(insides))}
    assert sorted(every_node) == sorted(expected["nodes"])
    for name, node in every_node.items():
        assert _without_order(node) == _without_order(expected["nodes"][name])
        one = asyncio.run(insides.find(name))
        assert one is None or _timeless(one.document) == node
    assert counts_of(together.scheduler.plan, together.scheduler.records) == counts_of(
        alone.scheduler.plan, alone.scheduler.records
    )
    reported_ids = [name for names in together.slices for name in names]
    assert len(reported_ids) == len(set(reported_ids)), "a reported entry runs again"
