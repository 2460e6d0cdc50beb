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

/** First part of a route -> view; each exports `mount(root, {api, params, go})`, which returns its unmount function. */
const VIEWS = { runs, run, inbox, chat, plan };

/** Navigation at the top of each page: route -> name. */
const NAV = { "#/runs": "Runs", "#/inbox": "Inbox", "#/chat": "Chat", "#/plan": "Plan" };

/** Name of a view -> title of its tab. */
const NAMES = { runs: "Runs", run: "Run", inbox: "Inbox", chat: "Chat", plan: "Plan" };

/** Shown for unknown routes. */
const notFound = {
  async mount(container) {
    const pageLinks = Object.entries(NAV).map(([href, message]) => el("li", {}, el("a", { href }, message)));
    fill(container, el("h1", {}, "No such page"), el("p", {}, "Unknown path: ", el("code", {}, location.hash), ". Pages:"), el("ul", {}, pageLinks));
  },
};

const root = document.getElementById("view");
let unmount = () => {};
let current = null;
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
  // If only parameters change, a view with `update` stays mounted, so that its graph is not drawn again.
  if (current?.key === key && current.update) return current.update(params);
  viewNumber += 1;
  const number = viewNumber;
  unmount();
  unmount = () => {};
  current = null;
  fill(root);
  markCurrentLink(name);
  document.title = [params.id, view === notFound ? "No such page" : NAMES[name], "Dagwright"].filter(Boolean).join(" · ");
  fill(document.getElementById("temporal"), temporalLink());
  const unmountView = await view.mount(root, { api, params, go });
  if (number !== viewNumber) return unmountView?.();
  unmount = unmountView ?? (() => {});
  current = { key, update: unmountView?.update };
  return undefined;
}

function markCurrentLink(name) {
  for (const link of document.querySelectorAll("#nav a")) {
    const isHere = link.getAttribute("href") === `#/${name === "run" ? "runs" : name}`;
    if (isHere) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

const THEME = "dagwright.theme";
const darkScheme = matchMedia("(prefers-color-scheme: dark)");

function applyTheme() {
  const chosenTheme = localStorage.getItem(THEME);
  const isDark = chosenTheme ? chosenTheme === "dark" : darkScheme.matches;
  document.documentElement.dataset.theme = isDark ? "dark" : "light";
  document.getElementById("theme").textContent = isDark ? "Light" : "Dark";
}

document.getElementById("theme").addEventListener("click", () => {
  localStorage.setItem(THEME, document.documentElement.dataset.theme === "dark" ? "light" : "dark");
  applyTheme();
});
darkScheme.addEventListener("change", applyTheme);
document.getElementById("skip").addEventListener("click", () => root.focus());
applyTheme();
fill(document.getElementById("nav"), Object.entries(NAV).map(([href, message]) => el("a", { href }, message)));
window.addEventListener("hashchange", () => {
  // A dialog belongs to the run of the page that opened it.
  closeDialogs();
  startPage();
  show();
});
show();
