// The page: which view an address shows, and light or dark.

import { api } from "./api.js";
import { closeDialogs } from "./dialog.js";
import { el, fill } from "./dom.js";
import { go, turnPage } from "./page.js";
import { temporalLink } from "./temporal.js";
import * as chat from "./views/chat.js";
import * as inbox from "./views/inbox.js";
import * as plan from "./views/plan.js";
import * as run from "./views/run.js";
import * as runs from "./views/runs.js";

/** Parts of an address -> view; each exports `mount(root, {api, params, go})`, which returns what unmounts it. */
const VIEWS = { runs, run, inbox, chat, plan };

/** What stands at the top of each page: address -> name. */
const NAV = { "#/runs": "Runs", "#/inbox": "Inbox", "#/chat": "Chat", "#/plan": "Plan" };

/** Name of a view -> what its tab is called. */
const NAMES = { runs: "Runs", run: "Run", inbox: "Inbox", chat: "Chat", plan: "Plan" };

/** What is shown for an address that there is not. */
const nowhere = {
  async mount(place) {
    const there = Object.entries(NAV).map(([href, words]) => el("li", {}, el("a", { href }, words)));
    fill(place, el("h1", {}, "No such page"), el("p", {}, "There is nothing at ", el("code", {}, location.hash), ". There are:"), el("ul", {}, there));
  },
};

const root = document.getElementById("view");
let unmount = () => {};
let shown = null;
let turn = 0;

/** What an address says: the name of a view, and its parameters. */
function parsed(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split("?");
  const [name, ...rest] = path.split("/");
  const id = rest.length ? decodeURIComponent(rest.join("/")) : null;
  const params = { ...Object.fromEntries(new URLSearchParams(query)), id };
  return { name: name === "runs" && id ? "run" : name, params };
}

async function show() {
  const { name, params } = parsed(location.hash.replace(/^#\/?$/, "") || "#/runs");
  const view = Object.hasOwn(VIEWS, name) ? VIEWS[name] : nowhere;
  const key = `${name} ${params.id ?? ""}`;
  // A view that is there and takes other parameters by itself stays: its graph would be drawn anew.
  if (shown?.key === key && shown.update) return shown.update(params);
  turn += 1;
  const mine = turn;
  unmount();
  unmount = () => {};
  shown = null;
  fill(root);
  marked(name);
  document.title = [params.id, view === nowhere ? "No such page" : NAMES[name], "Dagwright"].filter(Boolean).join(" · ");
  fill(document.getElementById("temporal"), temporalLink());
  const done = await view.mount(root, { api, params, go });
  if (mine !== turn) return done?.();
  unmount = done ?? (() => {});
  shown = { key, update: done?.update };
  return undefined;
}

function marked(name) {
  for (const link of document.querySelectorAll("#nav a")) {
    const isHere = link.getAttribute("href") === `#/${name === "run" ? "runs" : name}`;
    if (isHere) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

const THEME = "dagwright.theme";
const dark = matchMedia("(prefers-color-scheme: dark)");

function themed() {
  const chosen = localStorage.getItem(THEME);
  const isDark = chosen ? chosen === "dark" : dark.matches;
  document.documentElement.dataset.theme = isDark ? "dark" : "light";
  document.getElementById("theme").textContent = isDark ? "Light" : "Dark";
}

document.getElementById("theme").addEventListener("click", () => {
  localStorage.setItem(THEME, document.documentElement.dataset.theme === "dark" ? "light" : "dark");
  themed();
});
dark.addEventListener("change", themed);
document.getElementById("skip").addEventListener("click", () => root.focus());
themed();
fill(document.getElementById("nav"), Object.entries(NAV).map(([href, words]) => el("a", { href }, words)));
window.addEventListener("hashchange", () => {
  // A dialog acts on the run of the page that opened it.
  closeDialogs();
  turnPage();
  show();
});
show();
