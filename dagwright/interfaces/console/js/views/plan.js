// A plan editor: problems are shown at their line while the plan is written; a form starts the plan.

import { newKey } from "../chat_stream.js";
import { el, fill, say } from "../dom.js";
import { schemaForm } from "../forms.js";

const DRAFT = "dagwright.plan";
const SOON_MS = 300;
const PROBLEMS_SHOWN = 200;
const FIRST = `plan: 1
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
  const published = el("select", { id: "plan-published" });
  const inputs = el("div", {});
  const start = el("button", { class: "main", disabled: true }, "Start the plan");
  const problem = el("p", { class: "problem", role: "alert", hidden: true });
  let checking = null;
  let timer = null;
  let form = null;
  let shape = null;
  let errors = [];
  let isLeft = false;

  fill(
    root,
    el("h1", {}, "Plan"),
    el("div", { class: "bar" }, el("label", { for: published.id }, "Open a published plan"), published),
    el(
      "div",
      { class: "plan" },
      el("div", { class: "editor-part" }, el("label", { for: text.id }, "Plan, as YAML or JSON"), el("div", { class: "editor" }, gutter, text)),
      el(
        "div",
        { class: "side" },
        el("section", { class: "detail", "aria-label": "Check" }, el("h2", {}, "Check"), state, problems),
        el("form", { class: "detail", "aria-label": "Start", onsubmit: begin }, el("h2", {}, "Start"), inputs, problem, el("div", { class: "actions" }, start)),
      ),
    ),
  );
  text.addEventListener("input", () => {
    keep();
    numbered();
    clearTimeout(timer);
    timer = setTimeout(check, SOON_MS);
  });
  text.addEventListener("scroll", () => (gutter.scrollTop = text.scrollTop));
  published.addEventListener("change", () => published.value && open(published.value));

  function keep() {
    try {
      localStorage.setItem(DRAFT, text.value);
    } catch {
      // Too large to be stored: it stays in the page.
    }
  }

  /** Numbers the lines, and marks those with problems, by a sign and not by colour only. */
  function numbered() {
    const marked = new Set(errors.map((each) => each.line));
    const parts = [];
    let plain = "";
    for (let line = 1, count = text.value.split("\n").length; line <= count; line += 1) {
      if (!marked.has(line)) {
        plain += `${line}\n`;
        continue;
      }
      parts.push(plain, el("strong", {}, `✗ ${line}`), "\n");
      plain = "";
    }
    fill(gutter, parts, plain);
    gutter.scrollTop = text.scrollTop;
  }

  async function check() {
    clearTimeout(timer);
    checking?.abort();
    const mine = new AbortController();
    checking = mine;
    state.textContent = "Checking…";
    let found;
    try {
      found = await api.post("/v1/plans/check", { plan: text.value }, { signal: mine.signal });
    } catch (error) {
      if (checking !== mine || error.name === "AbortError") return;
      start.disabled = true;
      state.textContent = `${error.message}; what is written next is checked again`;
      return;
    }
    if (checking === mine && !isLeft) show(found);
  }

  function show(found) {
    const isValid = found.status === "valid";
    errors = found.errors;
    start.disabled = !isValid;
    const count = errors.length;
    state.textContent = isValid
      ? `✓ Valid: ${found.node_count.toLocaleString("en")} ${found.node_count === 1 ? "node" : "nodes"}, dialect ${found.dialect}`
      : `✗ ${count.toLocaleString("en")} ${count === 1 ? "problem" : "problems"}`;
    fill(problems, errors.slice(0, PROBLEMS_SHOWN).map(problemLine), count > PROBLEMS_SHOWN && el("li", {}, `and ${count - PROBLEMS_SHOWN} more`));
    numbered();
    if (isValid) shaped(found.inputs);
  }

  function problemLine({ line, pointer, message, hint }) {
    const place = line ? el("button", { type: "button", onclick: () => goTo(line) }, `Line ${line}`) : null;
    return el("li", {}, place, " ", el("span", {}, message), hint && el("span", { class: "hint" }, ` ${hint}`), pointer && el("code", { class: "hint" }, ` ${pointer}`));
  }

  /** Selects a line, in the middle of the visible part. */
  function goTo(line) {
    const lines = text.value.split("\n");
    const from = lines.slice(0, line - 1).reduce((sum, each) => sum + each.length + 1, 0);
    text.focus();
    text.setSelectionRange(from, from + (lines[line - 1] ?? "").length);
    const height = text.scrollHeight / lines.length;
    text.scrollTop = Math.max(0, (line - 1) * height - text.clientHeight / 2);
  }

  /** Creates the form for the inputs again if they changed; values of unchanged inputs are kept. */
  function shaped(schema) {
    const key = JSON.stringify(schema);
    if (key === shape) return;
    shape = key;
    const before = form?.peek() ?? {};
    const has = Object.keys(schema.properties).length > 0;
    form = has ? schemaForm(schema, { value: before, later: "the run asks for it if empty" }) : null;
    fill(inputs, has ? form.element : el("p", { class: "hint" }, "The plan has no inputs."));
  }

  async function begin(event) {
    event.preventDefault();
    problem.hidden = true;
    const { value = {}, problems: bad = [] } = form?.read() ?? {};
    if (bad.length) return;
    start.disabled = true;
    try {
      const options = { headers: { "Idempotency-Key": newKey() } };
      const run = await api.post("/v1/runs", { plan: text.value, inputs: value ?? {} }, options);
      const message = `The run ${run.run_id} has started.`;
      if (isLeft) say(message);
      else go(`#/runs/${encodeURIComponent(run.run_id)}`, message);
    } catch (error) {
      problem.textContent = error.message;
      problem.hidden = false;
      start.disabled = false;
    }
  }

  async function open(name) {
    try {
      const { plan } = await api.get(`/v1/plans/${encodeURIComponent(name)}`);
      if (isLeft) return;
      text.value = typeof plan === "string" ? plan : `${JSON.stringify(plan, null, 2)}\n`;
      keep();
      errors = [];
      numbered();
      await check();
    } catch (error) {
      state.textContent = error.message;
    }
  }

  async function list() {
    try {
      const { data } = await api.get("/v1/models");
      const plans = data.filter((model) => model.dagwright.kind === "plan");
      const names = plans.map((model) => model.id.slice("plan/".length));
      fill(published, el("option", { value: "" }, names.length ? "choose…" : "no published plans"), names.map((name, index) => el("option", { value: name }, plans[index].dagwright.title ?? name)));
      published.disabled = names.length === 0;
    } catch (error) {
      if (!isLeft) say(error.message);
    }
  }

  text.value = localStorage.getItem(DRAFT) ?? FIRST;
  numbered();
  list();
  if (params.id) await open(params.id);
  else check();
  return () => {
    isLeft = true;
    clearTimeout(timer);
    checking?.abort();
  };
}
