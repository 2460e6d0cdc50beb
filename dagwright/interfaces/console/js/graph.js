// Draws the graph of a run, with panning, zoom, search and keyboard navigation.
//
// For smooth panning with 2,000 nodes, the page contains only the visible parts of the graph, and boxes that are too small
// to read are rectangles without text.

import { Boxes } from "./boxes.js";
import { announce, el, fill, svg } from "./dom.js";
import { Finder } from "./finder.js";
import { isPartOf } from "./run_graph.js";
import { Viewport } from "./viewport.js";

const MIN_READABLE_SCALE = 0.5; // scale below which text is hidden
const MARGIN = 400; // width of the area around the visible part that is also drawn, in px

export class GraphView {
  #runGraph;
  #onSelect;
  #worker = new Worker(new URL("./layout-worker.js", import.meta.url), { type: "module" });
  #layoutNumber = 0;
  #drawing = null; // result of RunGraph.boxes() with `indexes` and `numberedEdges`; after the layout also with positions
  #nextDrawing = null; // the drawing whose layout the worker computes
  #signature = "";
  #selectedId = null;
  #changedIds = new Set();
  #frame = null;
  #drawnArea = null; // the area that was drawn last
  #hasFitted = false;
  #target = null; // {key, focus} of the box to go to after the layout

