// The list of runs, with filters and pages; updated every few seconds.

import { el, fill } from "../dom.js";
import { RUN_STATES, stateMark, stateLabel } from "../states.js";
import { timeBetweenText, timeText } from "../times.js";

const PAGE_SIZE = 50;
const POLL_MS = 2500;

export async function mount(root, { api, go }) {
  const filters = { status: "", title: "", session_id: "" };
  const pageCursors = [null];
  let timer = null;
  let isUnmounted = false;
  let latestLoadNumber = 0;

  const body = el("tbody");
  const notice = el("p", { class: "notice", role: "status" });
  const newerButton = el("button", { type: "button", onclick: () => turnPage(-1) }, "Newer");
  const olderButton = el("button", { type: "button", onclick: () => turnPage(1) }, "Older");
  const pageText = el("span", { class: "hint" });
  const pageButtons = el("div", { class: "pages", hidden: true }, newerButton, olderButton, pageText);
  let nextCursor = null;

  async function load() {
    clearTimeout(timer);
    const loadNumber = (latestLoadNumber += 1);
    try {
      if (!document.hidden) {
        const page = await api.get(`/v1/runs?${query()}`);
        if (isUnmounted || loadNumber !== latestLoadNumber) return;
        showPage(page);
        notice.textContent = "";
      }
    } catch (error) {
      if (isUnmounted || loadNumber !== latestLoadNumber) return;
      notice.textContent = `${error.message}. This page tries again by itself.`;
    }
    timer = setTimeout(load, POLL_MS);
  }

  function query() {
    const parameters = { ...filters, after: pageCursors.at(-1) ?? "", limit: PAGE_SIZE };
    return new URLSearchParams(Object.entries(parameters).filter(([, value]) => value !== ""));
  }

  function showPage(page) {
    nextCursor = page.cursor ?? null;
    newerButton.disabled = pageCursors.length === 1;
    olderButton.disabled = nextCursor === null;
    pageText.textContent = pageCursors.length > 1 ? `page ${pageCursors.length}` : "";
    const focusedRun = document.activeElement?.closest?.("tr")?.dataset.run;
    pageButtons.hidden = newerButton.disabled && olderButton.disabled;
    fill(body, page.data.length ? page.data.map(row) : el("tr", {}, el("td", { colspan: "6" }, emptyText())));
    if (focusedRun) body.querySelector(`tr[data-run="${CSS.escape(focusedRun)}"] a`)?.focus();
  }

  function emptyText() {
    if (Object.values(filters).some(Boolean)) return "No run matches.";
    return ["No runs yet. Ask for something in ", el("a", { href: "#/chat" }, "Chat"), ", start a ", el("a", { href: "#/plan" }, "Plan"), ", or use the command ", el("code", {}, "dagwright run"), "."];
  }

  function row(run) {
    return el(
      "tr",
      { "data-run": run.run_id },
      el("td", {}, stateMark(run.status)),
      el(
        "td",
        { class: "wide" },
        el("a", { href: `#/runs/${encodeURIComponent(run.run_id)}` }, run.title ?? run.run_id),
        run.title && el("div", { class: "hint" }, run.run_id),
      ),
      el("td", { class: "number" }, `${run.nodes_done.toLocaleString("en")} / ${run.nodes_total.toLocaleString("en")}`),
      el("td", {}, el("time", { datetime: run.started_at }, timeText(run.started_at))),
      el("td", { class: "number" }, timeBetweenText(run.started_at, run.ended_at)),
      el("td", {}, run.session_id ?? ""),
    );
  }

  function turnPage(step) {
    if (step > 0) pageCursors.push(nextCursor);
    else pageCursors.pop();
    load();
  }

  function setFilter(name, value) {
    filters[name] = value.trim();
    pageCursors.length = 1;
    load();
  }

  const stateSelect = el(
    "select",
    { id: "status", onchange: (event) => setFilter("status", event.target.value) },
    el("option", { value: "" }, "all"),
    RUN_STATES.map((status) => el("option", { value: status }, stateLabel(status))),
  );
  fill(
    root,
    el("h1", {}, "Runs"),
    el(
      "form",
      { class: "filters", role: "search", onsubmit: (event) => event.preventDefault() },
      el("label", {}, "State ", stateSelect),
      el("label", {}, "Title or id starts with ", el("input", { type: "search", id: "title", oninput: afterTyping((text) => setFilter("title", text)) })),
      el("label", {}, "Session ", el("input", { type: "search", id: "session", oninput: afterTyping((text) => setFilter("session_id", text)) })),
    ),
    notice,
    el(
      "div",
      { class: "scroll" },
      el(
        "table",
        { class: "runs", "aria-label": "Runs" },
        el("thead", {}, el("tr", {}, ["State", "Run", "Nodes", "Started", "Took", "Session"].map((name) => el("th", { scope: "col" }, name)))),
        body,
      ),
    ),
    pageButtons,
  );
  const loadIfVisible = () => document.hidden || load();
  document.addEventListener("visibilitychange", loadIfVisible);
  body.addEventListener("click", (event) => {
    if (event.target.closest("a")) return;
    const run = event.target.closest("tr")?.dataset.run;
    if (run && !String(getSelection())) go(`#/runs/${encodeURIComponent(run)}`);
  });
  await load();

  return () => {
    isUnmounted = true;
    clearTimeout(timer);
    document.removeEventListener("visibilitychange", loadIfVisible);
  };
}

/** Calls a function with the typed text once typing pauses. */
function afterTyping(onText, pauseMs = 250) {
  let timer = null;
  return (event) => {
    clearTimeout(timer);
    timer = setTimeout(() => onText(event.target.value), pauseMs);
  };
}
