// Forks a run with changed inputs, a changed plan or nodes to execute again. The dialog shows the changes first.

import { runPath } from "./api.js";
import { openDialog } from "./dialog.js";
import { announce, el, fill } from "./dom.js";
import { schemaForm } from "./forms.js";
import { createPageCheck } from "./page.js";

const MAX_LISTED_NODES = 100;
const EFFECTS = { write: "changes external state", idempotent: "changes external state, once per idempotency key" };

/** Opens the dialog. rerun: IDs of nodes and items to execute again. */
export async function openFork(run, { api, go, rerun = [] }) {
  const id = run.run_id;
  const isSamePage = createPageCheck();
  let currentInputs;
  try {
    currentInputs = await api.get(runPath(id, "/inputs"));
  } catch (error) {
    if (isSamePage()) announce(error.message);
    return;
  }
  if (!isSamePage()) return;
  const form = Object.keys(currentInputs.input_schema.properties).length ? schemaForm(currentInputs.input_schema, { value: currentInputs.inputs }) : null;
  const rerunField = el("textarea", { id: "fork-rerun", rows: "2", class: "code", spellcheck: "false" });
  rerunField.value = rerun.join("\n");
  const planField = el("textarea", { id: "fork-plan", rows: "8", class: "code", spellcheck: "false" });
  const differenceSection = el("section", { class: "difference", "aria-live": "polite", "aria-label": "Changes of the fork" });
  let previewedChanges = null;

  function readChanges() {
    const { value = {}, problems = [] } = form?.read() ?? {};
    if (problems.length) return undefined;
    const changedInputs = Object.entries(value).filter(([name, newValue]) => !isSame(newValue, currentInputs.inputs[name]));
    return {
      inputs: Object.fromEntries(changedInputs),
      rerun: rerunField.value.split("\n").map((line) => line.trim()).filter(Boolean),
      ...(planField.value.trim() ? { plan: planField.value } : {}),
    };
  }

  async function showDifference() {
    const changes = readChanges();
    if (changes === undefined) return undefined;
    const preview = await api.post(runPath(id, "/fork"), { ...changes, start: false });
    previewedChanges = changes;
    fill(differenceSection, differenceOf(preview));
    return undefined;
  }

  async function startFork() {
    const changes = readChanges();
    if (changes === undefined) return undefined;
    // The fork starts only with changes that were shown.
    if (!isSame(changes, previewedChanges)) return showDifference();
    const fork = await api.post(runPath(id, "/fork"), { ...changes, start: true });
    const message = `forked as ${fork.fork_run_id}`;
    // If the user has left the page, there is no navigation; the dialog reports the result on the current page.
    if (!isSamePage()) return message;
    go(`#/runs/${encodeURIComponent(fork.fork_run_id)}`, message);
    return undefined;
  }

  const content = [
    el("p", {}, "A fork is a new run that reuses every result not affected by the change, and executes the rest."),
    form && el("fieldset", { class: "fields" }, el("legend", {}, "Inputs"), form.element),
    el("label", { for: rerunField.id }, "Nodes to execute again, one per line"),
    rerunField,
    el("details", {}, el("summary", {}, "Another plan"), el("label", { for: planField.id }, "Plan, instead of the plan of the run"), planField),
    differenceSection,
  ];
  const actions = [
    { label: "Show the difference", isMain: true, perform: showDifference },
    { label: "Start the fork", perform: startFork },
  ];
  const dialog = openDialog("Fork", { run, content, actions, isWide: true });
  dialog.addEventListener("input", () => {
    if (previewedChanges !== null) fill(differenceSection, el("p", { class: "hint" }, "The options have changed: show the difference again."));
    previewedChanges = null;
  });
}

function isSame(left, right) {
  return JSON.stringify(left) === JSON.stringify(right);
}

function differenceOf({ fork_run_id: forkRunId, difference }) {
  const { reused, executed: executedNodes, reused_if_unchanged: reusedIfUnchanged, decided_later: decidedLater, planned_again: nodesPlannedAgain } = difference;
  const rows = executedNodes.slice(0, MAX_LISTED_NODES).map((node) =>
    el("tr", {}, el("td", {}, el("code", {}, node.node_id)), el("td", {}, node.reason), el("td", {}, EFFECTS[node.effects] ?? node.effects ?? "")),
  );
  return [
    el("h3", {}, `The fork is ${forkRunId}`),
    executedNodes.length > 0 && [
      el("h4", {}, `Executed immediately (${executedNodes.length.toLocaleString("en")})`),
      el("div", { class: "scroll" }, el("table", {},
        el("thead", {}, el("tr", {}, ["Node", "Because it", "Effects"].map((heading) => el("th", { scope: "col" }, heading)))),
        el("tbody", {}, rows))),
      executedNodes.length > MAX_LISTED_NODES && el("p", { class: "hint" }, `and ${(executedNodes.length - MAX_LISTED_NODES).toLocaleString("en")} more`),
    ],
    nodeList("Reused", reused),
    nodeList("Reused if their inputs are unchanged", reusedIfUnchanged),
    nodeList("Decided later", decidedLater),
    nodeList("Not reused, because a model plans again (at new cost)", nodesPlannedAgain),
    executedNodes.length + decidedLater.length + reusedIfUnchanged.length + nodesPlannedAgain.length === 0 && el("p", {}, "Nothing is executed again: every result is reused."),
  ];
}

function nodeList(heading, nodes) {
  if (!nodes.length) return null;
  const omittedText = nodes.length > MAX_LISTED_NODES ? ` and ${(nodes.length - MAX_LISTED_NODES).toLocaleString("en")} more` : "";
  return [el("h4", {}, `${heading} (${nodes.length.toLocaleString("en")})`), el("p", { class: "names" }, nodes.slice(0, MAX_LISTED_NODES).join(", "), omittedText)];
}
