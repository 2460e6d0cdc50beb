// Acts on a run, or on one of its nodes.

import { el, say } from "./dom.js";
import { runPath } from "./api.js";
import { ENDED_RUNS } from "./states.js";

/**
 * The acts that a run, or a node of it, can take now.
 *
 * run: as `GET /v1/runs/ID` tells it; its `workflow_id` and `status` count.
 * node: as `GET /v1/runs/ID/nodes/NODE` tells it, or null for the run as a whole.
 *
 * The run view makes it anew whenever the status of either is another one.
 */
export function steering(run, node, { api }) {
  if (node !== null || ENDED_RUNS.has(run.status)) return el("span");
  const act = (name) => async () => {
    try {
      say((await api.post(runPath(run.workflow_id, `/${name}`))).message);
    } catch (error) {
      say(error.message);
    }
  };
  const button = (words, name) => el("button", { type: "button", onclick: act(name) }, words);
  return el("span", { class: "acts" }, button("Pause", "pause"), button("Resume", "resume"), button("Cancel", "cancel"));
}
