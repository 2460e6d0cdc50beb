"""What a run says in its end: its state and its output (contract.md sections 4 and 5)."""

from collections.abc import Iterator, Sequence
from typing import Any

from dagwright.plan.compiled import CompiledNode, CompiledPlan
from dagwright.plan.errors import NodeError
from dagwright.plan.references import ResultOf
from dagwright.plan.resolution import MissingData, Scope, resolve_holes
from dagwright.plan.states import NodeStatus, Record, RunStatus
from dagwright.plan.work import TooMuchWork


def status_of(plan: CompiledPlan, records: Sequence[Record]) -> RunStatus:
    """Returns the state of a run that nothing stopped and whose nodes have all ended."""
    if all(record.status.is_passed for record in records):
        return RunStatus.COMPLETED
    named = {part.node for _, template in plan.output_holes for part in template if isinstance(part, ResultOf)}
    wanted = [record for node, record, is_sink in _with_sinks(plan, records) if is_sink or node.id in named]
    if any(record.status is NodeStatus.COMPLETED for record in wanted):
        return RunStatus.COMPLETED_WITH_FAILURES
    return RunStatus.FAILED


def output_of(plan: CompiledPlan, records: Sequence[Record], *, scope: Scope) -> tuple[Any, NodeError | None]:
    """Returns the output of a run; null and an error if its template cannot be resolved."""
    if plan.output is None and not plan.output_holes:
        return {
            node.id: record.result
            for node, record, is_sink in _with_sinks(plan, records)
            if is_sink and record.status is NodeStatus.COMPLETED
        }, None
    try:
        return resolve_holes(plan.output, plan.output_holes, scope=scope)[0], None
    except MissingData as error:
        return None, NodeError("missing_data", f"output: {error}")
    except TooMuchWork as error:
        return None, NodeError("too_large", f"output: {error}")


def _with_sinks(plan: CompiledPlan, records: Sequence[Record]) -> Iterator[tuple[CompiledNode, Record, bool]]:
    """Yields every node that was written with its record, and whether nothing waits for it."""
    written = plan.nodes[: plan.written_count]
    needed = {number for node in written for number in node.dependencies}
    for number, (node, record) in enumerate(zip(written, records, strict=False)):
        yield node, record, number not in needed
