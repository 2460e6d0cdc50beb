"""Final status, output and node counts of a run (docs/reference/states.md)."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from dagwright.core.errors import NodeError
from dagwright.core.expressions.compute_budget import ComputeBudgetExceeded
from dagwright.core.expressions.reference_resolution import Scope, UnresolvedReference, resolve_bindings
from dagwright.core.expressions.references import ResultOf
from dagwright.core.model.compiled import CompiledNode, CompiledPlan
from dagwright.core.model.states import ItemRecord, NodeStatus, Record, RunStatus
from dagwright.core.scheduler.extension import newest_of

if TYPE_CHECKING:
    from dagwright.core.scheduler.run_state import InnerState


def status_of(plan: CompiledPlan, records: Sequence[Record]) -> RunStatus:
    """Return the status of a run that was not stopped and whose nodes have all ended."""
    inner = [state for _, state in _inner_states(plan, records)]
    is_inner_passed = all(NodeStatus(name).is_passed for state in inner for name in state["counts"])
    if is_inner_passed and all(record.status.is_passed for record in records):
        return RunStatus.COMPLETED
    newest = newest_of(plan)
    output_ids = {part.node for _, template in plan.output_bindings for part in template if isinstance(part, ResultOf)}
    output_ids = {newest.get(name, name) for name in output_ids}
    if output_ids:
        outputs = [record for node, record in zip(plan.nodes, records, strict=True) if node.id in output_ids]
    else:
        outputs = [record for _, record, is_sink in _with_sinks(plan, records) if is_sink]
    has_inner_output = not output_ids and any(state["ends"] for state in inner)
    if has_inner_output or any(record.status is NodeStatus.COMPLETED for record in outputs):
        return RunStatus.COMPLETED_WITH_FAILURES
    return RunStatus.FAILED


def only_child_runs_run(plan: CompiledPlan, records: Sequence[Record]) -> bool:
    """Return whether only child runs are running; they are paused together with the run."""
    tasks = (
        (node, item.record.status, item.map_batch is not None and item.map_batch.count > 0)
        for node, record in zip(plan.nodes, records, strict=True)
        for item in record.items or [ItemRecord("", None, record)]
    )
    return not any(
        status is NodeStatus.RUNNING and node.kind != "plan" and not is_map_batch
        for node, status, is_map_batch in tasks
    )


def output_of(plan: CompiledPlan, records: Sequence[Record], *, scope: Scope) -> tuple[Any, NodeError | None]:
    """Return the output of a run; null and an error if its template cannot be resolved."""
    if plan.output is None and not plan.output_bindings:
        return {
            node.id: record.result
            for node, record, is_sink in _with_sinks(plan, records)
            if is_sink and record.status is NodeStatus.COMPLETED
        }, None
    try:
        return resolve_bindings(plan.output, plan.output_bindings, scope=scope), None
    except UnresolvedReference as error:
        return None, NodeError("missing_data", f"output: {error}")
    except ComputeBudgetExceeded as error:
        return None, NodeError("too_large", f"output: {error}")


def omitted_sinks(plan: CompiledPlan, records: Sequence[Record]) -> int:
    """Return how many completed sinks are missing in the output of a plan that declares no output.

    They are sinks of offloaded regions whose records are too many to be part of the run.
    """
    if plan.output is not None or plan.output_bindings:
        return 0
    omitted = 0
    for region, state in _inner_states(plan, records):
        member_ids = {plan.nodes[member].id for member in region.members}
        omitted += state["ends"]
        if member_ids:
            omitted -= sum(
                is_sink and node.id in member_ids and record.status is NodeStatus.COMPLETED
                for node, record, is_sink in _with_sinks(plan, records)
            )
    return omitted


def _inner_states(plan: CompiledPlan, records: Sequence[Record]) -> "Iterator[tuple[CompiledNode, InnerState]]":
    """Yield the offloaded regions with their state, as far as it is known."""
    for number in range(plan.written_count, len(plan.nodes)):
        if plan.nodes[number].inner is not None and records[number].result is not None:
            yield plan.nodes[number], records[number].result


def _with_sinks(plan: CompiledPlan, records: Sequence[Record]) -> Iterator[tuple[CompiledNode, Record, bool]]:
    """Yield every written node with its record, and whether it is a sink (no node depends on it)."""
    written = plan.nodes[: plan.written_count]
    # The nodes of an offloaded region are not in the plan; the region has their dependencies.
    dependencies = set(chain.from_iterable(node.dependencies for node in plan.nodes))
    for number, (node, record) in enumerate(zip(written, records, strict=False)):
        yield node, record, number not in dependencies


def counts_of(plan: CompiledPlan, records: Sequence[Record]) -> Counter[NodeStatus]:
    """Return status -> number of written nodes, including those of offloaded regions."""
    counts = Counter(record.status for record in records[: plan.written_count])
    for number in range(plan.written_count, len(plan.nodes)):
        if plan.nodes[number].inner is not None:
            counts.update(region_counts(plan, records, number))
    return +counts


def region_counts(plan: CompiledPlan, records: Sequence[Record], number: int) -> Counter[NodeStatus]:
    """Return status -> number of nodes of an offloaded region that are not in the plan."""
    node, region = plan.nodes[number], records[number]
    state: InnerState | None = region.result
    open_status = region.status if region.status.is_final else NodeStatus.PENDING
    counts = Counter({NodeStatus(name): count for name, count in (state["counts"] if state else {}).items()})
    counts[open_status] += state["open"] if state else node.inner_count
    member_statuses = [records[member].status for member in node.members]
    counts.subtract(status if status.is_final else open_status for status in member_statuses)
    return +counts
