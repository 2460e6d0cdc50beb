// One turn of a chat: the request, progress, questions, and the answer while a model writes it.

import { requestKey, requestCard } from "./answers.js";
import { runPath } from "./api.js";
import { answerRequest, chatRequest, follow } from "./chat_stream.js";
import { el, fill, say } from "./dom.js";
import { pause } from "./events.js";
import { GrowingMarkdown } from "./markdown.js";
import { countText, ENDED_NODE_STATES, stateMark, stateLabel } from "./states.js";
import { temporalLink } from "./temporal.js";
import { userName } from "./user_name.js";

const NODES_SHOWN = 40;
const POLL_MS = 3000;
const ANSWER_DELAY_MS = 200;

export class Exchange {
  /**
   * request: the request as text.
   * onRun: called when the run has started. onEnd: called when the turn has ended.
   */
  constructor(request, { api, onRun = () => {}, onEnd = () => {} }) {
    this.api = api;
    this.onRun = onRun;
    this.onEnd = onEnd;
    this.run = null;
    this.request = request;
    this.text = "";
    this.nodes = new Map();
    this.cards = new Map();
    this.abortController = new AbortController();
    this.isDrawing = false;
    this.handlers = {
      started: () => this.clearAnswer(),
      run: (id) => this.setRun(id),
      text: (message) => this.write(message),
      event: (event) => this.addEvent(event),
      offline: (message) => this.showOffline(message),
    };
    this.link = el("p", { class: "facts" });
    this.offline = el("p", { class: "offline", role: "status", hidden: true });
    this.counts = el("summary", {}, "Progress");
    this.list = el("ul", { class: "steps" });
    this.progress = el("details", { class: "progress", open: true, hidden: true }, this.counts, this.list);
    this.questions = el("div", { class: "cards" });
    this.answer = el("div", { class: "answer-text" });
    this.rendered = new GrowingMarkdown(this.answer);
    this.problem = el("p", { class: "problem", role: "alert", hidden: true });
    this.stop = el("button", { type: "button", class: "danger", hidden: true, onclick: () => this.cancel() }, "Stop the run");
    this.element = el(
      "article",
      { class: "exchange", "aria-label": `Request: ${request.slice(0, 80)}` },
      el("div", { class: "turn-user" }, el("h2", {}, "You"), el("div", { class: "answer-text" }, request)),
      el("div", { class: "turn-answer" }, el("h2", {}, "Dagwright"), this.link, this.progress, this.questions, this.offline, this.answer, this.problem, this.stop),
    );
  }

  /** Shows a turn that has ended, from its session. */
  static ofTurn(turn, { api }) {
    const exchange = new Exchange(turn.request || "(a plan)", { api });
    exchange.setRun(turn.run_id);
    const message = turn.response ?? turn.outcome;
    if (turn.status === "completed" || turn.status === "completed_with_failures") exchange.write(message ?? "");
    else if (turn.status !== "running") exchange.showFailure(message ? `${stateLabel(turn.status)}: ${message}` : stateLabel(turn.status));
    fill(exchange.link, stateMark(turn.status), exchange.linksOfRun());
    return exchange;
  }

  /** Send the request, and follow its run to the end. */
  async ask(body, key) {
    await this.follow(chatRequest({ user: userName() ?? undefined, ...body }, key));
  }

  /** Follows an open run. */
  async join(run) {
    this.setRun(run);
    await this.follow(answerRequest(run));
  }

  /** The turn as messages, for a model that is called without a session. */
  messages() {
    return [
      { role: "user", content: this.request },
      ...(this.text ? [{ role: "assistant", content: this.text }] : []),
    ];
  }

  /** Stops following the run, which continues. */
  leave() {
    this.abortController.abort();
  }

  async follow(firstRequest) {
    let request = firstRequest;
    this.element.setAttribute("aria-busy", "true");
    if (this.run === null) fill(this.link, el("span", { class: "hint" }, "Starting, or waiting for the previous turn…"));
    try {
      for (;;) {
        const { calls, runSummary } = await follow(request, { on: this.handlers, signal: this.abortController.signal });
        if (runSummary?.run_id) this.setRun(runSummary.run_id, runSummary.status);
        if (!calls.length) break;
        await this.waitForAnswers(calls[0].run_id, calls.map((call) => call.request_id));
        request = answerRequest(calls[0].run_id);
      }
      if (!this.text) this.write("(no answer)");
      say("The answer is complete.");
    } catch (error) {
      if (this.abortController.signal.aborted) return;
      this.showFailure(error.message);
    }
    this.finish();
  }

