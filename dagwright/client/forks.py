"""Forks: new runs that reuse the results of another run, except for the results that a change affects.

The reused results are computed from the history of the original run and passed to the fork in a run snapshot, as on
continue-as-new. Starting a fork is therefore atomic: the fork has all reused results, or is not started.

    ForkRejected       the fork would repeat an effect that must not happen twice, or reuses too much data
"""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pydantic_core

from dagwright.client.errors import ForkRejected
from dagwright.core.boundary.limits import MAX_RUN_ID_BYTES, child_workflow_id, short_id
from dagwright.core.expressions.projection import project_value
from dagwright.core.expressions.stored_values import StoredValue, find_value_refs
from dagwright.core.model.compiled import CompiledNode, CompiledPlan, plan_to_json, tool_of
from dagwright.core.model.states import NodeStatus
from dagwright.core.model.tools import ToolDeclaration, with_compensating_tools
from dagwright.core.name_hints import suggestion
from dagwright.core.scheduler.run_state import last_call_id
from dagwright.core.text import format_count
from dagwright.features.budgets.budget import options_to_json
from dagwright.features.compensation.compensation import without_compensation
from dagwright.features.fork_reuse.reuse import MAX_REUSABLE_RESULTS, ReusableResult, ReuseTable
from dagwright.features.forks.planner import (
    ForkDifferences,
    ForkPrediction,
    ReusableResults,
    Source,
    find_reusable_results,
    predict_fork,
)
from dagwright.features.run_scheduler import create_scheduler
from dagwright.history.executions import RunNotFound
from dagwright.history.map_items import OpenReader
from dagwright.planning.plan_and_execute.goal_nodes import without_later_plans
from dagwright.planning.plan_and_execute.goal_spec import PLAN
from dagwright.planning.rounds.rounds_nodes import without_later_rounds
from dagwright.protocol.run_input import RunInput
from dagwright.protocol.run_snapshot import RunSnapshot, pieces_of, snapshot_to_json, state_to_text
from dagwright.protocol.scheduler_snapshot import state_to_json
from dagwright.store import PayloadDamaged, PayloadMissing, PayloadStore

if TYPE_CHECKING:
    from dagwright.features.run_scheduler import RunScheduler
    from dagwright.history.run_view import RunView

MAX_INLINE_SNAPSHOT_BYTES = 256 * 1024
"""Larger run snapshots are passed to a fork through the payload store."""
MAX_INLINE_SUB_PLAN_SNAPSHOT_BYTES = 16 * 1024
"""Limit for the snapshot of one sub-plan. It is lower, because a fork may have many sub-plans."""
MAX_SUB_PLANS_READ = 100
"""Maximum number of sub-plans whose histories are read for one fork."""


