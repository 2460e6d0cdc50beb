"""Which node belongs to which region, and who tells the end of a node; for the scheduler, which it must not import."""

from collections.abc import Iterator, Sequence
from typing import TypedDict

from dagwright.core.model.compiled import CompiledNode, CompiledPlan
from dagwright.core.model.states import NodeStatus, Record


class InnerState(TypedDict):
    """What a run knows of a region whose inside is not in its plan; the result in the record of the region.

    Args:
        slice: reference of what the last slice told, and through it of all those before.
        counts: state -> count of the nodes inside that have ended.
        open: count of those that have not.
        ends: count of the nodes inside that have completed and that nothing waits for.
    """

    slice: str
    counts: dict[str, int]
    open: int
    ends: int


class Membership:
    """The regions of one plan.

    Args:
        plan: the compiled plan.
    """

    def __init__(self, plan: CompiledPlan) -> None:
        self._nodes = plan.nodes
        regions = range(plan.written_count, len(plan.nodes))
        self._region_of = {member: number for number in regions for member in plan.nodes[number].members}

    def open_members(self, region: int, records: Sequence[Record]) -> list[int]:
        """Returns the nodes of a region that have not ended, in an order in which they can run."""
        return [member for member in self._nodes[region].members if not records[member].status.is_final]

    def is_open(self, region: int, records: Sequence[Record]) -> bool:
        """Tells whether some of the nodes of a region have not ended."""
        if self._nodes[region].inner is None:
            return bool(self.open_members(region, records))
        state: InnerState | None = records[region].result
        return state is None or state["open"] > 0

    def is_told(self, number: int, records: Sequence[Record]) -> bool:
        """Tells whether somebody else runs a node and tells its end: its region, or whoever drives a region."""
        if self._nodes[number].kind != "reported":
            return False
        region = self._region_of.get(number)
        return region is None or not records[region].status.is_final

    def is_inside_detached(self, number: int) -> bool:
        """Tells whether a node belongs to a region whose inside is not in the plan."""
        region = self._region_of.get(number)
        return region is not None and self._nodes[region].inner is not None

    def is_running(self, number: int, records: Sequence[Record]) -> bool:
        """Tells whether a node belongs to a region that runs, so that its end may come yet."""
        region = self._region_of.get(number)
        return region is not None and records[region].status is NodeStatus.RUNNING


def detached_regions(plan: CompiledPlan) -> Iterator[tuple[int, CompiledNode]]:
    """Yield the number and the node of each region whose nodes are not in the plan."""
    numbers = range(plan.written_count, len(plan.nodes))
    return ((number, plan.nodes[number]) for number in numbers if plan.nodes[number].inner is not None)