  constructor(runGraph, { onSelect }) {
    this.#runGraph = runGraph;
    this.#onSelect = onSelect;
    this.lines = svg("path", { class: "edge" });
    this.selectedLines = svg("path", { class: "edge near" });
    this.boxes = new Boxes(runGraph);
    this.scene = svg("g", {}, this.lines, this.selectedLines, this.boxes.element);
    this.canvas = svg("svg", { role: "group", "aria-label": "Graph. Arrow keys follow the edges, Enter opens a box." }, this.scene);
    this.summary = el("span", { class: "hint", role: "status" }, "Laying out …");
    this.openGroupButtons = el("span", { class: "opened" });
    this.foldButton = el("button", { type: "button", "aria-pressed": "false", hidden: true, onclick: () => this.#toggleFold() }, "Fold");
    this.viewport = new Viewport(this.canvas, { onMove: () => this.#handleViewChange(), onTap: (target) => this.#handleTap(target) });
    this.finder = new Finder(runGraph, { onFound: (id) => this.#goTo(id) });
    const button = (caption, label, onclick) => el("button", { type: "button", "aria-label": label, title: label, onclick }, caption);
    this.element = el(
      "section",
      { class: "graph", "aria-label": "Graph" },
      el(
        "div",
        { class: "tools" },
        this.finder.element,
        button("+", "Zoom in", () => this.viewport.zoom(1.4)),
        button("−", "Zoom out", () => this.viewport.zoom(1 / 1.4)),
        button("Fit", "Show all", () => this.#fit()),
        this.foldButton,
        this.openGroupButtons,
        this.summary,
      ),
      this.canvas,
    );
    this.canvas.addEventListener("keydown", (event) => this.#handleKey(event));
    this.#worker.onmessage = ({ data }) => this.#applyLayout(data);
    this.#worker.onerror = () => announce("The graph cannot be laid out.");
    this.resizeObserver = new ResizeObserver(() => this.#handleViewChange());
    this.resizeObserver.observe(this.canvas);
  }

  /** Draw the graph, for the first time or after a change of nodes, edges or open groups. */
  draw() {
    const drawing = this.#runGraph.boxes();
    const signature = `${drawing.boxes.map((box) => box.key).join("\n")}\n\n${drawing.edges.length}`;
    if (signature === this.#signature && this.#drawing?.centers) {
      Object.assign(this.#drawing, { boxes: drawing.boxes, boxOf: drawing.boxOf });
      this.#redraw();
      return;
    }
    this.#signature = signature;
    this.#layoutNumber += 1;
    const indexes = new Map(drawing.boxes.map((box, number) => [box.key, number]));
    drawing.indexes = indexes;
    // Edges as [from, to], with numbers of boxes.
    drawing.numberedEdges = drawing.edges.map(([from, to]) => [indexes.get(from), indexes.get(to)]);
    this.#nextDrawing = drawing;
    this.#worker.postMessage({ layoutNumber: this.#layoutNumber, sizes: drawing.boxes.map((box) => this.boxes.size(box)), edges: drawing.numberedEdges });
  }

  #applyLayout({ layoutNumber, centers, lines, width, height }) {
    if (layoutNumber !== this.#layoutNumber) return;
    this.#drawing = Object.assign(this.#nextDrawing, { centers, lines, width, height });
    // Number of a box -> [incoming edges, outgoing edges].
    this.#drawing.edgesOfBox = centers.map(() => [[], []]);
    this.#drawing.numberedEdges.forEach(([from, to], edge) => {
      this.#drawing.edgesOfBox[from][1].push(edge);
      this.#drawing.edgesOfBox[to][0].push(edge);
    });
    const groups = this.#drawing.boxes.filter((box) => box.members).length;
    const nodes = this.#runGraph.nodes.size;
    this.summary.textContent = `${nodes.toLocaleString("en")} ${nodes === 1 ? "node" : "nodes"}${groups ? ` in ${groups.toLocaleString("en")} groups` : ""}`;
    this.boxes.clear();
    this.#showOpenGroups();
    this.foldButton.hidden = !this.#runGraph.hasGroups;
    if (!this.#hasFitted) this.viewport.fit(width, height, { minScale: groups ? MIN_READABLE_SCALE : 0 });
    this.#hasFitted = true;
    this.#redraw();
    if (this.#target !== null) this.#show(this.#target);
    this.element.dataset.drawn = String(layoutNumber);
  }

  /** Update the states of changed nodes. */
  updateStates(ids) {
    for (const id of ids) this.#changedIds.add(id);
    this.#schedulePaint();
  }

  /** Mark the selected node; `null` removes the mark. */
  select(id) {
    this.#selectedId = id;
    if (id !== null && this.#runGraph.find(id)) this.#goTo(id, { focus: false });
    this.#redraw();
  }

  close() {
    this.#worker.terminate();
    this.resizeObserver.disconnect();
    cancelAnimationFrame(this.#frame);
  }

  #fit() {
    if (this.#drawing?.centers) this.viewport.fit(this.#drawing.width, this.#drawing.height);
  }

  #redraw() {
    this.#drawnArea = null;
    this.#handleViewChange();
  }

  #handleViewChange() {
    this.#schedulePaint();
  }

  #schedulePaint() {
    this.#frame ??= requestAnimationFrame(() => {
      this.#frame = null;
      this.#paint();
    });
  }

  #paint() {
    const drawing = this.#drawing;
    if (!drawing?.centers) return;
    this.scene.setAttribute("transform", this.viewport.transform);
    const isZoomedOut = this.viewport.scale < MIN_READABLE_SCALE;
    const visibleArea = this.viewport.visibleArea;
    if (this.#changedIds.size) {
      const keys = new Set([...this.#changedIds].map((id) => drawing.boxOf.get(id) ?? id));
      this.#changedIds.clear();
      this.boxes.update(keys);
    }
    if (this.#drawnArea && this.#drawnArea.isZoomedOut === isZoomedOut && isInside(visibleArea, this.#drawnArea)) return;
    // At a small scale, all boxes (at most 2,000 rectangles) are drawn, so that panning draws no boxes.
    const area = isZoomedOut ? { left: -Infinity, top: -Infinity, right: Infinity, bottom: Infinity } : expandArea(visibleArea, MARGIN);
    this.#drawnArea = { ...area, isZoomedOut };
    this.boxes.show(drawing, area, { isZoomedOut, selectedKey: this.#selectedKey() });
    this.scene.classList.toggle("far", isZoomedOut);
    const lines = drawing.lines.filter((line) => intersects(line, area));
    this.lines.setAttribute("d", isZoomedOut ? straightLines(lines) : curves(lines));
    const selectedEdges = drawing.edgesOfBox[drawing.indexes.get(this.#selectedKey())];
    this.selectedLines.setAttribute("d", selectedEdges ? curves(selectedEdges.flat().map((edge) => drawing.lines[edge])) : "");
  }

  #selectedKey() {
    if (this.#selectedId === null) return null;
    return this.#drawing?.indexes.has(this.#selectedId) ? this.#selectedId : (this.#drawing?.boxOf.get(this.#selectedId) ?? null);
  }

  #handleTap(target) {
    const key = target.closest?.(".box")?.dataset.key;
    if (key === undefined) return;
    const box = this.#drawing.boxes[this.#drawing.indexes.get(key)];
    this.boxes.focus(key);
    this.#activate(box, { isOpener: target.closest(".opener") !== null });
  }

  #activate(box, { isOpener = false } = {}) {
    if (box.members) this.#toggle(box.key, box.label);
    else if (isOpener) this.#toggle(this.boxes.itemsKey(box), `Items of ${this.#runGraph.find(box.id).title || box.id}`);
    else this.#onSelect(box.id);
  }

  /** Switch between one box per group and one box per node. */
  #toggleFold() {
    this.#runGraph.isFolded = !this.#runGraph.isFolded;
    this.#runGraph.openGroups.clear();
    this.foldButton.setAttribute("aria-pressed", String(this.#runGraph.isFolded));
    this.draw();
  }

  /** Open a group and go to its first member, or close the group. */
  #toggle(key, label) {
    this.#runGraph.toggle(key, label);
    const member = this.#runGraph.openGroups.has(key) && this.#runGraph.boxes().boxes.find((box) => box.openGroup?.key === key || isPartOf(box.key, key));
    this.#target = member ? { key: member.key, focus: true } : null;
    this.draw();
  }

  #showOpenGroups() {
    const close = (key, label) =>
      el("button", { type: "button", "aria-label": `Close ${label}`, onclick: () => this.#toggle(key) }, `${label} ✕`);
    fill(this.openGroupButtons, [...this.#runGraph.openGroups].map(([key, label]) => close(key, label)));
  }

  /** Go to a node, and open its groups. */
  #goTo(id, { focus = true } = {}) {
    this.#runGraph.reveal(id);
    this.#target = { key: id, focus };
    this.draw();
    if (this.#drawing?.centers && this.#drawing.indexes.has(id)) this.#show(this.#target);
  }

  #show({ key, focus }) {
    const drawing = this.#drawing;
    const number = drawing.indexes.get(key) ?? drawing.indexes.get(drawing.boxOf.get(key));
    if (number === undefined) return;
    this.#target = null;
    const [x, y] = drawing.centers[number];
    if (focus) this.viewport.center(x, y, MIN_READABLE_SCALE);
    else this.viewport.bringIntoView(x, y);
    this.#redraw();
    this.#paint();
    if (focus) this.boxes.focus(drawing.boxes[number].key);
  }

  #handleKey(event) {
    const key = event.target.closest?.(".box")?.dataset.key;
    const zooms = { "+": 1.4, "=": 1.4, "-": 1 / 1.4 };
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (zooms[event.key]) this.viewport.zoom(zooms[event.key]);
    else if (event.key === "0") this.#fit();
    else if (key !== undefined && (event.key === "Enter" || event.key === " "))
      this.#activate(this.#drawing.boxes[this.#drawing.indexes.get(key)]);
    else if (key !== undefined && event.key.startsWith("Arrow")) this.#step(this.#drawing.indexes.get(key), event.key);
    else return;
    event.preventDefault();
  }

  /** Go from a box along an edge, or to the box above or below it. */
  #step(from, arrow) {
    const { edgesOfBox, numberedEdges, centers, boxes } = this.#drawing;
    let next;
    if (arrow === "ArrowRight") next = edgesOfBox[from][1].map((edge) => numberedEdges[edge][1])[0];
    else if (arrow === "ArrowLeft") next = edgesOfBox[from][0].map((edge) => numberedEdges[edge][0])[0];
    else next = nearestInColumn(centers, from, arrow === "ArrowDown" ? 1 : -1);
    if (next === undefined) return;
    this.viewport.bringIntoView(...centers[next]);
    this.#redraw();
    this.boxes.currentKey = boxes[next].key;
    this.#paint();
    this.boxes.focus(boxes[next].key);
  }
}

/** The number of the nearest box in the column of the box `from`: `sign` is 1 for a box below, -1 for a box above. */
function nearestInColumn(centers, from, sign) {
  let nearest;
  centers.forEach(([x, y], number) => {
    const distance = (y - centers[from][1]) * sign;
    if (Math.abs(x - centers[from][0]) < 60 && distance > 0 && (nearest === undefined || distance < (centers[nearest][1] - centers[from][1]) * sign)) nearest = number;
  });
  return nearest;
}

function expandArea({ left, top, right, bottom }, margin) {
  return { left: left - margin, top: top - margin, right: right + margin, bottom: bottom + margin };
}

function isInside(inner, outer) {
  return inner.left >= outer.left && inner.top >= outer.top && inner.right <= outer.right && inner.bottom <= outer.bottom;
}

function intersects(line, { left, top, right, bottom }) {
  const [a, b] = [line[0], line.at(-1)];
  return Math.max(a[0], b[0]) >= left && Math.min(a[0], b[0]) <= right && Math.max(a[1], b[1]) >= top && Math.min(a[1], b[1]) <= bottom;
}

/** Lines as one path: an S-curve for a line of two points, a smooth curve for more points. */
function curves(lines) {
  const { round } = Math;
  return lines
    .map((points) => {
      const [x, y] = points[0];
      if (points.length > 2) return smoothCurve(points);
      const [u, v] = points[1];
      const half = (x + u) / 2;
      return `M${round(x)} ${round(y)}C${round(half)} ${round(y)} ${round(half)} ${round(v)} ${round(u)} ${round(v)}`;
    })
    .join("");
}

/** Lines as one path that is quick to draw. */
function straightLines(lines) {
  const { round } = Math;
  return lines.map((points) => `M${points.map(([x, y]) => `${round(x)} ${round(y)}`).join("L")}`).join("");
}

/** A curve through the midpoints between points; the points themselves are control points. */
function smoothCurve(points) {
  const { round } = Math;
  let path = `M${round(points[0][0])} ${round(points[0][1])}`;
  for (let index = 1; index < points.length - 1; index += 1) {
    const [x, y] = points[index];
    const isLast = index === points.length - 2;
    const [u, v] = isLast ? points[index + 1] : [(x + points[index + 1][0]) / 2, (y + points[index + 1][1]) / 2];
    path += `Q${round(x)} ${round(y)} ${round(u)} ${round(v)}`;
  }
  return path;
}
