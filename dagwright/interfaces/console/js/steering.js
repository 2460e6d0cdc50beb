// Commands for a run or one of its nodes. Most commands open a dialog for their parameters.

import { nodePath, runPath } from "./api.js";
import { openDialog, runName } from "./dialog.js";
import { announce, el } from "./dom.js";
import { openFork } from "./fork.js";
import { jsonForm } from "./forms.js";
import { openLimits } from "./limits.js";
import { createPageCheck } from "./page.js";
import { ENDED_NODE_STATES, ENDED_RUN_STATES } from "./states.js";
import { userName, userNameField } from "./user_name.js";

/** States of nodes that can be retried while the run is open. */
const RETRYABLE_STATES = new Set(["failed", "cancelled"]);

const EXAMPLE_NODES = [{ id: "more", tool: "calculator", arguments: { expression: "1 + 1" } }];

/**
 * Creates buttons for the commands that a run or one of its nodes accepts now.
 *
 * run: the document from `GET /v1/runs/ID`; only `run_id`, `title`, `status` and `notes` are used.
 * node: the document from `GET /v1/runs/ID/nodes/NODE`, or null for the whole run.
 *
 * The run view creates the buttons again when `steeringKey` changes.
 */
export function steeringButtons(run, node, { api, go }) {
  const actions = node === null ? runCommands(run, { api, go }) : nodeCommands(run, node, { api, go });
  const label = node === null ? "Steer the run" : `Steer ${node.node_id}`;
  const buttons = actions.map(([caption, onclick, cssClass]) => el("button", { type: "button", class: cssClass ?? "", onclick }, caption));
  return el("span", { class: "actions steering", role: "group", "aria-label": label }, buttons);
}

/** A text that changes when the available commands of a run change. */
export function steeringKey(run) {
  return `${run.status} ${isPaused(run)}`;
}

/** Whether a run is paused. */
export function isPaused(run) {
  return (run.notes ?? []).some((note) => note.code === "paused");
}

function runCommands(run, { api, go }) {
  const forkAction = ["Fork", () => openFork(run, { api, go })];
  if (ENDED_RUN_STATES.has(run.status)) return [forkAction];
  const pauseAction = isPaused(run)
    ? ["Resume", () => sendCommand(api, run, "/resume")]
    : ["Pause", () => openReasonDialog(api, run, { title: "Pause the run", caption: "Pause", path: "/pause", message: PAUSE_MESSAGE })];
  return [
    pauseAction,
    ["Limits", () => openLimits(run, { api })],
    ["Add nodes", () => openAddNodes(api, run)],
    forkAction,
    ["Cancel the run", () => openReasonDialog(api, run, { title: "Cancel the run", caption: "Cancel the run", path: "/cancel", message: CANCEL_MESSAGE, isDangerous: true }), "danger"],
  ];
}

const PAUSE_MESSAGE = "Running nodes finish; no new nodes start until the run is resumed.";
const CANCEL_MESSAGE = "Running nodes are asked to stop; finished results are kept. A cancelled run cannot be resumed, but can be forked.";

async function sendCommand(api, run, path) {
  const isSamePage = createPageCheck();
  const report = (message) => announce(isSamePage() ? message : `${runName(run)}: ${message}`);
  try {
    report((await api.post(runPath(run.run_id, path), { by: userName() })).message);
  } catch (error) {
    report(error.message);
  }
}

function reasonField() {
  const field = el("textarea", { id: "act-reason", rows: "2" });
  const read = () => field.value.trim() || null;
  return { element: el("div", {}, el("label", { for: field.id }, "Reason (optional)"), field), read };
}

function openReasonDialog(api, run, { title, caption, path, message, isDangerous = false }) {
  const reason = reasonField();
  const send = async () => (await api.post(runPath(run.run_id, path), { reason: reason.read(), by: userName() })).message;
  const actions = [{ label: caption, isMain: !isDangerous, isDangerous, perform: send }];
  openDialog(title, { run, content: [el("p", {}, message), reason.element, userNameField()], actions });
}

