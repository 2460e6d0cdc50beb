// A card for one open request: its prompt, and a form for the answer. The type of the request determines the form.

import { runPath } from "./api.js";
import { announce, el, fill, jsonBlock } from "./dom.js";
import { jsonForm, schemaForm } from "./forms.js";
import { inlineMarkdown, markdown } from "./markdown.js";
import { createPageCheck } from "./page.js";
import { temporalLink } from "./temporal.js";
import { timeBetweenText, timeText } from "./times.js";
import { userName } from "./user_name.js";

const MAX_OPTIONS_WITHOUT_FILTER = 12;
const READ_PLAN_TOOL = "read_model_plan"; // the approval prompt has the whole plan, so the arguments of the call are not shown
let cardCount = 0;

/** The key of a request. A request that is opened again with the same ID has another key. */
export function requestKey(request) {
  return JSON.stringify([request.run_id, request.request_id, request.opened_at]);
}

/** The key of the node of a request. All items of a node have the same key, because one answer may apply to all of them. */
export function nodeKeyOf(request) {
  const nodeId = (request.node_id ?? request.request_id).replace(/\[.*\]$/s, "");
  const parentPath = request.request_id.includes("/") ? request.request_id.slice(0, request.request_id.lastIndexOf("/") + 1) : "";
  return `${request.run_id}\n${parentPath.replace(/\[[^\]]*\]/g, "")}${nodeId}`;
}

/**
 * Creates the card of a request.
 *
 * sendAnswer: sends an answer, `sendAnswer({answer, all, note})`, and returns the result as text. Default: send to the run.
 * onDone: called when the answer was accepted.
 * countRequestsOfNode: returns the number of open requests of the node, including this request.
 * hidesRun: whether the card hides the run of the request.
 *
 * Returns {element, showClosed, refresh, isTouched, focus}. `isTouched()` returns whether the user has entered something.
 * `showClosed(message)` shows that the request is no longer open, and keeps a draft.
 */
export function requestCard(request, { api, sendAnswer, onDone = () => {}, countRequestsOfNode = () => 1, hidesRun = false }) {
  cardCount += 1;
  const id = `request-${cardCount}`;
  const send = sendAnswer ?? ((submission) => sendToRun(request, submission, api));
  const form = formOf(request, id);
  const note = el("input", { type: "text", id: `${id}-note`, autocomplete: "off" });
  const allCheckbox = el("input", { type: "checkbox", id: `${id}-all` });
  const allLabel = el("span");
  const allRow = el("label", { class: "choice all", hidden: true }, allCheckbox, allLabel);
  const problem = el("p", { class: "problem", role: "alert", hidden: true });
  const buttons = form.actions.map((action) =>
    el("button", { type: "button", class: action.isMain ? "main" : "", onclick: () => submitAnswer(action) }, action.label),
  );
  const age = el("span", { class: "hint" });
  const actions = el("div", { class: "actions" }, buttons);
  const element = el(
    "article",
    { class: "card request", "aria-labelledby": `${id}-title`, "data-request": request.request_id, "data-run": request.run_id },
    el("h2", { id: `${id}-title` }, titleOf(request)),
    el("p", { class: "facts" }, requestFacts(request, hidesRun), age),
    ...form.content,
    el(
      "form",
      { class: "answer", onsubmit: (event) => event.preventDefault() },
      form.element,
      allRow,
      sendAnswer ? null : el("details", {}, el("summary", {}, "Add a note"), el("label", { for: note.id }, "Note"), note),
      problem,
      actions,
    ),
  );
  let isTouched = false;
  element.addEventListener("input", () => (isTouched = true));

  async function submitAnswer(action) {
    problem.hidden = true;
    const value = action.read();
    if (value === undefined) return;
    setBusy(true);
    const isSamePage = createPageCheck();
    try {
      const message = await send({ answer: value, all: allCheckbox.checked, note: note.value.trim() || null });
      const answersAll = allCheckbox.checked;
      showConfirmation(message);
      announce(isSamePage() ? message : `${request.title ?? request.run_id}: ${message}`);
      onDone(request, { all: answersAll });
    } catch (error) {
      problem.textContent = error.message;
      problem.hidden = false;
      setBusy(false);
    }
  }

  function setBusy(isBusy) {
    for (const button of buttons) button.disabled = isBusy;
    element.setAttribute("aria-busy", String(isBusy));
  }

  function showClosed(message) {
    if (!isTouched) {
      showConfirmation(message);
      return;
    }
    element.classList.add("done");
    allRow.hidden = true;
    const close = el("button", { type: "button", onclick: () => element.remove() }, "Close");
    fill(actions, el("p", { class: "confirmation", role: "status" }, `${message} Your draft is kept here until you close it.`), close);
  }

  function showConfirmation(message) {
    const hadFocus = element.contains(document.activeElement);
    element.classList.add("done");
    element.removeAttribute("aria-busy");
    const confirmation = el("p", { class: "confirmation", tabindex: "-1" }, message);
    fill(element, el("h2", { id: `${id}-title` }, titleOf(request)), confirmation);
    if (hadFocus) confirmation.focus();
  }

  function refresh() {
    if (element.classList.contains("done")) return;
    const count = countRequestsOfNode();
    allRow.hidden = count < 2;
    if (count < 2) allCheckbox.checked = false;
    fill(allLabel, ` Answer all ${count.toLocaleString("en")} questions of `, el("code", {}, nodeKeyOf(request).split("\n")[1]), " like this");
    age.textContent = ` asked ${timeBetweenText(request.opened_at)} ago`;
  }

  refresh();
  return { element, showClosed, refresh, isTouched: () => isTouched, focus: () => form.focus() };
}

