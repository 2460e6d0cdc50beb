// Finds nodes by title, ID, tool or state.

import { el, fill } from "./dom.js";
import { stateMark, stateLabel } from "./states.js";

const MAX_MATCHES = 30;

export class Finder {
  #runGraph;
  #onFound;

  constructor(runGraph, { onFound }) {
    this.#runGraph = runGraph;
    this.#onFound = onFound;
    this.list = el("ul", { class: "found", hidden: true, "aria-label": "Found" });
    this.field = el("input", {
      type: "search",
      placeholder: "Find a node",
      "aria-label": "Find a node by title, id, tool or state",
      oninput: () => this.#search(),
    });
    this.count = el("span", { class: "hint", role: "status" });
    this.element = el("span", { class: "finder" }, this.field, this.count, this.list);
    this.element.addEventListener("keydown", (event) => this.#handleKey(event));
  }

  #search() {
    const query = this.field.value.trim().toLowerCase();
    const matches = query ? this.#findMatches(query) : [];
    this.list.hidden = !matches.length;
    const countText = matches.length > MAX_MATCHES ? `the first ${MAX_MATCHES} of ${matches.length.toLocaleString("en")}` : `${matches.length}`;
    this.count.textContent = query ? `${countText} found` : "";
    fill(
      this.list,
      matches.slice(0, MAX_MATCHES).map((node) =>
        el("li", {}, el("button", { type: "button", onclick: () => this.#choose(node.node_id) }, stateMark(node.status), ` ${node.title || node.node_id} `, el("span", { class: "hint" }, node.title ? node.node_id : ""))),
      ),
    );
  }

  #findMatches(query) {
    const nodes = [...this.#runGraph.nodes.values()];
    const searchText = (node) => `${node.title ?? ""}\n${node.node_id}\n${node.tool ?? ""}\n${stateLabel(node.status)}`.toLowerCase();
    return nodes.filter((node) => searchText(node).includes(query));
  }

  #choose(id) {
    this.list.hidden = true;
    this.#onFound(id);
  }

  #handleKey(event) {
    if (event.key === "Escape") {
      this.list.hidden = true;
      this.field.focus();
    } else if (event.key === "Enter" && event.target === this.field) {
      this.list.querySelector("button")?.click();
    } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      const focusTargets = [this.field, ...this.list.querySelectorAll("button")];
      focusTargets[focusTargets.indexOf(document.activeElement) + (event.key === "ArrowDown" ? 1 : -1)]?.focus();
    } else {
      return;
    }
    event.preventDefault();
  }
}
