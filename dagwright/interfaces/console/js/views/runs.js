// The list of runs, with filters and pages; updated every few seconds.

import { el, fill } from "../dom.js";
import { RUN_STATES, stateMark, stateLabel } from "../states.js";
import { timeBetweenText, timeText } from "../times.js";

const PAGE_SIZE = 50;
const POLL_MS = 2500;

export async function mount(root, { api, go }) {
  const filters = { status: "", title: "", session_id: "" };
  const pages = [null];
  let timer = null;
  let hasLeft = false;
  let latestLoad = 0;

  const body = el("tbody");
  const notice = el("p", { class: "notice", role: "status" });
  const newer = el("button", { type: "button", onclick: () => turnPage(-1) }, "Newer");
  const older = el("button", { type: "button", onclick: () => turnPage(1) }, "Older");
  const pageText = el("span", { class: "hint" });
  const pageButtons = el("div", { class: "pages", hidden: true }, newer, older, pageText);
  let next = null;

  async function load() {
    clearTimeout(timer);
    const loadNumber = (latestLoad += 1);
    try {
      if (!document.hidden) {
        const page = await api.get(`/v1/runs?${query()}`);
        if (hasLeft || loadNumber !== latestLoad) return;
        showPage(page);
        notice.textContent = "";
      }
    } catch (error) {
      if (hasLeft || loadNumber !== latestLoad) return;
      notice.textContent = `${error.message}. This page tries again by itself.`;
    }
    timer = setTimeout(load, POLL_MS);
  }

  function query() {
    const parameters = { ...filters, cursor: pages.at(-1) ?? "", limit: PAGE_SIZE };
    return new URLSearchParams(Object.entries(parameters).filter(([, value]) => value !== ""));
  }

  function showPage(page) {
    next = page.next ?? null;
    newer.disabled = pages.length === 1;
    older.disabled = next === null;
    pageText.textContent = pages.length > 1 ? `page ${pages.length}` : "";
    const focused = document.activeElement?.closest?.("tr")?.dataset.run;
    pageButtons.hidden = newer.disabled && older.disabled;
    fill(body, page.data.length ? page.data.map(row) : el("tr", {}, el("td", { colspan: "6" }, emptyText())));
    if (focused) body.querySelector(`tr[data-run="${CSS.escape(focused)}"] a`)?.focus();
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

  function turnPage(by) {
    if (by > 0) pages.push(next);
    else pages.pop();
    load();
  }

  function setFilter(name, value) {
    filters[name] = value.trim();
    pages.length = 1;
    load();
  }

  const states = el(
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
      el("label", {}, "State ", states),
      el("label", {}, "Title or id starts with ", el("input", { type: "search", id: "title", oninput: afterTyping((v) => setFilter("title", v)) })),
      el("label", {}, "Session ", el("input", { type: "search", id: "session", oninput: afterTyping((v) => setFilter("session_id", v)) })),
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
    hasLeft = true;
    clearTimeout(timer);
    document.removeEventListener("visibilitychange", loadIfVisible);
  };
}

/** Calls a function with the typed text once typing pauses. */
function afterTyping(call, ms = 250) {
  let timer = null;
  return (event) => {
    clearTimeout(timer);
    timer = setTimeout(() => call(event.target.value), ms);
  };
}
