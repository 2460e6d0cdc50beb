"""Layered layout of a graph from left to right, with few crossings and no edge through a box.

The layer of a node is the length of the longest path to it from a node without dependencies. An edge over several
layers has a waypoint in each layer between its ends. Waypoints are ordered and placed like nodes. Edges from the same
node share waypoints.
"""

from bisect import bisect_right, insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

_LAYER_GAP, _NODE_GAP, _WAYPOINT_GAP = 56.0, 16.0, 12.0
"""Distances between two layers, between two nodes of a layer, and between a waypoint and its neighbour in a layer."""
_CROSSING_PASSES = 12
"""Passes over all layers that reduce crossings; more passes hardly improve the layout."""
_STRAIGHTENING_PASSES = 16
"""Passes over all layers that straighten edges."""
_WAYPOINT_WEIGHT = 4.0
"""Weight of waypoints relative to boxes when edges are straightened."""


class CyclicGraph(ValueError):
    """A graph has a cycle, so it has no layers."""


@dataclass(frozen=True, slots=True)
class Box:
    """Size of a node, and its position once it is placed."""

    width: float
    height: float
    x: float = 0.0
    y: float = 0.0

    @property
    def vertical_centre(self) -> float:
        """Y coordinate of the centre."""
        return self.y + self.height / 2


@dataclass(frozen=True, slots=True)
class Route:
    """Path of an edge.

    Args:
        points: points from the right side of a box to the left side of another. From each point with an odd index to
            the next point, the edge is straight and horizontal.
    """

    source: int
    target: int
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Layout:
    """Positions of all nodes and edges.

    Args:
        boxes: boxes in the order of the nodes.
    """

    boxes: Sequence[Box]
    routes: Sequence[Route]
    width: float
    height: float


@dataclass(slots=True)
class _LayeredGraph:
    """A graph with waypoints: indices below the number of nodes stand for nodes, all other indices for waypoints."""

    layer_of: list[int]
    successors: list[list[int]]
    paths: Mapping[tuple[int, int], Sequence[int]]
    orders: list[list[int]] = field(default_factory=list)
    predecessors: list[list[int]] = field(default_factory=list)


def layout_graph(
    sizes: Sequence[Box],
    edges: Sequence[tuple[int, int]],
    *,
    invisible_edges: Sequence[tuple[int, int]] = (),
) -> Layout:
    """Place the nodes of an acyclic graph.

    Args:
        sizes: sizes of the nodes, in their preferred order from top to bottom.
        edges: pairs of node numbers, from a node to its dependent.
        invisible_edges: further pairs, which are not drawn. The first node is placed left of the second.

    Raises:
        CyclicGraph: the graph has a cycle if `invisible_edges` are included.

    Complexity: O(s·(n + w + e·log n)) with w waypoints, at most nodes times layers, and a constant number s of
    passes.
    """
    distinct_edges = list(dict.fromkeys(edges))
    graph = _with_waypoints(_layers(len(sizes), [*distinct_edges, *invisible_edges]), distinct_edges)
    graph.orders = _order_layers(graph)
    heights = [box.height for box in sizes] + [0.0] * (len(graph.layer_of) - len(sizes))
    centres = _vertical_centres(graph, heights, node_count=len(sizes))
    return _assemble(graph, sizes, centres)


