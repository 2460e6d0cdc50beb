"""Readiness: joins decide whether a node may start, and a queue starts the ready tasks.

Joins count the ended dependencies of a node. The queue orders tasks by priority and applies the limits of the run, the
node and the tool. The module is separate, so that one place shows the invariant: no task waits for a slot that is free.
This module must not import the scheduler.
"""

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from dagwright.core.model.compiled import CompiledNode, CompiledPlan, Join
from dagwright.core.model.states import NodeError, NodeStatus, Record, TaskRef
from dagwright.core.model.tools import Effects, ToolDeclaration


class Decision(Enum):
    """Decision of a join about its node."""

    WAIT = "wait"
    START = "start"
    SKIP_OR_BLOCK = "skip or block"


@dataclass(slots=True)
class DependencyCounts:
    """Counters over the dependencies of one node.

    Args:
        remaining: dependencies that have not ended.
        may_decide_early: whether the join may decide before the last dependency has ended.
        done: dependencies that count as done for `any` and `at_least`.
        skipped: dependencies that propagate a skip.
        has_failure: whether a dependency propagates a failure.
        blockers: ids of the nodes whose failure is propagated.
    """

    remaining: int
    may_decide_early: bool = False
    done: int = 0
    skipped: int = 0
    has_failure: bool = False
    blockers: dict[str, None] = field(default_factory=dict)

    def count(self, node: CompiledNode, record: Record) -> None:
        """Count a dependency that has ended."""
        self.remaining -= 1
        if record.status is NodeStatus.COMPLETED:
            self.done += 1
        elif record.status is NodeStatus.SKIPPED:
            self.done += 1
            self.skipped += 1
        elif record.status is NodeStatus.FAILED and node.on_error == "skip":
            self.skipped += 1
        else:
            self.has_failure = True
            self.blockers.update(dict.fromkeys(record.blocked_by or (node.id,)))

    def decide(self, join: Join) -> Decision:
        """Return the decision of a join for the current counts.

        `SKIP_OR_BLOCK` requires that all dependencies have ended, to make the decision independent of their completion
        order.
        """
        kind, required_count = join
        if kind in ("any", "at_least"):
            can_start = self.done >= (required_count or 1)
        else:
            can_start = not self.remaining and (kind == "all_done" or not (self.has_failure or self.skipped))
        if can_start:
            return Decision.START
        return Decision.WAIT if self.remaining else Decision.SKIP_OR_BLOCK


def block_error(
    counts: DependencyCounts, numbers: Mapping[str, int], records: Sequence[Record]
) -> tuple[tuple[str, ...], NodeError]:
    """Return the ids of the nodes that block a node, in plan order, and the error of the blocked node.

    Args:
        numbers: node id -> its number; nodes inside an offloaded region may be missing, and come last in the result.
    """
    blockers = tuple(sorted(counts.blockers, key=lambda node_id: numbers.get(node_id, len(numbers))))
    blocker_numbers = [numbers.get(node_id) for node_id in blockers]
    are_cancelled = all(
        number is not None and records[number].status is NodeStatus.CANCELLED for number in blocker_numbers
    )
    verb = "was cancelled" if are_cancelled else "failed"
    return blockers, NodeError("dependency_failed", f"Waiting for dependency: {', '.join(blockers)} {verb}")


Entry = tuple[int, TaskRef]
"""Priority and task; the smallest entry starts first. A node and its items are never in the queue together, because
Python cannot compare their `TaskRef`s."""

MAX_IN_FLIGHT = 500
"""Maximum number of tasks in flight of one run: more would overflow the server's buffer of events
(docs/contributing/guards.md F12). The engine starts fewer tasks with large inline results (docs/decisions/0008)."""

_WaitingEntry = tuple[int, TaskRef, int]
"""An entry and the number of gates that it has passed."""


@dataclass(slots=True)
class Gate:
    """Concurrency limit that several tasks share: calls of one tool, items of one node, or all tasks of a run.

    Args:
        limit: number of slots, at least 1.
        in_use: slots used by tasks in flight, and by tasks that wait at a later gate.
        spans_runs: whether the limit also covers calls that map batches make in their child runs.
        waiting_entries: heap of waiting tasks. While a task waits, a slot is only free if a woken task will use it, or
            if the waiting task needs several slots (see `ReadyQueue.set_task_width`).
    """

    limit: int
    spans_runs: bool = False
    in_use: int = 0
    waiting_entries: list[_WaitingEntry] = field(default_factory=list)

    def has_room(self, width: int) -> bool:
        """Return whether a task that needs `width` slots may pass."""
        return self.in_use + width <= self.limit

    def add_waiting(self, entry: _WaitingEntry) -> None:
        """Add a task to the tasks that wait at this gate."""
        heapq.heappush(self.waiting_entries, entry)


