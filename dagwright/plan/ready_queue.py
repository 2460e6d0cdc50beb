"""Ready tasks in the order of their urgency, behind the limits of the run, of their node and of their tool.

It exists apart from the scheduler so that one place proves that a free slot is never left unused while a task
waits for it. It must not import the scheduler.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

from dagwright.plan.compiled import CompiledPlan

Entry = tuple[int, int, int]
"""Priority, number of the node, position of the item or -1; the smallest goes first."""

_Place = tuple[int, int, int, int]
"""An entry, and how many of its gates it has passed."""


@dataclass(slots=True)
class Gate:
    """A limit that several tasks share: the calls of one tool, or the items of one node.

    Args:
        limit: slots, at least 1.
        in_use: slots taken, by tasks in flight or by tasks that wait at their next gate.
        is_shared: between nodes, not of one alone.
        waiting: a heap; while it holds anything, every slot is taken, or a task to take it is on its way or wide.
    """

    limit: int
    is_shared: bool = False
    in_use: int = 0
    waiting: list[_Place] = field(default_factory=list)


def gates_of(plan: CompiledPlan) -> list[list[Gate]]:
    """Returns the limits of each node: of its items at once, then of the calls of its tool at once."""
    of_tool = {
        name: Gate(tool.max_parallel, is_shared=True)
        for name, tool in plan.tools.items()
        if tool.max_parallel is not None
    }
    gates: list[list[Gate]] = []
    for node in plan.nodes:
        own = [Gate(node.max_parallel)] if node.max_parallel is not None else []
        gates.append([*own, of_tool[node.tool]] if node.tool in of_tool and node.kind != "region" else own)
    return gates


class ReadyQueue:
    """Lets ready tasks through their gates, the most urgent first.

    A task passes its gates in order and keeps the slots that it took while it waits at the next one. So it moves
    through each gate once, and the whole costs O(log n) for each task.

    Args:
        gates: node number -> the gates of its tasks, those of the narrower limit first.
        max_in_flight: tasks at once.
        bytes_of: node number -> what a task of it may bring; `in_flight_bytes` is the sum of those in flight.
    """

    def __init__(self, gates: Sequence[Sequence[Gate]], max_in_flight: int, *, bytes_of: Sequence[int]) -> None:
        self.in_flight = 0
        self.in_flight_bytes = 0
        self._bytes_of = bytes_of
        self._gates = [*gates]
        self._widths: dict[int, int] = {}
        self._max_in_flight = max_in_flight
        self._ready: list[_Place] = []

    def widen(self, number: int, *, at_once: int, width: int) -> None:
        """Makes the tasks of a node wide, before any of them is pushed: each takes several slots of every gate.

        The slots that one gathers stay free until it has enough.

        Args:
            at_once: tasks of the node at once; that many wide ones pass through all other gates.
        """
        shared = [gate for gate in self._gates[number] if gate.is_shared]
        self._gates[number] = [Gate(at_once * width), *shared]
        self._widths[number] = width

    def push(self, entry: Entry) -> None:
        """Takes a task that became ready."""
        heapq.heappush(self._ready, (*entry, 0))

    def pop(self) -> Entry | None:
        """Returns the next task that may start; it is in flight until `release`."""
        while self._ready and self.in_flight < self._max_in_flight:
            priority, number, item, passed = heapq.heappop(self._ready)
            gates = self._gates[number]
            width = self._widths.get(number, 1)
            while passed < len(gates) and gates[passed].in_use + width <= gates[passed].limit:
                gates[passed].in_use += width
                passed += 1
            if passed < len(gates):
                heapq.heappush(gates[passed].waiting, (priority, number, item, passed))
                continue
            self.in_flight += 1
            self.in_flight_bytes += self._bytes_of[number]
            return priority, number, item
        return None

    def occupy(self, number: int) -> None:
        """Takes the slots of a task of a node that is in flight already."""
        self.in_flight += 1
        self.in_flight_bytes += self._bytes_of[number]
        for gate in self._gates[number]:
            gate.in_use += self._widths.get(number, 1)

    def release(self, number: int) -> None:
        """Gives back the slots of a task of a node, and wakes one task for each."""
        self.in_flight -= 1
        self.in_flight_bytes -= self._bytes_of[number]
        width = self._widths.get(number, 1)
        for gate in self._gates[number]:
            gate.in_use -= width
            for _ in range(min(width, len(gate.waiting))):
                heapq.heappush(self._ready, heapq.heappop(gate.waiting))

    def clear(self) -> None:
        """Forgets every task that is not in flight; nothing may be pushed afterwards."""
        self._ready.clear()
        for gates in self._gates:
            for gate in gates:
                gate.waiting.clear()