@dataclass(frozen=True, slots=True)
class ForkDraft:
    """A fork that has not been started.

    Args:
        origin: ID of the original run.
        run_id: ID of the fork; derived from its content, so requesting the same fork twice starts one run.
        plan: plan of the fork.
        prediction: nodes that the fork will execute.
        reuse_table: results that the fork reuses.
        effects: node or item that the fork executes, or may execute -> the effects of its tool.
        content: plan, inputs and changes; their hash identifies the fork.
        planned_again: nodes of the original run, in plan order, that a model plans again; the fork starts without them.
    """

    origin: str
    run_id: str
    plan: CompiledPlan
    inputs: Mapping[str, Any]
    prediction: ForkPrediction
    reuse_table: ReuseTable
    input_fields: RunInput
    effects: Mapping[str, str]
    content: Mapping[str, Any]
    planned_again: Sequence[str] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the planned execution of the fork as JSON."""
        executed_tasks = [
            {"node_id": task_id, "reason": reason, "effects": self.effects.get(task_id)}
            for task_id, reason in self.prediction.executed.items()
        ]
        return {
            "reused": self.prediction.reused,
            "executed": executed_tasks,
            "reused_if_unchanged": self.prediction.reused_if_unchanged,
            "decided_later": self.prediction.decided_later,
            "planned_again": [*self.planned_again],
        }


class Forks:
    """Creates forks of the runs of one namespace.

    Args:
        open_reader: opens the reader of a run.
        store: store of the runs' large values.
    """

    def __init__(self, open_reader: OpenReader, store: PayloadStore) -> None:
        self._open_reader = open_reader
        self._store = store
        self._read_sub_plan_count = 0

    async def draft(
        self, view: "RunView", plan: CompiledPlan, *, inputs: Mapping[str, Any], rerun: Collection[str] = ()
    ) -> ForkDraft:
        """Return the draft of a fork.

        Args:
            plan: plan of the fork; to keep the plan of the original run, pass the result of `with_current_tools`.
            inputs: all inputs of the fork.
            rerun: nodes and items to execute again with new idempotency keys; for a node of a sub-plan, its path.

        Raises:
            ForkRejected: the run cannot be forked with these changes.
        """
        if view.scheduler is None or view.run_input is None:
            raise ForkRejected(f"the plan of {view.run_id!r} is not known; start the plan again with `run`")
        original_scheduler, run_input = view.scheduler, view.run_input
        if run_input.parent is not None:
            parent = run_input.parent.run_id
            raise ForkRejected(f"{view.run_id!r} is a part of the run {parent!r}: fork the run {parent!r}")
        run_inputs = original_scheduler.state.inputs
        changed_inputs = {name for name in {*inputs, *run_inputs} if inputs.get(name) != run_inputs.get(name)}
        differences = ForkDifferences(changed_inputs, frozenset(rerun))
        source = Source(view.run_id, run_input.scope or view.first_execution_id, is_open=not view.is_closed)
        fork_scheduler = create_scheduler(plan, inputs)
        # The analysis of a large plan must not block the event loop.
        reuse, prediction = await asyncio.to_thread(
            _reuse_and_prediction, fork_scheduler, original_scheduler, source=source, differences=differences
        )
        unknown_names = [name for name in rerun if not _has_task(name, fork_scheduler, prediction)]
        if unknown_names:
            raise ForkRejected(unknown_rerun_message(unknown_names[0], plan))
        await self._add_sub_plan_results(
            view, plan, reuse, differences=differences, reused=frozenset(prediction.reused)
        )
        if reuse.problems:
            raise ForkRejected("; ".join(reuse.problems[:5]))
        plan_json = await asyncio.to_thread(plan_to_json, plan)
        content = {"of": view.first_execution_id, "plan": plan_json, "inputs": dict(inputs), "rerun": sorted(rerun)}
        has_same_plan = _has_same_plan(original_scheduler, plan, reuse)
        return ForkDraft(
            origin=view.run_id,
            run_id=_id_of_fork(view.run_id, content),
            plan=plan,
            inputs=inputs,
            prediction=prediction,
            reuse_table=reuse.table,
            input_fields=_inherited_input(view, run_input, has_same_plan=has_same_plan),
            effects=_effects_of(plan, prediction),
            content=content,
            planned_again=_nodes_planned_again(original_scheduler.plan, plan),
        )

    async def create_run_input(self, draft: ForkDraft) -> RunInput:
        """Renew the stored values that a fork reuses, and return the run input of the fork without plan and inputs.

        Raises:
            ForkRejected: a reused result is lost.
            StoreUnavailable: the store is unavailable.
        """
        await self._renew(draft.plan, draft.reuse_table)
        results = format_count(len(draft.prediction.reused), "result")
        message = f"a fork of the run {draft.origin!r}; {results} reused"
        notes = [{"code": "forked", "node_id": None, "message": message}]
        snapshot = await self._snapshot(
            draft.origin, draft.plan, draft.reuse_table, max_bytes=MAX_INLINE_SNAPSHOT_BYTES
        )
        return replace(draft.input_fields, snapshot=replace(snapshot, notes=notes))

    # Sub-plans.

    async def _add_sub_plan_results(
        self,
        view: "RunView",
        plan: CompiledPlan,
        reuse: ReusableResults,
        *,
        differences: ForkDifferences,
        reused: Collection[str],
    ) -> None:
        """Add the reused results of each sub-plan that is not reused as a whole."""
        assert view.scheduler is not None
        nodes = {node.id: node for node in plan.nodes}
        for task_id in _started_sub_plans(view.scheduler):
            node = nodes.get(view.scheduler.state.node_of(task_id).id)
            is_partly_reused = task_id not in reused and not differences.reruns(node.id if node else "", task_id)
            if node is None or node.sub_plan is None or not is_partly_reused or task_id in reuse.compensated_ids:
                continue
            with suppress(RunNotFound):
                reusable_result = reuse.table.results.setdefault(task_id, ReusableResult(fingerprint="started"))
                reusable_result.child_snapshot = await self._sub_plan_snapshot(
                    view, task_id, node.sub_plan, reuse, differences=differences
                )
        if len(reuse.table.results) > MAX_REUSABLE_RESULTS:
            raise ForkRejected(
                f"a fork reuses the results of at most {MAX_REUSABLE_RESULTS:,} nodes and items, and "
                f"{view.run_id!r} has {len(reuse.table.results):,}"
            )

    async def _sub_plan_snapshot(
        self, view: "RunView", task_id: str, plan: CompiledPlan, reuse: ReusableResults, *, differences: ForkDifferences
    ) -> dict[str, Any] | None:
        """Return the run snapshot of a sub-plan of the fork."""
        self._read_sub_plan_count += 1
        if self._read_sub_plan_count > MAX_SUB_PLANS_READ:
            raise ForkRejected(
                f"a fork can reuse results of at most {MAX_SUB_PLANS_READ} sub-plans, and {view.run_id!r} has more"
            )
        assert view.scheduler is not None
        child_id = child_workflow_id(view.run_id, last_call_id(view.scheduler.state, task_id))
        child = await self._open_reader(child_id).read()
        if child.scheduler is None or child.run_input is None:
            return None
        child_differences = ForkDifferences({*plan.inputs}, differences.rerun_ids_in_sub_plan(task_id))
        source = Source(child.run_id, child.run_input.scope or child.first_execution_id, is_open=not child.is_closed)
        child_reuse = find_reusable_results(child.scheduler, plan, source=source, differences=child_differences)
        reuse.problems += [f"in the sub-plan {task_id!r}: {problem}" for problem in child_reuse.problems]
        await self._add_sub_plan_results(child, plan, child_reuse, differences=child_differences, reused=())
        await self._renew(plan, child_reuse.table)
        return snapshot_to_json(
            await self._snapshot(child.run_id, plan, child_reuse.table, max_bytes=MAX_INLINE_SUB_PLAN_SNAPSHOT_BYTES)
        )

    # Values.

    async def _snapshot(self, origin: str, plan: CompiledPlan, table: ReuseTable, *, max_bytes: int) -> RunSnapshot:
        scheduler = create_scheduler(plan, {})
        scheduler.features.reuse.set_table(table)
        text = state_to_text(state_to_json(scheduler))
        if len(text) <= max_bytes:
            return RunSnapshot(0.0, text, origin=origin)
        refs = [await self._store.put(piece.encode()) for piece in pieces_of(text)]
        return RunSnapshot(0.0, refs=refs, origin=origin)

    async def _renew(self, plan: CompiledPlan, table: ReuseTable) -> None:
        """Renew the stored values that a fork reuses, and add the projections that the plan of the fork reads.

        The clean-up deletes values by age, and renewing a value resets its age.
        """
        nodes = {node.id: node for node in plan.nodes}
        async for ref in self._refs_of_offloaded_regions(plan):
            await self._store.renew(ref)
        for task_id, reusable_result in table.results.items():
            try:
                for _, part in find_value_refs(reusable_result.result):
                    if isinstance(part, StoredValue):
                        await self._store.renew(part.ref)
                reusable_result.result = await self._with_current_projections(
                    reusable_result.result, nodes.get(task_id) or nodes.get(_node_of(task_id))
                )
            except (PayloadMissing, PayloadDamaged) as error:
                raise ForkRejected(
                    f"the result of {task_id!r} is lost ({error}); add {task_id!r} to `rerun` to run it again"
                ) from None

    async def _with_current_projections(self, result: Any, node: CompiledNode | None) -> Any:
        """Return a stored result with the projections that the plan of the fork reads."""
        if not isinstance(result, StoredValue) or result.paths or node is None:
            return result
        if all(path in result.parts for path, _ in node.projections):
            return result
        content = await self._store.get(result.ref)
        value = pydantic_core.from_json(content)
        return project_value(value, result.ref, size_bytes=len(content), projections=node.projections, name=result.name)

    async def _refs_of_offloaded_regions(self, plan: CompiledPlan) -> AsyncIterator[str]:
        for node in plan.nodes:
            if node.inner is not None:
                yield node.inner
                for page in pydantic_core.from_json(await self._store.get(node.inner))["pages"]:
                    yield page


def _reuse_and_prediction(
    fork_scheduler: "RunScheduler", original_scheduler: "RunScheduler", *, source: Source, differences: ForkDifferences
) -> tuple[ReusableResults, ForkPrediction]:
    """Return the results that a fork reuses, and the nodes that it would execute."""
    reuse = find_reusable_results(original_scheduler, fork_scheduler.plan, source=source, differences=differences)
    return reuse, predict_fork(fork_scheduler, original_scheduler, reuse, differences=differences)


def _nodes_planned_again(original_plan: CompiledPlan, plan: CompiledPlan) -> list[str]:
    """Return the nodes of the original run that are not in the fork because a model plans them again."""
    if not (plan.has_planner or plan.has_rounds):
        return []
    fork_nodes = {node.id for node in plan.nodes}
    return [node.id for node in without_compensation(original_plan).nodes if node.id not in fork_nodes]


def _has_same_plan(original_scheduler: "RunScheduler", plan: CompiledPlan, reuse: ReusableResults) -> bool:
    """Return whether a fork has the same plan as the original run."""
    names = [node.id for node in plan.nodes[: plan.visible_count]]
    return not reuse.changed_ids and names == [node.id for node, _ in original_scheduler.state.visible_nodes()]


def _inherited_input(view: "RunView", run_input: RunInput, *, has_same_plan: bool) -> RunInput:
    """Return the run input that a fork inherits; a model's plan that has changed needs approval again."""
    assert view.scheduler is not None
    is_model_written = run_input.needs_approval or run_input.approved_by is not None
    state, features = view.scheduler.state, view.scheduler.features
    approved_by = (features.feedback.state.approved_by or run_input.approved_by) if has_same_plan else None
    budget = features.budget.budget
    # A run in compensation no longer has a deadline.
    has_new_deadline = state.limits_changed and not state.phase.forbids_compensation
    return RunInput(
        context=run_input.context,
        max_in_flight=state.max_in_flight,
        deadline_s=features.deadline.deadline.limit_s if has_new_deadline else run_input.deadline_s,
        policy=view.scheduler.state.policy
        if view.scheduler.features.feedback.state.policy_changed
        else run_input.policy,
        needs_approval=is_model_written and not approved_by,
        approved_by=approved_by if is_model_written else None,
        # The fork starts with an unused budget.
        budget=options_to_json(budget) if budget is not None and budget.limits else None,
        compensate=run_input.compensate,
        model=run_input.model,
        is_interactive=run_input.is_interactive,
        known_entities=run_input.known_entities,
    )