@dataclass(slots=True)
class PausableCalls:
    """Calls of all pausable tools in a run.

    Args:
        in_flight: number of calls in flight.
        waiting_gates: tool gates with waiting tasks, ordered by the time at which their first task started to wait.
    """

    in_flight: int = 0
    waiting_gates: list["ToolGate"] = field(default_factory=list)


@dataclass(slots=True)
class ToolGate(Gate):
    """Limit of the calls of one pausable tool. The limit depends on the calls in flight of the other pausable tools.

    Args:
        pausable_calls: calls of all pausable tools together.
        in_flight: calls of this tool that have passed all gates.
    """

    pausable_calls: PausableCalls = field(default_factory=PausableCalls)
    in_flight: int = 0

    def has_room(self, width: int) -> bool:
        """Return whether a task that needs `width` slots may pass."""
        return self.in_use + width <= max_calls_of_tool(self.pausable_calls.in_flight - self.in_flight)

    def add_in_flight(self, change: int) -> None:
        """Add to the number of calls in flight; a negative number subtracts."""
        self.in_flight += change
        self.pausable_calls.in_flight += change

    def add_waiting(self, entry: _WaitingEntry) -> None:
        """Add a task to the tasks that wait at this gate."""
        if not self.waiting_entries:
            self.pausable_calls.waiting_gates.append(self)
        heapq.heappush(self.waiting_entries, entry)


