// The boxes of a graph: nodes, items, and groups of nodes.

import { svg } from "./dom.js";
import { cutToWidth } from "./text_width.js";
import { itemsKey } from "./run_graph.js";
import { countText, SIGNS, stateLabel } from "./states.js";

const WIDTH = 176;
const HEIGHT = 44;
const GROUP_WIDTH = 220;
const GROUP_HEIGHT = 62;
const TEXT_LEFT = 28; // x of the text, to the right of the sign of the state
const TEXT_WIDTH = WIDTH - TEXT_LEFT - 8;
const OPENER_WIDTH = 44; // width of the control that shows or hides the items of a node
/** Font sizes in px, as in console.css. */
const NAME_SIZE = 13;
const SUB_SIZE = 11;
const MAX_SIGNS_ZOOMED_OUT = 300;
/** A group's state is the first listed state that one of its nodes has, else `completed`. */
const GROUP_STATE_ORDER = ["failed", "waiting", "running", "blocked", "ready", "pending", "cancelled"];

export class Boxes {
  #runGraph;
  #entries = new Map(); // key -> {box, element, isZoomedOut}
  #drawing = null;
  currentKey = null; // key of the box that Tab reaches

  constructor(runGraph) {
    this.#runGraph = runGraph;
    this.element = svg("g");
  }

  /** Width and height of a box. */
  size(box) {
    return box.members ? [GROUP_WIDTH, GROUP_HEIGHT] : [WIDTH, HEIGHT];
  }

  itemsKey(box) {
    return itemsKey(box.id);
  }

  clear() {
    this.#entries.clear();
    this.element.replaceChildren();
  }

  /** Draws the boxes in the visible area, and removes the others. */
  show(drawing, visibleArea, { isZoomedOut, selectedKey }) {
    this.#drawing = drawing;
    if (!drawing.indexes.has(this.currentKey)) this.currentKey = drawing.boxes[0]?.key ?? null;
    const hadFocus = this.element.contains(document.activeElement);
    const visibleKeys = new Set();
    drawing.boxes.forEach((box, number) => {
      const [x, y] = drawing.centers[number];
      const [width, height] = this.size(box);
      const isVisible = x + width / 2 >= visibleArea.left && x - width / 2 <= visibleArea.right && y + height / 2 >= visibleArea.top && y - height / 2 <= visibleArea.bottom;
      if (!isVisible && box.key !== this.currentKey) return;
      visibleKeys.add(box.key);
      const knownEntry = this.#entries.get(box.key);
      if (knownEntry?.isZoomedOut === isZoomedOut) {
        if (knownEntry.box !== box) Object.assign(knownEntry, { box, stateText: null });
        this.#fill(knownEntry);
      } else {
        knownEntry?.element.remove();
        const element = svg("g", { class: "box", "data-key": box.key, role: "button", tabindex: "-1", transform: `translate(${Math.round(x - width / 2)} ${Math.round(y - height / 2)})` });
        const entry = { box, element, isZoomedOut, stateText: null };
        this.#entries.set(box.key, entry);
        this.#fill(entry);
        this.element.append(element);
      }
      this.#entries.get(box.key).element.classList.toggle("chosen", box.key === selectedKey);
    });
    for (const [key, { element }] of this.#entries) {
      if (visibleKeys.has(key)) continue;
      element.remove();
      this.#entries.delete(key);
    }
    const currentElement = this.#entries.get(this.currentKey)?.element;
    currentElement?.setAttribute("tabindex", "0");
    if (hadFocus && currentElement && !this.element.contains(document.activeElement)) currentElement.focus({ preventScroll: true });
  }

