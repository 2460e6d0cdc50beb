"""Graph algorithms over node numbers: cycles, levels, the critical path.

`dependencies[n]` lists the numbers of the nodes that node n waits for, distinct, in declared order. The validation of
plans rejects edges of a node to itself, so such edges do not occur here. All algorithms are iterative, because plans
have chains of 100,000 nodes.
"""

from collections import deque
from collections.abc import Sequence

Adjacency = Sequence[Sequence[int]]

_SEARCH_BUDGET = 2_000_000
"""Edges that the search for a shortest cycle may visit. The search then returns the shortest cycle so far."""


def dependents_of(dependencies: Adjacency) -> list[list[int]]:
    """Return the reversed edges: node -> the nodes that wait for it, in plan order."""
    dependents: list[list[int]] = [[] for _ in dependencies]
    for node, node_dependencies in enumerate(dependencies):
        for dependency in node_dependencies:
            dependents[dependency].append(node)
    return dependents


def levels_of(dependencies: Adjacency) -> list[int] | None:
    """Return the level of each node: the length of the longest path from a root. Return `None` if there is a cycle.

    Complexity: O(V + E).
    """
    return _levels_in_order(dependencies) or _levels_by_counting(dependencies)


def _levels_in_order(dependencies: Adjacency) -> list[int] | None:
    """Return the levels in one pass; `None` if a node waits for a later node."""
    levels: list[int] = []
    try:
        for node_dependencies in dependencies:
            levels.append(max(map(levels.__getitem__, node_dependencies)) + 1 if node_dependencies else 0)
    except IndexError:
        # The node waits for a later node, whose level is not known yet.
        return None
    return levels


def _levels_by_counting(dependencies: Adjacency) -> list[int] | None:
    """Return the levels for any order of nodes (Kahn 1962)."""
    dependents = dependents_of(dependencies)
    remaining_counts = [len(node_dependencies) for node_dependencies in dependencies]
    levels = [0] * len(remaining_counts)
    queue = [node for node, count in enumerate(remaining_counts) if not count]
    for node in queue:
        for dependent in dependents[node]:
            remaining_counts[dependent] -= 1
            if not remaining_counts[dependent]:
                levels[dependent] = max(map(levels.__getitem__, dependencies[dependent])) + 1
                queue.append(dependent)
    return levels if len(queue) == len(remaining_counts) else None


def critical_path(dependencies: Adjacency, levels: Sequence[int]) -> list[int]:
    """Return the longest chain of an acyclic graph, counted in nodes, roots first; ties are resolved by plan order.

    Args:
        levels: as returned by `levels_of`.

    Complexity: O(V + E), and a sort of the levels.
    """
    if not levels:
        return []
    heights = [1] * len(levels)
    next_nodes = [-1] * len(levels)
    for node in sorted(range(len(levels)), key=levels.__getitem__, reverse=True):
        new_height = heights[node] + 1
        for dependency in dependencies[node]:
            if new_height > heights[dependency]:
                heights[dependency], next_nodes[dependency] = new_height, node
            elif new_height == heights[dependency] and node < next_nodes[dependency]:
                next_nodes[dependency] = node
    node = heights.index(max(heights))
    path = []
    while node >= 0:
        path.append(node)
        node = next_nodes[node]
    return path


def cycles_of(dependencies: Adjacency) -> list[list[int]]:
    """Return one shortest cycle for each strongly connected component.

    `[a, b]` means that a needs b and b needs a. A cycle starts at its first node in plan order. The cycles are in plan
    order of their first nodes.

    Complexity: O(V + E), plus the search of the shortest cycle, which is bounded by a constant budget.
    """
    budget = _SEARCH_BUDGET
    cycles = []
    for group in _strong_components(dependencies):
        cycle, budget = _shortest_cycle(dependencies, group, budget=budget)
        cycles.append(cycle)
    return sorted(cycles)


def _strong_components(dependencies: Adjacency) -> list[list[int]]:
    """Return the strongly connected components of more than one node (Tarjan 1972, with an explicit stack)."""
    order: dict[int, int] = {}
    low: dict[int, int] = {}
    position_in_path: dict[int, int] = {}
    on_path: set[int] = set()
    path: list[int] = []
    groups = []
    for root in range(len(dependencies)):
        if root in order:
            continue
        stack = [(root, 0)]
        while stack:
            node, next_position = stack.pop()
            if next_position == 0:
                order[node] = low[node] = len(order)
                position_in_path[node] = len(path)
                path.append(node)
                on_path.add(node)
            for position in range(next_position, len(dependencies[node])):
                target = dependencies[node][position]
                if target not in order:
                    stack += [(node, position + 1), (target, 0)]
                    break
                if target in on_path:
                    low[node] = min(low[node], order[target])
            else:
                if low[node] == order[node]:
                    group = path[position_in_path[node] :]
                    del path[position_in_path[node] :]
                    on_path.difference_update(group)
                    if len(group) > 1:
                        groups.append(sorted(group))
                if stack:
                    parent = stack[-1][0]
                    low[parent] = min(low[parent], low[node])
    return groups


def _shortest_cycle(dependencies: Adjacency, group: list[int], *, budget: int) -> tuple[list[int], int]:
    allowed_nodes = set(group)
    shortest_cycle: list[int] = []
    for start in group:
        cycle, visited_count = _cycle_through(
            dependencies, start, allowed_nodes=allowed_nodes, limit=len(shortest_cycle) - 1 if shortest_cycle else None
        )
        budget -= visited_count
        if cycle:
            shortest_cycle = cycle
        if shortest_cycle and (len(shortest_cycle) == 2 or budget <= 0):
            break
        # Each cycle is found from its first node in plan order, so later searches can skip this start.
        allowed_nodes.discard(start)
    return shortest_cycle, budget


def _cycle_through(
    dependencies: Adjacency, start: int, *, allowed_nodes: set[int], limit: int | None
) -> tuple[list[int] | None, int]:
    """Find a shortest cycle through `start` and other `allowed_nodes`, and count the visited edges.

    Returns:
        The cycle and the count. The cycle is `None` if every cycle is longer than `limit`.
    """
    predecessors = {start: start}
    depth = {start: 1}
    queue = deque([start])
    visited_count = 0
    while queue:
        node = queue.popleft()
        for target in dependencies[node]:
            visited_count += 1
            if target == start:
                cycle = [node]
                while cycle[-1] != start:
                    cycle.append(predecessors[cycle[-1]])
                return cycle[::-1], visited_count
            if target in allowed_nodes and target not in depth and (limit is None or depth[node] < limit):
                depth[target] = depth[node] + 1
                predecessors[target] = node
                queue.append(target)
    return None, visited_count
