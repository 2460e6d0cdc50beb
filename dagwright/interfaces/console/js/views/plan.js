// A plan editor: problems are shown with their lines while the user types; a form starts the plan.

import { newIdempotencyKey } from "../chat_stream.js";
import { announce, el, fill } from "../dom.js";
import { schemaForm } from "../forms.js";

const DRAFT_KEY = "dagwright.plan";
const CHECK_DELAY_MS = 300;
const MAX_SHOWN_PROBLEMS = 200;
const EXAMPLE = `plan: 1
title: Double a number
inputs:
  number: {type: integer, prompt: "Which number?"}
nodes:
  - id: double
    tool: calculator
    arguments: {expression: "{{PLACEHOLDER_number}} * 2"}
output: "{{double.result}}"
`;

export async function mount(root, { api, params, go }) {
  const text = el("textarea", { id: "plan-text", class: "code", wrap: "off", spellcheck: "false", "aria-describedby": "plan-state" });
  const gutter = el("pre", { class: "gutter", "aria-hidden": "true" });
  const state = el("p", { id: "plan-state", role: "status" });
  const problems = el("ol", { class: "problems", "aria-label": "Problems" });
  const publishedSelect = el("select", { id: "plan-published" });
  const inputsArea = el("div", {});
  const startButton = el("button", { class: "main", disabled: true }, "Start the plan");
  const problem = el("p", { class: "problem", role: "alert", hidden: true });
  let checkController = null;
  let timer = null;
  let form = null;
  let formSchemaText = null;
  let errors = [];
  let isUnmounted = false;

  fill(
    root,
    el("h1", {}, "Plan"),
    el("div", { class: "bar" }, el("label", { for: publishedSelect.id }, "Open a published plan"), publishedSelect),
    el(
      "div",
      { class: "plan" },
      el("div", { class: "editor-part" }, el("label", { for: text.id }, "Plan, as YAML or JSON"), el("div", { class: "editor" }, gutter, text)),
      el(
        "div",
        { class: "side" },
        el("section", { class: "detail", "aria-label": "Check" }, el("h2", {}, "Check"), state, problems),
        el("form", { class: "detail", "aria-label": "Start", onsubmit: startPlan }, el("h2", {}, "Start"), inputsArea, problem, el("div", { class: "actions" }, startButton)),
      ),
    ),
  );
  text.addEventListener("input", () => {
    saveDraft();
    updateGutter();
    clearTimeout(timer);
    timer = setTimeout(check, CHECK_DELAY_MS);
  });
  text.addEventListener("scroll", () => (gutter.scrollTop = text.scrollTop));
  publishedSelect.addEventListener("change", () => publishedSelect.value && open(publishedSelect.value));

  function saveDraft() {
    try {
      localStorage.setItem(DRAFT_KEY, text.value);
    } catch {
      // The plan is too large to be stored; it is lost if the page is closed.
    }
  }

  /** Shows the line numbers, with a sign at lines that have problems. */
  function updateGutter() {
    const errorLines = new Set(errors.map((error) => error.line));
    const parts = [];
    let plainLines = "";
    for (let line = 1, count = text.value.split("\n").length; line <= count; line += 1) {
      if (!errorLines.has(line)) {
        plainLines += `${line}\n`;
        continue;
      }
      parts.push(plainLines, el("strong", {}, `✗ ${line}`), "\n");
      plainLines = "";
    }
    fill(gutter, parts, plainLines);
    gutter.scrollTop = text.scrollTop;
  }

  async function check() {
    clearTimeout(timer);
    checkController?.abort();
    const controller = new AbortController();
    checkController = controller;
    state.textContent = "Checking…";
    let result;
    try {
      result = await api.post("/v1/plans/check", { plan: text.value }, { signal: controller.signal });
    } catch (error) {
      if (checkController !== controller || error.name === "AbortError") return;
      startButton.disabled = true;
      state.textContent = `${error.message}; the plan is checked again after the next change`;
      return;
    }
    if (checkController === controller && !isUnmounted) show(result);
  }

  function show(result) {
    const isValid = result.status === "valid";
    errors = result.errors;
    startButton.disabled = !isValid;
    const count = errors.length;
    state.textContent = isValid
      ? `✓ Valid: ${result.node_count.toLocaleString("en")} ${result.node_count === 1 ? "node" : "nodes"}, dialect ${result.dialect}`
      : `✗ ${count.toLocaleString("en")} ${count === 1 ? "problem" : "problems"}`;
    fill(problems, errors.slice(0, MAX_SHOWN_PROBLEMS).map(problemLine), count > MAX_SHOWN_PROBLEMS && el("li", {}, `and ${count - MAX_SHOWN_PROBLEMS} more`));
    updateGutter();
    if (isValid) updateForm(result.input_schema);
  }

  function problemLine({ line, pointer, message, hint }) {
    const lineButton = line ? el("button", { type: "button", onclick: () => goTo(line) }, `Line ${line}`) : null;
    return el("li", {}, lineButton, " ", el("span", {}, message), hint && el("span", { class: "hint" }, ` ${hint}`), pointer && el("code", { class: "hint" }, ` ${pointer}`));
  }

  /** Selects a line, in the middle of the visible part. */
  function goTo(line) {
    const lines = text.value.split("\n");
    const from = lines.slice(0, line - 1).reduce((sum, lineText) => sum + lineText.length + 1, 0);
    text.focus();
    text.setSelectionRange(from, from + (lines[line - 1] ?? "").length);
    const height = text.scrollHeight / lines.length;
    text.scrollTop = Math.max(0, (line - 1) * height - text.clientHeight / 2);
  }

  /** Creates the form for the inputs if their schema has changed; values are kept. */
  function updateForm(schema) {
    const schemaText = JSON.stringify(schema);
    if (schemaText === formSchemaText) return;
    formSchemaText = schemaText;
    const previousValues = form?.peek() ?? {};
    const hasInputs = Object.keys(schema.properties).length > 0;
    form = hasInputs ? schemaForm(schema, { value: previousValues, emptyNote: "the run asks for it if empty" }) : null;
    fill(inputsArea, hasInputs ? form.element : el("p", { class: "hint" }, "The plan has no inputs."));
  }

  async function startPlan(event) {
    event.preventDefault();
    problem.hidden = true;
    const { value = {}, problems: inputProblems = [] } = form?.read() ?? {};
    if (inputProblems.length) return;
    startButton.disabled = true;
    try {
      const options = { headers: { "Idempotency-Key": newIdempotencyKey() } };
      const run = await api.post("/v1/runs", { plan: text.value, inputs: value ?? {} }, options);
      const message = `The run ${run.run_id} has started.`;
      if (isUnmounted) announce(message);
      else go(`#/runs/${encodeURIComponent(run.run_id)}`, message);
    } catch (error) {
      problem.textContent = error.message;
      problem.hidden = false;
      startButton.disabled = false;
    }
  }

  async function open(name) {
    try {
      const { plan } = await api.get(`/v1/plans/${encodeURIComponent(name)}`);
      if (isUnmounted) return;
      text.value = typeof plan === "string" ? plan : `${JSON.stringify(plan, null, 2)}\n`;
      saveDraft();
      errors = [];
      updateGutter();
      await check();
    } catch (error) {
      state.textContent = error.message;
    }
  }

  async function listPublishedPlans() {
    try {
      const { data } = await api.get("/v1/models");
      const plans = data.filter((model) => model.dagwright.kind === "plan");
      const names = plans.map((model) => model.id.slice("plan/".length));
      fill(publishedSelect, el("option", { value: "" }, names.length ? "choose…" : "no published plans"), names.map((name, index) => el("option", { value: name }, plans[index].dagwright.title ?? name)));
      publishedSelect.disabled = names.length === 0;
    } catch (error) {
      if (!isUnmounted) announce(error.message);
    }
  }

  text.value = localStorage.getItem(DRAFT_KEY) ?? EXAMPLE;
  updateGutter();
  listPublishedPlans();
  if (params.id) await open(params.id);
  else check();
  return () => {
    isUnmounted = true;
    clearTimeout(timer);
    checkController?.abort();
  };
}
