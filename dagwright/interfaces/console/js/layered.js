// A simple layered layout from left to right, for graphs too large for the layout library.
//
// Each node is to the right of its dependencies. Within its level, a node is near the average position of its neighbours.
// The positions are computed in a few passes in both directions. Except for sorting, the time is linear: 2,000 nodes take a
// few milliseconds.

const SWEEPS = 6;

/**
 * Lays out a graph.
 *
 * sizes: [width, height] of each node. edges: [from, to], as numbers of nodes. nodeGap: space between the nodes of a level.
 * levelGap: space between levels.
 * Returns {centers: [x, y] of each node, lines: points of each edge, width, height}.
 */
export function layeredLayout(sizes, edges, { nodeGap = 12, levelGap = 60 } = {}) {
  const dependencies = sizes.map(() => []);
  const dependents = sizes.map(() => []);
  for (const [from, to] of edges) {
    dependents[from].push(to);
    dependencies[to].push(from);
  }
  const levels = levelsOf(dependencies, dependents);
  const positions = new Float64Array(sizes.length);
  levels.forEach((level) => level.forEach((node, index) => (positions[node] = index - level.length / 2)));
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const isForward = sweep % 2 === 0;
    const neighbours = isForward ? dependencies : dependents;
    for (const level of isForward ? levels : [...levels].reverse()) orderLevel(level, neighbours, positions);
  }
  return placeNodes(sizes, edges, levels, { nodeGap, levelGap, dependencies, dependents });
}

function orderLevel(level, neighbours, positions) {
  const averages = new Map(
    level.map((node) => {
      const nodes = neighbours[node];
      return [node, nodes.length ? nodes.reduce((sum, neighbour) => sum + positions[neighbour], 0) / nodes.length : positions[node]];
    }),
  );
  level.sort((a, b) => averages.get(a) - averages.get(b) || positions[a] - positions[b]);
  level.forEach((node, index) => (positions[node] = index - level.length / 2));
}

function levelsOf(dependencies, dependents) {
  const levelOf = dependencies.map(() => 0);
  const remainingDependencyCounts = dependencies.map((nodes) => nodes.length);
  const readyNodes = dependencies.flatMap((nodes, node) => (nodes.length ? [] : [node]));
  for (let index = 0; index < readyNodes.length; index += 1) {
    for (const dependent of dependents[readyNodes[index]]) {
      levelOf[dependent] = Math.max(levelOf[dependent], levelOf[readyNodes[index]] + 1);
      remainingDependencyCounts[dependent] -= 1;
      if (remainingDependencyCounts[dependent] === 0) readyNodes.push(dependent);
    }
  }
  const levels = [];
  levelOf.forEach((level, node) => (levels[level] ??= []).push(node));
  return levels.map((level) => level ?? []);
}

function placeNodes(sizes, edges, levels, { nodeGap, levelGap, dependencies, dependents }) {
  const centers = sizes.map(() => [0, 0]);
  let x = 0;
  for (const level of levels) {
    const width = Math.max(0, ...level.map((node) => sizes[node][0]));
    let y = -(level.reduce((sum, node) => sum + sizes[node][1] + nodeGap, 0) - nodeGap) / 2;
    for (const node of level) {
      centers[node] = [x + width / 2, y + sizes[node][1] / 2];
      y += sizes[node][1] + nodeGap;
    }
    x += width + levelGap;
  }
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const isForward = sweep % 2 === 0;
    for (const level of isForward ? levels : [...levels].reverse()) moveLevel(level, isForward ? dependencies : dependents, centers, sizes, nodeGap);
  }
  const top = Math.min(0, ...centers.map(([, y], node) => y - sizes[node][1] / 2));
  const bottom = Math.max(0, ...centers.map(([, y], node) => y + sizes[node][1] / 2));
  for (const point of centers) point[1] -= top;
  const lines = edges.map(([from, to]) => [
    [centers[from][0] + sizes[from][0] / 2, centers[from][1]],
    [centers[to][0] - sizes[to][0] / 2, centers[to][1]],
  ]);
  return { centers, lines, width: Math.max(0, x - levelGap), height: bottom - top };
}

/** Move the nodes of a level next to their neighbours. The nodes keep their order, and do not overlap. */
function moveLevel(level, neighbours, centers, sizes, nodeGap) {
  const stacks = [];
  for (const node of level) {
    const neighbourNodes = neighbours[node];
    const center = neighbourNodes.length ? neighbourNodes.reduce((sum, neighbour) => sum + centers[neighbour][1], 0) / neighbourNodes.length : centers[node][1];
    let stack = { nodes: [node], weight: 1, top: center - sizes[node][1] / 2, height: sizes[node][1] };
    // Nodes that would overlap form a stack around their average position.
    while (stacks.length && stacks.at(-1).top + stacks.at(-1).height + nodeGap > stack.top) {
      const last = stacks.pop();
      const height = last.height + nodeGap + stack.height;
      const top = (last.top * last.weight + (stack.top - last.height - nodeGap) * stack.weight) / (last.weight + stack.weight);
      stack = { nodes: last.nodes.concat(stack.nodes), weight: last.weight + stack.weight, top, height };
    }
    stacks.push(stack);
  }
  for (const { nodes, top } of stacks) {
    let y = top;
    for (const node of nodes) {
      centers[node][1] = y + sizes[node][1] / 2;
      y += sizes[node][1] + nodeGap;
    }
  }
}
