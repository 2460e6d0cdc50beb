// The inbox: open requests of all runs. The requests of one node can be answered together.

import { runPath } from "../api.js";
import { requestKey, nodeKeyOf, requestCard } from "../answers.js";
import { el, fill } from "../dom.js";
import { userNameField } from "../user_name.js";

const MIN_PAUSE_MS = 3000;
const PAUSE_FACTOR = 10; // the pause after a read is at least ten times as long as the read
const PAGE_SIZE = 50;

export async function mount(root, { api, params }) {
  const cards = new Map();
  let requests = [];
  let hasMore = false;
  let omittedRuns = [];
  const fullRequests = new Map(); // complete documents of requests that the inbox shortens
  let maxShown = PAGE_SIZE;
  let requestCountsByNode = new Map();
  let timer = null;
  let isUnmounted = false;
  let pendingRefresh = null;

  const filter = el("input", { type: "search", id: "inbox-filter", autocomplete: "off", value: params.find ?? "" });
  const state = el("p", { class: "hint", id: "inbox-state" });
  const problem = el("p", { class: "problem", role: "alert", hidden: true });
  const list = el("div", { class: "cards" });
  const moreButton = el("button", { type: "button", hidden: true }, "Show more");
  fill(
    root,
    el("h1", {}, "Inbox"),
    el("div", { class: "bar" }, el("label", { for: filter.id }, "Find"), filter, userNameField()),
    state,
    problem,
    list,
    moreButton,
  );
  filter.addEventListener("input", () => {
    maxShown = PAGE_SIZE;
    show();
  });
  moreButton.addEventListener("click", () => {
    maxShown += PAGE_SIZE;
    show();
    refresh();
  });

  function filteredRequests() {
    const query = filter.value.trim().toLowerCase();
    const searchText = (request) => `${request.prompt}\n${request.request_id}\n${request.run_id}\n${request.title ?? ""}\n${request.assignee ?? ""}`.toLowerCase();
    return query ? requests.filter((request) => searchText(request).includes(query)) : requests;
  }

  function show() {
    const openRequests = new Map(requests.map((request) => [requestKey(request), request]));
    for (const [key, card] of cards) {
      if (openRequests.has(key)) continue;
      // A card with a draft is kept.
      if (!card.isDone && card.isTouched()) card.showClosed("This request is closed: it was answered elsewhere, or the run continued.");
      else if (!card.isDone) card.element.remove();
      cards.delete(key);
    }
    requestCountsByNode = new Map();
    for (const request of requests) requestCountsByNode.set(nodeKeyOf(request), (requestCountsByNode.get(nodeKeyOf(request)) ?? 0) + 1);
    const matchingRequests = filteredRequests();
    const visibleKeys = new Set();
    for (const request of matchingRequests.slice(0, maxShown)) {
      const key = requestKey(request);
      visibleKeys.add(key);
      if (!cards.has(key)) cards.set(key, makeCard(request));
      const card = cards.get(key);
      card.refresh();
      card.element.hidden = false;
      if (!card.element.isConnected) list.append(card.element);
    }
    for (const [key, card] of cards) if (!visibleKeys.has(key)) card.element.hidden = true;
    moreButton.hidden = matchingRequests.length <= maxShown && !hasMore;
    const total = `${requests.length.toLocaleString("en")}${hasMore ? "+" : ""}`;
    // The filter searches loaded requests only, because the server has no index of the texts of requests.
    const moreText = hasMore ? "; “Show more” loads and searches more requests" : "";
    const countText = filter.value.trim()
      ? `${matchingRequests.length.toLocaleString("en")} found in ${requests.length.toLocaleString("en")} loaded requests${moreText}`
      : `${total} open`;
    const omittedText = omittedRuns.map((run) => `; ${run.count.toLocaleString("en")} more of ${run.run_id}`).join("");
    state.textContent = requests.length || omittedText ? `${countText}${omittedText}` : "There are no open requests.";
  }

  function makeCard(request) {
    const card = requestCard(request, {
      api,
      countRequestsOfNode: () => requestCountsByNode.get(nodeKeyOf(request)) ?? 1,
      onDone: () => {
        card.isDone = true;
        refresh();
      },
    });
    return card;
  }

  /** Read the inbox now, or after a pending read. */
  function refresh() {
    clearTimeout(timer);
    pendingRefresh = (pendingRefresh ?? Promise.resolve()).then(refreshOnce);
    return pendingRefresh;
  }

  async function readInbox() {
    const loadedRequests = [];
    const newOmittedRuns = [];
    let cursor = "";
    do {
      const query = new URLSearchParams(cursor ? { after: cursor } : {});
      const page = await api.get(`/v1/inbox?${query}`);
      loadedRequests.push(...page.data);
      newOmittedRuns.push(...page.omitted);
      cursor = page.cursor;
    } while (cursor && loadedRequests.length < maxShown);
    for (const request of loadedRequests) if (request.shortened && !fullRequests.has(requestKey(request))) await readFullRequests(request.run_id);
    requests = loadedRequests.map((request) => (request.shortened ? fullRequests.get(requestKey(request)) ?? request : request));
    hasMore = Boolean(cursor);
    omittedRuns = newOmittedRuns;
  }

  async function readFullRequests(runId) {
    for (const request of (await api.get(runPath(runId, "/feedback"))).data) fullRequests.set(requestKey(request), request);
  }

  async function refreshOnce() {
    if (isUnmounted) return;
    const startMs = performance.now();
    try {
      await readInbox();
      problem.hidden = true;
      if (!isUnmounted) show();
    } catch (error) {
      problem.textContent = `${error.message}; this page tries again by itself.`;
      problem.hidden = false;
    }
    if (isUnmounted) return;
    clearTimeout(timer);
    timer = setTimeout(refreshIfVisible, Math.max(MIN_PAUSE_MS, PAUSE_FACTOR * (performance.now() - startMs)));
  }

  function refreshIfVisible() {
    if (document.hidden) return;
    refresh();
  }

  document.addEventListener("visibilitychange", refreshIfVisible);
  await refresh();
  const unmount = () => {
    isUnmounted = true;
    clearTimeout(timer);
    document.removeEventListener("visibilitychange", refreshIfVisible);
  };
  unmount.update = ({ find = "" }) => {
    filter.value = find;
    show();
  };
  return unmount;
}
