// The page of a run: commands, graph, timeline, and the details of the selected node.

import { runPath } from "../api.js";
import { Detail } from "../detail.js";
import { announce, el, fill } from "../dom.js";
import { followEvents, isFinalEvent } from "../events.js";
import { GraphView } from "../graph.js";
import { RunGraph } from "../run_graph.js";
import { countText, ENDED_RUN_STATES, stateMark, stateLabel } from "../states.js";
import { steeringButtons, steeringKey } from "../steering.js";
import { timeBetweenText, timeText } from "../times.js";
import { Timeline } from "../timeline.js";

const MAX_NODES_WITH_TIMES = 5000; // in larger graphs, nodes have no times, because the page does not read their past events
const TICK_MS = 1000;
const MIN_READ_PAUSE_MS = 500;

export async function mount(root, { api, params, go }) {
  const runId = params.id;
  const runGraph = new RunGraph();
  let runDocument = null;
  let stopFollowing = () => {};
  let isUnmounted = false;
  let shownSteeringKey = null;
  let tickTimer = null;
  let readTimer = null;
  let lastReadMs = 0;
  let selectedId = null;
  const nodeChanges = [];

  const title = el("h1", {}, runId);
  const facts = el("p", { class: "facts" });
  const actions = el("div", { class: "actions" });
  const offlineMessage = el("p", { class: "offline", role: "status", hidden: true });
  const notes = el("div", { class: "notes" });
  const outcome = el("div", { class: "outcome" });
  const select = (node) => go(runAddress(runId, node));
  const graph = new GraphView(runGraph, { onSelect: select });
  const timeline = new Timeline(runGraph, { onSelect: select });
  const detail = new Detail(runId, { api, go, createCommands: steeringButtons, currentRun: () => runDocument, onClose: () => select(null), onNode: select });
  fill(
    root,
    el("p", { class: "back" }, el("a", { href: "#/runs" }, "Runs")),
    el("header", { class: "run" }, title, actions),
    facts,
    offlineMessage,
    notes,
    outcome,
    el("div", { class: "parts" }, graph.element, el("div", { class: "side" }, detail.element, timeline.element)),
  );

  /** Read the run and its graph, and follow the events. For large runs, follow only the events after the graph's cursor. */
  async function load() {
    const [loadedDocument, graphDocument] = await Promise.all([api.get(runPath(runId)), api.get(runPath(runId, "/graph"))]);
    if (isUnmounted) return;
    runDocument = loadedDocument;
    runGraph.load(graphDocument);
    updateHead();
    graph.draw();
    timeline.draw();
    const after = graphDocument.nodes.length > MAX_NODES_WITH_TIMES ? graphDocument.cursor : null;
    stopFollowing = followEvents(runPath(runId, "/events"), { onEvent, onState, after });
  }

  function onEvent({ name, id, data }) {
    if (name.startsWith("node.")) nodeChanges.push(data);
    // Events that belong together arrive together; only the last event has an ID.
    if (nodeChanges.length && (id !== null || !name.startsWith("node."))) applyNodeChanges(nodeChanges.splice(0), id);
    if (isFinalEvent(name)) {
      onEnd(data);
    } else if (name.startsWith("run.")) {
      runDocument = { ...runDocument, status: data.status, title: data.title, notes: data.notes, counts: data.node_counts, waiting_for: data.waiting_for };
      updateHead();
      if (runGraph.differsFromCounts(data.node_counts)) scheduleGraphRead();
    }
  }

  function applyNodeChanges(changes, id) {
    const changedIds = runGraph.applyEvents(changes, id);
    graph.updateStates(changedIds);
    timeline.update();
    if (selectedId !== null && changes.some((node) => node.node_id === selectedId)) detail.show(selectedId);
    if (runGraph.hasUnknownNodes) scheduleGraphRead();
  }

  /**
   * Reads the graph again soon, because nodes were added, or changed without events (in large regions). The gateway needs
   * seconds for a large graph, so the pause before a read is three times as long as the last read.
   */
  function scheduleGraphRead() {
    if (readTimer !== null || isUnmounted) return;
    readTimer = setTimeout(async () => {
      const readStart = performance.now();
      try {
        const graphDocument = await api.get(runPath(runId, "/graph"));
        if (isUnmounted) return;
        runGraph.load(graphDocument);
        graph.draw();
        timeline.update();
      } catch (error) {
        if (!isUnmounted) announce(error.message);
      }
      lastReadMs = performance.now() - readStart;
      readTimer = null;
    }, Math.max(MIN_READ_PAUSE_MS, 3 * lastReadMs));
  }

  function onState(state, message) {
    offlineMessage.hidden = state === "open" || state === "ended";
    offlineMessage.textContent = message ?? "";
  }

  async function onEnd(end) {
    runDocument = { ...runDocument, status: end.status, error: end.error, output: end.output, counts: end.node_counts };
    updateHead();
    announce(`The run is ${stateLabel(end.status)}.`);
    scheduleGraphRead();
    // Updates the commands of the node: fewer are possible after the end of the run.
    if (selectedId !== null) detail.show(selectedId);
    const newDocument = await api.get(runPath(runId)).catch(() => null);
    if (newDocument === null || isUnmounted) return;
    runDocument = { ...runDocument, ...newDocument };
    updateHead();
  }

  function updateHead() {
    title.textContent = runDocument.title ?? runId;
    document.title = `${runDocument.title ?? runId} · Dagwright`;
    const counts = runDocument.counts ?? runGraph.counts();
    fill(
      facts,
      stateMark(runDocument.status),
      el("span", {}, countText(counts)),
      runDocument.started_at && el("span", {}, "started ", el("time", { datetime: runDocument.started_at }, timeText(runDocument.started_at))),
      runDocument.started_at && el("span", {}, ENDED_RUN_STATES.has(runDocument.status) ? "took " : "for ", el("span", { class: "took" }, timeBetweenText(runDocument.started_at, runDocument.ended_at))),
      el("code", {}, runId),
      runDocument.session_id && el("span", {}, `session ${runDocument.session_id}`),
      runDocument.ui_url && el("a", { href: runDocument.ui_url, target: "_blank", rel: "noreferrer" }, "Temporal UI"),
      runDocument.waiting_for?.length > 0 && el("a", { href: `#/inbox?find=${encodeURIComponent(runId)}` }, `asks ${runDocument.waiting_for.length} ${runDocument.waiting_for.length === 1 ? "question" : "questions"}`),
    );
    fill(notes, (runDocument.notes ?? []).map((note) => el("p", { class: "notice" }, note.message)));
    fill(outcome, runDocument.error && el("p", { class: "problem" }, runDocument.error.message));
    if (shownSteeringKey !== steeringKey(runDocument)) {
      shownSteeringKey = steeringKey(runDocument);
      fill(actions, steeringButtons(runDocument, null, { api, go }));
    }
  }

  function update({ node = null }) {
    if (node === selectedId) return;
    selectedId = node;
    graph.select(node);
    timeline.select(node);
    if (node === null) detail.close();
    else detail.show(node);
  }

  try {
    await load();
    update(params);
  } catch (error) {
    fill(root, el("p", { class: "back" }, el("a", { href: "#/runs" }, "Runs")), el("p", { class: "problem", role: "alert" }, error.message));
  }
  tickTimer = setInterval(() => {
    const durationElement = facts.querySelector(".took");
    if (durationElement && !ENDED_RUN_STATES.has(runDocument.status)) durationElement.textContent = timeBetweenText(runDocument.started_at, null);
    timeline.tick();
  }, TICK_MS);

  const unmount = () => {
    isUnmounted = true;
    clearInterval(tickTimer);
    clearTimeout(readTimer);
    stopFollowing();
    graph.close();
    timeline.close();
  };
  unmount.update = update;
  return unmount;
}

function runAddress(runId, nodeId) {
  const query = nodeId === null ? "" : `?node=${encodeURIComponent(nodeId)}`;
  return `#/runs/${encodeURIComponent(runId)}${query}`;
}