def _layers(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """Return the layer of each node.

    A root is in the layer before its leftmost dependent. For all other nodes, the layer is the length of the longest
    path to the node.
    """
    successors: list[list[int]] = [[] for _ in range(count)]
    unplaced_predecessors = [0] * count
    for source, target in edges:
        successors[source].append(target)
        unplaced_predecessors[target] += 1
    roots = [node for node in range(count) if not unplaced_predecessors[node]]
    layer_of, placed_nodes = [0] * count, list(roots)
    for node in placed_nodes:
        for target in successors[node]:
            layer_of[target] = max(layer_of[target], layer_of[node] + 1)
            unplaced_predecessors[target] -= 1
            if not unplaced_predecessors[target]:
                placed_nodes.append(target)
    if len(placed_nodes) < count:
        raise CyclicGraph("the graph has a cycle")
    for node in roots:
        layer_of[node] = min((layer_of[target] - 1 for target in successors[node]), default=0)
    return layer_of


def _with_waypoints(layer_of: list[int], edges: Sequence[tuple[int, int]]) -> _LayeredGraph:
    layers = list(layer_of)
    successors: list[list[int]] = [[] for _ in layer_of]
    waypoints: dict[tuple[int, int], int] = {}
    paths: dict[tuple[int, int], Sequence[int]] = {}
    for source, target in edges:
        path, previous_vertex = [source], source
        for layer in range(layer_of[source] + 1, layer_of[target]):
            waypoint = waypoints.get((source, layer))
            if waypoint is None:
                waypoint = waypoints[source, layer] = len(layers)
                layers.append(layer)
                successors.append([])
                successors[previous_vertex].append(waypoint)
            path.append(waypoint)
            previous_vertex = waypoint
        successors[previous_vertex].append(target)
        paths[source, target] = [*path, target]
    predecessors: list[list[int]] = [[] for _ in layers]
    for vertex, targets in enumerate(successors):
        for target in targets:
            predecessors[target].append(vertex)
    return _LayeredGraph(layers, successors, paths, predecessors=predecessors)


def _order_layers(graph: _LayeredGraph) -> list[list[int]]:
    """Return the vertices of each layer, in an order with few crossings."""
    orders: list[list[int]] = [[] for _ in range(max(graph.layer_of, default=-1) + 1)]
    for vertex in _depth_first(graph):
        orders[graph.layer_of[vertex]].append(vertex)
    best_orders, fewest_crossings = [list(order) for order in orders], _crossings(graph, orders)
    for sweep in range(_CROSSING_PASSES):
        if not fewest_crossings:
            break
        is_forward = sweep % 2 == 0
        neighbours = graph.predecessors if is_forward else graph.successors
        for index in range(len(orders)) if is_forward else reversed(range(len(orders))):
            _sort_layer(orders, index, neighbours, step=-1 if is_forward else 1)
        if (count := _crossings(graph, orders)) < fewest_crossings:
            best_orders, fewest_crossings = [list(order) for order in orders], count
    return best_orders


def _depth_first(graph: _LayeredGraph) -> list[int]:
    """Return all nodes and waypoints in depth-first order: a good initial order, which keeps neighbours together."""
    visited_vertices: set[int] = set()
    ordered_vertices: list[int] = []
    for root in (vertex for vertex in range(len(graph.layer_of)) if not graph.predecessors[vertex]):
        stack = [root]
        while stack:
            vertex = stack.pop()
            if vertex in visited_vertices:
                continue
            visited_vertices.add(vertex)
            ordered_vertices.append(vertex)
            stack += reversed(graph.successors[vertex])
    return ordered_vertices


def _sort_layer(orders: list[list[int]], index: int, neighbours: Sequence[Sequence[int]], *, step: int) -> None:
    """Sort a layer by the mean position of the neighbours in the adjacent layer."""
    if not 0 <= index + step < len(orders):
        return
    position = {vertex: number for number, vertex in enumerate(orders[index + step])}
    order = orders[index]
    preferred_positions = {
        vertex: (sum(map(position.__getitem__, neighbours_of_vertex)) / len(neighbours_of_vertex))
        if (neighbours_of_vertex := neighbours[vertex])
        else float(number)
        for number, vertex in enumerate(order)
    }
    order.sort(key=preferred_positions.__getitem__)


def _crossings(graph: _LayeredGraph, orders: Sequence[Sequence[int]]) -> int:
    """Count the crossings between adjacent layers."""
    total = 0
    for index in range(len(orders) - 1):
        position = {vertex: number for number, vertex in enumerate(orders[index + 1])}
        earlier_targets: list[int] = []
        for vertex in orders[index]:
            targets = sorted(map(position.__getitem__, graph.successors[vertex]))
            total += sum(len(earlier_targets) - bisect_right(earlier_targets, target) for target in targets)
            for target in targets:
                insort(earlier_targets, target)
    return total


def _vertical_centres(graph: _LayeredGraph, heights: Sequence[float], *, node_count: int) -> list[float]:
    """Return the vertical centre of each vertex: near its neighbours, in the order of its layer, without overlap."""
    offsets = [_offsets(order, heights, node_count=node_count) for order in graph.orders]
    centres = [0.0] * len(graph.layer_of)
    for order, layer_offsets in zip(graph.orders, offsets, strict=True):
        for vertex, offset in zip(order, layer_offsets, strict=True):
            centres[vertex] = offset - layer_offsets[-1] / 2
    weights = [1.0 if vertex < node_count else _WAYPOINT_WEIGHT for vertex in range(len(centres))]
    for pass_number in range(_STRAIGHTENING_PASSES):
        uses_both_sides = pass_number >= _STRAIGHTENING_PASSES - 2
        for index in range(len(graph.orders)) if pass_number % 2 == 0 else reversed(range(len(graph.orders))):
            order = graph.orders[index]
            is_forward = None if uses_both_sides else pass_number % 2 == 0
            preferred_positions = [
                _preferred_position(graph, vertex, centres, weights, is_forward=is_forward) for vertex in order
            ]
            new_centres = _separate(preferred_positions, offsets[index], [weights[vertex] for vertex in order])
            for vertex, centre in zip(order, new_centres, strict=True):
                centres[vertex] = centre
    top = min((centres[vertex] - heights[vertex] / 2 for vertex in range(len(centres))), default=0.0)
    return [centre - top for centre in centres]


def _offsets(order: Sequence[int], heights: Sequence[float], *, node_count: int) -> list[float]:
    """Return the minimum distance of each node of a layer from the first node."""
    offsets = [0.0]
    for upper, lower in pairwise(order):
        gap = _WAYPOINT_GAP if upper >= node_count or lower >= node_count else _NODE_GAP
        offsets.append(offsets[-1] + (heights[upper] + heights[lower]) / 2 + gap)
    return offsets[: len(order)]


def _preferred_position(
    graph: _LayeredGraph, vertex: int, centres: Sequence[float], weights: Sequence[float], *, is_forward: bool | None
) -> float:
    """Return the weighted mean position of the predecessors, or of the successors if `is_forward` is false.

    The neighbours on both sides count if `is_forward` is `None`, or if there are none on the requested side.
    """
    neighbours_of_vertex = (*graph.predecessors[vertex], *graph.successors[vertex]) if is_forward is None else ()
    neighbours_of_vertex = neighbours_of_vertex or tuple(
        graph.predecessors[vertex] if is_forward else graph.successors[vertex]
    )
    neighbours_of_vertex = neighbours_of_vertex or (*graph.predecessors[vertex], *graph.successors[vertex])
    if not neighbours_of_vertex:
        return centres[vertex]
    total = sum(weights[neighbour] for neighbour in neighbours_of_vertex)
    return sum(centres[neighbour] * weights[neighbour] for neighbour in neighbours_of_vertex) / total


def _separate(preferred_positions: Sequence[float], offsets: Sequence[float], weights: Sequence[float]) -> list[float]:
    """Return positions that preserve the order and the minimum distances.

    They are the closest to the preferred positions, by least squares.

    Source: isotonic regression by pooling adjacent violators.
    """
    blocks: list[tuple[float, float, int]] = []
    for centre, offset, weight in zip(preferred_positions, offsets, weights, strict=True):
        mean, total, size = centre - offset, weight, 1
        while blocks and blocks[-1][0] >= mean:
            previous_mean, previous_total, previous_size = blocks.pop()
            mean = (mean * total + previous_mean * previous_total) / (total + previous_total)
            total, size = total + previous_total, size + previous_size
        blocks.append((mean, total, size))
    means = [mean for mean, _, size in blocks for _ in range(size)]
    return [mean + offset for mean, offset in zip(means, offsets, strict=True)]


def _assemble(graph: _LayeredGraph, sizes: Sequence[Box], centres: Sequence[float]) -> Layout:
    widths = [
        max((sizes[vertex].width for vertex in order if vertex < len(sizes)), default=0.0) for order in graph.orders
    ]
    lefts = [0.0, *accumulate(width + _LAYER_GAP for width in widths)][: len(widths)]
    boxes = [
        Box(widths[layer], size.height, lefts[layer], centres[vertex] - size.height / 2)
        for vertex, (size, layer) in enumerate(zip(sizes, graph.layer_of, strict=False))
    ]
    routes = [
        Route(source, target, _points(path, graph.layer_of, lefts, widths, centres))
        for (source, target), path in graph.paths.items()
    ]
    height = max((box.y + box.height for box in boxes), default=0.0)
    height = max([height, *centres])
    return Layout(boxes, routes, lefts[-1] + widths[-1] if lefts else 0.0, height)


def _points(
    path: Sequence[int],
    layer_of: Sequence[int],
    lefts: Sequence[float],
    widths: Sequence[float],
    centres: Sequence[float],
) -> list[tuple[float, float]]:
    points: list[tuple[float, float]] = []
    for number, vertex in enumerate(path):
        layer = layer_of[vertex]
        if number:
            points.append((lefts[layer], centres[vertex]))
        if number < len(path) - 1:
            points.append((lefts[layer] + widths[layer], centres[vertex]))
    return points
