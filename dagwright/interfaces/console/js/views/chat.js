// Chats: sessions with their turns, and requests to a planner, a plan, an agent or a model.

import { newIdempotencyKey } from "../chat_stream.js";
import { announce, el, fill } from "../dom.js";
import { schemaForm } from "../forms.js";
import { stateLabel } from "../states.js";
import { TurnView } from "../turn_view.js";
import { userNameField } from "../user_name.js";

const MODEL_KEY = "dagwright.model";
const PLANNER = "profile/plan";
const KIND_LABELS = { profile: "Planners", plan: "Plans", agent: "Agents", model: "Models (plan steps if needed)" };

export async function mount(root, { api, params }) {
  const log = el("div", { class: "log", role: "log", "aria-label": "Conversation", tabindex: "0" });
  const sessions = el("ul", { class: "sessions" });
  const problem = el("p", { class: "problem", role: "alert", hidden: true });
  const title = el("h1", {}, params.id ?? "New chat");
  const composer = makeComposer({ onSend });
  const turnViews = [];
  keepEndVisible(log);
  const welcome = params.id === null && el("p", { class: "hint" }, "Write a request below, or choose what answers it: a planner, a plan, an agent or a model.");
  let sessionId = params.id;
  let isUnmounted = false;

  fill(
    root,
    el(
      "div",
      { class: "chat" },
      el(
        "nav",
        { class: "side", "aria-label": "Sessions" },
        el("details", { open: window.innerWidth > 800 }, el("summary", {}, "Sessions"), el("p", {}, el("a", { href: "#/chat" }, "New chat")), sessions),
        userNameField(),
      ),
      el("section", { class: "conversation" }, title, problem, log, composer.element),
    ),
  );

  function add(turnView) {
    if (welcome) welcome.remove();
    turnViews.push(turnView);
    log.append(turnView.element);
    log.scrollTop = log.scrollHeight;
  }

  async function onSend({ model, kind, message, inputs }) {
    if (sessionId === null) {
      sessionId = `chat-${newIdempotencyKey().slice(-8)}`;
      title.textContent = sessionId;
      // The address changes without a navigation, which would unmount this view while it follows the run.
      history.replaceState(null, "", `#/chat/${sessionId}`);
      document.title = `${sessionId} · Chat · Dagwright`;
    }
    const earlierMessages = turnViews.flatMap((turnView) => turnView.messages());
    const turnView = new TurnView(message, { api, onRun: listSessions, onEnd: onEnd });
    add(turnView);
    // A model may answer without a run, and then needs the earlier messages. For a run, the session stores the turns.
    const messages = kind === "model" ? [...earlierMessages, { role: "user", content: message }] : [{ role: "user", content: message }];
    const body = { model, session_id: sessionId, messages, ...(kind === "model" ? { routing_mode: "auto" } : {}), ...(inputs ? { inputs } : {}) };
    composer.setBusy(true);
    await turnView.ask(body, newIdempotencyKey());
  }

  function onEnd() {
    if (isUnmounted) return;
    composer.setBusy(false);
    listSessions();
  }

  async function listSessions() {
    try {
      const { data } = await api.get("/v1/sessions");
      if (isUnmounted) return;
      fill(sessions, data.map((session) => sessionLine(session, sessionId)), data.length === 0 && el("li", { class: "hint" }, "none yet"));
    } catch (error) {
      if (!isUnmounted) announce(error.message);
    }
  }

  async function loadTurns() {
    const storedSession = await loadSession();
    if (isUnmounted) return;
    if (storedSession === null) {
      log.append(el("p", { class: "hint" }, "There is no session with this ID; the first request starts it. Answers of a model without a run are not stored."));
      return;
    }
    if (storedSession.omitted_turns) log.append(el("p", { class: "hint" }, `${storedSession.omitted_turns} older turns are not stored.`));
    const runningTurn = storedSession.turns.find((turn) => turn.status === "running");
    for (const turn of storedSession.turns) if (turn !== runningTurn) add(TurnView.ofTurn(turn, { api }));
    if (!runningTurn) return;
    const turnView = new TurnView(runningTurn.request || "(a plan)", { api, onEnd: onEnd });
    add(turnView);
    composer.setBusy(true);
    turnView.followRun(runningTurn.run_id);
  }

  async function loadSession() {
    try {
      return await api.get(`/v1/sessions/${encodeURIComponent(sessionId)}`);
    } catch (error) {
      if (error.status === 404) return null;
      throw error;
    }
  }

  try {
    const { data } = await api.get("/v1/models");
    composer.setModels(data);
    if (welcome) log.append(welcome);
    else await loadTurns();
  } catch (error) {
    problem.textContent = error.message;
    problem.hidden = false;
  }
  listSessions();
  if (!isUnmounted) composer.focus();
  return () => {
    isUnmounted = true;
    turnViews.forEach((turnView) => turnView.stopFollowing());
  };
}

