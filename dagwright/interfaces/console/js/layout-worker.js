// Computes layouts in a worker: with dagre, whose edges avoid nodes, up to a size that it can handle.

import "./as-window.js";
import "../layout/dagre.js";
import { layered } from "./layered.js";

// Measured: dagre takes up to a second for 200 nodes, up to half a minute for 2,000; a row of 2,000 overflows its stack.
const MAX_NODES = 150;
const MAX_EDGES = 300;

self.onmessage = ({ data: { turn, sizes, edges } }) => {
  self.postMessage({ turn, ...laidOut(sizes, edges) });
};

function laidOut(sizes, edges) {
  if (sizes.length > MAX_NODES || edges.length > MAX_EDGES) return layered(sizes, edges);
  const { dagre } = self;
  const graph = new dagre.graphlib.Graph();
  graph.setGraph({ rankdir: "LR", nodesep: 14, ranksep: 46, edgesep: 8 });
  graph.setDefaultEdgeLabel(() => ({}));
  sizes.forEach(([width, height], node) => graph.setNode(node, { width, height }));
  for (const [from, to] of edges) graph.setEdge(from, to);
  dagre.layout(graph);
  const at = sizes.map((_, node) => [graph.node(node).x, graph.node(node).y]);
  const lines = edges.map(([from, to]) => graph.edge(from, to).points.map(({ x, y }) => [x, y]));
  const { width, height } = graph.graph();
  return { at, lines, width, height };
}
