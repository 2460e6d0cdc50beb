// Acts on a run, or on one of its nodes: each asks in a dialog for what it needs.

import { nodePath, runPath } from "./api.js";
import { openDialog, runName } from "./dialog.js";
import { el, say } from "./dom.js";
import { openFork } from "./fork.js";
import { jsonForm } from "./forms.js";
import { openLimits } from "./limits.js";
import { onThisPage } from "./page.js";
import { ENDED, ENDED_RUNS } from "./states.js";
import { who, whoField } from "./who.js";

/** States of nodes that can be tried again while their run goes on. */
const MENDABLE = new Set(["failed", "cancelled"]);

const NEW_NODES = [{ id: "more", tool: "calculator", arguments: { expression: "1 + 1" } }];

/**
 * The acts that a run, or a node of it, can take now.
 *
 * run: as `GET /v1/runs/ID` returns it; its `run_id`, `title`, `status` and `notes` count.
 * node: as `GET /v1/runs/ID/nodes/NODE` tells it, or null for the run as a whole.
 *
 * The run view makes it anew whenever `steeringKey` is another one.
 */
export function steering(run, node, { api, go }) {
  const acts = node === null ? ofRun(run, { api, go }) : ofNode(run, node, { api, go });
  const label = node === null ? "Steer the run" : `Steer ${node.node_id}`;
  const buttons = acts.map(([words, act, kind]) => el("button", { type: "button", class: kind ?? "", onclick: act }, words));
  return el("span", { class: "acts steering", role: "group", "aria-label": label }, buttons);
}

/** What the acts of a run depend on. */
export function steeringKey(run) {
  return `${run.status} ${isPaused(run)}`;
}

/** Whether nothing new starts in a run. */
export function isPaused(run) {
  return (run.notes ?? []).some((note) => note.code === "paused");
}

function ofRun(run, { api, go }) {
  const fork = ["Fork", () => openFork(run, { api, go })];
  if (ENDED_RUNS.has(run.status)) return [fork];
  const pause = isPaused(run)
    ? ["Resume", () => atOnce(api, run, "/resume")]
    : ["Pause", () => withReason(api, run, { title: "Pause the run", act: "Pause", rest: "/pause", words: PAUSE })];
  return [
    pause,
    ["Limits", () => openLimits(run, { api })],
    ["Add nodes", () => append(api, run)],
    fork,
    ["Cancel the run", () => withReason(api, run, { title: "Cancel the run", act: "Cancel the run", rest: "/cancel", words: CANCEL, isDangerous: true }), "danger"],
  ];
}

const PAUSE = "What runs goes on to its end; nothing new starts until somebody resumes the run.";
const CANCEL = "What runs is told to stop and waited for; results that are there are kept. A cancelled run does not go on again, but can be forked.";

async function atOnce(api, run, rest) {
  const isHere = onThisPage();
  const report = (words) => say(isHere() ? words : `${runName(run)}: ${words}`);
  try {
    report((await api.post(runPath(run.run_id, rest), { by: who() })).message);
  } catch (error) {
    report(error.message);
  }
}

function reasonField() {
  const field = el("textarea", { id: "act-reason", rows: "2" });
  const read = () => field.value.trim() || null;
  return { element: el("div", {}, el("label", { for: field.id }, "Reason (may be empty)"), field), read };
}

function withReason(api, run, { title, act, rest, words, isDangerous = false }) {
  const reason = reasonField();
  const send = async () => (await api.post(runPath(run.run_id, rest), { reason: reason.read(), by: who() })).message;
  const acts = [{ words: act, isMain: !isDangerous, isDangerous, run: send }];
  openDialog(title, { run, content: [el("p", {}, words), reason.element, whoField()], acts });
}

function append(api, run) {
  const nodes = jsonForm({ value: NEW_NODES, label: "Nodes, a list as in a plan written as JSON" });
  const send = async () => {
    const { value, problems } = nodes.read();
    if (problems.length) return undefined;
    const listed = Array.isArray(value) ? value : [value];
    return (await api.post(runPath(run.run_id, "/nodes"), { nodes: listed, by: who() })).message;
  };
  const words = "They may refer to every node of the run, and are checked before any is added.";
  openDialog("Add nodes", { run, content: [el("p", {}, words), nodes.element], acts: [{ words: "Add", isMain: true, run: send }], isWide: true });
}

function ofNode(run, node, { api, go }) {
  const fork = ["Fork from here", () => openFork(run, { api, go, rerun: [node.node_id] })];
  if (ENDED_RUNS.has(run.status)) return [fork];
  const acts = [];
  if (isAtLimit(run, node)) acts.push(["Raise a limit", () => openLimits(run, { api })]);
  if (MENDABLE.has(node.status)) acts.push(["Try again", () => retry(api, run, node)]);
  if (node.status !== "completed" && node.status !== "running") acts.push(["Give its result", () => setResult(api, run, node)]);
  if (!ENDED.has(node.status)) acts.push(["Cancel", () => cancelNode(api, run, node), "danger"]);
  return [...acts, fork];
}

// Ready nodes wait for room among those that run. One of a sub-plan waits for a limit of that.
function isAtLimit(run, node) {
  const isOwn = node.run_id === undefined || node.run_id === run.run_id;
  return node.reason?.startsWith("budget (") || (node.status === "ready" && isOwn && !isPaused(run));
}

function retry(api, run, node) {
  const given = jsonForm({ label: "Other arguments, as an object", required: false });
  const send = async () => {
    const { value, problems } = given.read();
    if (problems.length) return undefined;
    return (await api.post(nodePath(run.run_id, node.node_id, "/retry"), { arguments: value, by: who() })).message;
  };
  const words = "The call is made again with its key. With other arguments it is a new node that takes the place of this one.";
  openDialog(`Try ${node.node_id} again`, { run, content: [el("p", {}, words), given.element], acts: [{ words: "Try again", isMain: true, run: send }] });
}

function setResult(api, run, node) {
  const result = jsonForm({ label: "Result" });
  const reason = reasonField();
  const send = async () => {
    const { value, problems } = result.read();
    if (problems.length) return undefined;
    const body = { result: value, reason: reason.read(), by: who() };
    return (await api.post(nodePath(run.run_id, node.node_id, "/result"), body)).message;
  };
  const words = "The node does not run any more; what waits for it goes on with this.";
  const content = [el("p", {}, words), result.element, reason.element];
  openDialog(`Give ${node.node_id} its result`, { run, content, acts: [{ words: "Give it", isMain: true, run: send }] });
}

function cancelNode(api, run, node) {
  const branch = el("input", { type: "checkbox", id: "act-branch" });
  const reason = reasonField();
  const send = async () => {
    const body = { branch: branch.checked, reason: reason.read(), by: who() };
    return (await api.post(nodePath(run.run_id, node.node_id, "/cancel"), body)).message;
  };
  const content = [
    el("p", {}, "What needs it is blocked, as after a failure; all else goes on."),
    el("label", { class: "choice", for: branch.id }, branch, " Cancel what needs it as well (the whole branch)"),
    reason.element,
  ];
  openDialog(`Cancel ${node.node_id}`, { run, content, acts: [{ words: "Cancel it", isDangerous: true, run: send }] });
}