/** Keep the end in view unless the user has scrolled back. */
function keepEndVisible(log) {
  let isAtEnd = true;
  log.addEventListener("scroll", () => (isAtEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 40));
  const observer = new MutationObserver(() => isAtEnd && (log.scrollTop = log.scrollHeight));
  observer.observe(log, { childList: true, subtree: true, characterData: true });
}

function sessionLine(session, currentId) {
  const link = el("a", { href: `#/chat/${encodeURIComponent(session.session_id)}` }, session.session_id);
  if (session.session_id === currentId) link.setAttribute("aria-current", "page");
  const state = session.status === "idle" ? "" : ` · ${stateLabel(session.status)}`;
  return el("li", {}, link, el("span", { class: "hint" }, `${state} ${session.last_request ?? ""}`));
}

/** The form for a request: its target, and text or the inputs of a plan. */
function makeComposer({ onSend }) {
  const select = el("select", { id: "chat-model" });
  const message = el("textarea", { id: "chat-message", rows: "3", placeholder: "What should be done?" });
  const formArea = el("div", { class: "composer-place" });
  const description = el("p", { class: "hint" });
  const button = el("button", { class: "main" }, "Send");
  const element = el(
    "form",
    { class: "composer" },
    el("div", { class: "bar" }, el("label", { for: select.id }, "For"), select),
    description,
    formArea,
    el("div", { class: "actions" }, button, el("span", { class: "hint" }, "Enter sends, Shift+Enter starts a new line")),
  );
  let models = [];
  let form = null;
  let hasNoInputs = false;

  function selectedModel() {
    return models.find((model) => model.id === select.value);
  }

  function updateForm() {
    const model = selectedModel();
    const schema = model?.dagwright.input_schema;
    const fields = Object.values(schema?.properties ?? {});
    const isText = !schema || (fields.length === 1 && fields[0].type === "string");
    hasNoInputs = fields.length === 0 && Boolean(schema);
    form = isText || hasNoInputs ? null : schemaForm(schema);
    description.textContent = model?.dagwright.description ?? model?.dagwright.title ?? "";
    const controls = form ? form.element : [el("label", { for: message.id }, "Request"), message];
    fill(formArea, hasNoInputs ? el("p", { class: "hint" }, "This plan has no inputs.") : controls);
  }

  function send(event) {
    event?.preventDefault();
    if (button.disabled) return;
    const model = selectedModel();
    if (!model) return;
    let request = { message: message.value.trim() };
    if (form) {
      const { value, problems } = form.read();
      if (problems.length) return;
      request = { message: JSON.stringify(value), inputs: value };
    } else if (hasNoInputs) {
      request = { message: model.id, inputs: {} };
    } else if (!request.message) {
      message.focus();
      return;
    }
    message.value = "";
    onSend({ model: model.id, kind: model.dagwright.kind, ...request });
  }

  element.addEventListener("submit", send);
  message.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) send(event);
  });
  select.addEventListener("change", () => {
    localStorage.setItem(MODEL_KEY, select.value);
    updateForm();
  });

  return {
    element,
    focus: () => (form ?? (hasNoInputs ? button : message)).focus(),
    setBusy(isBusy) {
      button.disabled = isBusy;
      button.textContent = isBusy ? "At work…" : "Send";
    },
    setModels(newModels) {
      models = newModels;
      const groups = Object.entries(KIND_LABELS).map(([kind, label]) => {
        const modelsOfKind = newModels.filter((model) => model.dagwright.kind === kind);
        const options = modelsOfKind.map((model) => el("option", { value: model.id }, nameOf(model)));
        return modelsOfKind.length > 0 && el("optgroup", { label }, options);
      });
      fill(select, groups);
      const savedModel = localStorage.getItem(MODEL_KEY);
      const modelId = [savedModel, PLANNER, newModels[0]?.id].find((id) => newModels.some((model) => model.id === id));
      if (modelId) select.value = modelId;
      updateForm();
    },
  };
}

/** Kind of model -> prefix of the name, because a closed drop-down list does not show the group of the selected name. */
const NAME_PREFIXES = { profile: "Planner ", agent: "Agent " };

function nameOf({ id, dagwright }) {
  const name = id.slice(id.indexOf("/") + 1);
  if (dagwright.kind === "model") return id;
  const title = dagwright.title && dagwright.title !== name ? `${name}: ${dagwright.title}` : name;
  return `${NAME_PREFIXES[dagwright.kind] ?? ""}${title}`;
}
