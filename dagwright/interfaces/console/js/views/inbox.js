// The inbox: open requests of all runs. The requests of one node can be answered together.

import { runPath } from "../api.js";
import { requestKey, askingNode, requestCard } from "../answers.js";
import { el, fill } from "../dom.js";
import { userNameField } from "../user_name.js";

const PAUSE_MS = 3000;
const PAUSE_FACTOR = 10; // the pause after a read is ten times as long as the read
const PAGE_SIZE = 50;

export async function mount(root, { api, params }) {
  const cards = new Map();
  let requests = [];
  let hasMore = false;
  let omitted = [];
  const fullRequests = new Map(); // requests that are too large for the inbox, as their runs have them
  let maxShown = PAGE_SIZE;
  let counts = new Map();
  let timer = null;
  let isLeft = false;
  let refreshing = null;

  const filter = el("input", { type: "search", id: "inbox-filter", autocomplete: "off", value: params.find ?? "" });
  const state = el("p", { class: "hint", id: "inbox-state" });
  const problem = el("p", { class: "problem", role: "alert", hidden: true });
  const list = el("div", { class: "cards" });
  const more = el("button", { type: "button", hidden: true }, "Show more");
  fill(
    root,
    el("h1", {}, "Inbox"),
    el("div", { class: "bar" }, el("label", { for: filter.id }, "Find"), filter, userNameField()),
    state,
    problem,
    list,
    more,
  );
  filter.addEventListener("input", () => {
    maxShown = PAGE_SIZE;
    show();
  });
  more.addEventListener("click", () => {
    maxShown += PAGE_SIZE;
    show();
    refresh();
  });

  function filteredRequests() {
    const query = filter.value.trim().toLowerCase();
    const searchText = (each) => `${each.prompt}\n${each.request_id}\n${each.run_id}\n${each.title ?? ""}\n${each.assignee ?? ""}`.toLowerCase();
    return query ? requests.filter((each) => searchText(each).includes(query)) : requests;
  }

  function show() {
    const open = new Map(requests.map((each) => [requestKey(each), each]));
    for (const [key, card] of cards) {
      if (open.has(key)) continue;
      // A card with a draft is kept.
      if (!card.isDone && card.isTouched()) card.ended("This request is closed: it was answered elsewhere, or the run continued.");
      else if (!card.isDone) card.element.remove();
      cards.delete(key);
    }
    counts = new Map();
    for (const each of requests) counts.set(askingNode(each), (counts.get(askingNode(each)) ?? 0) + 1);
    const chosen = filteredRequests();
    const visible = new Set();
    for (const request of chosen.slice(0, maxShown)) {
      const key = requestKey(request);
      visible.add(key);
      if (!cards.has(key)) cards.set(key, makeCard(request));
      const card = cards.get(key);
      card.refresh();
      card.element.hidden = false;
      if (!card.element.isConnected) list.append(card.element);
    }
    for (const [key, card] of cards) if (!visible.has(key)) card.element.hidden = true;
    more.hidden = chosen.length <= maxShown && !hasMore;
    const total = `${requests.length.toLocaleString("en")}${hasMore ? "+" : ""}`;
    // The filter searches loaded requests only: the server has no index of their texts.
    const others = hasMore ? "; “Show more” loads and searches others" : "";
    const some = filter.value.trim()
      ? `${chosen.length.toLocaleString("en")} found in ${requests.length.toLocaleString("en")} loaded requests${others}`
      : `${total} open`;
    const omittedText = omitted.map((each) => `; ${each.count.toLocaleString("en")} more of ${each.run_id}`).join("");
    state.textContent = requests.length || omittedText ? `${some}${omittedText}` : "There are no open requests.";
  }

  function makeCard(request) {
    const card = requestCard(request, {
      api,
      countAlike: () => counts.get(askingNode(request)) ?? 1,
      onDone: () => {
        card.isDone = true;
        refresh();
      },
    });
    return card;
  }

  /** Read the inbox now. A call during a read causes another read after it. */
  function refresh() {
    clearTimeout(timer);
    refreshing = (refreshing ?? Promise.resolve()).then(refreshOnce);
    return refreshing;
  }

  async function read() {
    const loaded = [];
    const omittedRuns = [];
    let cursor = "";
    do {
      const query = new URLSearchParams(cursor ? { cursor } : {});
      const page = await api.get(`/v1/inbox?${query}`);
      loaded.push(...page.data);
      omittedRuns.push(...page.omitted);
      cursor = page.next;
    } while (cursor && loaded.length < maxShown);
    for (const each of loaded) if (each.shortened && !fullRequests.has(requestKey(each))) await readWhole(each.run_id);
    requests = loaded.map((each) => (each.shortened ? fullRequests.get(requestKey(each)) ?? each : each));
    hasMore = Boolean(cursor);
    omitted = omittedRuns;
  }

  async function readWhole(run) {
    for (const each of (await api.get(runPath(run, "/feedback"))).data) fullRequests.set(requestKey(each), each);
  }

  async function refreshOnce() {
    if (isLeft) return;
    const startMs = performance.now();
    try {
      await read();
      problem.hidden = true;
      if (!isLeft) show();
    } catch (error) {
      problem.textContent = `${error.message}; this page looks again by itself.`;
      problem.hidden = false;
    }
    if (isLeft) return;
    clearTimeout(timer);
    timer = setTimeout(next, Math.max(PAUSE_MS, PAUSE_FACTOR * (performance.now() - startMs)));
  }

  function next() {
    if (document.hidden) return;
    refresh();
  }

  document.addEventListener("visibilitychange", next);
  await refresh();
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
