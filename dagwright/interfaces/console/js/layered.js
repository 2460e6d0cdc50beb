// A simple layered layout from left to right, for graphs too large for the layout library.
//
// Each node is to the right of its dependencies. Within its level, it is near the average position of its neighbours, which
// is computed in a few passes in both directions. Linear except for sorting: 2,000 nodes take a few milliseconds.

const SWEEPS = 6;

/**
 * Lays out a graph.
 *
 * sizes: [width, height] of each node. edges: [from, to], as numbers of nodes.
 * Returns {at: [x, y] of the middle of each node, lines: points of each edge, width, height}.
 */
export function layered(sizes, edges, { gap = 12, space = 60 } = {}) {
  const before = sizes.map(() => []);
  const after = sizes.map(() => []);
  for (const [from, to] of edges) {
    after[from].push(to);
    before[to].push(from);
  }
  const levels = levelsOf(before, after);
  const position = new Float64Array(sizes.length);
  levels.forEach((level) => level.forEach((node, at) => (position[node] = at - level.length / 2)));
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const isForward = sweep % 2 === 0;
    const neighbours = isForward ? before : after;
    for (const level of isForward ? levels : [...levels].reverse()) orderLevel(level, neighbours, position);
  }
  return positioned(sizes, edges, levels, { gap, space, before, after });
}

function orderLevel(level, neighbours, position) {
  const averages = new Map(
    level.map((node) => {
      const all = neighbours[node];
      return [node, all.length ? all.reduce((sum, each) => sum + position[each], 0) / all.length : position[node]];
    }),
  );
  level.sort((a, b) => averages.get(a) - averages.get(b) || position[a] - position[b]);
  level.forEach((node, at) => (position[node] = at - level.length / 2));
}

function levelsOf(before, after) {
  const levelOf = before.map(() => 0);
  const missing = before.map((all) => all.length);
  const ready = before.flatMap((all, node) => (all.length ? [] : [node]));
  for (let at = 0; at < ready.length; at += 1) {
    for (const next of after[ready[at]]) {
      levelOf[next] = Math.max(levelOf[next], levelOf[ready[at]] + 1);
      missing[next] -= 1;
      if (missing[next] === 0) ready.push(next);
    }
  }
  const levels = [];
  levelOf.forEach((level, node) => (levels[level] ??= []).push(node));
  return levels.map((level) => level ?? []);
}

function positioned(sizes, edges, levels, { gap, space, before, after }) {
  const at = sizes.map(() => [0, 0]);
  let x = 0;
  for (const level of levels) {
    const width = Math.max(0, ...level.map((node) => sizes[node][0]));
    let y = -(level.reduce((sum, node) => sum + sizes[node][1] + gap, 0) - gap) / 2;
    for (const node of level) {
      at[node] = [x + width / 2, y + sizes[node][1] / 2];
      y += sizes[node][1] + gap;
    }
    x += width + space;
  }
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const isForward = sweep % 2 === 0;
    for (const level of isForward ? levels : [...levels].reverse()) moveLevel(level, isForward ? before : after, at, sizes, gap);
  }
  const top = Math.min(0, ...at.map(([, y], node) => y - sizes[node][1] / 2));
  const bottom = Math.max(0, ...at.map(([, y], node) => y + sizes[node][1] / 2));
  for (const point of at) point[1] -= top;
  const lines = edges.map(([from, to]) => [
    [at[from][0] + sizes[from][0] / 2, at[from][1]],
    [at[to][0] - sizes[to][0] / 2, at[to][1]],
  ]);
  return { at, lines, width: Math.max(0, x - space), height: bottom - top };
}

/** Move the nodes of a level next to their neighbours, in their order and without overlaps. */
function moveLevel(level, neighbours, at, sizes, gap) {
  const runs = [];
  for (const node of level) {
    const all = neighbours[node];
    const center = all.length ? all.reduce((sum, each) => sum + at[each][1], 0) / all.length : at[node][1];
    let run = { nodes: [node], weight: 1, top: center - sizes[node][1] / 2, height: sizes[node][1] };
    // Nodes that would overlap form a stack around their average position.
    while (runs.length && runs.at(-1).top + runs.at(-1).height + gap > run.top) {
      const last = runs.pop();
      const height = last.height + gap + run.height;
      const middle = (last.top * last.weight + (run.top - last.height - gap) * run.weight) / (last.weight + run.weight);
      run = { nodes: last.nodes.concat(run.nodes), weight: last.weight + run.weight, top: middle, height };
    }
    runs.push(run);
  }
  for (const { nodes, top } of runs) {
    let y = top;
    for (const node of nodes) {
      at[node][1] = y + sizes[node][1] / 2;
      y += sizes[node][1] + gap;
    }
  }
}
