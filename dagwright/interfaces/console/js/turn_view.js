// One turn of a chat: text of the user, progress, open requests of the run, and the answer while a model writes it.

import { requestKey, requestCard } from "./answers.js";
import { runPath } from "./api.js";
import { answerRequest, chatRequest, followAnswer } from "./chat_stream.js";
import { announce, el, fill } from "./dom.js";
import { pause } from "./events.js";
import { GrowingMarkdown } from "./markdown.js";
import { countText, ENDED_NODE_STATES, stateMark, stateLabel } from "./states.js";
import { temporalLink } from "./temporal.js";
import { userName } from "./user_name.js";

const MAX_SHOWN_NODES = 40;
const POLL_MS = 3000; // between two reads of the open requests
const ANSWER_DELAY_MS = 200;

export class TurnView {
  /**
   * userText: text of the user.
   * onRun: called when the run has started. onEnd: called when the turn has ended.
   */
  constructor(userText, { api, onRun = () => {}, onEnd = () => {} }) {
    this.api = api;
    this.onRun = onRun;
    this.onEnd = onEnd;
    this.runId = null;
    this.userText = userText;
    this.text = "";
    this.nodes = new Map();
    this.cards = new Map();
    this.abortController = new AbortController();
    this.isDrawing = false;
    this.handlers = {
      started: () => this.clearAnswer(),
      run: (id) => this.setRun(id),
      text: (text) => this.write(text),
      event: (event) => this.addEvent(event),
      offline: (message) => this.showOffline(message),
    };
    this.link = el("p", { class: "facts" });
    this.offlineNotice = el("p", { class: "offline", role: "status", hidden: true });
    this.progressSummary = el("summary", {}, "Progress");
    this.nodeList = el("ul", { class: "steps" });
    this.progress = el("details", { class: "progress", open: true, hidden: true }, this.progressSummary, this.nodeList);
    this.requestCards = el("div", { class: "cards" });
    this.answer = el("div", { class: "answer-text" });
    this.answerMarkdown = new GrowingMarkdown(this.answer);
    this.problem = el("p", { class: "problem", role: "alert", hidden: true });
    this.stopButton = el("button", { type: "button", class: "danger", hidden: true, onclick: () => this.cancel() }, "Stop the run");
    this.element = el(
      "article",
      { class: "turn", "aria-label": `Request: ${userText.slice(0, 80)}` },
      el("div", { class: "turn-user" }, el("h2", {}, "You"), el("div", { class: "answer-text" }, userText)),
      el("div", { class: "turn-answer" }, el("h2", {}, "Dagwright"), this.link, this.progress, this.requestCards, this.offlineNotice, this.answer, this.problem, this.stopButton),
    );
  }

  /** Shows a turn that has ended, from its session. */
  static ofTurn(turn, { api }) {
    const turnView = new TurnView(turn.request || "(a plan)", { api });
    turnView.setRun(turn.run_id);
    const message = turn.response ?? turn.outcome;
    if (turn.status === "completed" || turn.status === "completed_with_failures") turnView.write(message ?? "");
    else if (turn.status !== "running") turnView.showFailure(message ? `${stateLabel(turn.status)}: ${message}` : stateLabel(turn.status));
    fill(turnView.link, stateMark(turn.status), turnView.linksOfRun());
    return turnView;
  }

  /** Send the text of the user, and follow the run to its end. */
  async ask(body, key) {
    await this.follow(chatRequest({ user: userName() ?? undefined, ...body }, key));
  }

  /** Follows an open run. */
  async followRun(runId) {
    this.setRun(runId);
    await this.follow(answerRequest(runId));
  }

  /** The turn as messages, for a model that is called without a session. */
  messages() {
    return [
      { role: "user", content: this.userText },
      ...(this.text ? [{ role: "assistant", content: this.text }] : []),
    ];
  }

  /** Stops following the run, which continues. */
  stopFollowing() {
    this.abortController.abort();
  }

  async follow(firstHttpRequest) {
    let httpRequest = firstHttpRequest;
    this.element.setAttribute("aria-busy", "true");
    if (this.runId === null) fill(this.link, el("span", { class: "hint" }, "Starting, or waiting for the previous turn…"));
    try {
      for (;;) {
        const { calls, runSummary } = await followAnswer(httpRequest, { handlers: this.handlers, signal: this.abortController.signal });
        if (runSummary?.run_id) this.setRun(runSummary.run_id, runSummary.status);
        if (!calls.length) break;
        await this.waitForAnswers(calls[0].run_id, calls.map((call) => call.request_id));
        httpRequest = answerRequest(calls[0].run_id);
      }
      if (!this.text) this.write("(no answer)");
      announce("The answer is complete.");
    } catch (error) {
      if (this.abortController.signal.aborted) return;
      this.showFailure(error.message);
    }
    this.finish();
  }

  finish() {
    if (this.runId === null) fill(this.link);
    this.element.removeAttribute("aria-busy");
    this.offlineNotice.hidden = true;
    this.stopButton.hidden = true;
    this.progress.open = false;
    for (const card of this.cards.values()) if (!card.isDone) card.showClosed("This request is closed.");
    this.onEnd(this);
  }

  // Events of the stream.