def with_current_tools(
    plan: CompiledPlan, tools: Mapping[str, ToolDeclaration], *, rerun: Collection[str] = ()
) -> CompiledPlan:
    """Return the plan of a run with the current tool declarations, for a fork.

    Args:
        rerun: nodes to execute again. If a node in which a model writes a plan is among them, the nodes of that plan
            are omitted.

    Raises:
        ForkRejected: nodes of the plan have superseded other nodes, or the effects of a tool have changed.
    """
    plan = without_compensation(without_later_rounds(without_later_plans(plan, rerun), rerun))
    if any(node.supersedes is not None for node in plan.nodes):
        advice = "pass the plan to run as the `plan` of the fork"
        if plan.has_planner:
            advice += f", or add {PLAN!r} to `rerun` to have the model plan again"
        raise ForkRejected(f"nodes of this run have superseded other nodes; {advice}")
    declarations = {}
    # A plan may also declare tools that no node calls yet, for nodes that later answers add.
    called_tools = with_compensating_tools([node.tool for node in plan.nodes], plan.tools)
    for name, tool in plan.tools.items():
        current_tool = tools.get(name)
        if current_tool is not None and current_tool.effects is not tool.effects and name in called_tools:
            effects = current_tool.effects.value
            raise ForkRejected(
                f"the effects of {name!r} are {effects} now; pass the plan to run as the `plan` of the fork"
            )
        declarations[name] = current_tool or tool
    nodes = [
        replace(node, sub_plan=with_current_tools(node.sub_plan, tools)) if node.sub_plan is not None else node
        for node in plan.nodes
    ]
    return replace(plan, nodes=nodes, tools=declarations)