  /** Updates the state of drawn boxes. */
  update(keys) {
    for (const key of keys) {
      const entry = this.#entries.get(key);
      if (entry) this.#fill(entry);
      const node = this.#runGraph.nodes.get(key);
      if (node && this.#runGraph.openGroups.has(itemsKey(key))) for (const id of this.#runGraph.items.get(key).keys()) if (this.#entries.has(id)) this.#fill(this.#entries.get(id));
    }
  }

  /** Focuses a box, and makes it the target of Tab. */
  focus(key) {
    this.#entries.get(this.currentKey)?.element.setAttribute("tabindex", "-1");
    this.currentKey = key;
    const element = this.#entries.get(key)?.element;
    element?.setAttribute("tabindex", "0");
    element?.focus({ preventScroll: true });
  }

  #fill(entry) {
    const { box, isZoomedOut } = entry;
    const content = box.members ? this.#groupContent(box) : this.#nodeContent(box);
    const stateText = `${content.state} ${content.label}`;
    if (stateText === entry.stateText) return;
    entry.stateText = stateText;
    entry.element.setAttribute("data-state", content.state);
    entry.element.setAttribute("aria-label", content.label);
    if (box.members) entry.element.setAttribute("aria-expanded", "false");
    const [width, height] = this.size(box);
    entry.element.replaceChildren(
      svg("title", {}, content.label),
      ...(isZoomedOut ? this.#zoomedOutParts(content, width, height) : [svg("rect", { class: "body", width, height, rx: 5 }), ...content.parts()]),
    );
  }

  /** A box that is too small to read: its colour, and its sign unless the graph has too many boxes. */
  #zoomedOutParts({ state }, width, height) {
    const rect = svg("rect", { class: "far", width, height });
    if (this.#drawing.boxes.length > MAX_SIGNS_ZOOMED_OUT) return [rect];
    return [rect, svg("text", { class: "farsign", x: width / 2, y: height / 2 + 13 }, SIGNS[state] ?? "?")];
  }

  #nodeContent(box) {
    const node = this.#runGraph.find(box.id) ?? { status: "pending" };
    const items = box.mapNodeId === undefined ? this.#runGraph.items.get(box.id) : undefined;
    const name = node.title || box.id;
    const caption = `${stateLabel(node.status)}${node.partial ? " in part" : ""}`;
    const attemptText = node.attempts > 1 ? `, attempt ${node.attempts}` : "";
    const completedItems = items ? [...items.values()].filter((item) => item.status === "completed").length : 0;
    const itemsText = items ? `, ${completedItems} of ${items.size} items completed` : "";
    const isOpen = items && this.#runGraph.openGroups.has(itemsKey(box.id));
    return {
      state: node.status,
      label: [`${name}: ${caption}${attemptText}${itemsText}`, node.tool, node.group].filter(Boolean).join(", "),
      parts: () => [
        svg("text", { class: "sign", x: 9, y: 20 }, SIGNS[node.status] ?? "?"),
        svg("text", { x: TEXT_LEFT, y: 19 }, cutToWidth(name, TEXT_WIDTH, NAME_SIZE)),
        svg("text", { class: "sub", x: TEXT_LEFT, y: 35 }, cutToWidth([`${caption}${attemptText}`, node.group, node.tool].filter(Boolean).join(" · "), items ? TEXT_WIDTH - OPENER_WIDTH + 2 : TEXT_WIDTH, SUB_SIZE)),
        items &&
          svg("g", { class: "opener" }, svg("rect", { x: WIDTH - OPENER_WIDTH - 2, y: 25, width: OPENER_WIDTH, height: 17, rx: 3, class: "share" }), svg("text", { class: "sub", x: WIDTH - OPENER_WIDTH + 1, y: 37 }, cutToWidth(`${isOpen ? "▾" : "▸"} ${completedItems}/${items.size}`, OPENER_WIDTH - 4, SUB_SIZE))),
      ].filter(Boolean),
    };
  }

  #groupContent(box) {
    const counts = this.#runGraph.counts(box.members);
    const state = GROUP_STATE_ORDER.find((status) => counts[status]) ?? "completed";
    const total = box.members.length;
    return {
      state,
      label: `${box.label}: ${total.toLocaleString("en")} nodes, ${countText(counts)}`,
      parts: () => [
        svg("text", { class: "sign", x: 9, y: 20 }, "▸"),
        svg("text", { x: TEXT_LEFT, y: 19 }, cutToWidth(box.label, GROUP_WIDTH - TEXT_LEFT - 8, NAME_SIZE)),
        svg("text", { class: "sub", x: TEXT_LEFT, y: 35 }, cutToWidth(`${total.toLocaleString("en")} nodes`, 88, SUB_SIZE)),
        svg("text", { class: "sub", x: 124, y: 35 }, counts.failed ? `✗ ${counts.failed.toLocaleString("en")}` : ""),
        ...stateBar(counts, total),
      ],
    };
  }
}

/** A bar with the share of each state in a group; `other` is the share of all other states. */
function stateBar(counts, total) {
  const barWidth = GROUP_WIDTH - 16;
  let x = 8;
  const namedStates = ["completed", "failed", "blocked", "running", "waiting"];
  return [...namedStates, "other"].map((status) => {
    const count = status === "other" ? total - namedStates.reduce((sum, namedState) => sum + (counts[namedState] ?? 0), 0) : (counts[status] ?? 0);
    const width = (count / total) * barWidth;
    x += width;
    return svg("rect", { class: "share", "data-state": status, x: x - width, y: GROUP_HEIGHT - 14, width, height: 7 });
  });
}