async function sendToRun(request, { answer, all, note }, api) {
  const body = { request_id: request.request_id, answer, all, by: userName(), note };
  const response = await api.post(runPath(request.run_id, "/feedback"), body);
  return response.message;
}

function titleOf(request) {
  const prompt = String(request.prompt || `${request.type.toLowerCase()}?`);
  return inlineMarkdown(prompt.split("\n")[0]);
}

function requestFacts(request, hidesRun) {
  const facts = [];
  if (!hidesRun) {
    const query = request.node_id ? `?node=${encodeURIComponent(request.node_id)}` : "";
    facts.push(el("a", { href: `#/runs/${encodeURIComponent(request.run_id)}${query}` }, request.title ?? request.run_id), " · ");
    if (request.title) facts.push(el("code", {}, request.run_id), " · ");
    facts.push(temporalLink(request.run_id), " ");
  }
  facts.push(el("code", {}, request.request_id), ` · for ${request.assignee || "anyone"} ·`);
  for (const escalation of request.escalations ?? []) facts.push(` escalated from ${escalation.from || "anyone"} at ${timeText(escalation.at)} ·`);
  if (request.deadline) facts.push(` until ${timeText(request.deadline)} ·`);
  return facts;
}

// The content of a request, the form for its answer, and the actions that send the answer.
function formOf(request, id) {
  switch (request.type) {
    case "APPROVAL":
      return approvalForm(request, id);
    case "SELECTION":
      return selectionForm(request, id);
    case "INFORMATION":
      return informationForm(request);
    default:
      return textForm(request, id);
  }
}

function promptDetails(request) {
  const details = String(request.prompt ?? "").split("\n").slice(1).join("\n");
  if (!details.trim()) return [];
  // The prompt for the approval of a plan has a line for each step. These lines are not Markdown.
  const isPlan = request.purpose === "plan" || request.tool === READ_PLAN_TOOL;
  return [isPlan ? jsonBlock(details, "Plan to approve") : markdown(details)];
}