function openAddNodes(api, run) {
  const nodes = jsonForm({ value: EXAMPLE_NODES, label: "Nodes (a JSON list, as in a plan)" });
  const send = async () => {
    const { value, problems } = nodes.read();
    if (problems.length) return undefined;
    const newNodes = Array.isArray(value) ? value : [value];
    return (await api.post(runPath(run.run_id, "/nodes"), { nodes: newNodes, by: userName() })).message;
  };
  const message = "New nodes may refer to every node of the run. They are checked before they are added.";
  openDialog("Add nodes", { run, content: [el("p", {}, message), nodes.element], actions: [{ label: "Add", isMain: true, perform: send }], isWide: true });
}

function nodeCommands(run, node, { api, go }) {
  const forkAction = ["Fork from here", () => openFork(run, { api, go, rerun: [node.node_id] })];
  if (ENDED_RUN_STATES.has(run.status)) return [forkAction];
  const actions = [];
  if (isAtLimit(run, node)) actions.push(["Raise a limit", () => openLimits(run, { api })]);
  if (RETRYABLE_STATES.has(node.status)) actions.push(["Try again", () => openRetry(api, run, node)]);
  if (node.status !== "completed" && node.status !== "running") actions.push(["Set its result", () => openSetResult(api, run, node)]);
  if (!ENDED_NODE_STATES.has(node.status)) actions.push(["Cancel", () => openCancelNode(api, run, node), "danger"]);
  return [...actions, forkAction];
}

// Whether a node waits for the budget or the parallelism of the run. A node of a sub-plan has the limits of its sub-plan.
function isAtLimit(run, node) {
  const isNodeOfRun = node.run_id === undefined || node.run_id === run.run_id;
  return node.reason?.startsWith("budget (") || (node.status === "ready" && isNodeOfRun && !isPaused(run));
}

function openRetry(api, run, node) {
  const argumentsForm = jsonForm({ label: "Other arguments, as an object", required: false });
  const send = async () => {
    const { value, problems } = argumentsForm.read();
    if (problems.length) return undefined;
    return (await api.post(nodePath(run.run_id, node.node_id, "/retry"), { arguments: value, by: userName() })).message;
  };
  const message = "The call is repeated with the same idempotency key. With other arguments, a new node replaces this one.";
  openDialog(`Try ${node.node_id} again`, { run, content: [el("p", {}, message), argumentsForm.element], actions: [{ label: "Try again", isMain: true, perform: send }] });
}

function openSetResult(api, run, node) {
  const result = jsonForm({ label: "Result" });
  const reason = reasonField();
  const send = async () => {
    const { value, problems } = result.read();
    if (problems.length) return undefined;
    const body = { result: value, reason: reason.read(), by: userName() };
    return (await api.post(nodePath(run.run_id, node.node_id, "/result"), body)).message;
  };
  const message = "The node is not executed again; its dependents continue with this result.";
  const content = [el("p", {}, message), result.element, reason.element];
  openDialog(`Set the result of ${node.node_id}`, { run, content, actions: [{ label: "Set it", isMain: true, perform: send }] });
}

function openCancelNode(api, run, node) {
  const branch = el("input", { type: "checkbox", id: "act-branch" });
  const reason = reasonField();
  const send = async () => {
    const body = { branch: branch.checked, reason: reason.read(), by: userName() };
    return (await api.post(nodePath(run.run_id, node.node_id, "/cancel"), body)).message;
  };
  const content = [
    el("p", {}, "Its dependents are blocked, as after a failure; other nodes continue."),
    el("label", { class: "choice", for: branch.id }, branch, " Cancel its dependents as well (the whole branch)"),
    reason.element,
  ];
  openDialog(`Cancel ${node.node_id}`, { run, content, actions: [{ label: "Cancel it", isDangerous: true, perform: send }] });
}