  clearAnswer() {
    // A new stream sends the whole answer again.
    this.text = "";
    this.answerMarkdown.set("");
  }

  setRun(runId, status = null) {
    if (this.runId === null) this.onRun(runId);
    if (runId !== this.runId || status !== null) {
      this.runId = runId;
      fill(this.link, status && stateMark(status), this.linksOfRun());
    }
    this.stopButton.hidden = !this.element.hasAttribute("aria-busy");
  }

  linksOfRun() {
    return this.runId ? [el("a", { href: `#/runs/${encodeURIComponent(this.runId)}` }, this.runId), temporalLink(this.runId)] : null;
  }

  write(text) {
    this.offlineNotice.hidden = true;
    this.text += text;
    this.answerMarkdown.set(this.text);
  }

  addEvent({ type, node_id: nodeId, data }) {
    this.offlineNotice.hidden = true;
    if (nodeId === null || nodeId === undefined || !type.startsWith("node.")) return;
    const status = type === "node.started" ? "running" : type.slice("node.".length);
    const knownNode = this.nodes.get(nodeId);
    // A stream that reconnects may repeat the starts of nodes.
    if (type === "node.started" && knownNode && ENDED_NODE_STATES.has(knownNode.status)) return;
    this.nodes.set(nodeId, { status, title: data.title, tool: data.tool });
    this.draw();
  }

  showOffline(message) {
    this.offlineNotice.textContent = message;
    this.offlineNotice.hidden = false;
  }

  showFailure(message) {
    this.problem.textContent = message;
    this.problem.hidden = false;
  }

  draw() {
    if (this.isDrawing) return;
    this.isDrawing = true;
    requestAnimationFrame(() => {
      this.isDrawing = false;
      const entries = [...this.nodes];
      const counts = {};
      for (const [, { status }] of entries) counts[status] = (counts[status] ?? 0) + 1;
      const visibleEntries = entries.length <= MAX_SHOWN_NODES ? entries : entries.filter(([, node]) => node.status !== "completed").slice(0, MAX_SHOWN_NODES);
      const omittedCount = entries.length - visibleEntries.length;
      this.progress.hidden = entries.length === 0;
      this.progressSummary.textContent = `Progress: ${countText(counts)}`;
      fill(
        this.nodeList,
        visibleEntries.map(([nodeId, node]) => el("li", {}, stateMark(node.status), " ", this.nodeLink(nodeId, node), node.tool && el("span", { class: "hint" }, ` ${node.tool}`))),
        omittedCount > 0 && el("li", { class: "hint" }, `and ${omittedCount.toLocaleString("en")} more`),
      );
    });
  }

  nodeLink(nodeId, { title }) {
    const href = `#/runs/${encodeURIComponent(this.runId)}?node=${encodeURIComponent(nodeId)}`;
    return el("a", { href }, title || nodeId);
  }

  async cancel() {
    this.stopButton.disabled = true;
    const report = (message) => announce(this.abortController.signal.aborted ? `${this.runId}: ${message}` : message);
    try {
      report((await this.api.post(runPath(this.runId, "/cancel"), { reason: "stopped in the chat", by: userName() })).message);
    } catch (error) {
      report(error.message);
    }
    this.stopButton.disabled = false;
  }

  // Requests of the run to the user.

  /** Shows open requests, and waits until one of them is answered here or elsewhere. */
  async waitForAnswers(runId, requestIds) {
    // The cards show the requests, so the streamed text of the requests is removed.
    this.clearAnswer();
    const signal = this.abortController.signal;
    for (let isFirstRead = true; !signal.aborted; isFirstRead = false) {
      const requests = await this.readRequests(runId);
      const openRequests = requests?.filter((request) => requestIds.includes(request.request_id));
      if (openRequests && openRequests.length < requestIds.length) {
        // The stream of the run may need a moment to show that the request was answered.
        if (isFirstRead) await pause(ANSWER_DELAY_MS, signal);
        break;
      }
      if (openRequests) this.addCards(openRequests);
      if (openRequests && isFirstRead) this.cards.get(requestKey(openRequests[0]))?.focus();
      const isDone = await Promise.race([pause(POLL_MS, signal), new Promise((resolve) => (this.wake = () => resolve(true)))]);
      if (isDone) break;
    }
    if (signal.aborted) throw new Error("the user has left the chat");
  }

  async readRequests(runId) {
    try {
      const requests = (await this.api.get(runPath(runId, "/feedback"))).data;
      this.offlineNotice.hidden = true;
      const openKeys = new Set(requests.map(requestKey));
      for (const [key, card] of this.cards) {
        if (openKeys.has(key)) continue;
        if (!card.isDone) card.showClosed("This request was answered elsewhere, or is closed.");
        this.cards.delete(key);
      }
      return requests;
    } catch (error) {
      this.showOffline(error.message);
      return null;
    }
  }

  addCards(requests) {
    for (const request of requests) {
      const key = requestKey(request);
      if (this.cards.has(key)) continue;
      const card = requestCard(request, {
        api: this.api,
        hidesRun: true,
        onDone: () => {
          card.isDone = true;
          this.wake?.();
        },
      });
      this.cards.set(key, card);
      this.requestCards.append(card.element);
      announce(`A question: ${request.prompt || request.type.toLowerCase()}`);
    }
  }
}
