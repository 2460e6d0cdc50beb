// Computes graph layouts in a Web Worker, with the library dagre, which routes edges around nodes. Graphs that are too
// large for dagre get a simple layered layout.

import "./as-window.js";
import "../layout/dagre.js";
import { layeredLayout } from "./layered.js";

// Measured: dagre takes up to 1 s for 200 nodes and up to 30 s for 2,000; a chain of 2,000 nodes overflows its call stack.
const MAX_NODES = 150;
const MAX_EDGES = 300;

self.onmessage = ({ data: { layoutNumber, sizes, edges } }) => {
  self.postMessage({ layoutNumber, ...computeLayout(sizes, edges) });
};

function computeLayout(sizes, edges) {
  if (sizes.length > MAX_NODES || edges.length > MAX_EDGES) return layeredLayout(sizes, edges);
  const { dagre } = self;
  const graph = new dagre.graphlib.Graph();
  graph.setGraph({ rankdir: "LR", nodesep: 14, ranksep: 46, edgesep: 8 });
  graph.setDefaultEdgeLabel(() => ({}));
  sizes.forEach(([width, height], node) => graph.setNode(node, { width, height }));
  for (const [from, to] of edges) graph.setEdge(from, to);
  dagre.layout(graph);
  const centers = sizes.map((_, node) => [graph.node(node).x, graph.node(node).y]);
  const lines = edges.map(([from, to]) => graph.edge(from, to).points.map(({ x, y }) => [x, y]));
  const { width, height } = graph.graph();
  return { centers, lines, width, height };
}
