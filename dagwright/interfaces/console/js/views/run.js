// One run: its head with its commands, its graph, its timeline, and one node.

import { runPath } from "../api.js";
import { Detail } from "../detail.js";
import { el, fill, say } from "../dom.js";
import { follow, isEnd } from "../events.js";
import { GraphView } from "../graph.js";
import { Model } from "../model.js";
import { countText, ENDED_RUNS, stateMark, stateLabel } from "../states.js";
import { steering, steeringKey } from "../steering.js";
import { timeBetweenText, timeText } from "../times.js";
import { Timeline } from "../timeline.js";

const WITH_TIMES = 5000; // nodes; for more the first event would be too large
const TICK_MS = 1000;
const PAUSE_MS = 500;

export async function mount(root, { api, params, go }) {
  const run = params.id;
  const model = new Model();
  let document_ = null;
  let stop = () => {};
  let isGone = false;
  let steered = null;
  let tick = null;
  let again = null;
  let readingMs = 0;
  let selected = null;
  const nodes = [];

  const title = el("h1", {}, run);
  const facts = el("p", { class: "facts" });
  const actions = el("div", { class: "actions" });
  const offline = el("p", { class: "offline", role: "status", hidden: true });
  const notes = el("div", { class: "notes" });
  const outcome = el("div", { class: "outcome" });
  const select = (node) => go(address(run, node));
  const graph = new GraphView(model, { onSelect: select });
  const timeline = new Timeline(model, { onSelect: select });
  const detail = new Detail(run, { api, go, steering, now: () => document_, onClose: () => select(null), onNode: select });
  fill(
    root,
    el("p", { class: "back" }, el("a", { href: "#/runs" }, "Runs")),
    el("header", { class: "run" }, title, actions),
    facts,
    offline,
    notes,
    outcome,
    el("div", { class: "parts" }, graph.element, el("div", { class: "side" }, detail.element, timeline.element)),
  );

  /** Read the graph, and follow its events from there, so that no change is missed. */
  async function load() {
    const [document, drawn] = await Promise.all([api.get(runPath(run)), api.get(runPath(run, "/graph"))]);
    if (isGone) return;
    document_ = document;
    model.take(drawn);
    headed();
    graph.drawn();
    timeline.drawn();
    const after = drawn.nodes.length > WITH_TIMES ? drawn.cursor : null;
    stop = follow(runPath(run, "/events"), { onEvent, onState, after });
  }

  function onEvent({ name, id, data }) {
    if (name.startsWith("node.")) nodes.push(data);
    // The events of one moment arrive together; the last one has an ID.
    if (nodes.length && (id !== null || !name.startsWith("node."))) nodesChanged(nodes.splice(0), id);
    if (isEnd(name)) {
      ended(data);
    } else if (name.startsWith("run.")) {
      document_ = { ...document_, status: data.status, title: data.title, notes: data.notes, counts: data.node_counts, waiting_for: data.waiting_for };
      headed();
      if (model.isBehind(data.node_counts)) readAgain();
    }
  }

  function nodesChanged(changes, id) {
    const changed = model.change(changes, id);
    graph.changed(changed);
    timeline.changed();
    if (selected !== null && changes.some((node) => node.node_id === selected)) detail.show(selected);
    if (model.lacks) readAgain();
  }

  /**
   * Reads the graph again: nodes were added, or have no events, such as those inside large regions. The gateway needs
   * seconds for a large graph, so it is read less often than that.
   */
  function readAgain() {
    if (again !== null || isGone) return;
    again = setTimeout(async () => {
      const begun = performance.now();
      try {
        const drawn = await api.get(runPath(run, "/graph"));
        if (isGone) return;
        model.take(drawn);
        graph.drawn();
        timeline.changed();
      } catch (error) {
        if (!isGone) say(error.message);
      }
      readingMs = performance.now() - begun;
      again = null;
    }, Math.max(PAUSE_MS, 3 * readingMs));
  }

  function onState(state, message) {
    offline.hidden = state === "open" || state === "ended";
    offline.textContent = message ?? "";
  }

  async function ended(end) {
    document_ = { ...document_, status: end.status, error: end.error, output: end.output, counts: end.node_counts };
    headed();
    say(`The run is ${stateLabel(end.status)}.`);
    readAgain();
    // For a run that has ended, fewer commands are possible.
    if (selected !== null) detail.show(selected);
    const newest = await api.get(runPath(run)).catch(() => null);
    if (newest === null || isGone) return;
    document_ = { ...document_, ...newest };
    headed();
  }

  function headed() {
    const now = document_;
    title.textContent = now.title ?? run;
    document.title = `${now.title ?? run} · Dagwright`;
    const counts = now.counts ?? model.counts();
    fill(
      facts,
      stateMark(now.status),
      el("span", {}, countText(counts)),
      now.started_at && el("span", {}, "started ", el("time", { datetime: now.started_at }, timeText(now.started_at))),
      now.started_at && el("span", {}, ENDED_RUNS.has(now.status) ? "took " : "for ", el("span", { class: "took" }, timeBetweenText(now.started_at, now.ended_at))),
      el("code", {}, run),
      now.session_id && el("span", {}, `session ${now.session_id}`),
      now.ui_url && el("a", { href: now.ui_url, target: "_blank", rel: "noreferrer" }, "Temporal UI"),
      now.waiting_for?.length > 0 && el("a", { href: `#/inbox?find=${encodeURIComponent(run)}` }, `asks ${now.waiting_for.length} ${now.waiting_for.length === 1 ? "question" : "questions"}`),
    );
    fill(notes, (now.notes ?? []).map((note) => el("p", { class: "notice" }, note.message)));
    fill(outcome, now.error && el("p", { class: "problem" }, now.error.message));
    if (steered !== steeringKey(now)) {
      steered = steeringKey(now);
      fill(actions, steering(now, null, { api, go }));
    }
  }

  function update({ node = null }) {
    if (node === selected) return;
    selected = node;
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
  tick = setInterval(() => {
    const took = facts.querySelector(".took");
    if (took && !ENDED_RUNS.has(document_.status)) took.textContent = timeBetweenText(document_.started_at, null);
    timeline.tick();
  }, TICK_MS);

  const unmount = () => {
    isGone = true;
    clearInterval(tick);
    clearTimeout(again);
    stop();
    graph.close();
    timeline.close();
  };
  unmount.update = update;
  return unmount;
}

function address(run, node) {
  const query = node === null ? "" : `?node=${encodeURIComponent(node)}`;
  return `#/runs/${encodeURIComponent(run)}${query}`;
}