def max_calls_of_tool(other_calls: int) -> int:
    """Return how many calls of a pausable tool a run may have in flight: 4/5 of the slots that other tools leave free.

    While a tool is paused, perhaps for days, its calls keep their slots, and calls of other tools have to continue
    (docs/guides/pausing-a-tool.md). Therefore each tool leaves slots to the next: 400, 80, 16 and 3 calls, then 1 each.

    Args:
        other_calls: calls in flight of all other pausable tools.

    Source: Choudhury and Hahne, "Dynamic Queue Length Thresholds for Shared-Memory Packet Switches" (1998).
    """
    return max(1, (MAX_IN_FLIGHT - other_calls) * 4 // 5)


def can_be_paused(tool: ToolDeclaration | None) -> bool:
    """Return whether a tool can be paused: every tool except those declared `pure` (docs/guides/pausing-a-tool.md)."""
    return tool is None or tool.effects is not Effects.PURE


def gates_of(plan: CompiledPlan, *, run_limit: int | None = None) -> list[list[Gate]]:
    """Return the gates of each node: the limit of its items, of the calls of its tool, and of the whole run.

    Args:
        run_limit: limit set when the run was started, which includes child runs of map batches; `None` if it was not
            set.
    """
    run_gates = [Gate(run_limit, spans_runs=True)] if run_limit is not None else []
    pausable_calls = PausableCalls()
    tool_gates: dict[str, list[Gate]] = {}
    gates: list[list[Gate]] = []
    for node in plan.nodes:
        node_gates = [Gate(node.max_parallel)] if node.max_parallel is not None else []
        gates_of_tool: list[Gate] = []
        if node.tool and node.kind != "region":
            if node.tool not in tool_gates:
                tool_gates[node.tool] = _gates_of_tool(plan.tools.get(node.tool), pausable_calls)
            gates_of_tool = tool_gates[node.tool]
        gates.append([*node_gates, *gates_of_tool, *run_gates])
    return gates


def _gates_of_tool(tool: ToolDeclaration | None, pausable_calls: PausableCalls) -> list[Gate]:
    limit_gates = (
        [Gate(tool.max_parallel, spans_runs=True)] if tool is not None and tool.max_parallel is not None else []
    )
    # The gate with the larger limit comes first: a task waiting there occupies no slot that map batches could use.
    return (
        [ToolGate(MAX_IN_FLIGHT, pausable_calls=pausable_calls), *limit_gates] if can_be_paused(tool) else limit_gates
    )


class ReadyQueue:
    """Priority queue that lets ready tasks pass their gates.

    A task passes its gates in order and keeps its slots while it waits at the next gate. It passes each gate once, so
    the cost is O(log n) per task.

    Args:
        gates: node number -> gates of its tasks. Gates shared by fewer tasks come first, so that a waiting task never
            occupies a slot needed by another task.
        max_in_flight: maximum number of tasks in flight.
        result_bytes: node number -> bytes that a task of the node may add to the history; `in_flight_bytes` is the sum
            over the tasks in flight.
    """

    def __init__(self, gates: Sequence[Sequence[Gate]], max_in_flight: int, *, result_bytes: Sequence[int]) -> None:
        self.in_flight = 0
        self.in_flight_bytes = 0
        self._result_bytes = result_bytes
        self._gates = [*gates]
        self._widths: dict[int, int] = {}
        self._tool_gates = {
            number: gate for number, node_gates in enumerate(gates) for gate in node_gates if type(gate) is ToolGate
        }
        """Number of a node -> gate of its tool, if the tool can be paused."""
        self._max_in_flight = max_in_flight
        self._ready: list[_WaitingEntry] = []

    @property
    def has_ready(self) -> bool:
        """Whether a task could start once the run has a free slot. Tasks at a gate do not count."""
        return bool(self._ready)

    def set_task_width(self, number: int, *, max_tasks: int, width: int) -> None:
        """Make each task of a node use `width` slots of every gate; call it before a task of the node is pushed.

        Free slots stay unused until there are enough of them for one task.

        Args:
            max_tasks: maximum number of concurrent tasks of the node. The gates that span runs have enough slots for
                these tasks.
        """
        shared_gates = [gate for gate in self._gates[number] if gate.spans_runs]
        self._gates[number] = [Gate(max_tasks * width), *shared_gates]
        self._widths[number] = width
        self._tool_gates.pop(number, None)

    def push(self, entry: Entry) -> None:
        """Add a task that became ready."""
        heapq.heappush(self._ready, (*entry, 0))

    def pop(self) -> Entry | None:
        """Return the next task that may start; it is in flight until `release`."""
        while self._ready and self.in_flight < self._max_in_flight:
            priority, ref, passed_count = heapq.heappop(self._ready)
            number = ref[0]
            gates = self._gates[number]
            width = self._widths.get(number, 1)
            while passed_count < len(gates) and gates[passed_count].has_room(width):
                gates[passed_count].in_use += width
                passed_count += 1
            if passed_count < len(gates):
                gates[passed_count].add_waiting((priority, ref, passed_count))
                continue
            self._add_in_flight(number, 1)
            return priority, ref
        return None

    def occupy(self, number: int) -> None:
        """Use the slots of a task that is already in flight."""
        self._add_in_flight(number, 1)
        for gate in self._gates[number]:
            gate.in_use += self._widths.get(number, 1)

    def release(self, number: int) -> None:
        """Release the slots of a task of a node, and wake one waiting task per slot."""
        self._add_in_flight(number, -1)
        width = self._widths.get(number, 1)
        for gate in self._gates[number]:
            gate.in_use -= width
            if type(gate) is not ToolGate:
                self._wake(gate, width)
        if (tool_gate := self._tool_gates.get(number)) is not None:
            # The limit of every pausable tool has risen by at most one.
            waiting_gates, tool_gate.pausable_calls.waiting_gates = tool_gate.pausable_calls.waiting_gates, []
            for gate in waiting_gates:
                self._wake(gate, 1)
            tool_gate.pausable_calls.waiting_gates += [gate for gate in waiting_gates if gate.waiting_entries]

    def _add_in_flight(self, number: int, change: int) -> None:
        """Add to the number of tasks in flight; a negative number subtracts."""
        self.in_flight += change
        self.in_flight_bytes += change * self._result_bytes[number]
        if (tool_gate := self._tool_gates.get(number)) is not None:
            tool_gate.add_in_flight(change)

    def _wake(self, gate: Gate, count: int) -> None:
        """Move up to `count` of the tasks that wait at a gate back to the ready tasks."""
        for _ in range(min(count, len(gate.waiting_entries))):
            heapq.heappush(self._ready, heapq.heappop(gate.waiting_entries))

    def clear(self) -> None:
        """Remove every task that is not in flight; no task may be pushed afterwards."""
        self._ready.clear()
        for gates in self._gates:
            for gate in gates:
                gate.waiting_entries.clear()
