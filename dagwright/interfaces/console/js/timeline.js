// The timeline: one row per started node, in the order in which the nodes started.

import { el, fill } from "./dom.js";
import { SIGNS, stateMark, stateLabel } from "./states.js";
import { durationText } from "./times.js";

const MAX_ROWS = 500;
const PAUSE_FACTOR = 20; // the pause after drawing is at least twenty times as long as the drawing

export class Timeline {
  #runGraph;
  #onSelect;
  #rows = new Map();
  #timer = null;
  #selectedId = null;
  #nextDrawMs = 0; // time from which the timeline may be drawn again

  constructor(runGraph, { onSelect }) {
    this.#runGraph = runGraph;
    this.#onSelect = onSelect;
    this.list = el("ol", { "aria-label": "Nodes in the order of their starts", tabindex: "0" });
    this.summary = el("p", { class: "hint" });
    this.element = el("section", { class: "timeline", "aria-label": "Timeline" }, el("h2", {}, "Timeline"), this.summary, this.list);
  }

  draw() {
    this.#draw();
  }

  /** Draw changes; a timeline that is slow to draw is drawn less often. */
  update() {
    this.#timer ??= setTimeout(() => {
      this.#timer = null;
      this.#draw();
    }, Math.max(0, this.#nextDrawMs - performance.now()));
  }

  close() {
    clearTimeout(this.#timer);
  }

  /** Extends the bars of running nodes. */
  tick() {
    if ([...this.#rows.values()].some(({ hasEnded }) => !hasEnded)) this.#draw();
  }

  select(id) {
    this.#rows.get(this.#selectedId)?.row.classList.remove("chosen");
    this.#selectedId = id;
    this.#rows.get(id)?.row.classList.add("chosen");
  }

  #draw() {
    const startMs = performance.now();
    this.#drawRows();
    const endMs = performance.now();
    this.#nextDrawMs = endMs + PAUSE_FACTOR * (endMs - startMs);
  }

  #drawRows() {
    const startedNodes = [...this.#runGraph.nodes.values()].filter((node) => node.started_at);
    startedNodes.sort((a, b) => Date.parse(a.started_at) - Date.parse(b.started_at));
    const visibleNodes = startedNodes.slice(-MAX_ROWS);
    const now = Date.now();
    const firstStartMs = startedNodes.length ? Date.parse(startedNodes[0].started_at) : now;
    const lastEndMs = Math.max(firstStartMs + 1, ...startedNodes.map((node) => (node.ended_at ? Date.parse(node.ended_at) : now)));
    this.summary.textContent = summaryOf(startedNodes, visibleNodes, durationText(lastEndMs - firstStartMs));
    this.list.style.setProperty("--t0", "0");
    this.list.style.setProperty("--span", String(lastEndMs - firstStartMs));
    const visibleIds = new Set();
    visibleNodes.forEach((node, index) => {
      visibleIds.add(node.node_id);
      const entry = this.#rows.get(node.node_id) ?? this.#createRow(node);
      this.#updateRow(entry, node, { firstStartMs, now });
      if (this.list.children[index] !== entry.row) this.list.insertBefore(entry.row, this.list.children[index] ?? null);
    });
    for (const [id, { row }] of this.#rows) {
      if (visibleIds.has(id)) continue;
      row.remove();
      this.#rows.delete(id);
    }
  }

  #createRow(node) {
    const stateElement = el("span", { class: "state" });
    const bar = el("span", { class: "span" });
    const durationLabel = el("span", { class: "took" });
    const button = el(
      "button",
      { type: "button", onclick: () => this.#onSelect(node.node_id) },
      stateElement,
      el("span", { class: "name" }, node.title || node.node_id),
      el("span", { class: "track", "aria-hidden": "true" }, bar),
      durationLabel,
    );
    const entry = { row: el("li", { class: node.node_id === this.#selectedId && "chosen", "data-node": node.node_id }, button), stateElement, bar, durationLabel, button, hasEnded: false };
    this.#rows.set(node.node_id, entry);
    return entry;
  }

  #updateRow(entry, node, { firstStartMs, now }) {
    const startedMs = Date.parse(node.started_at);
    const endedMs = node.ended_at ? Date.parse(node.ended_at) : now;
    entry.hasEnded = Boolean(node.ended_at);
    entry.bar.style.setProperty("--from", String(startedMs - firstStartMs));
    entry.bar.style.setProperty("--to", String(endedMs - firstStartMs));
    const duration = durationText(endedMs - startedMs);
    if (entry.durationLabel.textContent !== duration) entry.durationLabel.textContent = duration;
    if (entry.bar.dataset.state === node.status) return;
    entry.bar.dataset.state = node.status;
    fill(entry.stateElement, el("span", { class: "sign", title: stateLabel(node.status) }, SIGNS[node.status] ?? "?"));
    entry.stateElement.dataset.state = node.status;
    entry.stateElement.setAttribute("aria-label", stateMark(node.status).textContent);
    entry.stateElement.setAttribute("role", "img");
  }
}

function summaryOf(startedNodes, visibleNodes, duration) {
  if (startedNodes.length === 0) return "No node has started since this page was opened.";
  if (startedNodes.length > visibleNodes.length) return `The last ${MAX_ROWS} of ${startedNodes.length.toLocaleString("en")} nodes that started, over ${duration}.`;
  const hasRunningNodes = startedNodes.some((node) => !node.ended_at);
  return hasRunningNodes ? `${duration} since the start of the first node.` : `${duration} from the start of the first node to the end of the last.`;
}
