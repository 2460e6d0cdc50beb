"""Ready tasks in the order of their urgency, behind the limits of the run, of their node and of their tool.

It exists apart from the scheduler so that one place proves that a free slot is never left unused while a task
waits for it. It must not import the scheduler.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

from dagwright.core.model.compiled import CompiledPlan
from dagwright.core.model.task_ref import TaskRef
from dagwright.core.model.tools import Effects, ToolDeclaration

Entry = tuple[int, TaskRef]
"""Priority, and what is to start; the smallest goes first. A node and its own items are never in the queue together."""

MAX_IN_FLIGHT = 500
"""Tasks of one run at once (docs/guards.md F12: more would overflow the server's buffer of events).

The engine starts fewer while results travel inline (docs/decisions/0008)."""

_Place = tuple[int, TaskRef, int]
"""An entry, and how many of its gates it has passed."""


@dataclass(slots=True)
class Gate:
    """A limit that several tasks share: the calls of one tool, the items of one node, or all that a run does at once.

    Args:
        limit: slots, at least 1.
        in_use: slots taken, by tasks in flight or by tasks that wait at their next gate.
        spans_runs: it also counts what the chunks of a large map call, in runs of their own.
        waiting: a heap; while it holds anything, every slot is taken, or a task to take it is on its way or wide.
    """

    limit: int
    spans_runs: bool = False
    in_use: int = 0
    waiting: list[_Place] = field(default_factory=list)

    def has_room(self, width: int) -> bool:
        """Tells whether a task may pass that takes so many slots."""
        return self.in_use + width <= self.limit

    def hold(self, place: _Place) -> None:
        """Lets a task wait."""
        heapq.heappush(self.waiting, place)


@dataclass(slots=True)
class Pool:
    """The slots of a run, as far as calls take them that may be held back.

    Args:
        in_flight: such calls, of all tools.
        crowded: gates where some wait, in the order in which it came to that.
    """

    in_flight: int = 0
    crowded: list["ToolGate"] = field(default_factory=list)


@dataclass(slots=True)
class ToolGate(Gate):
    """The limit of the calls of one tool that can be parked; it follows what the other such tools have in flight.

    Args:
        limit: of all such tools together.
        in_flight: calls that have passed all gates.
    """

    pool: Pool = field(default_factory=Pool)
    in_flight: int = 0

    def has_room(self, width: int) -> bool:
        """Tells whether a task may pass that takes so many slots."""
        return self.in_use + width <= most_of_tool(self.pool.in_flight - self.in_flight)

    def count(self, change: int) -> None:
        """Takes note of calls that begin or end."""
        self.in_flight += change
        self.pool.in_flight += change

    def hold(self, place: _Place) -> None:
        """Lets a task wait."""
        if not self.waiting:
            self.pool.crowded.append(self)
        heapq.heappush(self.waiting, place)


def most_of_tool(of_others: int) -> int:
    """Returns how many calls a run has in flight of a tool that can be parked: four fifths of what others leave.

    While a tool is parked all its calls are held back, for days perhaps, and what calls others has to go on
    (docs/parking.md). So each of them leaves slots to one more: 400, 80, 16 and 3 calls, and then one by one.

    Args:
        of_others: calls in flight of all other tools that can be parked.

    Source: Choudhury and Hahne, "Dynamic Queue Length Thresholds for Shared-Memory Packet Switches" (1998).
    """
    return max(1, (MAX_IN_FLIGHT - of_others) * 4 // 5)


def can_be_parked(tool: ToolDeclaration | None) -> bool:
    """Tells whether a tool can be parked, as far as a run knows: one that is `pure` never is (docs/parking.md)."""
    return tool is None or tool.effects is not Effects.PURE


def gates_of(plan: CompiledPlan, *, of_run: int | None = None) -> list[list[Gate]]:
    """Returns the limits of each node: of its items at once, of the calls of its tool at once, of all of the run.

    Args:
        of_run: what whoever started the run allows at once, in the runs of chunks too; `None` if they said nothing.
    """
    shared = [Gate(of_run, spans_runs=True)] if of_run is not None else []
    pool = Pool()
    of_tools: dict[str, list[Gate]] = {}
    gates: list[list[Gate]] = []
    for node in plan.nodes:
        own = [Gate(node.max_parallel)] if node.max_parallel is not None else []
        of_tool: list[Gate] = []
        if node.tool and node.kind != "region":
            if node.tool not in of_tools:
                of_tools[node.tool] = _gates_of_tool(plan.tools.get(node.tool), pool)
            of_tool = of_tools[node.tool]
        gates.append([*own, *of_tool, *shared])
    return gates


def _gates_of_tool(tool: ToolDeclaration | None, pool: Pool) -> list[Gate]:
    declared = [Gate(tool.max_parallel, spans_runs=True)] if tool is not None and tool.max_parallel is not None else []
    # First the wider one: what waits for a slot of one run keeps none that chunks of a map could use.
    return [ToolGate(MAX_IN_FLIGHT, pool=pool), *declared] if can_be_parked(tool) else declared


class ReadyQueue:
    """Lets ready tasks through their gates, the most urgent first.

    A task passes its gates in order and keeps the slots that it took while it waits at the next one. So it moves
    through each gate once, and the whole costs O(log n) for each task.

    Args:
        gates: node number -> the gates of its tasks, those that fewer tasks share first: one that waits keeps from no
            others what it could not use.
        max_in_flight: tasks at once.
        bytes_of: node number -> what a task of it may bring; `in_flight_bytes` is the sum of those in flight.
    """

    def __init__(self, gates: Sequence[Sequence[Gate]], max_in_flight: int, *, bytes_of: Sequence[int]) -> None:
        self.in_flight = 0
        self.in_flight_bytes = 0
        self._bytes_of = bytes_of
        self._gates = [*gates]
        self._widths: dict[int, int] = {}
        self._of_tool = {number: gate for number, each in enumerate(gates) for gate in each if type(gate) is ToolGate}
        """Number of a node -> the gate of its tool, if that can be parked."""
        self._max_in_flight = max_in_flight
        self._ready: list[_Place] = []

    @property
    def has_ready(self) -> bool:
        """Tells whether a task may start as soon as there is a slot; those behind a gate wait for one in flight."""
        return bool(self._ready)

    def widen(self, number: int, *, at_once: int, width: int) -> None:
        """Makes the tasks of a node wide, before any of them is pushed: each takes several slots of every gate.

        The slots that one gathers stay free until it has enough.

        Args:
            at_once: tasks of the node at once; that many wide ones pass through all other gates.
        """
        shared = [gate for gate in self._gates[number] if gate.spans_runs]
        self._gates[number] = [Gate(at_once * width), *shared]
        self._widths[number] = width
        self._of_tool.pop(number, None)

    def push(self, entry: Entry) -> None:
        """Takes a task that became ready."""
        heapq.heappush(self._ready, (*entry, 0))

    def pop(self) -> Entry | None:
        """Returns the next task that may start; it is in flight until `release`."""
        while self._ready and self.in_flight < self._max_in_flight:
            priority, ref, passed = heapq.heappop(self._ready)
            number = ref[0]
            gates = self._gates[number]
            width = self._widths.get(number, 1)
            while passed < len(gates) and gates[passed].has_room(width):
                gates[passed].in_use += width
                passed += 1
            if passed < len(gates):
                gates[passed].hold((priority, ref, passed))
                continue
            self._count(number, 1)
            return priority, ref
        return None

    def occupy(self, number: int) -> None:
        """Takes the slots of a task of a node that is in flight already."""
        self._count(number, 1)
        for gate in self._gates[number]:
            gate.in_use += self._widths.get(number, 1)

    def release(self, number: int) -> None:
        """Gives back the slots of a task of a node, and wakes one task for each."""
        self._count(number, -1)
        width = self._widths.get(number, 1)
        for gate in self._gates[number]:
            gate.in_use -= width
            if type(gate) is not ToolGate:
                self._wake(gate, width)
        if (of_tool := self._of_tool.get(number)) is not None:
            # The limits of all tools have risen, each by one at most.
            crowded, of_tool.pool.crowded = of_tool.pool.crowded, []
            for gate in crowded:
                self._wake(gate, 1)
            of_tool.pool.crowded += [gate for gate in crowded if gate.waiting]

    def _count(self, number: int, change: int) -> None:
        """Takes note of a task of a node that begins or ends."""
        self.in_flight += change
        self.in_flight_bytes += change * self._bytes_of[number]
        if (of_tool := self._of_tool.get(number)) is not None:
            of_tool.count(change)

    def _wake(self, gate: Gate, count: int) -> None:
        """Lets so many of the tasks that wait at a gate try again."""
        for _ in range(min(count, len(gate.waiting))):
            heapq.heappush(self._ready, heapq.heappop(gate.waiting))

    def clear(self) -> None:
        """Forgets every task that is not in flight; nothing may be pushed afterwards."""
        self._ready.clear()
        for gates in self._gates:
            for gate in gates:
                gate.waiting.clear()
