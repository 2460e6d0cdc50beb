// One node or item: arguments, result, lineage, and the explanation of its state.

import { nodePath, runPath } from "./api.js";
import { el, fill, jsonBlock } from "./dom.js";
import { ENDED_NODE_STATES, stateMark } from "./states.js";
import { temporalLink } from "./temporal.js";
import { timeBetweenText, timeText } from "./times.js";

const READ_INTERVAL_MS = 300;
/** Fields of the lineage that are not listed, because other parts of the page show them. */
const FIELDS_SHOWN_ELSEWHERE = new Set(["inputs", "attempts", "started_at", "ended_at"]);

export class Detail {
  #runId;
  #api;
  #go;
  #createCommands;
  #currentRun;
  #onNode;
  #readNumber = 0;
  #timer = null;
  #readAt = 0;
  #commandsState = "";
  #id = null;

  /**
   * createCommands: creates the buttons for the commands of a node.
   * currentRun: returns the current document of the run.
   * go: opens a page.
   * onNode: opens another node.
   */
  constructor(runId, { api, go, createCommands, currentRun, onClose, onNode }) {
    Object.assign(this, { title: el("h2"), actions: el("div", { class: "actions" }), body: el("div"), why: el("div") });
    this.#runId = runId;
    this.#api = api;
    this.#go = go;
    this.#createCommands = createCommands;
    this.#currentRun = currentRun;
    this.#onNode = onNode;
    this.element = el(
      "section",
      { class: "detail", "aria-label": "Node", hidden: true },
      el("header", {}, this.title, el("button", { type: "button", "aria-label": "Close the node", onclick: onClose }, "✕")),
      this.actions,
      this.body,
      this.why,
    );
    this.element.addEventListener("keydown", (event) => event.key === "Escape" && !event.target.closest("dialog") && onClose());
  }

  close() {
    this.#id = null;
    this.#readNumber += 1;
    clearTimeout(this.#timer);
    this.element.hidden = true;
  }

  /** Shows a node, or updates it; the node is read at most a few times per second. */
  show(id) {
    if (id !== this.#id) {
      this.#id = id;
      this.#commandsState = "";
      fill(this.title, id);
      fill(this.actions);
      fill(this.body, el("p", { class: "hint" }, "Loading …"));
      fill(this.why);
      this.element.hidden = false;
      clearTimeout(this.#timer);
      this.#timer = null;
      this.#readAt = 0;
    }
    const waitMs = this.#readAt + READ_INTERVAL_MS - performance.now();
    if (this.#timer === null) this.#timer = setTimeout(() => this.#read(id), Math.max(0, waitMs));
  }

  async #read(id) {
    this.#timer = null;
    this.#readAt = performance.now();
    const readNumber = (this.#readNumber += 1);
    const isCurrent = () => readNumber === this.#readNumber && id === this.#id;
    try {
      const node = await this.#api.get(nodePath(this.#runId, id));
      if (!isCurrent()) return;
      this.#fill(node);
      const explanation = await this.#api.get(runPath(this.#runId, `/explain?node_id=${encodeURIComponent(id)}`));
      if (isCurrent()) this.#showExplanation(explanation);
    } catch (error) {
      if (isCurrent()) fill(this.body, el("p", { class: "problem", role: "alert" }, error.message));
    }
  }

  #fill(node) {
    fill(this.title, node.title || node.node_id);
    const run = this.#currentRun();
    const state = `${run.status} ${node.status} ${node.attempts}`;
    if (state !== this.#commandsState) {
      this.#commandsState = state;
      // The document of a node in a sub-plan has the run ID of the sub-plan.
      fill(this.actions, this.#createCommands(run, node, { api: this.#api, go: this.#go }), temporalLink(node.run_id ?? this.#runId));
    }
    const facts = [
      ["State", el("span", {}, stateMark(node.status), node.reason && ` ${node.reason}`)],
      ["Id", el("code", {}, node.node_id)],
      ["Tool", node.tool],
      ["Attempts", node.attempts || null],
      [node.attempts > 1 ? "Last attempt started" : "Started", node.started_at && el("time", { datetime: node.started_at }, timeText(node.started_at))],
      ["Took", node.started_at && timeBetweenText(node.started_at, ENDED_NODE_STATES.has(node.status) ? node.ended_at : null)],
      ["Needs", this.#links(node.lineage?.inputs)],
      ["Blocked by", this.#links(node.blocked_by)],
      ["Message", node.message],
      ...Object.entries(node.lineage ?? {})
        .filter(([name, value]) => !FIELDS_SHOWN_ELSEWHERE.has(name) && value !== null)
        .map(([name, value]) => [name.replaceAll("_", " "), typeof value === "object" ? jsonBlock(value, name) : String(value)]),
    ];
    fill(
      this.body,
      el("dl", {}, facts.filter(([, value]) => value).map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)])),
      node.notes?.map((note) => el("p", { class: "notice" }, note.message)),
      node.error && el("p", { class: "problem" }, `${node.error.code}: ${node.error.message}`),
      node.arguments != null && [el("h3", {}, "Arguments"), jsonBlock(node.arguments, "Arguments")],
      node.items && [el("h3", {}, "Items"), jsonBlock(node.items, "Items")],
      node.result != null && [el("h3", {}, "Result"), jsonBlock(node.result, "Result")],
      node.usage && [el("h3", {}, "Used"), jsonBlock(node.usage, "Used")],
    );
  }

  #links(ids) {
    if (!ids?.length) return null;
    return el("ul", { class: "links" }, ids.slice(0, 50).map((id) => el("li", {}, this.#link(id))), ids.length > 50 && el("li", {}, `and ${ids.length - 50} more`));
  }

  #link(id) {
    return el("button", { type: "button", class: "link", onclick: () => this.#onNode(id) }, id);
  }

  #showExplanation(explanation) {
    const untilText = (step) => (step.until ? `, until ${timeText(step.until)}` : "");
    const steps = explanation.chain.map((step) => el("li", {}, this.#link(step.node_id), ` ${step.message}${untilText(step)}`));
    fill(this.why, el("h3", {}, "Why"), el("p", {}, explanation.message), steps.length > 0 && el("ol", {}, steps));
  }
}
