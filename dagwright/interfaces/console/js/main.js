// The page: shows the view of the current route, and switches between the light and the dark theme.

import { api } from "./api.js";
import { closeDialogs } from "./dialog.js";
import { el, fill } from "./dom.js";
import { go, startPage } from "./page.js";
import { temporalLink } from "./temporal.js";
import * as chat from "./views/chat.js";
import * as inbox from "./views/inbox.js";
import * as plan from "./views/plan.js";
import * as run from "./views/run.js";
import * as runs from "./views/runs.js";

/** Name of a view -> view. Each view exports `mount(root, {api, params, go})`, which returns the unmount function. */
const VIEWS = { runs, run, inbox, chat, plan };

/** Links at the top of each page: route -> label. */
const NAV = { "#/runs": "Runs", "#/inbox": "Inbox", "#/chat": "Chat", "#/plan": "Plan" };

/** Name of a view -> title of its browser tab. */
const VIEW_TITLES = { runs: "Runs", run: "Run", inbox: "Inbox", chat: "Chat", plan: "Plan" };

/** Shown for unknown routes. */
const notFound = {
  async mount(container) {
    const pageLinks = Object.entries(NAV).map(([href, label]) => el("li", {}, el("a", { href }, label)));
    fill(container, el("h1", {}, "No such page"), el("p", {}, "Unknown path: ", el("code", {}, location.hash), ". Pages:"), el("ul", {}, pageLinks));
  },
};

const root = document.getElementById("view");
let unmount = () => {};
let currentView = null;
let viewNumber = 0;

/** Parses a route: the name of a view, and its parameters. */
function parseRoute(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split("?");
  const [name, ...rest] = path.split("/");
  const id = rest.length ? decodeURIComponent(rest.join("/")) : null;
  const params = { ...Object.fromEntries(new URLSearchParams(query)), id };
  return { name: name === "runs" && id ? "run" : name, params };
}

async function show() {
  const { name, params } = parseRoute(location.hash.replace(/^#\/?$/, "") || "#/runs");
  const view = Object.hasOwn(VIEWS, name) ? VIEWS[name] : notFound;
  const key = `${name} ${params.id ?? ""}`;
  // A view with `update` stays mounted if only parameters change, so that its graph is not drawn again.
  if (currentView?.key === key && currentView.update) return currentView.update(params);
  viewNumber += 1;
  const number = viewNumber;
  unmount();
  unmount = () => {};
  currentView = null;
  fill(root);
  markCurrentLink(name);
  document.title = [params.id, view === notFound ? "No such page" : VIEW_TITLES[name], "Dagwright"].filter(Boolean).join(" · ");
  fill(document.getElementById("temporal"), temporalLink());
  const unmountView = await view.mount(root, { api, params, go });
  if (number !== viewNumber) return unmountView?.();
  unmount = unmountView ?? (() => {});
  currentView = { key, update: unmountView?.update };
  return undefined;
}

function markCurrentLink(name) {
  for (const link of document.querySelectorAll("#nav a")) {
    const isCurrent = link.getAttribute("href") === `#/${name === "run" ? "runs" : name}`;
    if (isCurrent) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

const THEME_KEY = "dagwright.theme";
const darkScheme = matchMedia("(prefers-color-scheme: dark)");

function applyTheme() {
  const chosenTheme = localStorage.getItem(THEME_KEY);
  const isDark = chosenTheme ? chosenTheme === "dark" : darkScheme.matches;
  document.documentElement.dataset.theme = isDark ? "dark" : "light";
  document.getElementById("theme").textContent = isDark ? "Light" : "Dark";
}

document.getElementById("theme").addEventListener("click", () => {
  localStorage.setItem(THEME_KEY, document.documentElement.dataset.theme === "dark" ? "light" : "dark");
  applyTheme();
});
darkScheme.addEventListener("change", applyTheme);
document.getElementById("skip").addEventListener("click", () => root.focus());
applyTheme();
fill(document.getElementById("nav"), Object.entries(NAV).map(([href, label]) => el("a", { href }, label)));
window.addEventListener("hashchange", () => {
  // A dialog belongs to the run of the page that opened it.
  closeDialogs();
  startPage();
  show();
});
show();
