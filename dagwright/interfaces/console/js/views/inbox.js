// Pages of the open requests of all runs; each can be answered here, and all of one node at once.

import { runPath } from "../api.js";
import { keyOf, nodeOf, requestCard } from "../answers.js";
import { el, fill } from "../dom.js";
import { userNameField } from "../user_name.js";

const PAUSE_MS = 3000;
const SHARE = 10; // reading takes at most a tenth of the time
const SHOWN = 50;

export async function mount(root, { api, params }) {
  const cards = new Map();
  let found = [];
  let hasMore = false;
  let omitted = [];
  const whole = new Map(); // requests that are too large for the inbox, as their runs have them
  let most = SHOWN;
  let counts = new Map();
  let timer = null;
  let isLeft = false;
  let looking = null;

  const filter = el("input", { type: "search", id: "inbox-filter", autocomplete: "off", value: params.find ?? "" });
  const state = el("p", { class: "hint", id: "inbox-state" });
  const trouble = el("p", { class: "problem", role: "alert", hidden: true });
  const list = el("div", { class: "cards" });
  const more = el("button", { type: "button", hidden: true }, "Show more");
  fill(
    root,
    el("h1", {}, "Inbox"),
    el("div", { class: "bar" }, el("label", { for: filter.id }, "Find"), filter, userNameField()),
    state,
    trouble,
    list,
    more,
  );
  filter.addEventListener("input", () => {
    most = SHOWN;
    show();
  });
  more.addEventListener("click", () => {
    most += SHOWN;
    show();
    look();
  });

  function wanted() {
    const query = filter.value.trim().toLowerCase();
    const searchText = (each) => `${each.prompt}\n${each.request_id}\n${each.run_id}\n${each.title ?? ""}\n${each.assignee ?? ""}`.toLowerCase();
    return query ? found.filter((each) => searchText(each).includes(query)) : found;
  }

  function show() {
    const open = new Map(found.map((each) => [keyOf(each), each]));
    for (const [key, card] of cards) {
      if (open.has(key)) continue;
      // Drafts are not removed while they are written.
      if (!card.isDone && card.isTouched()) card.ended("This request is closed: it was answered elsewhere, or the run continued.");
      else if (!card.isDone) card.element.remove();
      cards.delete(key);
    }
    counts = new Map();
    for (const each of found) counts.set(nodeOf(each), (counts.get(nodeOf(each)) ?? 0) + 1);
    const chosen = wanted();
    const visible = new Set();
    for (const request of chosen.slice(0, most)) {
      const key = keyOf(request);
      visible.add(key);
      if (!cards.has(key)) cards.set(key, makeCard(request));
      const card = cards.get(key);
      card.refresh();
      card.element.hidden = false;
      if (!card.element.isConnected) list.append(card.element);
    }
    for (const [key, card] of cards) if (!visible.has(key)) card.element.hidden = true;
    more.hidden = chosen.length <= most && !hasMore;
    const total = `${found.length.toLocaleString("en")}${hasMore ? "+" : ""}`;
    // The server has no index of the texts of requests, so the filter knows the loaded ones only.
    const others = hasMore ? "; “Show more” loads and searches others" : "";
    const some = filter.value.trim()
      ? `${chosen.length.toLocaleString("en")} found in ${found.length.toLocaleString("en")} loaded requests${others}`
      : `${total} open`;
    const omittedText = omitted.map((each) => `; ${each.count.toLocaleString("en")} more of ${each.run_id}`).join("");
    state.textContent = found.length || omittedText ? `${some}${omittedText}` : "There are no open requests.";
  }

  function makeCard(request) {
    const card = requestCard(request, {
      api,
      alike: () => counts.get(nodeOf(request)) ?? 1,
      onDone: () => {
        card.isDone = true;
        look();
      },
    });
    return card;
  }

  /** Read now; a call during a read causes another read after it. */
  function look() {
    clearTimeout(timer);
    looking = (looking ?? Promise.resolve()).then(lookOnce);
    return looking;
  }

  async function read() {
    const requests = [];
    const beyond = [];
    let cursor = "";
    do {
      const query = new URLSearchParams(cursor ? { cursor } : {});
      const page = await api.get(`/v1/inbox?${query}`);
      requests.push(...page.data);
      beyond.push(...page.omitted);
      cursor = page.next;
    } while (cursor && requests.length < most);
    for (const each of requests) if (each.shortened && !whole.has(keyOf(each))) await readWhole(each.run_id);
    found = requests.map((each) => (each.shortened ? whole.get(keyOf(each)) ?? each : each));
    hasMore = Boolean(cursor);
    omitted = beyond;
  }

  async function readWhole(run) {
    for (const each of (await api.get(runPath(run, "/feedback"))).data) whole.set(keyOf(each), each);
  }

  async function lookOnce() {
    if (isLeft) return;
    const began = performance.now();
    try {
      await read();
      trouble.hidden = true;
      if (!isLeft) show();
    } catch (error) {
      trouble.textContent = `${error.message}; this page looks again by itself.`;
      trouble.hidden = false;
    }
    if (isLeft) return;
    clearTimeout(timer);
    timer = setTimeout(next, Math.max(PAUSE_MS, SHARE * (performance.now() - began)));
  }

  function next() {
    if (document.hidden) return;
    look();
  }

  document.addEventListener("visibilitychange", next);
  await look();
  const unmount = () => {
    isLeft = true;
    clearTimeout(timer);
    document.removeEventListener("visibilitychange", next);
  };
  unmount.update = ({ find = "" }) => {
    filter.value = find;
    show();
  };
  return unmount;
}