  finish() {
    if (this.run === null) fill(this.link);
    this.element.removeAttribute("aria-busy");
    this.offline.hidden = true;
    this.stop.hidden = true;
    this.progress.open = false;
    for (const card of this.cards.values()) if (!card.isDone) card.showClosed("This request is closed.");
    this.onEnd(this);
  }

  // Events of the stream.

  clearAnswer() {
    // The whole answer is sent again.
    this.text = "";
    this.rendered.set("");
  }

  setRun(run, status = null) {
    if (this.run === null) this.onRun(run);
    if (run !== this.run || status !== null) {
      this.run = run;
      fill(this.link, status && stateMark(status), this.linksOfRun());
    }
    this.stop.hidden = !this.element.hasAttribute("aria-busy");
  }

  linksOfRun() {
    return this.run ? [el("a", { href: `#/runs/${encodeURIComponent(this.run)}` }, this.run), temporalLink(this.run)] : null;
  }

  write(message) {
    this.offline.hidden = true;
    this.text += message;
    this.rendered.set(this.text);
  }

  addEvent({ type, node_id: node, data }) {
    this.offline.hidden = true;
    if (node === null || node === undefined || !type.startsWith("node.")) return;
    const status = type === "node.started" ? "running" : type.slice("node.".length);
    const known = this.nodes.get(node);
    // A stream that reconnects may repeat the starts of nodes.
    if (type === "node.started" && known && ENDED_NODE_STATES.has(known.status)) return;
    this.nodes.set(node, { status, title: data.title, tool: data.tool });
    this.draw();
  }

  showOffline(message) {
    this.offline.textContent = message;
    this.offline.hidden = false;
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
      const visible = entries.length <= NODES_SHOWN ? entries : entries.filter(([, each]) => each.status !== "completed").slice(0, NODES_SHOWN);
      const omittedCount = entries.length - visible.length;
      this.progress.hidden = entries.length === 0;
      this.counts.textContent = `Progress: ${countText(counts)}`;
      fill(
        this.list,
        visible.map(([node, each]) => el("li", {}, stateMark(each.status), " ", this.nodeLink(node, each), each.tool && el("span", { class: "hint" }, ` ${each.tool}`))),
        omittedCount > 0 && el("li", { class: "hint" }, `and ${omittedCount.toLocaleString("en")} more`),
      );
    });
  }

  nodeLink(node, { title }) {
    const href = `#/runs/${encodeURIComponent(this.run)}?node=${encodeURIComponent(node)}`;
    return el("a", { href }, title || node);
  }

  async cancel() {
    this.stop.disabled = true;
    const report = (message) => say(this.abortController.signal.aborted ? `${this.run}: ${message}` : message);
    try {
      report((await this.api.post(runPath(this.run, "/cancel"), { reason: "stopped in the chat", by: userName() })).message);
    } catch (error) {
      report(error.message);
    }
    this.stop.disabled = false;
  }

  // Questions.

  /** Shows open requests, and waits until one of them is answered here or elsewhere. */
  async waitForAnswers(run, ids) {
    // The cards show the questions, so their streamed text is removed.
    this.clearAnswer();
    const signal = this.abortController.signal;
    for (let isFirstRead = true; !signal.aborted; isFirstRead = false) {
      const requests = await this.readRequests(run);
      const open = requests?.filter((request) => ids.includes(request.request_id));
      if (open && open.length < ids.length) {
        // The stream of the run may need a moment to show that the request was answered.
        if (isFirstRead) await pause(ANSWER_DELAY_MS, signal);
        break;
      }
      if (open) this.addCards(open);
      if (open && isFirstRead) this.cards.get(requestKey(open[0]))?.focus();
      const isDone = await Promise.race([pause(POLL_MS, signal), new Promise((resolve) => (this.wake = () => resolve(true)))]);
      if (isDone) break;
    }
    if (signal.aborted) throw new Error("the user has left the chat");
  }

  async readRequests(run) {
    try {
      const requests = (await this.api.get(runPath(run, "/feedback"))).data;
      this.offline.hidden = true;
      const open = new Set(requests.map(requestKey));
      for (const [key, card] of this.cards) {
        if (open.has(key)) continue;
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
      this.questions.append(card.element);
      say(`A question: ${request.prompt || request.type.toLowerCase()}`);
    }
  }
}