function approvalForm(request, id) {
  const reason = el("textarea", { id: `${id}-reason`, rows: "2" });
  const problem = el("p", { class: "problem", role: "alert", id: `${id}-reason-problem`, hidden: true });
  const isCall = request.purpose === "approval" && request.tool && request.tool !== READ_PLAN_TOOL;
  const content = promptDetails(request);
  const entities = Object.entries(request.entities ?? {}).map(([entity, name]) => el("li", {}, el("code", {}, entity), ` is ${name}`));
  let argumentsForm = null;
  let remember = null;
  const callControls = [];
  if (isCall) {
    content.push(el("p", {}, "Calls ", el("code", {}, request.tool), " with"), jsonBlock(request.arguments ?? {}, "Arguments"));
    if (entities.length) content.push(el("ul", { class: "entities" }, entities));
    argumentsForm = jsonForm({ value: request.arguments ?? {}, label: "Arguments to approve instead" });
    remember = el("input", { type: "checkbox" });
    callControls.push(
      el("details", { class: "instead" }, el("summary", {}, "Approve with other arguments"), argumentsForm.element),
      el("label", { class: "choice" }, remember, ` Do not ask about ${request.tool} again in this run`),
    );
  }
  const element = el("div", {}, callControls, el("label", { for: reason.id }, "Reason (needed to reject)"), reason, problem);

  function readApproval() {
    problem.hidden = true;
    const answer = { approved: true };
    if (reason.value.trim()) answer.reason = reason.value.trim();
    if (argumentsForm?.element.closest("details").open) {
      const { value, problems } = argumentsForm.read();
      if (problems.length) return undefined;
      answer.arguments = value;
    }
    if (remember?.checked) answer.remember = true;
    return answer;
  }

  function readRejection() {
    problem.hidden = true;
    if (reason.value.trim()) return { approved: false, reason: reason.value.trim() };
    problem.textContent = "enter a reason";
    problem.hidden = false;
    reason.setAttribute("aria-describedby", problem.id);
    reason.focus();
    return undefined;
  }

  const actions = [
    { label: "Approve", isMain: true, read: readApproval },
    { label: "Reject", read: readRejection },
  ];
  return { content, element, actions, focus: () => reason.focus() };
}

function parseOption(option) {
  const isLabelled = typeof option === "object" && option !== null && Object.keys(option).sort().join() === "id,label";
  const value = isLabelled ? option.id : option;
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return { value, label: isLabelled ? `${option.label}` : text, text, isLabelled };
}

const ERROR_OPTION_LABELS = { retry: "Retry", value: "Set its result", skip: "Skip it", stop: "Stop the run" };

