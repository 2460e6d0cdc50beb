// Lays out graphs beside the page: by dagre, whose lines go around nodes, up to a size that it can do at once.

import "./as-window.js";
import "../layout/dagre.js";
import { layered } from "./layered.js";

// Measured: 200 nodes take dagre a second or less, 2,000 up to half a minute, and a row of 2,000 more stack than there is.
const MOST_NODES = 150;
const MOST_EDGES = 300;

self.onmessage = ({ data: { turn, sizes, edges } }) => {
  self.postMessage({ turn, ...laidOut(sizes, edges) });
};

function laidOut(sizes, edges) {
  if (sizes.length > MOST_NODES || edges.length > MOST_EDGES) return layered(sizes, edges);
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
