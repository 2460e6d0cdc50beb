// States of nodes and runs. Each state has a sign and a word; no state is shown only by its colour.

import { el } from "./dom.js";

/** State -> sign. The colours are in console.css, as `--s-STATE`. */
export const SIGNS = {
  pending: "○",
  ready: "◔",
  running: "▶",
  waiting: "‖",
  completed: "✓",
  completed_with_failures: "!",
  failed: "✗",
  skipped: "↷",
  blocked: "⊘",
  cancelled: "■",
  superseded: "↺",
};

/** States of whole runs, for filters. */
export const RUN_STATES = ["running", "waiting", "completed", "completed_with_failures", "failed", "cancelled"];

/** Final states of runs. */
export const ENDED_RUN_STATES = new Set(["completed", "completed_with_failures", "failed", "cancelled"]);

/** Final states of nodes. */
export const ENDED_NODE_STATES = new Set(["completed", "failed", "skipped", "blocked", "cancelled", "superseded"]);

/** A state as text, such as `completed with failures`. */
export function stateLabel(status) {
  return String(status).replaceAll("_", " ");
}

/** A state as sign and word. */
export function stateMark(status) {
  return el(
    "span",
    { class: "state", "data-state": status },
    el("span", { class: "sign", "aria-hidden": "true" }, SIGNS[status] ?? "?"),
    stateLabel(status),
  );
}

/** Number of nodes by state, in the order of the signs: `12 completed, 1 failed`. */
export function countText(counts) {
  const states = Object.keys(SIGNS).filter((status) => counts[status]);
  return states.map((status) => `${counts[status].toLocaleString("en")} ${stateLabel(status)}`).join(", ");
}
