"""Regions of a plan and their member nodes. It must not import the scheduler, which uses it."""

from collections.abc import Iterator, Sequence
from typing import TypedDict

from dagwright.core.model.compiled import CompiledNode, CompiledPlan
from dagwright.core.model.states import NodeStatus, Record


class InnerState(TypedDict):
    """State of an offloaded region, stored as the result in the record of the region node.

    Args:
        batch: store reference of the result of the last region batch, which links to those of all earlier batches.
        counts: status -> number of inner nodes that have ended.
        open: number of inner nodes that have not ended.
        ends: number of completed inner nodes on which no node depends.
    """

    batch: str
    counts: dict[str, int]
    open: int
    ends: int


class RegionMembers:
    """The regions of one plan.

    Args:
        plan: the compiled plan.
    """

    def __init__(self, plan: CompiledPlan) -> None:
        self._nodes = plan.nodes
        regions = range(plan.written_count, len(plan.nodes))
        self._region_of = {member: number for number in regions for member in plan.nodes[number].members}

    def open_members(self, region: int, records: Sequence[Record]) -> list[int]:
        """Return the nodes of a region that have not ended, in topological order."""
        return [member for member in self._nodes[region].members if not records[member].status.is_final]

    def is_open(self, region: int, records: Sequence[Record]) -> bool:
        """Return whether the region has nodes that have not ended."""
        if self._nodes[region].inner is None:
            return bool(self.open_members(region, records))
        state: InnerState | None = records[region].result
        return state is None or state["open"] > 0

    def is_reported(self, number: int, records: Sequence[Record]) -> bool:
        """Return whether a node runs outside the scheduler: its region or the driver reports its end."""
        if self._nodes[number].kind != "reported":
            return False
        region = self._region_of.get(number)
        return region is None or not records[region].status.is_final

    def is_inside_offloaded(self, number: int) -> bool:
        """Return whether a node belongs to an offloaded region."""
        region = self._region_of.get(number)
        return region is not None and self._nodes[region].inner is not None

    def is_running(self, number: int, records: Sequence[Record]) -> bool:
        """Return whether a node belongs to a running region, which may still report its end."""
        region = self._region_of.get(number)
        return region is not None and records[region].status is NodeStatus.RUNNING


def offloaded_regions(plan: CompiledPlan) -> Iterator[tuple[int, CompiledNode]]:
    """Yield the number and the node of each offloaded region."""
    numbers = range(plan.written_count, len(plan.nodes))
    return ((number, plan.nodes[number]) for number in numbers if plan.nodes[number].inner is not None)