def _started_sub_plans(scheduler: "RunScheduler") -> Sequence[str]:
    task_ids = []
    for node, record in scheduler.state.visible_nodes():
        if node.kind == "plan":
            tasks = [(f"{node.id}[{item.key}]", item.record) for item in record.items if item.map_batch is None]
            tasks = tasks or [(node.id, record)]
            task_ids += [
                name for name, task_record in tasks if task_record.attempts or task_record.status is NodeStatus.RUNNING
            ]
    return task_ids


def _has_task(name: str, scheduler: "RunScheduler", prediction: ForkPrediction) -> bool:
    """Return whether a fork has the named node or item; items that are not known yet count as existing."""
    if scheduler.record_of(name) is not None or name in prediction.executed:
        return True
    number = scheduler.state.number_of(_node_of(name))
    if number is not None and scheduler.plan.nodes[number].for_each is not None and not scheduler.records[number].items:
        return True
    splits = [(name[:index], name[index + 1 :]) for index, character in enumerate(name) if character == "/"]
    sub_plans = [
        (scheduler.state.node_of(task_id), rest) for task_id, rest in splits if scheduler.record_of(task_id) is not None
    ]
    return any(node.sub_plan is not None and _has_node(node.sub_plan, rest) for node, rest in sub_plans)


def _has_node(plan: CompiledPlan, name: str) -> bool:
    """Return whether a sub-plan has the named node, or may have the named item."""
    nodes = {node.id: node for node in plan.nodes[: plan.visible_count]}
    map_node = nodes.get(_node_of(name))
    if name in nodes or (map_node is not None and map_node.for_each is not None):
        return True
    splits = [(nodes.get(name[:index]), name[index + 1 :]) for index, character in enumerate(name) if character == "/"]
    return any(node and node.sub_plan and _has_node(node.sub_plan, rest) for node, rest in splits)


def _node_of(task_id: str) -> str:
    return task_id.partition("[")[0]


def _effects_of(plan: CompiledPlan, prediction: ForkPrediction) -> dict[str, str]:
    effects = {}
    nodes = {node.id: node for node in plan.nodes}
    for task_id in (*prediction.executed, *prediction.reused_if_unchanged, *prediction.decided_later):
        node = nodes.get(task_id) or nodes.get(_node_of(task_id))
        if node is not None and node.tool in plan.tools:
            effects[task_id] = tool_of(node, plan.tools).effects.value
    return effects


def _id_of_fork(origin: str, content: Mapping[str, Any]) -> str:
    canonical_json = json.dumps(content, sort_keys=True, ensure_ascii=True, default=str, separators=(",", ":"))
    digest = hashlib.sha256(canonical_json.encode()).hexdigest()
    return short_id(f"{origin}-fork-{digest[:8]}", max_bytes=MAX_RUN_ID_BYTES)


def unknown_rerun_message(name: str, plan: CompiledPlan) -> str:
    """Return the message for a node or item that a fork does not have."""
    hint = suggestion(name, [node.id for node in plan.nodes])
    return f"rerun {name!r}: the fork has no such node or item" + (f"; {hint}" if hint else "")