function selectionForm(request, id) {
  const options = (request.options ?? []).map(parseOption);
  const kind = request.multiple ? "checkbox" : "radio";
  const inputs = options.map(() => el("input", { type: kind, name: `${id}-option` }));
  const isError = request.purpose === "error";
  const rows = options.map((option, index) => {
    const label = isError ? (ERROR_OPTION_LABELS[option.text] ?? option.label) : option.label;
    const idLabel = option.isLabelled && option.text !== label ? el("code", { class: "hint" }, ` ${option.text}`) : null;
    return el("label", { class: "choice" }, inputs[index], el("span", {}, label, idLabel));
  });
  const filter = el("input", { type: "search", "aria-label": "Find an option", placeholder: "Find an option" });
  filter.addEventListener("input", () => {
    const query = filter.value.toLowerCase();
    rows.forEach((row) => (row.hidden = !row.textContent.toLowerCase().includes(query)));
  });
  const text = el("input", { type: "text", id: `${id}-text`, autocomplete: "off" });
  const hint = el("p", { class: "hint", role: "status", hidden: true });
  const showHint = (message) => {
    hint.textContent = message;
    hint.hidden = message === "";
  };
  const isChosen = () => inputs.some((input) => input.checked);
  text.addEventListener("input", () => {
    if (!text.value) showHint("");
    else if (isChosen()) showHint("The text is the answer; no option is chosen.");
    if (text.value) inputs.forEach((input) => (input.checked = false));
  });
  for (const input of inputs) {
    input.addEventListener("change", () => {
      problem.hidden = true;
      showHint(isChosen() && text.value ? "The chosen option is the answer; the text is not sent." : "");
    });
  }
  const resultForm = isError ? jsonForm({ label: "The result" }) : null;
  const argumentsForm = isError ? jsonForm({ label: "Other arguments", required: false }) : null;
  const problem = el("p", { class: "problem", role: "alert", hidden: true });
  const element = el(
    "div",
    {},
    options.length > MAX_OPTIONS_WITHOUT_FILTER ? filter : null,
    el("fieldset", { class: "field" }, el("legend", {}, request.multiple ? "Choose one or more" : "Choose one"),
      el("div", { class: "choices options" }, rows)),
    request.allow_text ? [el("label", { for: text.id }, "Or something else"), text, hint] : null,
    resultForm?.element,
    argumentsForm?.element,
    problem,
  );
  // The result and the other arguments each belong to one option, and are shown only if that option is chosen.
  const updateFields = () => {
    const chosenText = options.find((_, index) => inputs[index].checked)?.text;
    if (resultForm) resultForm.element.hidden = chosenText !== "value";
    if (argumentsForm) argumentsForm.element.hidden = chosenText !== "retry";
  };
  element.addEventListener("change", updateFields);
  updateFields();

  function read() {
    problem.hidden = true;
    const selected = options.filter((_, index) => inputs[index].checked).map((option) => option.value);
    if (!selected.length && request.allow_text && text.value.trim()) return { text: text.value.trim() };
    if (!selected.length) return showProblem("choose one");
    const answer = { selected };
    if (selected[0] === "value" && resultForm) {
      const result = resultForm.read();
      if (result.problems.length) return undefined;
      answer.value = result.value;
    }
    if (selected[0] === "retry" && argumentsForm) {
      const newArguments = argumentsForm.read();
      if (newArguments.problems.length) return undefined;
      if (newArguments.value !== undefined) answer.arguments = newArguments.value;
    }
    return answer;
  }

  function showProblem(message) {
    problem.textContent = message;
    problem.hidden = false;
    inputs[0]?.focus();
    return undefined;
  }

  const actions = [{ label: "Answer", isMain: true, read }];
  return { content: promptDetails(request), element, actions, focus: () => inputs[0]?.focus() };
}

function informationForm(request) {
  const form = schemaForm(request.schema ?? { type: "object" });
  const read = () => {
    const { value = {}, problems } = form.read();
    if (problems.length) return undefined;
    return { data: value };
  };
  const actions = [{ label: "Answer", isMain: true, read }];
  return { content: promptDetails(request), element: form.element, actions, focus: () => form.focus() };
}

function textForm(request, id) {
  const text = el("textarea", { id: `${id}-text`, rows: "4" });
  const problem = el("p", { class: "problem", role: "alert", hidden: true });
  const canAddNodes = request.type === "GUIDANCE";
  const nodesForm = canAddNodes ? jsonForm({ label: "Nodes to add (a JSON list, as in a plan)", required: false }) : null;
  const element = el(
    "div",
    {},
    el("label", { for: text.id }, "Answer"),
    text,
    canAddNodes ? el("details", {}, el("summary", {}, "Add nodes to the plan"), nodesForm.element) : null,
    problem,
  );
  const read = () => {
    problem.hidden = true;
    const answer = text.value.trim() ? { text: text.value.trim() } : {};
    const nodes = nodesForm?.read();
    if (nodes?.problems.length) return undefined;
    if (nodes?.value !== undefined) answer.nodes = nodes.value;
    if (Object.keys(answer).length) return answer;
    problem.textContent = "write an answer";
    problem.hidden = false;
    text.focus();
    return undefined;
  };
  const actions = [{ label: "Answer", isMain: true, read }];
  return { content: promptDetails(request), element, actions, focus: () => text.focus() };
}
